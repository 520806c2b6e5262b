"""Ten times more samples take no more memory: measured in a process of its own, dense and sparse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import re, sys
from pathlib import Path
import numpy as np, scipy.sparse
from onmf import OnlineNMF

def peak():
    return int(re.findall(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[0])

kind, n = sys.argv[1], 4000
rng = np.random.default_rng(0)
def batches(number):
    for _ in range(number // 200):
        X = rng.poisson(0.1, (200, 300)).astype(float)
        X[:, 0] += 1
        yield X if kind == "dense" else scipy.sparse.csr_matrix(X)
model = OnlineNMF(10, random_state=0, batch_size=200)
model.fit(batches(n))
first = peak()
model.fit(batches(10 * n))
print(first, peak(), len(model.history_["loss"]), model.method_)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell a process its peak")
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_peak_memory_does_not_grow_with_the_stream(kind: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, kind], capture_output=True, text=True, check=True)
    first, last, entries, _ = done.stdout.split()
    assert int(last) < 1.05 * int(first)
    assert int(entries) == 200
