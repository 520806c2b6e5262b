"""Ten times more samples take no more memory: in a process of its own, from iterators and from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import processes

TIMES = 10
SMALL = {"parquet": 8000}  # samples, where its own readers need some to reach their size; else 2000
SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np, scipy.sparse
from onmf import Checkpoint, OnlineNMF
from onmf.data import open_source, prefetch

def peak():
    return int(re.findall(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[0])

kind, folder, small, times, leaks = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:])
kept = []
def batches(number):
    rng = np.random.default_rng(0)
    for _ in range(number // 200):
        X = (rng.random((200, 1000)) < 0.2).astype(float)
        yield scipy.sparse.csr_matrix(X) if kind == "sparse" else X
def data(number):
    if kind in ("dense", "sparse"):
        return batches(number)
    return prefetch(open_source(folder / f"{number}.{kind}"))
def keep(progress):
    kept.append(np.ones((200, 200)))
divergence = "kl" if kind == "sparse" else "squared_l2"  # quicker
model = OnlineNMF(2, divergence=divergence, random_state=0, batch_size=200)
model.fit(data(small), checkpoint=Checkpoint(folder / "first", every=0.2))
first = peak()
model.fit(data(times * small), checkpoint=Checkpoint(folder / "second", every=0.2))
print(first, peak(), len(model.history_["loss"]))
if leaks:
    model.set_params(callbacks=[keep]).fit(data(times * small))
    print(peak())
"""


def write(kind: str, folder: Path) -> None:
    """Two files, here and not in the process whose memory counts."""
    rng = np.random.default_rng(0)
    small = SMALL.get(kind, 2000)
    for number in (small, TIMES * small):
        if kind == "npy":
            np.save(folder / f"{number}.npy", (rng.random((number, 500)) < 0.2).astype(np.float64))
        elif kind == "csv":
            line = ",".join("3" * 300)
            (folder / f"{number}.csv").write_text(f"{line}\n" * number)
        elif kind == "txt":
            words = [" ".join(f"word{word}" for word in rng.integers(0, 9999, 100)) for _ in range(50)]
            (folder / f"{number}.txt").write_text("\n".join(words * (number // 50)))
        elif kind == "parquet":
            pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            table = pa.table({f"c{k}": rng.random(number) for k in range(60)})
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=4000)


def peaks(kind: str, folder: Path, leaks: int = 0) -> Any:
    write(kind, folder)
    done = processes.run("-c", SCRIPT, kind, folder, SMALL.get(kind, 2000), TIMES, leaks, text=True)
    assert done.returncode == 0, done.stderr
    return map(int, done.stdout.split())


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not tell a process its peak"
)


@needs_proc
@pytest.mark.parametrize("kind", ["sparse", "npy", "csv", "txt", "parquet"])
def test_peak_memory_does_not_grow_with_the_stream(kind: str, tmp_path: Path) -> None:
    first, last, entries = peaks(kind, tmp_path)
    assert last < 1.05 * first
    assert entries == TIMES * SMALL.get(kind, 2000) // 200


@needs_proc
def test_that_of_dense_batches_does_not_either_and_a_leak_of_a_fifth_of_the_samples_would_be_seen(
    tmp_path: Path,
) -> None:
    first, last, entries, with_a_leak = peaks("dense", tmp_path, leaks=1)
    assert last < 1.05 * first
    assert entries == TIMES * 2000 // 200
    assert with_a_leak > 1.05 * last
