"""What forgetting gives after a stream has changed, and what it costs before.

    python -m benchmarks.drift [--before 100000] [--seeds 2] [--tasks kl,squared_l2,is,sparse_surrogate,em]

The components of a planted dictionary (K = 10) change after so many samples: all at once ("components"), all at once to
features that were not in use ("features"), or little by little over 20,000 samples ("slowly"). Losses are held-out, of
the law as it is at that sample, relative to a fresh model's after all new samples; "before" is relative to forgetting =
0. The median over the seeds. Prints a table of docs/decisions/0012-faster-to-the-same-loss.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from onmf import OnlineNMF

COMPONENTS, BATCH = 10, 500
MARKS = 1_000, 3_000, 10_000, 30_000  # samples after the change
SLOWLY = 20_000
FORGETTING = 0.0, 0.1, 0.3, 0.5, 0.9
FEATURES = {"sparse_surrogate": 150, "em": 400}  # the others have 100
WORDS = {"sparse_surrogate": 18.0, "em": 8.0}  # per text
CHANGES = "components", "features", "slowly"

Draw = Callable[[np.ndarray, int], Any]


def laws(task: str, change: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, Draw]:
    """The dictionaries before and after, and how samples are drawn from one."""
    F = FEATURES.get(task, 100)
    both = rng.gamma(0.3, 1.0, (2, COMPONENTS, F)) + 1e-3
    if change == "features":
        both[0, :, F // 2 :] = both[1, :, : F // 2] = 1e-3 if task == "is" else 0.0
    both /= both.sum(axis=2, keepdims=True)

    def draw(W: np.ndarray, n: int) -> Any:
        if task in WORDS:
            return scipy.sparse.csr_matrix(
                rng.poisson(rng.dirichlet(np.full(COMPONENTS, 0.2), n) * WORDS[task] @ W) * 1.0
            )
        Y = F * rng.gamma(0.5, 1.0, (n, COMPONENTS)) @ W
        if task == "kl":
            return rng.poisson(Y).astype(float)
        noisy = Y * rng.gamma(4.0, 0.25, Y.shape) + 1e-3 if task == "is" else Y + 0.3 * rng.normal(size=Y.shape)
        return np.maximum(noisy, 0.0)

    return both[0], both[1], draw


def stream(change: str, old: np.ndarray, new: np.ndarray, draw: Draw) -> list[Any]:
    """The batches after the change began."""
    shares = [min(1.0, i / SLOWLY) if change == "slowly" else 1.0 for i in range(0, MARKS[-1], BATCH)]
    return [draw((1 - share) * old + share * new, BATCH) for share in shares]


def trial(task: str, change: str, before: int, seed: int) -> dict[float, list[float]]:
    """For every forgetting: the loss before, the losses at the marks, the seconds."""
    rng = np.random.default_rng(seed)
    old, new, draw = laws(task, change, rng)
    first = [draw(old, BATCH) for _ in range(before // BATCH)]
    then = stream(change, old, new, draw)
    held_out = {0: draw(old, 400)}
    for mark in MARKS:
        share = min(1.0, mark / SLOWLY) if change == "slowly" else 1.0
        held_out[mark] = draw((1 - share) * old + share * new, 400)
    method, divergence = (task, "kl") if task in WORDS else ("surrogate", task)
    settings = {"divergence": divergence, "random_state": seed}
    fresh = OnlineNMF(COMPONENTS, method=method, **settings)
    for batch in [draw(new, BATCH) for _ in then]:
        fresh.partial_fit(batch)
    rows = {}
    for forgetting in FORGETTING:
        model, started = (
            OnlineNMF(COMPONENTS, method=f"{method}:forgetting={forgetting}", **settings),
            time.process_time(),
        )
        for batch in first:
            model.partial_fit(batch)
        losses = [model.loss(held_out[0])]
        for i, batch in enumerate(then, start=1):
            model.partial_fit(batch)
            if i * BATCH in MARKS:
                # Laws on the way have no fresh model; one that knew them would have about the last one's loss.
                reference = fresh.loss(held_out[MARKS[-1]] if change == "slowly" else held_out[i * BATCH])
                losses.append(model.loss(held_out[i * BATCH]) / reference)
        rows[forgetting] = [*losses, time.process_time() - started]
    return {f: [row[0] / rows[FORGETTING[0]][0], *row[1:]] for f, row in rows.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", default="kl,squared_l2,is,sparse_surrogate,em")
    parser.add_argument("--changes", default=",".join(CHANGES))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| task, change | forgetting | before | {' | '.join(f'{mark:,} after' for mark in MARKS)} | s |")
    print("|---|---|---|" + "---|" * (len(MARKS) + 1))
    for task in arguments.tasks.split(","):
        for change in arguments.changes.split(","):
            trials = [trial(task, change, arguments.before, seed) for seed in range(arguments.seeds)]
            for forgetting in FORGETTING:
                median = np.median([each[forgetting] for each in trials], axis=0)
                cells = " | ".join(f"{value:.3f}" if value < 10 else f"{value:.0f}" for value in median[1:-1])
                print(f"| {task}, {change} | {forgetting} | {median[0]:.4f} | {cells} | {median[-1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
