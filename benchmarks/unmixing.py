"""Unmixing, measured where the truth is known: spectral angles to the true endmembers, and errors of the abundances.

    python -m benchmarks.unmixing [--passes 5] [--scenes samson shade]

Samson, and simulated scenes of four materials, one of them nearly black as water is. "even": evenly lit, and each
material has one spectrum. "shade": the light on a pixel is between a fifth of the most and all of it. "variable": each
pixel has its own version of every spectrum. "both": shade and variable spectra. Pixels as they are, or divided by
their sums; the plain method with its proportions, and coefficients on the simplex with these themselves. Medians over
the seeds, and what ``n_init=5`` takes from the same seeds: the lowest loss. Beside them, earlier methods on the same
pixels: vertex component analysis (Nascimento and Dias 2005) and the successive projection algorithm (Araujo et al.
2001), which take pixels for endmembers, with fully constrained least squares (Heinz and Chang 2001) for the shares.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator

import numpy as np
from scipy.ndimage import gaussian_filter, gaussian_filter1d
from scipy.optimize import linear_sum_assignment

from benchmarks.data_sets import Samson, load_samson
from onmf import OnlineNMF
from onmf.coefficients import Newton
from onmf.coefficients.problem import Problem
from onmf.divergences import SquaredL2
from onmf.model.sets import Simplex

DIVERGENCES = ("squared_l2", "kl", "huber", "l1")
SEEDS = range(5)
SCENES = ("samson", "even", "shade", "variable", "both")
SIDE, BANDS = 50, 100  # of a simulated scene
BRIGHTNESS = np.array([1.0, 0.7, 0.4, 0.08])  # of its materials: the last is as dark as water


def simulated(kind: str, seed: int = 0) -> Samson:
    """A scene whose abundances are patches with mixed borders, with pure pixels in some of them."""
    rng = np.random.default_rng(seed)
    K = len(BRIGHTNESS)

    def smooth(*shape: int) -> np.ndarray:
        """Spectra of mean 1 that change slowly from band to band."""
        waves = gaussian_filter1d(rng.standard_normal((*shape, BANDS)), 8, axis=-1, mode="nearest")
        waves = np.exp(waves / waves.std())
        return waves / waves.mean(axis=-1, keepdims=True)

    spectra = BRIGHTNESS[:, None] * smooth(K) / 3
    fields = np.stack([gaussian_filter(rng.standard_normal((SIDE, SIDE)), 4) for _ in range(K)], axis=-1)
    patches = np.exp(4 * fields / fields.std()).reshape(-1, K)
    abundances = patches / patches.sum(axis=1, keepdims=True)
    n = len(abundances)
    light = gaussian_filter(rng.standard_normal((SIDE, SIDE)), 3).reshape(n, 1)
    light = 0.2 + 0.8 / (1 + np.exp(-2 * light / light.std()))
    own = spectra
    if kind in ("variable", "both"):
        own = spectra * rng.uniform(0.75, 1.25, (n, K, 1)) * smooth(n, K) ** 0.1
    pixels = np.einsum("nk,nkf->nf", abundances, np.broadcast_to(own, (n, K, BANDS)))
    pixels = pixels * light if kind in ("shade", "both") else pixels
    noise = rng.normal(0, 0.003, pixels.shape)
    names = tuple(f"material {k}" for k in range(K))
    return Samson(np.maximum(pixels + noise, 1e-6), spectra, abundances, (SIDE, SIDE), names)


def errors(scene: Samson, W: np.ndarray, H: np.ndarray) -> np.ndarray:
    """The mean angle to the endmembers in radians, and the root mean square error of the abundances H."""
    mine, truth = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (W, scene.endmembers))
    angles = np.arccos(np.clip(mine @ truth.T, -1, 1))
    components, endmembers = linear_sum_assignment(angles)
    order = components[np.argsort(endmembers)]
    found = angles[order, np.arange(len(order))]
    return np.array([found.mean(), np.sqrt(np.square(H[:, order] - scene.abundances).mean())])


def learnt(scene: Samson, X: np.ndarray, divergence: str, coefficients: str, passes: int, seed: int) -> np.ndarray:
    """The loss of a model, and its errors."""
    settings = {"divergence": divergence, "coefficients": coefficients, "max_passes": passes, "random_state": seed}
    model = OnlineNMF(len(scene.names), **settings).fit(X)
    H = (model.transform if coefficients == "simplex" else model.proportions)(X)
    return np.array([model.loss(X), *errors(scene, model.components_, H)])


def vertices(X: np.ndarray, K: int, seed: int) -> np.ndarray:
    """Vertex component analysis: the pixel that is farthest along a random direction, off the span of those before.

    The pixels are first projected onto K dimensions and there divided by their part along the mean, which takes away
    the light; where noise is strong (an SNR below 15 + 10 log10 K dB), onto K - 1 dimensions around the mean.
    """
    rng, mean = np.random.default_rng(seed), X.mean(axis=0)
    centred = X - mean
    axes = np.linalg.eigh(centred.T @ centred / len(X))[1][:, ::-1]
    power = np.square(X).sum() / len(X)
    inside = np.square(centred @ axes[:, :K]).sum() / len(X) + mean @ mean
    signal = 10 * np.log10(max(inside - K / X.shape[1] * power, 1e-12) / max(power - inside, 1e-12))
    if signal < 15 + 10 * np.log10(K):
        Y = centred @ axes[:, : K - 1]
        shown = Y @ axes[:, : K - 1].T + mean
        Y = np.column_stack([Y, np.full(len(X), np.sqrt(np.square(Y).sum(axis=1).max()))])
    else:
        axes = np.linalg.eigh(X.T @ X / len(X))[1][:, ::-1][:, :K]
        Y = X @ axes
        shown = Y @ axes.T
        Y = Y / (Y @ Y.mean(axis=0))[:, None]
    A = np.zeros((K, K))
    A[-1, 0] = 1
    chosen = []
    for k in range(K):
        direction = rng.standard_normal(K)
        direction -= A @ (np.linalg.pinv(A) @ direction)
        chosen.append(int(np.argmax(np.abs(Y @ direction))))
        A[:, k] = Y[chosen[-1]]
    return np.maximum(shown[chosen], 0)


def purest(X: np.ndarray, K: int) -> np.ndarray:
    """The pixel that is longest, then the one that is longest without its part along those before."""
    chosen, left = [], X.copy()
    for _ in range(K):
        chosen.append(int(np.argmax(np.square(left).sum(axis=1))))
        direction = left[chosen[-1]] / np.linalg.norm(left[chosen[-1]])
        left -= np.outer(left @ direction, direction)
    return X[chosen]


def least_squares(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """The shares that fit best."""
    return Newton().solve(Problem(SquaredL2(), X, np.ascontiguousarray(W), Simplex())).H


def line(*cells: object) -> None:
    """A row of the table."""
    print("|", " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells), "|", flush=True)


def rows(scene: Samson, passes: int) -> Iterator[tuple[object, ...]]:
    """What is compared on a scene, and its figures."""
    K, raw = len(scene.names), scene.pixels
    whole = raw / raw.sum(axis=1, keepdims=True)
    for pixels, X in (("as they are", raw), ("sum 1", whole)):
        truth = scene.endmembers if X is raw else scene.endmembers / scene.endmembers.sum(axis=1, keepdims=True)
        runs = [(W := vertices(X, K, seed), least_squares(X, W)) for seed in SEEDS]
        yield pixels, "VCA + FCLS", "squared_l2", *np.median([errors(scene, *run) for run in runs], axis=0), "", ""
        W = purest(X, K)
        yield pixels, "SPA + FCLS", "squared_l2", *errors(scene, W, least_squares(X, W)), "", ""
        yield pixels, "true spectra + FCLS", "squared_l2", *errors(scene, truth, least_squares(X, truth)), "", ""
        for coefficients in ("nonnegative", "simplex") if X is raw else ("simplex",):
            for divergence in DIVERGENCES:
                found = np.array([learnt(scene, X, divergence, coefficients, passes, seed) for seed in SEEDS])
                lowest = found[np.argmin(found[:, 0]), 1:]
                yield pixels, coefficients, divergence, *np.median(found[:, 1:], axis=0), *lowest


def main() -> None:
    """A line per scene, kind of pixels, method and divergence."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--scenes", nargs="+", choices=SCENES, default=SCENES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    line(
        "scene",
        "pixels",
        "coefficients",
        "divergence",
        "angle",
        "abundances",
        "angle, n_init=5",
        "abundances, n_init=5",
    )
    line(*["---"] * 8)
    for name in given.scenes:
        scene = load_samson() if name == "samson" else simulated(name)
        for cells in rows(scene, given.passes):
            line(name, *(float(cell) if isinstance(cell, float) else cell for cell in cells))


if __name__ == "__main__":
    main()
