"""One table of settings: what the constructors, their documentation, files and the command line say agrees with it."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from onmf import BatchNMF, OnlineNMF, Sets
from onmf.model.settings import BATCH, ONLINE, Setting, defaults

tables = pytest.mark.parametrize(("estimator", "table"), [(OnlineNMF, ONLINE), (BatchNMF, BATCH)])


@tables
def test_the_constructor_has_the_settings_of_the_table(estimator: type, table: tuple[Setting, ...]) -> None:
    parameters = dict(inspect.signature(estimator).parameters)
    assert {name: parameter.default for name, parameter in parameters.items()} == defaults(table)
    assert next(iter(parameters)) == "n_components"
    assert estimator().get_params(deep=False) == defaults(table)


@tables
def test_every_setting_is_documented_with_its_default(estimator: type, table: tuple[Setting, ...]) -> None:
    section = inspect.getdoc(estimator).partition("Attributes\n")[0].partition("Parameters\n")[2]  # type: ignore[union-attr]
    documented: dict[str, str] = {}
    for names, kind in re.findall(r"^(\w[\w, ]*) : (.*)$", section, re.MULTILINE):
        documented |= dict.fromkeys(names.split(", "), kind)
    assert list(documented) == [each.name for each in table]
    for each in table:
        stated = documented[each.name].partition("default ")[2].replace('"', "")
        numbers = [float(text) for text in re.findall(r"[\d.]+(?:e-?\d+)?", stated)]
        if isinstance(each.default, (int, float)) and numbers:  # "1e-4 and 5000" documents two settings
            assert each.default in numbers, each.name
        elif each.default is not None:
            assert stated == str(each.default), each.name


def test_flags_are_those_of_one_setting_only() -> None:
    flags = [flag for each in ONLINE for flag in each.flags]
    assert len(flags) == len(set(flags))


def test_settings_that_belong_to_what_was_learnt_are_those_that_cannot_be_changed_on_the_way() -> None:
    X = np.random.default_rng(0).random((40, 5)) + 0.1
    other = {
        "n_components": 3,
        "divergence": "squared_l2",
        "fixed": X[:1],
        "scale": "none",
        "clip": (0.2, 0.8),
        "coefficients": "simplex",
        "l1_coefficients": 0.1,
        "l2_coefficients": 0.1,
        "sets": Sets(eps=1e-6),
        "l1_dictionary": 0.1,
        "l2_dictionary": 0.1,
        "reservoir": 5,
    }
    assert other.keys() == {each.name for each in ONLINE if each.learnt}
    for name, value in other.items():
        model = OnlineNMF(2, l2_coefficients=0.2, random_state=0).partial_fit(X)
        with pytest.raises(ValueError, match="cannot be changed while a model learns"):
            model.set_params(**{name: value}).partial_fit(X)
