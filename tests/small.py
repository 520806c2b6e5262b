"""Small data, and models that learn them quickly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF, divergences
from onmf.divergences import Divergence
from onmf.methods import EM, Adaptive, Auto, Canonical, Choice, Paper, SparseSurrogate, Surrogate
from reproduction.earlier_methods import Guan, Lefevre, Wang
from tests.conftest import F, example_id, examples

METHODS: dict[str, Choice] = {
    "auto": Auto(),
    "surrogate": Surrogate(),
    "em": EM(),
    "sparse_surrogate": SparseSurrogate(),
    "paper": Paper(step=Adaptive(b=100, trial_samples=40)),  # so few that small data see all of its phases
    "canonical": Paper(step=Canonical(a=2.0, b=200.0), solver="paper", max_iter=20),  # steps that suit so few samples
    "lefevre": Lefevre(N=50),
    "guan": Guan(),
    "wang": Wang(eta=0.02, max_iter=100),  # for three components
}
both_methods = pytest.mark.parametrize("method", ["auto", "paper"])

# Every divergence of the registry, special cases under their names only, and every method with what shows it; all that
# a method serves: tests/learning.py. On data without zeros, "auto" is the surrogate.
EXAMPLES = list({example_id(found): found for found in map(divergences.get, examples())}.values())
SHOWN = {
    "paper": ("kl", "is", "squared_l2", "l2", "huber:0.5", "alpha:2"),
    "canonical": ("kl", "squared_l2", "huber:0.5"),
    "em": ("kl", "hellinger"),
    "sparse_surrogate": ("kl", "alpha:2"),
    "lefevre": ("is",),
    "guan": ("squared_l2",),
    "wang": ("huber:0.5",),
}
PAIRS = [
    *((divergence, "auto") for divergence in EXAMPLES),
    *((divergences.get(name), method) for method, names in SHOWN.items() for name in names),
]
every_pair = pytest.mark.parametrize(
    ("divergence", "method"), PAIRS, ids=[f"{example_id(divergence)}-{method}" for divergence, method in PAIRS]
)


def data(n: int, rng: np.random.Generator, n_features: int = F, rank: int = 3) -> np.ndarray:
    return rng.gamma(2.0, 1.0, (n, rank)) @ rng.gamma(1.0, 1.0, (rank, n_features)) + 0.1


def small(method: str, **constants: Any) -> Choice:
    """A method with constants that suit small data, but for those given."""
    return METHODS[method].with_constants(**constants)


def quick(divergence: Divergence | str = "kl", method: Choice | str = "auto", **settings: Any) -> OnlineNMF:
    given = {"n_components": 3, "random_state": 0, "batch_size": 20, "transform_max_iter": 300}
    return OnlineNMF(divergence=divergence, method=METHODS.get(str(method), method), **(given | settings))


def start(divergence: Divergence | str, **settings: Any) -> OnlineNMF:
    """A model whose dictionary is the initial one, but for steps too short to see."""
    return quick(divergence, Paper(step=Canonical(a=1e-12), max_iter=20), **settings)


def made_dense(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the size of every sparse matrix that is made dense from now on."""
    sizes = [0]
    for kind in (scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.csc_matrix):
        for name in ("toarray", "todense"):
            usual = getattr(kind, name)

            def counted(self: Any, *given: Any, _usual: Any = usual, **named: Any) -> Any:
                sizes.append(self.shape[0] * self.shape[1])
                return _usual(self, *given, **named)

            monkeypatch.setattr(kind, name, counted)
    return sizes
