"""Threads change nothing but the time: not a bit of a result, not BLAS's setting, and no fork or other thread."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from onmf import BatchNMF, OnlineNMF
from onmf._support import threads
from onmf.coefficients import Ratios
from onmf.coefficients.problem import Problem
from onmf.divergences import ItakuraSaito
from tests import processes

pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threads._controller().info() if pool["user_api"] == "blas"}


# BLAS's setting


def in_another_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def here(function: Callable[[], Any]) -> Any:
    return function()


anywhere = pytest.mark.parametrize("run", [here, in_another_thread])


@anywhere
@pytest.mark.parametrize("allowed", [1, 2, 3])
def test_blas_gets_one_thread_we_get_its_threads_and_the_setting_comes_back(
    run: Callable[..., Any], allowed: int
) -> None:
    def inside() -> tuple[set[int], int]:
        with threads.own_threads():
            return blas_threads(), threads._allowed

    with threadpool_limits(allowed, user_api="blas"):
        assert run(inside) == ({1}, allowed)
        assert blas_threads() == {allowed}
    assert threads._allowed == 1


def test_a_block_within_a_block_leaves_the_setting_as_it_was() -> None:
    with threadpool_limits(3, user_api="blas"):
        with threads.own_threads():
            with threads.own_threads():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
            assert threads._allowed == 3
        assert blas_threads() == {3}


@pytest.mark.parametrize("enter_first", [here, in_another_thread])
@pytest.mark.parametrize("leave_last", [here, in_another_thread])
def test_blocks_that_overlap_leave_the_setting_as_it_was(
    enter_first: Callable[..., Any], leave_last: Callable[..., Any]
) -> None:
    before = blas_threads()
    with threadpool_limits(2, user_api="blas"):
        first, second = threads.own_threads(), threads.own_threads()
        enter_first(first.__enter__)
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        assert threads._allowed == 2
        leave_last(lambda: second.__exit__(None, None, None))
        assert blas_threads() == {2}
    assert blas_threads() == before  # ours did not take away the user's power to set it


def test_an_error_gives_the_setting_back() -> None:
    before = blas_threads()
    with pytest.raises(KeyboardInterrupt), threads.own_threads():
        raise KeyboardInterrupt
    assert blas_threads() == before
    assert threads._users == 0


def test_learning_and_reading_leave_the_setting_as_it_was(rng: np.random.Generator) -> None:
    with threadpool_limits(2, user_api="blas"):
        model = OnlineNMF(3, random_state=0).fit(rng.random((40, 10)) + 0.1)
        model.transform(rng.random((5, 10)))
        with pytest.raises(ValueError, match="Negative"):
            model.partial_fit(-np.ones((5, 10)))
        assert blas_threads() == {2}


# each and blocks


@pytest.fixture(params=[1, 2, 5])
def some_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As if BLAS were allowed so many, whatever the machine has."""
    monkeypatch.setattr(threads, "_allowed", request.param)
    monkeypatch.setattr(threads, "_pool", ThreadPoolExecutor(4))
    monkeypatch.setattr(threads, "_size", 4)
    return request.param


@pytest.mark.usefixtures("some_threads")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_each_gives_the_results_in_order(count: int) -> None:
    def slower_at_first(part: int) -> int:
        time.sleep(0.002 / (part + 1))
        return part * part

    assert threads.each(slower_at_first, range(count)) == [part * part for part in range(count)]


def test_each_uses_the_threads_it_is_allowed_and_no_more(some_threads: int) -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    all_there = threading.Barrier(some_threads)

    def meet(part: int) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        if part < some_threads:
            all_there.wait(timeout=30)  # breaks unless that many threads work at once
        with lock:
            at_once -= 1
        return threading.get_ident()

    workers = threads.each(meet, range(20))
    assert most == some_threads
    assert threading.get_ident() in workers


@pytest.mark.usefixtures("some_threads")
@pytest.mark.parametrize("bad", [0, 7, 19])
def test_each_passes_an_error_on_and_nothing_works_on_behind_it(bad: int) -> None:
    running, lock = 0, threading.Lock()

    def fail_at_one(part: int) -> None:
        nonlocal running
        with lock:
            running += 1
        time.sleep(0.001)
        with lock:
            running -= 1
        if part == bad:
            raise ZeroDivisionError(str(part))

    with pytest.raises(ZeroDivisionError, match=f"^{bad}$"):
        threads.each(fail_at_one, range(20))
    assert running == 0
    assert threads.each(str, range(20)) == [str(part) for part in range(20)]


@pytest.mark.usefixtures("some_threads")
def test_blocks_within_blocks_do_not_wait_for_each_other() -> None:
    def outer(part: int) -> list[int]:
        return threads.each(lambda inner: 10 * part + inner, range(6))

    assert threads.each(outer, range(12)) == [[10 * a + b for b in range(6)] for a in range(12)]


def test_nothing_waits_in_the_queue_and_nothing_is_kept_alive(
    some_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A helper that was cancelled before it began stayed in the queue, with the arrays of its work."""
    pool, waiting = threads._pool, []
    assert pool is not None
    submit = pool.submit

    def counted(function: Callable[[], Any]) -> Any:
        future = submit(function)
        waiting.append(pool._work_queue.qsize())
        return future

    monkeypatch.setattr(pool, "submit", counted)

    class Large:
        """Like an array, but one that can be watched."""

    kept: list[weakref.ref[Large]] = []

    def outer(part: int) -> int:
        large = Large()
        kept.append(weakref.ref(large))

        def inner(number: int) -> int:
            time.sleep(0.0005)
            return number if large else 0

        return sum(threads.each(inner, range(5)))

    assert threads.each(outer, range(200)) == [10] * 200
    assert len(waiting) > 0 or some_threads == 1
    assert max(waiting, default=0) <= 4  # for the moment in which a thread that has finished takes up its next work
    assert pool._work_queue.qsize() == 0
    time.sleep(0.05)
    gc.collect()
    assert not [each for each in kept if each() is not None]
    assert threads._busy == 0


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 1000, 12_345])
@pytest.mark.parametrize("size", [1, 7, 64, 2048])
def test_blocks_cover_all_once_in_order_and_are_nearly_equal(n: int, size: int) -> None:
    blocks = threads.blocks(n, size)
    assert (blocks[0].start, blocks[-1].stop) == (0, n)
    assert all(one.stop == next_one.start for one, next_one in pairwise(blocks))
    lengths = [block.stop - block.start for block in blocks]
    assert max(lengths) <= size
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("n", [0, 1, 5, 100, 12_345])
@pytest.mark.parametrize("work", [0.0, 1.0, 1e3, 1e9])
def test_blocks_by_work_cover_all_and_are_few_and_worth_a_thread(n: int, work: float) -> None:
    blocks = threads.by_work(n, work, 1e5)
    assert sum(block.stop - block.start for block in blocks) == n
    assert len(blocks) <= 16
    if len(blocks) > 1 and n * work > 2e5:
        assert min(block.stop - block.start for block in blocks) * work >= 0.5e5


# The same bits


def dense_data(F: int = 1200, n: int = 200) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.gamma(2.0, 1.0, (n, 8)) @ rng.gamma(1.0, 1.0, (8, F)) * rng.gamma(20, 0.05, (n, F)) + 0.01


def sparse_data() -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(300, 5000, density=0.02, format="csr", random_state=rng)
    X.data = np.ceil(5 * X.data)
    return X


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "kl": (dense_data, {"divergence": "kl"}),
    "is": (dense_data, {"divergence": "is"}),
    "huber": (dense_data, {"divergence": "huber"}),
    "l1": (lambda: dense_data(n=60), {"divergence": "l1"}),
    "squared_l2": (dense_data, {"divergence": "squared_l2"}),
    "paper": (lambda: dense_data(5000, 100), {"method": "paper:step=canonical,a=2,b=200", "divergence": "squared_l2"}),
    "em": (lambda: dense_data(5000, 100), {"method": "em", "divergence": "hellinger"}),
    "nndsvda": (dense_data, {"init": "nndsvda"}),
    "single": (lambda: dense_data().astype(np.float32), {}),
    "reservoir": (dense_data, {"reservoir": 50}),
    "diagonal": (dense_data, {"method": "surrogate:max_memory=0"}),
    "sparse kl": (sparse_data, {"divergence": "kl"}),
    "sparse squared_l2": (sparse_data, {"divergence": "squared_l2"}),
}


def learnt(case: str) -> list[np.ndarray]:
    data, settings = CASES[case]
    X = data()
    model = OnlineNMF(8, random_state=0, batch_size=100, transform_max_iter=100, **settings).fit(X)
    return [model.components_, model.transform(X), np.array(model.loss(X)), model.history_["loss"]]


def parts_of(case: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """The largest number of blocks that were ready for threads at a time."""
    most, honest = 0, threads.each

    def each(function: Any, parts: Any) -> Any:
        nonlocal most
        most = max(most, len(parts))
        return honest(function, parts)

    with monkeypatch.context() as context:
        context.setattr(threads, "each", each)
        learnt(case)
    return most


@pytest.mark.parametrize("case", CASES)
def test_any_number_of_threads_gives_the_same_bits(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with threadpool_limits(1, user_api="blas"):
        expected = learnt(case)
    monkeypatch.setattr(threads, "_pool", ThreadPoolExecutor(2))  # even where the machine has one core
    monkeypatch.setattr(threads, "_size", 2)
    for count in (2, 3):
        with threadpool_limits(count, user_api="blas"):
            for one, other in zip(learnt(case), expected, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CASES)
def test_there_is_work_for_several_threads(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts_of(case, monkeypatch) > 1


def test_blocks_of_a_dense_chunk_bring_their_fits_and_losses_along_with_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    problem = Problem(ItakuraSaito(), rng.gamma(2.0, 1.0, (400, 12)) + 0.01, rng.random((40, 12)) + 0.01)
    assert len(problem.blocks()) > 1
    monkeypatch.setattr(threads, "_pool", ThreadPoolExecutor(2))
    monkeypatch.setattr(threads, "_size", 2)
    found = []
    for count in (1, 2):
        with threadpool_limits(count, user_api="blas"), threads.own_threads():
            found.append(Ratios().solve(problem))
    for name in ("H", "Y", "loss"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))
    np.testing.assert_allclose(found[0].Y, found[0].H @ problem.W)
    np.testing.assert_allclose(found[0].loss, problem.loss(found[0].H, problem.fit(found[0].H)))


# Other threads, other processes


def test_models_that_learn_at_once_do_not_disturb_each_other() -> None:
    cases = ["kl", "sparse kl", "squared_l2", "huber"]
    expected = [learnt(case) for case in cases]
    with threadpool_limits(2, user_api="blas"):
        with ThreadPoolExecutor(len(cases)) as pool:
            found = list(pool.map(learnt, cases))
        assert blas_threads() == {2}
    for case, one, other in zip(cases, found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=case)


def send_learnt(pipe: Any) -> None:
    with threadpool_limits(2, user_api="blas"):
        pipe.send(learnt("kl"))
    pipe.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_learns_although_its_parents_threads_are_gone() -> None:
    with threadpool_limits(2, user_api="blas"):
        expected = learnt("kl")  # the parent has threads now
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=send_learnt, args=(theirs,))
    child.start()
    theirs.close()
    try:
        assert ours.poll(60), "the child hangs"
        found = ours.recv()
    finally:
        child.kill()
        child.join()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


class SlowSamples:
    """Samples whose sums are ready when they are asked for them, or never."""

    def __init__(self, ready: threading.Event) -> None:
        self.shape, self.sparse, self.asked, self.ready = (1, 1), False, threading.Event(), ready

    def sum(self, axis: int) -> int:
        self.asked.set()
        self.ready.wait()
        return axis


def problem_of(X: SlowSamples) -> Problem:
    problem = object.__new__(Problem)
    problem.X = X  # type: ignore[assignment]
    return problem


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_while_a_thread_computes_a_fact_computes_it_too() -> None:
    """``functools.cached_property`` of Python 3.11 has a lock for all objects, which the child inherits as held."""
    ready, at_once = threading.Event(), threading.Event()
    at_once.set()
    slow = SlowSamples(ready)
    thread = threading.Thread(target=lambda: problem_of(slow).totals)
    thread.start()
    slow.asked.wait()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)  # ends a child that hangs
        os._exit(int(problem_of(SlowSamples(at_once)).totals != 1))  # type: ignore[comparison-overlap]
    ready.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


# One model, several threads


class Halted:
    """A callback that waits in the first batch it hears of until it is told to continue."""

    def __init__(self) -> None:
        self.there, self.told = threading.Event(), threading.Event()

    def __call__(self, progress: Any) -> None:
        if not self.there.is_set():
            self.there.set()
            self.told.wait(timeout=10)

    def __reduce__(self) -> tuple[Any, ...]:
        return Halted, ()


@pytest.fixture
def halted(rng: np.random.Generator) -> Iterator[OnlineNMF]:
    """A model that another thread is teaching."""
    model, callback = OnlineNMF(2, random_state=0).partial_fit(rng.random((20, 6)) + 0.1), Halted()
    model.callbacks = [callback]
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(model.partial_fit, rng.random((10, 6)))
        callback.there.wait()
        yield model
        callback.told.set()
        learning.result()
        model.partial_fit(rng.random((10, 6)))  # the next is welcome
    assert model.n_samples_seen_ == 40


def test_a_second_thread_that_learns_with_one_model_gets_an_error_and_what_to_do(
    halted: OnlineNMF, rng: np.random.Generator
) -> None:
    """Four threads at once once counted 2,350 of 8,200 samples, without a word."""
    X = rng.random((10, 6))
    for learn in (halted.partial_fit, halted.fit, halted.fit_transform):
        with pytest.raises(RuntimeError, match=r"one thread at a time: hold a lock .* or give every thread a model"):
            learn(X)
    assert halted.transform(X).shape == (10, 2)
    assert halted.loss(X) > 0


def test_a_second_thread_that_fits_a_batch_model_gets_an_error_too(rng: np.random.Generator) -> None:
    X, callback = rng.random((20, 6)) + 0.1, Halted()
    model = BatchNMF(2, callbacks=[callback], max_iter=10, tol=0, random_state=0)
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(model.fit, X)
        callback.there.wait()
        with pytest.raises(RuntimeError, match="one thread at a time"):
            model.fit(X)
        callback.told.set()
        assert learning.result().fit(X).n_iter_ == 10


def test_copies_of_a_model_that_learns_elsewhere_can_learn(halted: OnlineNMF, rng: np.random.Generator) -> None:
    for copied in (copy.copy(halted), pickle.loads(pickle.dumps(halted)), clone(halted)):  # noqa: S301
        copied.set_params(callbacks=None).partial_fit(rng.random((10, 6)) + 0.1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_model_forked_while_a_thread_learns_can_learn_in_the_child(halted: OnlineNMF) -> None:
    child = os.fork()
    if child == 0:
        try:
            halted.set_params(callbacks=None).partial_fit(np.ones((10, 6)))
        finally:
            os._exit(halted.n_samples_seen_ != 40)  # zero is a success
    assert os.waitpid(child, 0)[1] == 0


def test_an_error_or_an_interrupt_leaves_a_model_that_learns_again(rng: np.random.Generator) -> None:
    def interrupt(progress: Any) -> None:
        raise KeyboardInterrupt

    model, X = OnlineNMF(2, random_state=0), rng.random((20, 6)) + 0.1
    with pytest.raises(ValueError, match="Negative"):
        model.partial_fit(-X)
    with pytest.raises(KeyboardInterrupt):
        model.set_params(callbacks=[interrupt]).partial_fit(X)
    threads.learning_alone(model).__enter__()  # an interrupt before the block
    model.set_params(callbacks=None).partial_fit(X)
    assert not threads._learning


# The whole library, watched

WATCHED = """
import re, threading, time, warnings
from pathlib import Path
import numpy as np
from onmf import BatchNMF, OnlineNMF
from onmf._support import threads

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.gamma(0.5, 1.0, (400, 8)) @ rng.gamma(0.3, 1.0, (8, 1025)) * rng.exponential(1.0, (400, 1025))
X[rng.random(X.shape) < 0.045] *= 1e-10  # next to silence
queue, memory, done = 0, 0, False


def resident():
    return int(re.findall(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[0]) / 1024


def watch():
    global queue, memory
    while not done:
        queue = max(queue, threads._pool._work_queue.qsize() if threads._pool else 0)
        memory = max(memory, resident())
        time.sleep(0.002)


def use(n):
    model = OnlineNMF(8, divergence="is", transform_max_iter=30, random_state=0).fit(X[:n])
    model.transform(X[:n])
    model.loss(X[:n])
    BatchNMF(8, divergence="is", max_iter=4, random_state=0).fit(X[:n]).transform(X[: n // 4])


use(100)  # compiled, and its arrays once in memory
before = resident()
threading.Thread(target=watch, daemon=True).start()
use(400)
done = True
print(queue, threads._size, memory - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_nothing_is_queued_and_memory_stays_while_sound_is_learnt_and_transformed() -> None:
    """Cancelled helpers of nested blocks once filled the queue, and their arrays half a gigabyte per second."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = processes.run("-c", WATCHED, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    queue, size, grown = map(float, done.stdout.split())
    assert queue <= size
    assert grown < 150, f"{grown:.0f} MiB"
