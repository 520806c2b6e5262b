"""The contest of experiments and benchmarks: what the clock counts, where marks are set, and when a run ends."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse

from onmf.data import Rows, Source
from reproduction.contest import OL, Batch, Contestant, Lefevre, Online, Recorder, Task, timed_run, warm_up


class Pacer(Contestant):
    """Learns nothing, in known time."""

    pauses: tuple[float, ...] = ()  # of successive runs, per batch
    runs = 0

    def run(self, passes: int, recorder: Recorder) -> None:
        pause = self.pauses[self.runs] if self.pauses else 0.0
        self.runs += 1
        for seen, _ in recorder.batches(self.task):
            time.sleep(pause)
            recorder(seen, np.full((1, 2), float(seen)))


class Slow(Source):
    n_samples, n_features = 40, 2

    def batches(self, size, rng=None):
        for first in range(0, 40, size):
            time.sleep(0.02)
            yield np.arange(first, first + size), np.ones((size, 2))


def task(n: int = 40, batch_size: int = 10, **more) -> Task:
    return Task(Rows(np.arange(2.0 * n).reshape(n, 2)), "kl", 1, None, 0, batch_size, **more)


def test_the_clock_stands_while_samples_are_drawn_and_looked_at(tmp_path):
    marks = timed_run(Pacer(Task(Slow(), "kl", 1, None, 0, 10)), tmp_path, look=lambda *_: time.sleep(0.02))
    assert marks[-1].wall < 0.02
    pacer = Pacer(task())
    pacer.pauses = (0.02,)
    assert timed_run(pacer, tmp_path)[-1].wall >= 0.08


def test_one_thread_is_timed_by_the_processor(tmp_path):
    for threads, sleeps in ((1, False), (2, True), (None, True)):
        pacer = Pacer(task(threads=threads))
        pacer.pauses = (0.02,)
        (*_, last) = timed_run(pacer, tmp_path)
        assert last.wall >= 0.08
        assert (last.seconds >= 0.08) == sleeps


def test_marks_are_set_a_few_times_per_doubling_and_at_the_ends(tmp_path):
    marks = timed_run(Pacer(task(n=200)), tmp_path, 2, marks_per_doubling=1, ends={190: 1, 400: 2})
    assert [mark.samples for mark in marks] == [10, 20, 40, 80, 160, 190, 320, 400]
    assert [mark.passes for mark in marks] == [*[None] * 5, 1, None, 2]
    assert [mark.W[0, 0] for mark in marks] == [mark.samples for mark in marks]
    only_ends = timed_run(Pacer(task(n=200)), tmp_path, marks_per_doubling=0)
    assert [(mark.samples, mark.passes) for mark in only_ends] == [(200, 1)]


def test_a_run_ends_at_the_first_stop_beyond_its_limit(tmp_path):
    pacer = Pacer(task())
    pacer.pauses = (0.2,)
    marks = timed_run(pacer, tmp_path, limit=0.3)
    assert [mark.samples for mark in marks] == [10, 20]


def test_short_runs_are_repeated_and_the_quickest_counts(tmp_path):
    pacer = Pacer(task())
    pacer.pauses = (0.01, 0.0, 0.01)
    marks = timed_run(pacer, tmp_path, repeats=3, enough=1.0)
    assert pacer.runs == 3
    assert marks[-1].seconds < 0.04
    long = Pacer(task())
    long.pauses = (0.02, 0.0)
    timed_run(long, tmp_path, repeats=3, enough=0.05)
    assert long.runs == 1


@pytest.mark.parametrize("contestant", [Online, Batch])
def test_warming_up_takes_a_few_samples_and_two_steps(contestant, tmp_path, monkeypatch):
    stops = []
    monkeypatch.setattr(Recorder, "__call__", _counted(Recorder.__call__, stops))
    warm_up(contestant, task(n=1000, batch_size=200), None, tmp_path)
    assert 1 <= len(stops) <= 2
    assert max(stops) <= 60


def _counted(call, stops):
    def counted(self, samples, *arguments, **more):
        stops.append(samples)
        call(self, samples, *arguments, **more)

    return counted


def test_batches_are_shuffled_anew_in_every_pass_and_never_span_two():
    one = list(task(n=25, shuffled=True).batches(2))
    again = list(task(n=25, shuffled=True).batches(2))
    assert [seen for seen, _ in one] == [10, 20, 25, 35, 45, 50]
    first, second = (np.concatenate([batch for _, batch in part])[:, 0] for part in (one[:3], one[3:]))
    assert sorted(first) == sorted(second) == list(range(0, 50, 2))
    assert (first != second).any()
    assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(one, again, strict=True))
    np.testing.assert_array_equal(task(n=25, shuffled=True).gathered()[:, 0], first)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_as_many_samples_are_gathered_as_fit(kind):
    X = kind(np.ones((40, 2)))
    whole = Task(Rows(X), "kl", 1, None, 0, 10)
    assert whole.gathered().shape == (40, 2)
    per_batch = 10 * 2 * (8 if kind is np.asarray else 12)
    assert whole.gathered(2.5 * per_batch).shape == (20, 2)
    assert whole.gathered(1).shape == (10, 2)  # never nothing


def test_batches_grow_only_for_a_chunk_that_was_asked_for():
    """Lefevre's own tau of 1000 takes the batches as they are, as partial_fit does."""
    few = task(100, 20)
    assert Lefevre(few).task.batch_size == OL(few).task.batch_size == Online(few).task.batch_size == 20
    assert OL(few, {"method__tau": 50}).task.batch_size == 60
