"""Statistics that add up: shards that learn from the same state are merged into what a sequence would have learnt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onmf.coefficients import precise_solver
from onmf.coefficients.problem import Problem
from onmf.divergences import Divergence, get
from onmf.methods import EM, Method, SparseSurrogate, Surrogate
from onmf.methods.quadratics import change_units
from onmf.model.sets import DictionarySet
from onmf.model.state import State, Sums
from tests.conftest import mahalanobis
from tests.learning import METHODS, learnt, small, usual

F, K = 24, 4
FULL, DIAGONAL = Surrogate(), Surrogate(max_memory=0)
COUPLED = mahalanobis(F)[0]
ADDITIVE: dict[str, tuple[Method, Divergence]] = {
    "full kl": (FULL, get("kl")),
    "full is": (FULL, get("is")),
    "full huber": (FULL, get("huber:0.3")),
    "shared squared_l2": (FULL, get("squared_l2")),
    "shared l2": (FULL, get("l2")),
    "diagonal kl": (DIAGONAL, get("kl")),
    "diagonal is": (DIAGONAL, get("is")),
    "coupled mahalanobis": (FULL, COUPLED),
    "em kl": (EM(tau=50), get("kl")),
    "em hellinger": (EM(tau=50), get("hellinger")),
    "em alpha:2": (EM(tau=50), get("alpha:2")),
    "sparse kl": (SparseSurrogate(tau=50), get("kl")),
    "sparse alpha:2": (SparseSurrogate(tau=50), get("alpha:2")),
}
additive = pytest.mark.parametrize("case", ADDITIVE)


def samples(n: int, seed: int) -> np.ndarray:
    """Of one and the same planted dictionary, in internal units."""
    W = np.random.default_rng(0).gamma(0.5, 1.0, (K, F)) + 0.05
    rng = np.random.default_rng(seed)
    Y = rng.gamma(1.0, 1.0, (n, K)) @ W
    return Y * rng.gamma(8.0, 1 / 8, Y.shape) / 1.5 + 0.01


HELD_OUT = samples(300, 99)


def loss(divergence: Divergence, state: State) -> float:
    problem = Problem(divergence, HELD_OUT, state.W)
    H = precise_solver(divergence).stopping(1e-5, 500).solve(problem).H
    return float(problem.loss(H, problem.fit(H)).mean())


def begun(case: str, n: int = 1000) -> State:
    """The state after a start in sequence."""
    method, divergence = ADDITIVE[case]
    W = np.random.default_rng(1).random((K, F)) + 0.1
    state = method.start(divergence, W, DictionarySet())
    return learnt(method, divergence, state, samples(n, 2)).state if n else state


def shards(case: str, before: State, parts: list[np.ndarray]) -> list[State]:
    """What each part makes of the state, its clock being its share of the samples."""
    method, divergence = ADDITIVE[case]
    start = replace(before, clock=before.clock / len(parts))
    return [learnt(method, divergence, start, part).state for part in parts]


def total(sums: list[Sums]) -> Sums:
    first, *others = sums
    for other in others:
        first = first + other
    return first


def in_units_of_w(state: State, divergence: Divergence) -> dict[str, np.ndarray]:
    """The statistics as they would be if components had no units but those of W."""
    memory = dict(state.memory)
    if {"unit", "log_unit"} <= memory.keys():  # those of V = unit W, in which log_unit has been taken up
        u = np.exp(memory.pop("log_unit"))
        memory |= {"A": memory["A"] / np.outer(u, u)[np.triu_indices(K)], "b": memory["b"] / u, "D": memory["D"] / u}
        memory["squares"] = memory["squares"] / np.square(u)
        memory.pop("unit")
        return memory
    if "unit" in memory:
        u = memory.pop("unit")
        memory.pop("base")
        memory["mass"] = memory["mass"] * u
        memory["squares"] = memory["squares"] * np.square(u)
        memory["b"] = memory["b"] * u[:, None]
        if "S" in memory:
            memory["S"] = memory["S"] * np.outer(u, u)
        if "a" in memory:
            memory["a"] = memory["a"] * np.square(u)[:, None]
        if "A" in memory:
            upper = np.triu_indices(K)
            memory["A"] = memory["A"].reshape(-1, F) * np.outer(u, u)[upper][:, None]
        return memory
    # Statistics in the units of W already, whose changes add up in log_unit: undone.
    u = np.exp(memory.pop("log_unit"))
    if "N" in memory:
        memory["N"] = memory["N"] / u ** (1 - divergence.alpha_order)
        memory["D"] = memory["D"] / u
        memory["squares"] = memory["squares"] / np.square(u)
    else:
        memory["mass"] = memory["mass"] / u
        memory["S"] = memory["S"] / np.outer(u, u)
        memory["R"] = memory["R"] / u[:, None]
    return memory


@additive
def test_a_summary_holds_no_row_per_sample(case: str) -> None:
    method, divergence = ADDITIVE[case]
    assert method.why_not_on_shards is None
    before = begun(case, 100)
    sizes = []
    for n in (97, 970):
        summary = method.summary(divergence, before, learnt(method, divergence, before, samples(n, 3)).state)
        steps = -(-n // method.tau) if method.tau else max(1, round(n / method.usual_chunk(0)))
        assert (summary.samples, summary.steps) == (n, steps)
        assert n not in {length for array in summary.arrays.values() for length in array.shape}
        sizes.append({name: array.shape for name, array in summary.arrays.items()})
    assert sizes[0] == sizes[1]
    largest = max(array.size for array in (before.W, *before.memory.values()))
    assert max(array.size for array in summary.arrays.values()) <= largest


@additive
def test_one_shard_merged_has_the_statistics_of_learning_and_no_worse_a_dictionary(case: str) -> None:
    method, divergence = ADDITIVE[case]
    for n in (0, 1000):  # from the very first W, too
        before = begun(case, n)
        after = learnt(method, divergence, before, samples(600, 3)).state
        merged = method.merged(divergence, before, method.summary(divergence, before, after))
        assert (merged.samples, merged.clock) == (after.samples, after.clock)
        assert merged.steps == after.steps + 1
        assert merged.memory.keys() == after.memory.keys()
        assert DictionarySet().contains(merged.W)
        assert loss(divergence, merged) <= 1.002 * loss(divergence, after)
        if "base" in after.memory:  # W has moved on from after's, and its units with it
            units = [state.memory["unit"] * np.exp2(state.memory["base"]) for state in (after, merged)]
            known = after.memory["unit"] * units[1] / units[0]
            after = replace(after, memory=after.memory | {"unit": known})
        expected = in_units_of_w(after, divergence)
        for name, array in in_units_of_w(merged, divergence).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-7, atol=1e-10, err_msg=name)


@additive
@pytest.mark.parametrize("P", [2, 4])
def test_shards_merged_are_as_good_as_a_sequence(case: str, P: int) -> None:
    method, divergence = ADDITIVE[case]
    before = begun(case)
    X = samples(1200, 3)
    sequence = learnt(method, divergence, before, X).state
    sums = [method.summary(divergence, before, after) for after in shards(case, before, np.split(X, P))]
    merged, reverse = (method.merged(divergence, before, total(order)) for order in (sums, sums[::-1]))
    assert (merged.samples, merged.clock) == (sequence.samples, sequence.clock)
    assert merged.steps == before.steps + sum(one.steps for one in sums) + 1
    np.testing.assert_allclose(merged.W, reverse.W, rtol=1e-6, atol=1e-9)
    assert loss(divergence, merged) <= 1.03 * loss(divergence, sequence)
    # and learning continues from there
    on = learnt(method, divergence, merged, samples(600, 4)).state
    assert on.samples == sequence.samples + 600
    assert loss(divergence, on) <= 1.02 * loss(divergence, merged)


def rescaled(method: Method, divergence: Divergence, state: State, powers: np.ndarray) -> State:
    """The same state after its components have had other units: a power of two each."""
    s, memory = np.exp2(powers), {name: array.copy() for name, array in state.memory.items()}
    if {"unit", "log_unit"} <= memory.keys():
        memory["log_unit"], memory["unit"] = memory["log_unit"] + np.log(s), memory["unit"] / s
        memory |= {"A": memory["A"] * np.outer(s, s)[np.triu_indices(K)], "b": memory["b"] * s, "D": memory["D"] * s}
        memory["squares"] = memory["squares"] * np.square(s)
        return replace(state, memory=memory)
    if "unit" in memory:
        memory["base"] = memory["base"] + powers
        change_units(memory, s)
        return replace(state, memory=memory)
    # Here the units are those of W itself: other components, the same fits.
    memory["log_unit"] = memory["log_unit"] + np.log(s)
    if "N" in memory:
        memory["N"] = memory["N"] * s ** (1 - divergence.alpha_order)
        memory["D"] = memory["D"] * s
        memory["squares"] = memory["squares"] * np.square(s)
    else:
        memory["mass"] = memory["mass"] * s
        memory["S"] = memory["S"] * np.outer(s, s)
        memory["R"] = memory["R"] * s[:, None]
    return replace(state, W=state.W / s[:, None], memory=memory)


@additive
def test_components_whose_units_were_changed_differently_in_two_shards_merge_rightly(case: str) -> None:
    method, divergence = ADDITIVE[case]
    before = begun(case)
    one, other = shards(case, before, np.split(samples(600, 3), 2))
    powers = np.array([3.0, -2.0, 0.0, 20.0])[:K]
    changed = rescaled(method, divergence, other, powers)
    plain, odd = (
        method.merged(
            divergence,
            before,
            method.summary(divergence, before, one) + method.summary(divergence, before, second),
        )
        for second in (other, changed)
    )
    np.testing.assert_allclose(odd.W, plain.W, rtol=1e-8, atol=1e-10)
    for name, array in plain.memory.items():
        np.testing.assert_allclose(odd.memory[name], array, rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("case", ["full kl", "diagonal is", "shared squared_l2", "coupled mahalanobis", "em alpha:2"])
def test_a_state_whose_units_were_changed_before_the_shards_began_merges_rightly(case: str) -> None:
    """As after components that were long out of use: base, or log_unit, is far from zero when the round begins."""
    method, divergence = ADDITIVE[case]
    before = begun(case)
    powers = np.array([18.0, -3.0, 0.0, 1.0])[:K]
    if "unit" not in before.memory:  # W itself must stay in its set
        powers = np.zeros(K)
    moved = rescaled(method, divergence, before, powers)
    results = []
    for start in (before, moved):
        sums = [method.summary(divergence, start, after) for after in shards(case, start, np.split(samples(600, 3), 2))]
        results.append(method.merged(divergence, start, total(sums)))
    np.testing.assert_allclose(results[1].W, results[0].W, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("case", ["full kl", "coupled mahalanobis", "em kl"])
def test_a_reservoir_is_left_as_it_was_and_not_summed(case: str) -> None:
    from onmf.learner.reservoir import Reservoir

    method, divergence = ADDITIVE[case]
    reservoir = Reservoir(97)
    before = begun(case, 200)
    before = replace(before, memory=before.memory | reservoir.start(before.W))
    before = learnt(method, divergence, before, samples(200, 5), reservoir=reservoir).state
    after = learnt(method, divergence, before, samples(300, 3), reservoir=reservoir).state
    summary = method.summary(divergence, before, after)
    assert not {"kept", "kept_of"} & set(summary.arrays)
    merged = method.merged(divergence, before, summary)
    np.testing.assert_array_equal(merged.memory["kept"], before.memory["kept"])
    learnt(method, divergence, merged, samples(30, 4), reservoir=reservoir)


@additive
def test_summary_and_merged_change_nothing_they_are_given(case: str) -> None:
    method, divergence = ADDITIVE[case]
    before = begun(case, 100)
    after = learnt(method, divergence, before, samples(100, 3)).state
    summary = method.summary(divergence, before, after)
    arrays = [*before.memory.values(), before.W, *after.memory.values(), after.W, *summary.arrays.values()]
    copies = [array.copy() for array in arrays]
    merged = method.merged(divergence, before, method.summary(divergence, before, after))
    method.merged(divergence, before, summary)
    learnt(method, divergence, merged, samples(60, 4))
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("name", [name for name in METHODS if small(name).why_not_on_shards])
def test_what_is_not_additive_raises_an_error_with_a_reason(name: str) -> None:
    method: Any = small(name)
    refusal = f"method '{method.name}' cannot learn on shards: {method.why_not_on_shards}."
    state = method.start(usual(name), np.ones((3, 12)), DictionarySet())
    for attempt in (
        lambda: method.summary(usual(name), state, state),
        lambda: method.merged(usual(name), state, Sums(1, 1, {})),
    ):
        with pytest.raises(ValueError, match=refusal):
            attempt()


def test_the_fast_methods_are_additive_and_the_others_are_not() -> None:
    assert {name for name in METHODS if not small(name).why_not_on_shards} == {"surrogate", "sparse_surrogate", "em"}
