"""The targets of the benchmarks, each as a row: what, where, measured, reached.

What is measured is the worst seed of every start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.peers.results import MINIBATCH, OUR_BATCH, OURS, Comparison

DENSE = ("synthetic", "synthetic_wide", "spectrogram_like", "yaleb", "samson")
SPARSE = ("cells", "bbc", "news_counts", "news_tfidf")
BATCH = ("sklearn-batch", "onmf-multiplicative")  # the same to nine digits
SINGLE = "onmf-float32"
BETA = ("is", "kl", "squared_l2")


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    what: str
    where: str
    measured: str
    reached: bool


Measure = Callable[[Comparison], list[float]]


def check(
    comparisons: list[Comparison],
    what: str,
    data: tuple[str, ...],
    divergences: tuple[str, ...],
    measure: Measure,
    limit: float,
    at_least: bool = False,
) -> Iterator[Figure]:
    """One row per data set and divergence: is the worst seed of every start within the limit?"""
    groups: dict[tuple[str, str], dict[str, float]] = {}
    for case in comparisons:
        if case.data in data and case.divergence in divergences and case.threads == "1":
            values = measure(case)
            if values:
                worst = min(values) if at_least else max(values)
                groups.setdefault((case.data, case.divergence), {})[case.start] = worst
    for (name, divergence), worst in groups.items():
        cells = ", ".join(f"{start} {value:.4g}" for start, value in worst.items())
        reached = all(value >= limit if at_least else value <= limit for value in worst.values())
        yield Figure(what, f"{name}, {divergence}", cells, reached)


def all_figures(comparisons: list[Comparison]) -> Iterator[Figure]:
    """All targets but those of memory, which is measured separately."""
    what = "time to MiniBatchNMF's best one-pass loss / its time ≤ 1/10"
    where = (*DENSE, *SPARSE, "piano")
    yield from check(comparisons, what, where, BETA, lambda r: r.passing_ratios(MINIBATCH), 0.1)
    for what, measure, limit in (
        ("loss after one pass / MiniBatchNMF's best < 1", lambda r: r.loss_ratios(MINIBATCH, 1), 1.0),
        ("loss after five passes / MiniBatchNMF's best < 1", lambda r: r.loss_ratios(MINIBATCH, 5), 1.0),
    ):
        yield from check(comparisons, what, DENSE, BETA, measure, limit)
    for what, measure, limit in (
        ("sparse: loss after one pass / MiniBatchNMF's best ≤ 1", lambda r: r.loss_ratios(MINIBATCH, 1), 1.0),
        ("sparse: loss after five passes / MiniBatchNMF's best ≤ .998", lambda r: r.loss_ratios(MINIBATCH, 5), 0.998),
        ("sparse: loss after five passes / batch's ≤ 1.003", _batch_loss(5), 1.003),
        ("sparse: seconds of one pass / MiniBatchNMF's best ≤ 1/8", lambda r: r.seconds_ratios(MINIBATCH, 1), 1 / 8),
        ("sparse: seconds of five passes / MiniBatchNMF's best ≤ 1/8", lambda r: r.seconds_ratios(MINIBATCH, 5), 1 / 8),
    ):
        yield from check(comparisons, what, SPARSE, ("kl",), measure, limit)
    for what, measure, limit in (
        ("BatchNMF: loss / that of five online passes ≤ 1", _ours_in_batch("loss", OURS, 5), 1.0),
        ("BatchNMF: seconds / those of five online passes ≤ .7", _ours_in_batch("seconds", OURS, 5), 0.7),
        ("BatchNMF: loss / that of scikit-learn's NMF ≤ 1", _ours_in_batch("loss", BATCH[0], 1), 1.0),
        ("BatchNMF: seconds / those of scikit-learn's NMF ≤ 1/4", _ours_in_batch("seconds", BATCH[0], 1), 0.25),
        ("BatchNMF: loss / that of nmf-rs ≤ 1", _ours_in_batch("loss", "nmf-rs", 1), 1.0),
        ("BatchNMF: seconds / those of nmf-rs ≤ 1/4", _ours_in_batch("seconds", "nmf-rs", 1), 0.25),
    ):
        yield from check(comparisons, what, SPARSE, ("kl",), measure, limit)
    what = "documents per second / partial_fit's ≥ 10"
    yield from check(comparisons, what, ("news_counts",), ("kl",), _documents, 10.0, at_least=True)
    yield from _hellinger(comparisons)
    for peer in ("spams", "sklearn-dictionary"):
        for passes, word in ((1, "one pass"), (5, "five passes")):
            what = f"time to the loss of {peer} after {word} / its time ≤ 1"
            measure = partial(Comparison.passing_ratios, peers=peer, passes=passes)
            yield from check(comparisons, what, (*DENSE, "text_like"), ("squared_l2",), measure, 1.0)
    robust = ("huber", "l1", "l2")
    for passes, word in ((1, "one pass"), (5, "five passes")):
        what = f"salt and pepper: PSNR after {word} ≥ 30 dB"
        yield from check(
            comparisons, what, ("yaleb_salt", "yaleb_salt_stream"), robust, _psnr(passes), 30.0, at_least=True
        )
    yield from _against_batch(comparisons)
    where = ("synthetic_wide",)
    what = "float32: seconds of float64 / float32 ≥ 1.5"
    yield from check(comparisons, what, where, BETA, lambda r: r.seconds_ratios(SINGLE, 1), 1.5, at_least=True)
    what = "float32: loss / float64's ≤ 1.005"
    yield from check(comparisons, what, where, BETA, lambda r: _inverse(r.loss_ratios(SINGLE, 1)), 1.005)


def _inverse(ratios: list[float]) -> list[float]:
    return [1 / ratio for ratio in ratios]


def _psnr(passes: int) -> Measure:
    return lambda case: [final.psnr or 0.0 for final in case.finals(OURS, passes)]


def _documents(case: Comparison) -> list[float]:
    """At equal loss: where ours is higher after one pass, the time until it reaches theirs counts."""
    return _inverse(
        [
            (ours.seconds if ours.loss <= theirs.loss else case.time_to(theirs.loss, seed)) / theirs.seconds
            for seed, ours, theirs in case.pairs("sklearn-partial_fit", 1)
        ]
    )


def _against_batch(comparisons: list[Comparison]) -> Iterator[Figure]:
    """Batch has a single result, recorded as its first pass; ours after one or five passes is compared with it."""
    for what, data, divergence, measure, limit in (
        ("music: loss after five passes / batch MU's (300) ≤ 1.02", "piano", "is", _batch_loss(5), 1.02),
        (
            "music: seconds of five passes / batch MU's ≤ 1/2",
            "piano",
            "is",
            lambda r: r.seconds_ratios(BATCH[0], 5, 1),
            0.5,
        ),
        ("text at K = 50: loss after five passes / batch's ≤ 1.01", "news_tfidf_10k", "kl", _batch_loss(5), 1.01),
        ("in temporal order, plain: loss after one pass / batch's ≤ 1.1", "piano_ordered", "is", _batch_loss(1), 1.1),
        ("in temporal order, reservoir=256: the same", "piano_ordered", "is", _reservoir, 1.1),
    ):
        yield from check(comparisons, what, (data,), (divergence,), measure, limit)


def _ours_in_batch(what: str, other: str, passes: int) -> Measure:
    return lambda case: case.ratios(what, OUR_BATCH, 1, other, passes)


def _batch_loss(passes: int) -> Measure:
    return lambda case: case.loss_ratios(BATCH, passes, 1)


def _reservoir(case: Comparison) -> list[float]:
    return case.ratios("loss", "onmf-reservoir", 1, BATCH, 1)


def _hellinger(comparisons: list[Comparison]) -> Iterator[Figure]:
    kl = {
        case.start: case
        for case in comparisons
        if (case.data, case.divergence, case.threads) == ("news_counts", "kl", "1")
    }

    def measure(case: Comparison) -> list[float]:
        other = kl.get(case.start)
        times = ((case.final(OURS, seed, 1), other and other.final(OURS, seed, 1)) for seed in case.seeds)
        return [a.seconds / b.seconds for a, b in times if a and b]

    what = "Hellinger's seconds of one pass / KL's ≤ 2"
    yield from check(comparisons, what, ("news_counts",), ("hellinger",), measure, 2.0)
