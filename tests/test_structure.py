"""The structure of the code: what a reader may rely on when reading one class alone."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import onmf
from benchmarks.house import traced

FLAT = ("onmf.estimators", "onmf.persistence")


def classes_of(package: str) -> Iterator[type]:
    """All classes that the modules of a package define."""
    found: ModuleType = importlib.import_module(package)
    for each in pkgutil.walk_packages(found.__path__, f"{package}."):
        module = importlib.import_module(each.name)
        yield from (kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == each.name)


def implemented(kind: type) -> set[str]:
    """The public methods and properties that a class itself implements; abstract ones are not."""
    members = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    return {
        name
        for name, member in members.items()
        if (inspect.isfunction(member) or isinstance(member, (property, classmethod, staticmethod)))
        and not getattr(member, "__isabstractmethod__", False)
    }


@pytest.mark.parametrize("package", FLAT)
def test_no_class_overrides_a_public_method_that_another_one_of_ours_implements(package: str) -> None:
    overridden = {
        f"{kind.__name__}.{name} of {base.__name__}"
        for kind in classes_of(package)
        for base in kind.__mro__[1:]
        if base.__module__.partition(".")[0] == onmf.__name__
        for name in implemented(kind) & implemented(base)
    }
    assert not overridden


def test_no_property_takes_a_lock_that_a_forked_child_could_inherit() -> None:
    """``functools.cached_property`` does in Python 3.11; that of ``onmf._support.threads`` does not."""
    sources = Path(onmf.__file__).parent.rglob("*.py")
    assert not [path for path in sources if re.search(r"functools.*cached_property", path.read_text())]


def test_a_fit_passes_through_forty_modules_at_most() -> None:
    X = np.random.default_rng(0).poisson(3.0, (200, 8)).astype(float)

    def fit() -> None:
        onmf.OnlineNMF(5, divergence="kl", random_state=0, batch_size=200).fit(X)

    fit()  # compiles and imports
    _, modules = traced(fit)
    assert len(modules) <= 40, sorted(modules)


def test_the_tests_that_are_called_slow_exist() -> None:
    """``make quick`` leaves out what tests/slow.txt names."""
    folder = Path(__file__).parent
    for line in (folder / "slow.txt").read_text().split():
        file, _, name = line.partition("::")
        assert f"def {name}(" in (folder / file).read_text(), f"tests/slow.txt names {line}, which is gone"


def test_the_list_of_slow_tests_names_tests_that_are_there() -> None:
    tests = Path(__file__).parent
    there = {
        f"{path.name}::{name}"
        for path in tests.glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), flags=re.MULTILINE)
    }
    assert set((tests / "slow.txt").read_text().split()) <= there
