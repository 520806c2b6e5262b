"""The theorems of theory.md, watched: slopes of stationarity, controls that stall, and what ``certified`` costs.

    python -m benchmarks.certified slopes     log-log slopes over three decades of samples, for every divergence
    python -m benchmarks.certified cost       time and held-out loss of the certified form beside the default's
    python -m benchmarks.certified show       the tables of docs/decisions/0022-certified.md, from the records

The first two write their records to benchmarks/certified.json, one run after the other.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.peers.data import SOURCES
from onmf import OnlineNMF
from onmf.divergences import Mahalanobis
from onmf.methods import EM, Adaptive, Canonical, Method, Paper, Surrogate
from reproduction.judge import Scorer

RECORDS = Path(__file__).with_suffix(".json")
RIDGE = 1e-3  # l2_coefficients of the runs on data
PASSES, EARLIEST = 5, 1500  # the form begins after the first pass, but not before that many samples
SETS = {
    "bbc": ["kl"],
    "yaleb": ["squared_l2", "kl"],
    "yaleb_salt_stream": ["huber"],
    "samson": ["squared_l2", "kl"],
    "piano": ["kl", "beta:1.5"],
    "synthetic": ["kl", "squared_l2", "huber"],
    "synthetic_wide": ["kl"],
    "news_tfidf": ["kl"],
    "news_tfidf_10k": ["kl"],
    "news_counts": ["kl", "hellinger"],
    "text_like": ["kl", "squared_l2"],
    "cells": ["kl"],
}

FREEZE = 400
MARKS = [round(100 * 10 ** (third / 3)) for third in range(12)]  # three decades from the freeze on
PAPER = Adaptive(b=FREEZE, trial_samples=200)
D2 = ("kl", "squared_l2", "huber:0.5", "hellinger", "alpha:2", "alpha:-1", "beta:1.5", "mahalanobis")
RUNS: dict[str, tuple[str, Method]] = {
    **{f"A, {name}": (name, Paper(tau=20, step=PAPER)) for name in (*D2, "l2", "l1")},
    "A, kl, canonical step": ("kl", Paper(tau=20, step=Canonical(a=10, b=FREEZE))),
    **{f"B, surrogate, {name}": (name, Surrogate(certified=FREEZE)) for name in D2},
    **{f"B, em, {name}": (name, EM(certified=FREEZE)) for name in ("kl", "hellinger", "alpha:2")},
    "control: A, kl, tol=0.3": ("kl", Paper(tau=20, step=PAPER, tol=0.3)),
    "control: A, squared_l2, a constant step": (
        "squared_l2",
        Paper(tau=20, step=Canonical(a=0.1, b=FREEZE, power=1e-9, any_power=True)),
    ),
    "control: B, surrogate, kl, tol=0.3": ("kl", Surrogate(certified=FREEZE, tol=0.3)),
}


def watched(divergence: str, method: Method) -> dict[str, Any]:
    """Stationarity along a run on independent draws from a finite set, and what ``guarantee_`` says at its end.

    That of l1 is the length of one subgradient: a larger set has kinks of less weight.
    """
    rng = np.random.default_rng(0)
    n = 1000 if divergence == "l1" else 30
    X = rng.gamma(1, 1, (n, 3)) @ rng.gamma(1, 1, (3, 10)) + 0.3 * rng.random((n, 10)) + 0.05
    loss = Mahalanobis(np.eye(10) + 0.5) if divergence == "mahalanobis" else divergence
    model = OnlineNMF(3, divergence=loss, method=method, l2_coefficients=0.1, random_state=0, transform_tol=1e-10)
    seen, found = 0, []
    for mark in MARKS:
        while seen < mark:
            size = max(20, min(5000, mark - seen))
            model.partial_fit(X[rng.integers(n, size=size)])
            seen += size
        found.append(float(model.stationarity(X)))
    slopes = {"slope": 2, "last": len(MARKS) - 4}  # from the freeze on, and over the last decade
    fits = {
        what: float(np.polyfit(np.log(MARKS[first:]), np.log(found[first:]), 1)[0]) for what, first in slopes.items()
    }
    return {"stationarity": found, **fits, "guarantee": model.guarantee_.partition(":")[0]}


def slopes(only: str) -> None:
    """Watch all runs, or those whose name contains a word."""
    for name, (divergence, method) in RUNS.items():
        if only in name:
            record("slopes", name, watched(divergence, method))


def cost(only: str) -> None:
    """Compare the certified form with the default on data, three seeds each, interleaved, in processor time.

    It is certified after the first of five passes, or after 1,500 samples. What follows has the form of the theorem,
    but for the draws, which are not independent. Losses are those of held-out samples, with coefficients of their own
    and no penalty.
    """
    for name, names in SETS.items():
        for divergence in [each for each in names if only in f"{name}, {each}"]:
            data = SOURCES[name].draw(divergence, False, np.random.default_rng(0)).usable()
            certified = f"auto:certified={max(data.X.shape[0], EARLIEST)}"
            forms: dict[str, dict[str, Any]] = {"auto": {}, certified: {"l2_coefficients": RIDGE}}
            judge = Scorer(data.divergence, np.asarray(data.X.mean(axis=0)).ravel(), data.held_out)
            seconds: dict[str, list[float]] = {form: [] for form in forms}
            losses: dict[str, list[float]] = {form: [] for form in forms}
            for seed in range(3):
                for form, more in forms.items():
                    settings: dict[str, Any] = {"divergence": data.divergence, "max_passes": PASSES, **more}
                    started = time.process_time()
                    model = OnlineNMF(data.K, method=form, random_state=seed, **settings).fit(data.X)
                    seconds[form].append(time.process_time() - started)
                    losses[form].append(float(judge.best(model.components_).loss))
            ratios = [median(new / old for old, new in zip(*both.values(), strict=True)) for both in (seconds, losses)]
            found = {"method": model.method_.name, "n": data.X.shape[0], "seconds": median(seconds["auto"])}
            record("cost", f"{name}, {divergence}", found | {"time": ratios[0], "loss": ratios[1]})


def record(table: str, name: str, found: dict[str, Any]) -> None:
    """Write what was found, and print it."""
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    rounded = json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.4g}"))
    records.setdefault(table, {})[name] = rounded
    RECORDS.write_text(json.dumps(records, indent=1) + "\n")
    print(name, rounded, flush=True)


def show(_: str) -> None:
    """Print the tables."""
    records = json.loads(RECORDS.read_text())
    print("| data, divergence | method | samples | time, certified / default | held-out loss, certified / default |")
    print("|---|---|---|---|---|")
    for name, row in records["cost"].items():
        print(f"| {name} | {row['method']} | {row['n']:,} | {row['time']:.2f} | {row['loss']:.4f} |")
    at = [2, 5, 8, 11]
    marks = ", ".join(f"{MARKS[place]:,}" for place in at)
    print(f"\n| run | stationarity at {marks} samples | slope | of the last decade |\n|---|---|---|---|")
    for name, row in records["slopes"].items():
        values = ", ".join(f"{row['stationarity'][place]:.2g}" for place in at)
        print(f"| {name} | {values} | {row['slope']:.2f} | {row['last']:.2f} |")


def main() -> None:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["slopes", "cost", "show"])
    parser.add_argument("--only", default="", help="a word in the names of the runs or data sets")
    warnings.simplefilter("ignore")
    given = parser.parse_args()
    {"slopes": slopes, "cost": cost, "show": show}[given.what](given.only)


if __name__ == "__main__":
    main()
