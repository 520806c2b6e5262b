"""Samson, unmixed: spectral angles to the true endmembers, and errors of the abundances.

    python benchmarks/unmixing.py

The plain method with its proportions, and coefficients on the simplex with these themselves; on pixels as they are, and
divided by their sums: the light on them is not the same everywhere. There also with l2_dictionary=1e-3, which holds the
simplex small, and was chosen by looking at these very figures. Medians over the seeds. Beside them, two earlier methods
on the same pixels: the successive projection algorithm (Araujo et al. 2001), which takes pixels for endmembers, and
fully constrained least squares (Heinz and Chang 2001) with these or with the true spectra.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.data_sets import Samson, load_samson
from onmf import OnlineNMF
from onmf.coefficients import Newton
from onmf.coefficients.problem import Problem
from onmf.divergences import SquaredL2
from onmf.model.sets import Simplex

DIVERGENCES = ("squared_l2", "kl", "huber", "l1")
SEEDS = range(5)
PRICE = 1e-3


def errors(image: Samson, W: np.ndarray, H: np.ndarray) -> np.ndarray:
    """The angle to each endmember in radians, their mean, and the root mean square error of the abundances H."""
    mine, truth = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (W, image.endmembers))
    angles = np.arccos(np.clip(mine @ truth.T, -1, 1))
    components, endmembers = linear_sum_assignment(angles)
    order = components[np.argsort(endmembers)]
    found = angles[order, np.arange(len(order))]
    return np.array([*found, found.mean(), np.sqrt(np.square(H[:, order] - image.abundances).mean())])


def learnt(
    image: Samson, X: np.ndarray, divergence: str, coefficients: str, price: float, passes: int, seed: int
) -> np.ndarray:
    """The errors of a model."""
    settings = {"divergence": divergence, "coefficients": coefficients, "max_passes": passes, "random_state": seed}
    model = OnlineNMF(len(image.names), l2_dictionary=price, **settings).fit(X)
    return errors(image, model.components_, (model.transform if coefficients == "simplex" else model.proportions)(X))


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
    return Newton().solve(Problem(SquaredL2(), X, W, Simplex())).H


def line(*cells: object) -> None:
    """A row of the table."""
    print("|", " | ".join(f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in cells), "|", flush=True)


def main() -> None:
    """A line per kind of pixels, method, divergence and number of passes."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")
    image = load_samson()
    line("pixels", "coefficients", "divergence", "passes", *image.names, "mean angle", "abundance error")
    line(*["---"] * 9)
    for pixels, X in (("as they are", image.pixels), ("sum 1", image.pixels / image.pixels.sum(axis=1, keepdims=True))):
        for passes in (1, 5):
            for divergence in DIVERGENCES:
                for coefficients, price in (("nonnegative", 0.0), ("simplex", 0.0), ("simplex", PRICE)):
                    if price and pixels == "as they are":
                        continue
                    runs = [learnt(image, X, divergence, coefficients, price, passes, seed) for seed in SEEDS]
                    name = f"{coefficients}, {price:g}" if price else coefficients
                    line(pixels, name, divergence, passes, *np.median(runs, axis=0).tolist())
        # The true spectra have a maximum near 1, whatever the light: to the unit of the pixels that are mostly theirs.
        sizes = np.array([np.linalg.norm(X[share > 0.9], axis=1).mean() for share in image.abundances.T])
        truth = image.endmembers * (sizes / np.linalg.norm(image.endmembers, axis=1))[:, None]
        for name, W in (("SPA + FCLS", purest(X, len(image.names))), ("true spectra + FCLS", truth)):
            line(pixels, name, "squared_l2", "", *errors(image, W, least_squares(X, W)).tolist())


if __name__ == "__main__":
    main()
