"""The referee covers what it promises, and tells the same from what differs."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from benchmarks.referee import library
from benchmarks.referee.cases import DIVERGENCES, FACTORS, METHODS, Case, covering, every, possible, raising, subsets
from benchmarks.referee.record import DIFFERS, EQUAL, PLACE, ROUNDING, judged
from benchmarks.referee.times import Comparison
from benchmarks.referee.ways import outcome


def test_every_pair_of_values_occurs_in_a_case_that_works_or_in_one_that_raises_an_error() -> None:
    works, fails = ({pair for case in cases for pair in subsets(case, 2)} for cases in (covering(), raising()))
    assert works == {pair for case in possible() for pair in subsets(case, 2)}
    numbers = range(len(FACTORS))
    pairs = {((i, a), (j, b)) for i in numbers for j in numbers if i < j for a in FACTORS[i] for b in FACTORS[j]}
    assert pairs <= works | fails


def test_all_methods_and_divergences_are_among_the_cases() -> None:
    methods, divergences = library.names()
    assert methods <= set(METHODS)
    assert divergences == {name.partition(":")[0] for name in DIVERGENCES}


def test_the_record_has_every_case() -> None:
    assert list(json.loads(PLACE.read_text(encoding="utf-8"))["cases"]) == [case.name for case in every()]


@pytest.mark.parametrize("case", [Case(), Case("surrogate", "squared_l2", "missing", "partial_fit"), Case("em", "l1")])
def test_a_case_equals_itself(case: Case) -> None:
    assert judged(outcome(case), outcome(case)).word == EQUAL


def test_rounding_is_told_from_a_difference() -> None:
    then = outcome(Case("auto", "squared_l2"))
    W = np.frombuffer(base64.b64decode(then["W"])) * (1 + 1e-15)
    moved = {"W": base64.b64encode(W.tobytes()).decode()}
    for by, word in ((1e-12, ROUNDING), (1e-7, DIFFERS), (np.nan, DIFFERS)):
        assert judged(then | moved | {"losses": [(1 + by) * each for each in then["losses"]]}, then).word == word
    assert judged(then | {"counts": {}}, then).word == DIFFERS
    assert judged({"raises": "ValueError"}, then).word == DIFFERS


def test_slower_is_what_is_beyond_noise() -> None:
    times = np.random.default_rng(0).normal(1.0, 0.01, 25)
    assert Comparison(times, times[::-1]).verdict == "equal"
    assert Comparison(times, 1.1 * times[::-1]).verdict == "SLOWER"
    assert Comparison(times, 0.9 * times[::-1]).verdict == "faster"
