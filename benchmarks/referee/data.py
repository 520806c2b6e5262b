"""Small planted samples of every kind, the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

POSITIVE = ("is", "alpha:-1", "alpha:0", "beta:-0.5", "beta:0.5")  # they are meant for data without zeros
PENALTIES = {"l1_coefficients": 0.1, "l2_coefficients": 0.05, "l1_dictionary": 0.02, "l2_dictionary": 0.01}
F, K = 12, 4


@dataclass(frozen=True)
class Data:
    """Samples with all that is given beside them, and the settings that they ask for."""

    X: Any
    sample_weight: Any = None
    weights: Any = None
    settings: dict[str, Any] = field(default_factory=dict)

    def rows(self, start: int, stop: int) -> Data:
        """Some of the samples."""
        part = slice(start, stop)
        pick = [None if each is None else each[part] for each in (self.X, self.sample_weight, self.weights)]
        return Data(*pick, self.settings)


def planted(kinds: frozenset[str], divergence: str, n: int) -> Data:
    """n samples of those kinds: "sparse", "sample weights", and so on; dense without any."""
    rng = np.random.default_rng(7)
    W = rng.gamma(0.6, 1.0, (K, F)) + 0.02
    H = rng.dirichlet(np.full(K, 0.5), n) if "simplex" in kinds else rng.gamma(0.7, 1.0, (n, K))
    Y = H @ W
    if "sparse" in kinds:
        X = rng.poisson(0.12 * Y / Y.mean()).astype(float)
    elif divergence in POSITIVE:
        X = (Y + 0.02) * rng.gamma(8.0, 1 / 8, Y.shape)
    else:
        X = rng.poisson(5 * Y).astype(float) + 0.1 * rng.random(Y.shape)
    settings: dict[str, Any] = {}
    samples = rng.integers(1, 4, n) * (np.arange(n) % 7 != 3.0) if "sample weights" in kinds else None
    entries = rng.random(Y.shape) * (rng.random(Y.shape) < 0.9) if "entry weights" in kinds else None
    gone = rng.random(Y.shape) < 0.2
    if "missing" in kinds and "sparse" in kinds:
        settings["implicit"] = "missing"
    elif "missing" in kinds:
        X[gone] = np.nan
        settings["missing"] = "nan"
    if "penalties" in kinds:
        settings |= PENALTIES
    if "fixed" in kinds:
        settings["fixed"] = W[:2] / W[:2].max() if "simplex" not in kinds else W[:2]
    if "simplex" in kinds:
        settings["coefficients"] = "simplex"
        settings.pop("l1_coefficients", None)  # they sum to one anyway
    if "float32" in kinds:
        X = X.astype(np.float32)
    return Data(scipy.sparse.csr_matrix(X) if "sparse" in kinds else X, samples, entries, settings)
