"""For tests of methods and of the learner: every method with what it serves, small models, small data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from onmf import OnlineNMF, methods
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence, get
from onmf.learner.algorithm import BatchResult, HostEngine, learn
from onmf.methods import Choice, Method
from onmf.model.sets import Box, DictionarySet, Sets
from onmf.model.state import State
from onmf.samples import Samples
from tests.conftest import F, LogCosh, example_id, examples

K = 3
# Constants that suit such small data, for methods whose own do not; a new method is tested with its own.
SMALL = {
    "paper": "paper:b=100,trial_samples=40",  # small data see all phases of its step
    "canonical": "paper:step=canonical,a=2,b=200,solver=paper,max_iter=10",
    "lefevre": "lefevre:N=200,max_iter=20",
    "wang": "wang:eta=0.02,max_iter=40",
}
METHODS = [name for name in methods.names() if issubclass(methods.find(name), Method)] + ["canonical"]  # another step
DIVERGENCES = [(example_id(divergence), divergence) for divergence in examples() if get(divergence) == divergence]
DIVERGENCES += [("logcosh", LogCosh())]


def small(name: str, **constants: Any) -> Choice:
    """The method of that name, with constants that suit small data."""
    return methods.get(SMALL.get(name, name)).with_constants(**constants)


def served(name: str) -> list[tuple[str, Divergence]]:
    """The divergences that a method serves."""
    return [(label, divergence) for label, divergence in DIVERGENCES if small(name).why_not(divergence) is None]


def met(name: str) -> list[tuple[str, Divergence]]:
    """The divergences that a method meets in every test.

    The default method meets every example; the others every divergence of the registry, with the least and the
    greatest value of its parameter that they serve; the paper's with another step than its own, divergences of every
    kind.
    """
    if name == "surrogate":
        return served(name)
    by_name: dict[str, list[tuple[str, Divergence]]] = {}
    for label, divergence in served(name):
        by_name.setdefault(type(divergence).__name__, []).append((label, divergence))
    if name == "canonical":
        return [by_name[each][0] for each in KINDS]
    return [each for found in by_name.values() for each in (found[:1] + found[1:][-1:])]


KINDS = ("KullbackLeibler", "ItakuraSaito", "SquaredL2", "L2", "Huber", "Mahalanobis", "LogCosh")
PAIRS = [(name, label, divergence) for name in METHODS for label, divergence in met(name)]


def pairs(*, without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """Every method with the divergences that it meets."""
    cases = [pytest.param(n, d, id=f"{n}-{label}") for n, label, d in PAIRS if n not in without]
    return pytest.mark.parametrize(("name", "divergence"), cases)


def usual(name: str) -> Divergence:
    """One divergence that the method serves, Kullback-Leibler if it can."""
    return min((divergence for _, divergence in served(name)), key=lambda divergence: divergence.name != "kl")


every_pair = pairs()
every_method = pytest.mark.parametrize(
    ("name", "divergence"), [pytest.param(name, usual(name), id=f"{name}-{usual(name).name}") for name in METHODS]
)
both_kinds = pytest.mark.parametrize("stored", [np.asarray, scipy.sparse.csr_matrix], ids=["dense", "sparse"])


def quick(method: Choice | str = "auto", divergence: Divergence | str = "kl", **settings: Any) -> OnlineNMF:
    """A small model; a method by its bare name has constants that suit small data."""
    method = SMALL.get(method, method) if isinstance(method, str) else method
    given = {"n_components": K, "random_state": 0, "transform_max_iter": 300}
    return OnlineNMF(method=method, divergence=divergence, **(given | settings))


def streamed(model: OnlineNMF, X: Any, size: int) -> OnlineNMF:
    for first in range(0, X.shape[0], size):
        model.partial_fit(X[first : first + size])
    return model


def memory(model: OnlineNMF) -> dict[str, np.ndarray]:
    return model._learned.state.memory


def begun(method: Method, divergence: Divergence, W: np.ndarray, samples: np.ndarray | None = None) -> State:
    """The state before the first sample, after a look at the first batch."""
    state = method.start(divergence, W, DictionarySet())
    first = data(20, np.random.default_rng(0), n_features=W.shape[1]) if samples is None else samples
    return method.first_look(Problem(divergence, first, state.W), state)


def learnt(method: Method, divergence: Divergence, state: State, X: Any, **settings: Any) -> BatchResult:
    X = method.laid_out(divergence, X if isinstance(X, Samples) else Samples(X))
    return learn(HostEngine(method, divergence, state, X, **({"box": Box()} | settings)))


def updated(method: Method, state: State, problem: Problem, H: np.ndarray) -> State:
    """The state after one step with given coefficients of samples that are all new."""
    return method.update(state, problem, H, problem.fit(H), len(H))


def mixed(n: int, components: np.ndarray, rng: np.random.Generator, noise: float = 50.0) -> np.ndarray:
    """Samples of given components with multiplicative noise."""
    fit = rng.gamma(2.0, 1.0, (n, len(components))) @ components
    return fit * rng.gamma(noise, 1 / noise, fit.shape) + 0.1


def data(n: int, rng: np.random.Generator, noise: float = 50.0, n_features: int = F) -> np.ndarray:
    return mixed(n, rng.gamma(1.0, 1.0, (K, n_features)), rng, noise)


def parted(sizes: tuple[int, ...], rng: np.random.Generator, noise: float = 50.0) -> list[np.ndarray]:
    """Samples of one and the same dictionary, in parts."""
    components = rng.gamma(1.0, 1.0, (K, F))
    return [mixed(n, components, rng, noise) for n in sizes]


def sparse_counts(n: int, rng: np.random.Generator, mean: float = 0.5) -> np.ndarray:
    """Small counts, most of them zero; never nothing at all."""
    X = rng.poisson(mean * rng.gamma(0.5, 2.0, (n, K)) @ rng.gamma(0.5, 2.0, (K, F))).astype(float)
    X[0, 0] = 1
    return X


def assert_sound(model: OnlineNMF, X: Any) -> None:
    """Finite and feasible: the dictionary, what is remembered, the coefficients and every loss."""
    assert DictionarySet((model.sets or Sets()).eps).contains(model.components_)
    assert all(np.isfinite(array).all() for array in memory(model).values())
    H = model.transform(X)
    assert np.isfinite(H).all()
    assert (H >= 0).all()
    assert np.isfinite(model.loss(X))
    assert np.isfinite(model.history_["loss"]).all()


def assert_same_bits(one: OnlineNMF, other: OnlineNMF) -> None:
    """All that was learnt, and how it went."""
    np.testing.assert_array_equal(one.components_, other.components_)
    assert memory(one).keys() == memory(other).keys()
    for key, array in memory(one).items():
        np.testing.assert_array_equal(array, memory(other)[key], err_msg=key)
    assert (one.n_steps_, one.n_samples_seen_) == (other.n_steps_, other.n_samples_seen_)
    np.testing.assert_array_equal(one.history_["loss"], other.history_["loss"])


def divergence_id(divergence: Divergence | str) -> str:
    return divergence if isinstance(divergence, str) else type(divergence).__name__.lower()


__all__ = [
    "DIVERGENCES",
    "METHODS",
    "F",
    "K",
    "LogCosh",
    "assert_same_bits",
    "assert_sound",
    "begun",
    "both_kinds",
    "data",
    "divergence_id",
    "every_method",
    "every_pair",
    "get",
    "learnt",
    "memory",
    "mixed",
    "pairs",
    "parted",
    "quick",
    "served",
    "small",
    "sparse_counts",
    "streamed",
    "updated",
    "usual",
]
