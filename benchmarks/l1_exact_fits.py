"""What the least residual in l1's quadratic model does: ``python -m benchmarks.l1_exact_fits`` (decision 0005)."""

from __future__ import annotations

import argparse

import numpy as np

from onmf import OnlineNMF
from onmf.divergences import robust

LEAST = (1e-6, 1e-3, 1e-2, 3e-2, 5e-2, 1e-1)


def planted() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return data with their clean counterparts."""
    rng = np.random.default_rng(0)
    W = rng.gamma(0.5, 1.0, (8, 60))
    clean = rng.gamma(0.7, 1.0, (2000, 8)) @ W
    spiky, replaced = clean.copy(), rng.random(clean.shape) < 0.1
    spiky[replaced] = rng.uniform(0, clean.max(), replaced.sum())
    noisy = np.abs(clean + rng.laplace(0, 0.3 * clean.mean(), clean.shape))
    return {"outliers": (spiky, clean), "Laplacian": (noisy, noisy), "exact": (clean, clean)}


def relative_loss(X: np.ndarray, clean: np.ndarray, K: int, passes: int, seed: int) -> float:
    """Return the sum of |clean - HW| relative to that of the data."""
    model = OnlineNMF(K, divergence="l1", max_passes=passes, random_state=seed).fit(X)
    return float(np.abs(clean - model.inverse_transform(model.transform(X))).sum() / X.sum())


def main() -> None:
    """Print one line for each share of the mean entry."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    small = [np.random.default_rng(seed).random((50, 3)) for seed in range(4)]
    for least in LEAST:
        robust.LEAST_RESIDUAL = least
        found = {f"50 x 3, {p}": np.mean([relative_loss(X, X, 3, p, 0) for X in small]) for p in (1, 20, 100)}
        for name, (X, clean) in planted().items():
            found[name] = np.mean([relative_loss(X, clean, 8, 5, seed) for seed in range(2)])
        print(f"{least:g}: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
