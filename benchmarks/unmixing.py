"""Samson, unmixed: spectral angles to the true endmembers, and errors of the abundances.

    python benchmarks/unmixing.py

The plain method, with abundances H / sum H for atoms of maximum 1, beside coefficients on the simplex; on pixels as
they are, and divided by their sum or length: the light on them is not the same everywhere. Medians over the seeds. At
the end, two earlier methods on the same pixels: the successive projection algorithm (Araujo et al. 2001), which
takes pixels for endmembers, and fully constrained least squares (Heinz and Chang 2001) with these or with the truth.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment

from onmf import OnlineNMF
from onmf.coefficients import Newton
from onmf.datasets import samson
from onmf.divergences import SquaredL2
from onmf.problem import pose
from onmf.sets import Simplex

DIVERGENCES = ("squared_l2", "kl", "huber", "l1")
SEEDS, PASSES = range(5), 5
Errors = np.ndarray  # the angle to each endmember, their mean, and the root mean square error of the abundances


def errors(image: samson.Samson, W: np.ndarray, H: np.ndarray) -> Errors:
    """Angles in radians, each atom with the endmember that it is matched with."""
    mine, truth = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (W, image.endmembers))
    angles = np.arccos(np.clip(mine @ truth.T, -1, 1))
    atoms, endmembers = linear_sum_assignment(angles)
    order = atoms[np.argsort(endmembers)]
    found = angles[order, np.arange(len(order))]
    return np.array([*found, found.mean(), np.sqrt(np.square(H[:, order] - image.abundances).mean())])


def learnt(image: samson.Samson, X: np.ndarray, divergence: str, coefficients: str, seed: int) -> Errors:
    """What a model comes to."""
    model = OnlineNMF(
        len(image.names), divergence=divergence, coefficients=coefficients, max_passes=PASSES, random_state=seed
    )
    H = model.fit(X).transform(X)
    return errors(image, model.components_, H / H.sum(axis=1, keepdims=True))


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
    return Newton().solve(pose(SquaredL2(), X, W, Simplex())).H


def main() -> None:
    """A line per kind of pixels, method and divergence."""
    warnings.simplefilter("ignore")
    image = samson.load()
    X = image.pixels
    units = {"as they are": 1.0, "sum 1": X.sum(axis=1, keepdims=True)}
    units["length 1"] = np.linalg.norm(X, axis=1, keepdims=True)
    print("| pixels | method | divergence |", " | ".join(image.names), "| mean angle | abundance error |")
    print("|---|---|---|---|---|---|---|---|")

    def line(pixels: str, method: str, divergence: str, found: Errors) -> None:
        print(
            f"| {pixels} | {method} | {divergence} |", " | ".join(f"{number:.3f}" for number in found), "|", flush=True
        )

    for pixels, unit in units.items():
        for divergence in DIVERGENCES:
            for coefficients in ("nonnegative", "simplex"):
                runs = [learnt(image, X / unit, divergence, coefficients, seed) for seed in SEEDS]
                line(pixels, coefficients, divergence, np.median(runs, axis=0))
        # The true spectra have a maximum near 1, whatever the light: to the unit of the pixels that are mostly theirs.
        sizes = [np.linalg.norm((X / unit)[share > 0.9], axis=1).mean() for share in image.abundances.T]
        truth = image.endmembers * (np.array(sizes) / np.linalg.norm(image.endmembers, axis=1))[:, None]
        for name, W in (("SPA", purest(X / unit, len(image.names))), ("true spectra", truth)):
            line(pixels, f"{name}, FCLS", "squared_l2", errors(image, W, least_squares(X / unit, W)))


if __name__ == "__main__":
    main()
