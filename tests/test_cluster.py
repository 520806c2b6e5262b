"""A real cluster of processes: whoever computes, dies or dawdles, a fit ends with the same bits."""

from __future__ import annotations

import gc
import json
import logging
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

import onmf
from onmf import Checkpoint, OnlineNMF
from onmf.cli import cluster as cli_cluster
from onmf.data import SourceError
from onmf.distributed import partitioned, window, worker
from tests import processes as copies
from tests.conftest import Run, require_same_learning
from tests.mortal import Deadly, Slow
from tests.test_rounds import F, K, samples, spoilt

ROWS = 900
X = samples(9000)
PHASES = ("read", "facts", "start", "state", "exchange", "learn", "merge", "finish")


FORKED = {"distributed.worker.multiprocessing-method": "forkserver"}
with dask.config.set(FORKED):  # workers are copies of a process that has imported what takes seconds to import
    get_mp_context().set_forkserver_preload(["tests.mortal"])
USUAL = {"distributed.deploy.lost-worker-timeout": "1 hour", "distributed.comm.timeouts.connect": "30s"}


@contextmanager
def cluster(workers: int, processes: bool = True) -> Iterator[Client]:
    """A cluster of this many workers of one thread, each a process or all in this one."""
    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with dask.config.set(USUAL | FORKED):
        found = LocalCluster(n_workers=workers, processes=processes, **settings)
        try:
            with Client(found) as client:
                yield client
        finally:
            cli_cluster.close(found)


@pytest.fixture(scope="module")
def processes() -> Iterator[Client]:
    """Two processes that serve all tests; those that are killed are started anew."""
    with cluster(2) as found:
        yield found
    gc.collect()  # a client that never connected restores, when it goes, what it had found: that this cluster computes
    dask.config.config.pop("scheduler", None)


@pytest.fixture
def client(processes: Client) -> Client:
    """The two workers, both alive."""
    processes.cluster.scale(2)  # type: ignore[union-attr]
    processes.wait_for_workers(2, timeout=60)
    return processes


@contextmanager
def bearing(client: Client, failures: int) -> Iterator[None]:
    """The scheduler gives a task up when more workers than these have died of it."""
    scheduler = client.cluster.scheduler  # type: ignore[union-attr]
    usual, scheduler.allowed_failures = scheduler.allowed_failures, failures
    try:
        yield
    finally:
        scheduler.allowed_failures = usual


@pytest.fixture(scope="module")
def data() -> Any:
    return da.from_array(X, chunks=(ROWS, F))


def quick(**settings: Any) -> OnlineNMF:
    return OnlineNMF(**({"n_components": K, "random_state": 0, "max_passes": 2} | settings))


@pytest.fixture(scope="module")
def expected(data: Any) -> OnlineNMF:
    """What any cluster has to end with."""
    with dask.config.set(scheduler="sync"):
        return quick().fit(data)


def quick_here(data: Any, **settings: Any) -> OnlineNMF:
    with dask.config.set(scheduler="sync"):
        return quick(**settings).fit(data)


def test_the_number_of_workers_and_slow_ones_do_not_change_a_bit(
    data: Any, expected: OnlineNMF, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_same_learning(quick().fit(data.persist()), expected)
    monkeypatch.setattr(worker, "learn", Slow("learn"))
    require_same_learning(quick().fit(data), expected)
    monkeypatch.undo()
    with cluster(3, processes=False) as here:
        require_same_learning(quick().fit(data), expected)
        assert len(here.nthreads()) == 3


@pytest.mark.parametrize(
    ("failures", "phases"),
    [(3, PHASES), (0, ("facts", "finish"))],
    ids=["in every phase", "beyond what the scheduler bears"],
)
def test_workers_that_are_killed_do_not_change_a_bit(
    failures: int,
    phases: tuple[str, ...],
    data: Any,
    expected: OnlineNMF,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in phases:
        monkeypatch.setattr(worker, name, Deadly(name, tmp_path))
    with bearing(client, failures):
        require_same_learning(quick().fit(data), expected)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}-0" for name in phases}


def test_a_task_that_kills_whoever_touches_it_ends_the_fit_with_a_sentence(
    data: Any, expected: OnlineNMF, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "ATTEMPTS", 2)
    monkeypatch.setattr(worker, "learn", Deadly("learn", tmp_path, times=100))
    keep = tmp_path / "run"
    with (
        bearing(client, 0),
        # A worker that dies in a round may have been reading a partition for the next one.
        pytest.raises(
            OSError, match=r"workers died again and again during (a round|reading partition) .*smaller partitions"
        ),
    ):
        quick().fit(data, checkpoint=keep)
    monkeypatch.undo()
    require_same_learning(quick().fit(data, checkpoint=keep, resume=True), expected)  # nothing is lost


DRIVER = """
import os, signal, sys, dask.array as da, numpy as np
from distributed import Client
from onmf import Checkpoint, OnlineNMF
data = da.from_array(np.load(sys.argv[1]), chunks=(int(sys.argv[2]), -1))
def die(progress):
    if progress.samples > 5000:
        os.kill(os.getpid(), signal.SIGKILL)
with Client(sys.argv[5]):
    model = OnlineNMF(int(sys.argv[4]), random_state=0, max_passes=2, callbacks=[die])
    model.fit(data, checkpoint=Checkpoint(sys.argv[3], every=0))
"""


def test_a_driver_that_is_killed_is_resumed_on_another_cluster_bit_for_bit(
    data: Any, expected: OnlineNMF, client: Client, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", X)
    address = client.scheduler.address  # type: ignore[union-attr]
    done = copies.run("-c", DRIVER, tmp_path / "x.npy", ROWS, tmp_path / "run", K, address)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert 3000 <= onmf.load(tmp_path / "run").n_samples_seen_ <= 5000
    with cluster(1, processes=False):
        resumed = quick().fit(data, checkpoint=Checkpoint(tmp_path / "run"), resume=True)
    require_same_learning(resumed, expected)


def test_files_are_read_by_the_workers_and_one_that_vanishes_is_named_or_skipped(
    client: Client, tmp_path: Path
) -> None:
    for number in range(10):
        np.save(tmp_path / f"{number}.npy", X[number * ROWS : (number + 1) * ROWS])
    data = partitioned(f"npy:{tmp_path}")
    whole = quick().fit(data)
    require_same_learning(whole, quick_here(data))
    (tmp_path / "6.npy").unlink()
    with pytest.raises(SourceError, match=r"^Partition 6 \(6\.npy\): no such file or folder: .*6\.npy"):
        quick().fit(data)
    model = quick(on_error="skip", max_passes=1).fit(data)
    assert (model.n_skipped_, model.n_samples_seen_) == (1, len(X) - ROWS)


def test_bad_rows_are_skipped_counted_and_named_by_workers(client: Client) -> None:
    model = quick(on_error="skip", max_passes=1).fit(da.from_array(spoilt(), chunks=(900, F)))
    assert (model.n_skipped_, model.n_samples_seen_) == (3, 8997)
    with pytest.raises(onmf.DataError, match=r"^Partition [27]: .* at row \d+, column \d"):
        quick().fit(da.from_array(spoilt(), chunks=(900, F)))


def test_tasks_have_names_partitions_are_read_meanwhile_and_nothing_is_left_behind(
    data: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def there(dask_scheduler: Any) -> list[str]:
        return [key for key in dask_scheduler.tasks if str(key).startswith("onmf-")]

    def known(dask_scheduler: Any) -> list[str]:
        return list(dask_scheduler.task_prefixes)

    def nothing_is_left() -> bool:
        for _ in range(200):
            if not client.run_on_scheduler(there):
                return True
            time.sleep(0.05)
        return False

    gc.collect()
    assert nothing_is_left()  # of earlier tests, whatever they did to workers and drivers
    read: list[int] = []

    def look(progress: onmf.Progress) -> None:
        read.append(sum(key.startswith("onmf-read") for key in client.run_on_scheduler(there)))

    quick(shards=2, shuffle=False, callbacks=[look]).fit(data)
    assert 2 < max(read) <= 6  # more than are learnt from, but not all
    names = {f"onmf-{what}" for what in ("read", "facts", "start", "state", "learn", "merge", "finish")}
    assert names <= set(client.run_on_scheduler(known))
    assert nothing_is_left()


def test_coefficients_are_computed_by_workers(data: Any, client: Client, expected: OnlineNMF) -> None:
    H = expected.transform(data)
    np.testing.assert_array_equal(H.compute(), expected.transform(X))
    assert expected.loss(data) == pytest.approx(expected.loss(X), rel=1e-12)


MEMORY = """
import re, sys, dask.array as da, numpy as np
from pathlib import Path
from dataclasses import dataclass
from distributed import Client, LocalCluster
from onmf import OnlineNMF
from onmf.divergences import SquaredL2
from onmf.methods import Surrogate

def peak():
    return int(re.findall(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[0])

def block(block_id=None):
    return np.random.default_rng(block_id[0]).random((500, 300))

@dataclass(frozen=True)
class Mine(SquaredL2):
    width: float = 1.0

@dataclass(frozen=True, repr=False)
class Own(Surrogate, name="own"):
    "One that no worker can import."

if __name__ == "__main__":
    found = []
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        for partitions in (12, 120):
            data = da.map_blocks(block, chunks=((500,) * partitions, (300,)), dtype=float, meta=np.empty((0, 0)))
            model = OnlineNMF(2, divergence=Mine(), method=Own(tau=40), random_state=0, shards=8).fit(data)
            assert type(model.divergence_) is Mine
            assert type(model.method_) is Own
            found.append((peak(), *client.run(peak).values()))
    print(found)
"""


def test_ten_times_more_partitions_take_no_more_memory_and_classes_of_a_script_are_sent_along() -> None:
    done = copies.run("-c", MEMORY, text=True)
    assert done.returncode == 0, done.stderr
    (driver, worker), (later_driver, later_worker) = json.loads(done.stdout.replace("(", "[").replace(")", "]"))
    all_of_it = 108 * 500 * 300 * 8 / 1024  # kilobytes of the partitions that were more
    assert later_driver - driver < 0.1 * all_of_it
    assert later_worker - worker < 0.2 * all_of_it


# The command line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", X)
    return tmp_path


def test_onmf_fit_and_transform_run_on_the_cluster_that_is_named(
    folder: Path, client: Client, run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    address = client.scheduler.address  # type: ignore[union-attr]
    common = ["fit", "x.npy", "-k", K, "--seed", 0, "--out", "m"]
    status, out, err = run_main(*common, "--dask", address, "--shards", 4, "--checkpoint", "run", "--log-json", "log")
    assert (status, out[:22]) == (0, "m: 3 components of 12 "), err
    assert f"Dask: 2 workers at {address}" in err
    phases = json.loads(Path("log").read_text().splitlines()[-1])["phases"]
    assert list(phases) == ["read", "learn", "merge"]
    assert min(phases.values()) > 0
    status, _, err = run_main(*common, "--dask", address, "--shards", 4, "--checkpoint", "run", "--resume")
    assert (status, "Resuming from run." in err) == (0, True)
    model = onmf.load("m")
    data = partitioned("x.npy")
    require_same_learning(model, quick_here(data, shards=4, max_passes=1))
    for out_name in ("h.parquet", "h.zarr"):
        status, out, err = run_main("transform", "m", "x.npy", "--dask", address, "--out", out_name)
        assert (status, out) == (0, f"{out_name}: coefficients of 9000 samples, 3 each.\n"), err
    import pandas as pd
    import zarr

    H = model.transform(X)
    np.testing.assert_array_equal(pd.read_parquet("h.parquet").to_numpy(), H)
    np.testing.assert_array_equal(zarr.open("h.zarr")[:], H)
    assert list(pd.read_parquet("h.parquet").columns) == ["component_0", "component_1", "component_2"]
    status, out, _ = run_main(
        *("transform", "m", "x.npy", "--dask", address, "--proportions", "--out", "p.parquet", "--json")
    )
    assert json.loads(out)["samples"] == 9000
    np.testing.assert_array_equal(pd.read_parquet("p.parquet").to_numpy(), model.proportions(X))
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_bad_rows_are_nan_in_what_workers_write(
    folder: Path, client: Client, run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    address = client.scheduler.address  # type: ignore[union-attr]
    np.save("bad.npy", spoilt())
    onmf.save(quick(max_passes=1).fit(X), "m")
    status, _, err = run_main("transform", "m", "bad.npy", "--dask", address, "--out", "h.zarr")
    assert status == 2
    assert "onmf: Partition " in err
    assert not Path("h.zarr").exists()
    given = ("transform", "m", "bad.npy", "--dask", address, "--on-error", "skip", "--out", "h.zarr")
    status, _, err = run_main(*given)
    assert (status, "3 of the 9000 rows are NaN" in err) == (0, True)
    import zarr

    assert np.flatnonzero(np.isnan(zarr.open("h.zarr")[:, 0])).tolist() == [1801, 1900, 7000]


def test_a_loss_of_your_own_is_sent_to_the_workers(
    folder: Path, client: Client, run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("my_losses.py").write_text(
        "from dataclasses import dataclass\n"
        "from onmf.divergences import Separable\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Separable, name='mine_on_dask'):\n"
        "    convex = True\n"
        "    def d(self, xp, x, y): return (x - y) ** 2\n"
        "    def dy(self, xp, x, y): return 2 * (y - x)\n"
        "    def curvature(self, xp, x, y): return 2 + 0 * y\n"
    )
    address = client.scheduler.address  # type: ignore[union-attr]
    options = ["--module", "my_losses.py", "-d", "mine_on_dask", "--dask", address]
    status, out, err = run_main("fit", "x.npy", "-k", K, "--out", "m", *options)
    assert (status, out[:2]) == (0, "m:"), err


MORTAL = """
import sys
from distributed import LocalCluster
settings = {"protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": ":0", "silence_logs": 50}
print(LocalCluster(n_workers=1, processes=False, threads_per_worker=1, **settings).scheduler_address, flush=True)
sys.stdin.read()
"""


def test_an_address_that_is_silent_is_one_sentence(
    folder: Path, run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_cluster, "PATIENCE", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        status, _, err = run_main("fit", folder / "x.npy", "--dask", address, "--out", folder / "m")
    assert status == 2
    assert err.splitlines()[-1] == (
        f"onmf: --dask {address}: no scheduler answers there (it was silent for 1 seconds); give its address, or local."
    )


def test_a_scheduler_that_dies_is_one_sentence(folder: Path) -> None:
    fit = ["fit", folder / "x.npy", "-k", K, "--passes", 10**6, "--log-every", "0.1s", "--out", folder / "m"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with copies.start("-c", MORTAL, **pipes) as scheduler:
        address = scheduler.stdout.readline().strip()
        with copies.start("-m", "onmf", *fit, "--dask", address, stderr=subprocess.PIPE, text=True) as run:
            while "/s" not in run.stderr.readline():
                assert run.poll() is None
            scheduler.kill()
            lines = run.stderr.read().splitlines()
    assert run.returncode == 2
    assert lines[-1].startswith("onmf: the connection to Dask's scheduler was lost")
    told = [line for line in lines[:-1] if not line.startswith("Learning K = 3")]
    assert all("Z " in line for line in told)  # figures of the run, and neither a log of Dask's nor a traceback


def test_a_cluster_of_this_machine_is_started_for_the_command(
    folder: Path, run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with dask.config.set({"distributed.worker.daemon": True} | FORKED):
        status, out, err = run_main("fit", "x.npy", "-k", K, "--seed", 0, "--dask", "local", "--out", "m")
    assert (status, out[:2]) == (0, "m:"), err
    assert "Dask: " in err
    require_same_learning(onmf.load("m"), quick_here(partitioned("x.npy"), max_passes=1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "x.npy", "--out", "m", "--dask", "tcp://127.0.0.1:9"], "no scheduler answers there"),
        (["fit", "x.npy", "--out", "m", "--dask", "nonsense://"], "no scheduler answers there"),
        (["fit", "x.npy", "--out", "m", "--shards", "2"], "--shards says how data are learnt from on many machines"),
        (["fit", "x.npy", "--out", "m", "--dask", "local", "--shuffle-buffer", "9"], "--shuffle-buffer is for data"),
        (["fit", "x.csv", "--out", "m", "--dask", "local"], "can be read only from front to back"),
        (
            ["transform", "m0", "x.npy", "--out", "h.csv", "--dask", "local"],
            "to a folder that ends in .parquet or .zarr",
        ),
        (["transform", "m0", "x.npy", "--out", "x.npy.zarr", "--dask", "local"], "exists already"),
        (["transform", "m0", "x.npy", "--out", "no/h.zarr", "--dask", "local"], "there is no folder no"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_status_2(
    arguments: list[str], words: str, folder: Path, run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("onmf.cli.cluster.PATIENCE", 1)
    Path("x.csv").write_text("1,2\n3,4\n")
    Path("x.npy.zarr").mkdir()
    onmf.save(quick(max_passes=1).fit(X[:300]), "m0")
    status, out, err = run_main(*arguments)
    assert (status, out) == (2, "")
    said = [line for line in err.splitlines() if not line.startswith("Learning K = ")]
    assert len(said) == 1
    assert said[0].startswith("onmf: ")
    assert words in said[0]


def test_options_that_do_not_go_with_dask_raise_an_error(folder: Path, run_main: Run) -> None:
    assert run_main("fit", folder / "x.npy", "-k", K, "--out", folder / "m")[0] == 0
    common = ["transform", folder / "m", folder / "x.npy", "--dask"]
    for more, sentence in [
        (["local", "--batch-size", 5, "--out", folder / "h.parquet"], "--batch-size has no effect with --dask"),
        (["", "--out", folder / "h.parquet"], "--dask needs the address of a scheduler"),
    ]:
        status, _, err = run_main(*common, *more)
        assert (status, sentence in err) == (2, True), err


# On a single worker: these tests come last, as the other one has to be started anew after them


@pytest.fixture
def client_of_one(processes: Client) -> Client:
    processes.cluster.scale(1)  # type: ignore[union-attr]
    processes.wait_for_workers(1, timeout=60)
    while len(processes.nthreads()) > 1:
        time.sleep(0.05)
    return processes


def test_the_only_worker_may_be_killed(
    data: Any, expected: OnlineNMF, client_of_one: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "learn", Deadly("learn", tmp_path))
    require_same_learning(quick().fit(data), expected)
    assert {path.name for path in tmp_path.iterdir()} == {"learn-0"}


def test_a_partition_that_has_changed_when_it_must_be_read_again_ends_the_fit(
    client_of_one: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        np.save(tmp_path / f"{number}.npy", X[number * ROWS : (number + 1) * ROWS])
    (tmp_path / "deaths").mkdir()
    monkeypatch.setattr(worker, "learn", Deadly("learn", tmp_path / "deaths"))
    data, rounds = partitioned(f"npy:{tmp_path}"), 0

    def tamper(_: onmf.Progress) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:  # all partitions are held by the one worker, which is about to die
            for number in range(10):
                np.save(tmp_path / f"{number}.npy", X[:ROWS] + number)

    with pytest.raises(
        SourceError, match=r"Partition \d had to be read again, since a worker was lost, and has changed"
    ):
        quick(callbacks=[tamper]).fit(data)


def test_a_cluster_whose_record_of_workers_fails_at_the_end_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = LocalCluster(n_workers=1, processes=False, dashboard_address=":0", silence_logs=logging.CRITICAL)
    real = type(found).close

    def fails(self: LocalCluster, *given: Any) -> None:
        real(self, *given)
        raise KeyError("tcp://127.0.0.1:1")  # as distributed does for a worker that died twice

    monkeypatch.setattr(type(found), "close", fails)
    cli_cluster.close(found)
    assert found.status.name == "closed"
