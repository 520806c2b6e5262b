"""Coefficients of power spectra under Itakura-Saito: ``python -m benchmarks.frames`` (decision 0012)."""

from __future__ import annotations

import argparse
import time

import numpy as np

from onmf import OnlineNMF

FRAMES, BINS = 400, 513


def harmonic(K: int, seed: int = 0) -> np.ndarray:
    """Return the powers of frames in which some of K harmonic sounds are heard."""
    rng, f, h = np.random.default_rng(seed), np.arange(BINS), np.arange(1, 20)
    pitch = 8 + np.arange(K) * 60 / K
    peaks = np.exp(-np.square((f - h[:, None] * pitch[:, None, None]) / 1.5))
    W = (0.7 ** h[:, None] * peaks).sum(axis=1) + 1e-4 * rng.gamma(1, 1, (K, BINS))
    return (rng.gamma(0.3, 1, (FRAMES, K)) @ W + 1e-4) * rng.exponential(1, (FRAMES, BINS))


def main() -> None:
    """Print ms per frame, the least of three, and the mean loss, for each number of components and tolerance."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for K in (20, 40, 80):
        X = harmonic(K)
        model = OnlineNMF(K, divergence="is", random_state=0).fit(X)
        model.transform(X[:100])
        for tol in (1e-4, 1e-2, 1e-1):
            model.set_params(transform_tol=tol)
            times = []
            for _ in range(3):
                begin = time.process_time()
                model.transform(X)
                times.append(time.process_time() - begin)
            print(f"| {K} | {tol:g} | {1000 * min(times) / FRAMES:.2f} | {model.loss(X):.2f} |", flush=True)


if __name__ == "__main__":
    main()
