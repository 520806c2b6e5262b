"""Run it all: see the package."""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu import judge, peers, roofline
from benchmarks.gpu.reference import HERE
from benchmarks.gpu.sets import DIVERGENCES, REAL, K, Synthetic, cells, name_of, real
from onmf import OnlineNMF, __version__

NEAR = 1.07  # of the true dictionary's loss
SEEDS = 0, 1, 2  # of the times to a loss, whose median counts
TRANSFORMED = (1000, 40), (1000, 100), (200, 10)  # features and components
DENSITIES = {230: 120_000, 800: 100_000, 3600: 40_000, 5600: 30_000}  # entries drawn per cell, and cells


def fitted(X: Any, divergence: str, components: int, **settings: Any) -> tuple[OnlineNMF, judge.Course, float]:
    """A model, its course, and the seconds that it took in all."""
    torch.cuda.synchronize()
    course = judge.Course()
    settings = {"device": "cuda", "random_state": 0, "callbacks": [course]} | settings
    model = OnlineNMF(components, divergence=divergence, **settings).fit(X)
    torch.cuda.synchronize()
    return model, course, time.perf_counter() - course.began


def synthetic(divergence: str, n: int, reference: dict[str, Any]) -> dict[str, Any]:
    """Throughput from the device and from the host, and when it is as good as the truth nearly is, and the CPU was."""
    drawn, name = Synthetic(divergence), name_of(divergence)
    held_out, X = drawn.held_out(), drawn.on_gpu(n)
    true_loss = judge.loss(drawn.planted.W, name, held_out, "cuda")
    fitted(X[:30_000], name, K)  # kernels are compiled, and handles made
    _, course, seconds = fitted(X, name, K)
    losses = course.losses(name, held_out, "cuda")
    cpu = reference["synthetic"][divergence]
    times = [judge.first_at(course.seconds, losses, cpu["loss"])]
    for seed in SEEDS[1:]:
        times.append(fitted(X, name, K, random_state=seed)[1].reached(name, held_out, "cuda", cpu["loss"]))
    host = X.cpu().numpy()
    _, _, from_host = fitted(host, name, K)
    del host
    return {
        "samples_per_second": n / seconds,
        "from_host": n / from_host,
        "true_loss": true_loss,
        "reference_true_loss": cpu["true_loss"],
        "end": losses[-1] / true_loss,
        "seconds_to_near": judge.first_at(course.seconds, losses, NEAR * true_loss),
        "samples_to_near": _samples_at(course, losses, NEAR * true_loss),
        "cpu_seconds": cpu["seconds"],
        "cpu_end": cpu["loss"] / cpu["true_loss"],
        "seconds_to_cpu_loss": judge.middle(times),
        "of_all_seeds": times,
        "course": _course(course, losses, true_loss),
    }


def transforms(divergence: str, n: int) -> list[dict[str, Any]]:
    """How fast coefficients are found beside how fast a dictionary is learnt, in samples per second."""
    rows = []
    for features, components in TRANSFORMED:
        X = Synthetic(divergence, features, components).on_gpu(n)
        fitted(X[:30_000], name_of(divergence), components)
        model, _, learning = fitted(X, name_of(divergence), components)
        model.transform(X[:30_000])
        torch.cuda.synchronize()
        began = time.perf_counter()
        H = model.transform(X)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        row = {"F": features, "K": components, "learnt": n / learning, "transformed": n / seconds}
        rows.append(row | {"ratio": learning / seconds, "finite": bool(H.isfinite().all())})
    return rows


def _samples_at(course: judge.Course, losses: list[float], target: float) -> int | None:
    return next((s for s, value in zip(course.samples, losses, strict=True) if value <= target), None)


def public(name: str, folder: Path | None, reference: dict[str, Any]) -> dict[str, Any]:
    """When it has the loss that the processor had after one pass over a real set."""
    divergence, components = REAL[name]
    X, held_out = real(name, folder)
    fitted(X[:30_000], divergence, components)
    _, course, seconds = fitted(X, divergence, components, max_passes=15)
    losses, cpu = course.losses(divergence, held_out, "cuda"), reference["real"][name]
    times = [judge.first_at(course.seconds, losses, cpu["loss"])]
    for seed in SEEDS[1:]:
        again = fitted(X, divergence, components, max_passes=15, random_state=seed)[1]
        times.append(again.reached(divergence, held_out, "cuda", cpu["loss"]))
    return {
        "seconds_of_15_passes": seconds,
        "loss": losses[-1],
        "cpu_seconds": cpu["seconds"],
        "cpu_loss": cpu["loss"],
        "seconds_to_cpu_loss": judge.middle(times),
        "of_all_seeds": times,
        "course": _course(course, losses, 1.0),
    }


def _course(course: judge.Course, losses: list[float], unit: float) -> list[tuple[int, float, float]]:
    found = zip(course.samples, course.seconds, losses, strict=True)
    return [(samples, round(seconds, 4), round(loss / unit, 5)) for samples, seconds, loss in found]


def against_peers(divergence: str, n: int) -> list[dict[str, Any]]:
    """How long a peer takes to its best loss, and how long we take to the same."""
    drawn, name = Synthetic(divergence), name_of(divergence)
    held_out, X = drawn.held_out(), drawn.on_gpu(n)
    _, course, _ = fitted(X, name, K, max_passes=10)
    ours = course.losses(name, held_out, "cuda")
    found = [each for each in [peers.torchnmf(X, divergence, K)] if each] + peers.nmf_torch(X, divergence, K)
    rows = []
    for peer, theirs in found:
        losses = theirs.losses(name, held_out, "cuda")
        best = int(np.argmin(losses))
        rows.append(
            {
                "divergence": divergence,
                "peer": peer,
                "their_best": losses[best],
                "their_seconds": theirs.seconds[best],
                "our_seconds": judge.first_at(course.seconds, ours, losses[best]),
                "our_best": min(ours),
            }
        )
    return rows


def single_cells(n: int) -> dict[str, Any]:
    """Sparse counts, kept compressed on the device."""
    X = cells(n)
    fitted(X[:20_000], "kl", 30)
    _, _, seconds = fitted(X, "kl", 30)
    return {"cells_per_second": n / seconds, "density": X.nnz / (X.shape[0] * X.shape[1])}


def densities() -> list[dict[str, Any]]:
    """Sparse counts by em on compressed rows, and by the surrogate on chunks made dense."""
    rows = []
    for entries, n in DENSITIES.items():
        X = cells(n, entries)
        held_out, X = np.asarray(X[-1000:].todense()), X[:-1000]
        row: dict[str, Any] = {"density": X.nnz / (X.shape[0] * X.shape[1]), "cells": X.shape[0]}
        for method in ("em", "surrogate"):
            fitted(X[:8000], "kl", 30, method=method)
            _, course, seconds = fitted(X, "kl", 30, method=method)
            losses = course.losses("kl", held_out, "cuda")
            row[method] = {"seconds": seconds, "loss": losses[-1], "course": _course(course, losses, 1.0)}
        slow, end = row["surrogate"]["course"], row["em"]["loss"]
        row["surrogate_there"] = next((entry[1] for entry in slow if entry[2] <= end), None)
        rows.append(row)
        torch.cuda.empty_cache()
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--samples", type=int, default=2_000_000)
    parser.add_argument("--peer-samples", type=int, default=100_000)
    parser.add_argument("--cells", type=int, default=400_000)
    parser.add_argument("--only", default="synthetic,transform,real,cells,densities,peers,roofline")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    reference, only = json.loads(HERE.read_text()), arguments.only.split(",")
    figures: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "onmf": __version__,
    }
    print(json.dumps(figures), flush=True)

    def part(name: str, work: Callable[[], Any]) -> None:
        if name.partition(".")[0] not in only:
            return
        started = time.perf_counter()
        figures[name] = work()
        shown = figures[name]
        print(name, f"({time.perf_counter() - started:.0f} s)", flush=True)
        for line in shown if isinstance(shown, list) else [shown]:
            print("  ", line, flush=True)
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
        torch.cuda.empty_cache()

    for divergence in DIVERGENCES:
        part(f"synthetic.{divergence}", lambda d=divergence: synthetic(d, arguments.samples, reference))  # type: ignore[misc]
    for divergence in DIVERGENCES:
        part(f"transform.{divergence}", lambda d=divergence: transforms(d, arguments.samples // 5))  # type: ignore[misc]
    for name in REAL:
        part(f"real.{name}", lambda n=name: public(n, arguments.data, reference))  # type: ignore[misc]
    part("cells", lambda: single_cells(arguments.cells))
    part("densities", densities)
    for divergence in ("kl", "squared_l2", "is"):
        part(f"peers.{divergence}", lambda d=divergence: against_peers(d, arguments.peer_samples))  # type: ignore[misc]
    part("roofline", lambda: roofline.table(4096, 1000, K) + roofline.sparse_table(1600, 20_000, 30, 576))


if __name__ == "__main__":
    main()
