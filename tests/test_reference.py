"""The reference of the library: complete, without internals, every entry with its sections, and examples that run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import logging
import pydoc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onmf
from onmf.data import registry

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
hooks: Any = pytest.importorskip("hooks")
griffe: Any = pytest.importorskip("griffe")
NAMES = hooks.names()
MODULES = ("onmf", *(f"onmf.{name}" for name in ("data", "data.examples", "distributed", "divergences", "methods")))
MODULES += ("onmf.plots", "onmf.topics")
ESTIMATORS = (onmf.OnlineNMF, onmf.BatchNMF)
OF_SCIKIT_LEARN = re.compile(r"set_output|get_metadata_routing|set_\w+_request")
INTERNAL = {"served", "reconstructed"}  # for the commands
SETUP = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "reference" / "estimators.md").read_text(), re.DOTALL)
SECTION = re.compile(r"^(Parameters|Attributes|Returns|Yields|Examples)\n-+$", re.MULTILINE)
SHARED = re.compile(r"^\w+(?:, [*\w]+)+(?: : .*)?\n    ", re.MULTILINE)  # a line for several parameters
INTERNALS = re.compile(r"\w\.md\b|\bonmf\.(?:_support|device|estimators|insight|learner|model|persistence|selection)\b")


def is_entry(value: Any) -> bool:
    """Is it a class or a function, which has an entry? Types and tables are explained where they are used."""
    return inspect.isclass(value) or inspect.isfunction(value) or inspect.ismethod(value)


def public() -> Iterator[str]:
    """Every class and function that a public module offers, and the estimators' methods."""
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            if is_entry(getattr(importlib.import_module(module), name)):
                yield f"{module}.{name}"
    for estimator in ESTIMATORS:
        for name, _ in inspect.getmembers(estimator, inspect.isfunction):
            if not (name.startswith("_") or name in INTERNAL or OF_SCIKIT_LEARN.fullmatch(name)):
                yield f"onmf.{estimator.__name__}.{name}"


def named(signature: inspect.Signature) -> set[str]:
    return {each for each in signature.parameters if each != "self" and not each.startswith("_")}


def sections(name: str) -> set[str]:
    return set(SECTION.findall(inspect.getdoc(pydoc.locate(name)) or ""))


def test_every_public_name_is_in_the_reference_and_nothing_else() -> None:
    wanted = set(public())
    assert wanted <= NAMES.keys()
    members = {name for name in NAMES if name.rpartition(".")[0] in NAMES}
    assert NAMES.keys() - members <= wanted | {"onmf.topics"}
    assert {name for name in NAMES if name.startswith(("onmf.OnlineNMF.", "onmf.BatchNMF."))} <= wanted


@pytest.mark.parametrize("name", [name for name in NAMES if is_entry(pydoc.locate(name))])
def test_every_entry_has_its_parameters_what_it_returns_and_an_example(name: str) -> None:
    entry: Any = pydoc.locate(name)
    found, owner = sections(name), name.rpartition(".")[0]
    if inspect.isclass(entry):
        written = inspect.isfunction(entry.__init__) or inspect.isfunction(entry.__new__)
        signature = inspect.signature(entry) if written else inspect.Signature()
    else:
        signature = inspect.signature(entry)
        assert signature.return_annotation in (None, "None") or found & {"Returns", "Yields"}
    assert found & {"Parameters", "Attributes"} or not named(signature)
    assert SHARED.findall(inspect.getdoc(entry) or "") == []
    assert "Examples" in found or (inspect.isclass(pydoc.locate(owner)) and "Examples" in sections(owner))


@pytest.fixture(scope="module")
def package() -> Any:
    """The library as the site reads it, without being imported."""
    logging.getLogger("griffe").setLevel(logging.ERROR)
    return griffe.load("onmf", search_paths=[ROOT / "src"])


@pytest.mark.parametrize("name", [name for name in NAMES if "Parameters" in sections(name)])
def test_parameters_have_a_line_each_and_the_defaults_of_the_signature(name: str, package: Any) -> None:
    """The site shows two that share a line with one type and one text, and the first of several choices as default."""
    entry: Any = pydoc.locate(name)
    signature = inspect.signature(entry)
    parsed = griffe.Docstring(inspect.getdoc(entry), parent=package[name.removeprefix("onmf.")]).parse("numpy")
    shown = [each for part in parsed if part.kind.value == "parameters" for each in part.value]
    assert sorted(each.name.lstrip("*") for each in shown) == sorted(named(signature))
    for each in shown:
        default = signature.parameters[each.name.lstrip("*")].default
        if default is not inspect.Parameter.empty and isinstance(default, (str, int, float, tuple, type(None))):
            assert eval(str(each.default)) == default, each.name  # noqa: S307


@pytest.mark.parametrize("name", list(NAMES))
def test_entries_name_no_files_and_no_internal_modules(name: str) -> None:
    text = re.sub(r"\]\([^)]*\)|^ *onmf\.\S+Error: ", "", inspect.getdoc(pydoc.locate(name)) or "", flags=re.MULTILINE)
    assert INTERNALS.findall(text) == []


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the first lines of the reference define."""
    assert SETUP
    found: dict[str, Any] = {}
    exec(SETUP[1], found)  # noqa: S102
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [name for name in NAMES if ">>> " in (getattr(pydoc.locate(name), "__doc__", "") or "")]
)
def test_examples_of_the_reference_run(
    name: str, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))  # one of them registers a source
    example = doctest.DocTestParser().get_doctest(pydoc.locate(name).__doc__ or "", dict(names), name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
    assert runner.run(example).failed == 0
