"""The tables of the report, in Markdown."""

from __future__ import annotations

import math
from statistics import median

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.data import STARTS
from benchmarks.peers.figures import SPARSE
from benchmarks.peers.results import MINIBATCH, OUR_BATCH, OURS, Comparison, Final

PASSES = ((1, "one pass"), (5, "five passes"))


def number(value: float, digits: int = 4) -> str:
    """Short, and readable at a glance."""
    if not math.isfinite(value):
        return "never"
    if value == 0 or 1e-3 <= abs(value) < 10**digits:
        return f"{value:.{digits}g}"
    return f"{value:,.0f}" if 1 <= abs(value) < 1e7 else f"{value:.{digits - 1}e}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def results(group: list[Comparison]) -> str:
    """All contestants and starts of one data set and divergence, at one thread."""
    head = ["start", "contestant", "loss, one pass", "s", "loss, five passes", "s", "passing", "MiB"]
    rows = []
    for case in sorted(group, key=lambda case: STARTS.index(case.start)):
        for name in (name for name in CONTESTANTS if name in case.records):
            cells = [case.start, f"**{name}**" if name == OURS else name]
            for passes, _ in PASSES:
                cells += _final(case.finals(name, passes))
            passing = [] if name == OURS else case.passing_ratios(name)
            cells.append(" / ".join(number(f(passing), 2) for f in (min, median, max)) if passing else "–")
            errors = {record["error"] for record in case.records[name].values() if "error" in record}
            memory = [record["peak_mib"] for record in case.records[name].values() if "peak_mib" in record]
            rows.append([*cells, "; ".join(sorted(errors)) or number(median(memory), 3)])
    return table(head, rows)


def _final(finals: list[Final]) -> list[str]:
    if not finals:
        return ["–", "–"]
    loss, seconds = (median(getattr(final, name) for final in finals) for name in ("loss", "seconds"))
    psnr = [final.psnr for final in finals if final.psnr is not None]
    return [number(loss) + (f" ({median(psnr):.1f} dB)" if psnr else ""), number(seconds, 3)]


def lost(comparisons: list[Comparison]) -> str:
    """Every case where the median puts a peer ahead of us: a lower loss after as many passes, or reached sooner."""
    rows = []
    for case in (case for case in comparisons if case.threads == "1" and OURS in case.records):
        found: list[tuple[str, list[float]]] = []
        for name in (name for name in CONTESTANTS if name in case.records and not name.startswith(OURS)):
            if CONTESTANTS[name].most_passes == 1:
                found.append((f"loss after five passes / {name}'s", case.loss_ratios(name, 5, 1)))
                found += [
                    (f"{OUR_BATCH}: {what} / {name}'s", case.ratios(what, OUR_BATCH, 1, name, 1))
                    for what in ("loss", "seconds")
                ]
                continue
            found += [(f"loss after {word} / {name}'s", case.loss_ratios(name, passes)) for passes, word in PASSES]
            found.append((f"time to {name}'s one-pass loss / its time", case.passing_ratios(name)))
        where = f"{case.data}, {case.divergence}"
        rows += [[where, case.start, what, number(median(r))] for what, r in found if r and median(r) > 1]
    return table(["where", "start", "what", "median"], rows) if rows else "Nowhere in this run."


TITLES = {
    "cells": "simulated cells, 15,000 genes",
    "bbc": "BBC News, TF-IDF of 1,000 words",
    "news_counts": "20 Newsgroups, counts of 10,000 words",
    "news_tfidf": "20 Newsgroups, TF-IDF of 1,000 words",
}
ALL_AT_ONCE = ((OURS, 5, "`OnlineNMF`, five passes"), (OUR_BATCH, 1, "`BatchNMF`"),
               ("sklearn-batch", 1, "scikit-learn's `NMF`"), ("nmf-rs", 1, "nmf-rs"))  # fmt: skip


def headlines(comparisons: list[Comparison]) -> str:
    """The tables of performance.md on sparse data: the worst seed of the uniform start; of batch methods, medians.

    Those on dense data are made by ``benchmarks.peers.headlines``.
    """
    cases = [case for case in comparisons if (case.start, case.threads) == ("uniform", "1") and case.data in TITLES]
    sparse, batch = [], []
    for case in cases:
        if case.data in SPARSE and case.divergence == "kl":
            once, title = _worst(case.loss_ratios(MINIBATCH, 1)), TITLES[case.data]
            five = [_worst(ratios(MINIBATCH, 5)) for ratios in (case.loss_ratios, case.seconds_ratios)]
            sparse.append([title, once, *five])
            batch.append([title, *(_at_once(case.finals(name, n)) for name, n, _ in ALL_AT_ONCE)])
    ratio = "our loss after one pass / `MiniBatchNMF`'s"
    return "\n\n".join(
        (
            "On sparse data a pass pays off later, so five are compared, too. All made them with one seed and the "
            "uniform start:",
            table(["data, kl", ratio, "after five passes", "our time of five passes / its time"], sparse),
            "Held-out losses and seconds of batch methods, from the uniform start; those of others make 200 "
            "multiplicative updates:",
            table(["data, kl", *(title for *_, title in ALL_AT_ONCE)], batch),
        )
    )


def _at_once(finals: list[Final]) -> str:
    return "{} in {} s".format(*_final(finals)) if finals else "–"


def _worst(ratios: list[float]) -> str:
    return (f"{max(ratios):.2f}" if math.isfinite(max(ratios)) else "never") if ratios else "–"


def cores(comparisons: list[Comparison]) -> str:
    """One pass on one thread (processor time) and on all cores (wall time), for contestants that ran both."""
    single = {(case.data, case.divergence, case.start): case for case in comparisons if case.threads == "1"}
    rows = []
    for case in (case for case in comparisons if case.threads == "all"):
        for name in (name for name in CONTESTANTS if name in case.records):
            one = single.get((case.data, case.divergence, case.start))
            before, after = (each.finals(name, 1) if each else [] for each in (one, case))
            if before and after:
                seconds = [median(final.seconds for final in finals) for finals in (before, after)]
                ratio = f"{seconds[0] / seconds[1]:.2f}"
                rows.append([f"{case.data}, {case.divergence}", name, *(number(each, 3) for each in seconds), ratio])
    return table(["where", "contestant", "s, one thread", "s, all cores", "faster by"], rows) if rows else "Not run."
