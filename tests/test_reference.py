"""The reference of the library: complete, without internals, every entry with its sections, and examples that run."""

from __future__ import annotations

import doctest
import inspect
import pydoc
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import onmf
from onmf.data import registry

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
hooks: Any = pytest.importorskip("hooks")
NAMES = hooks.names()
ESTIMATORS = (onmf.OnlineNMF, onmf.BatchNMF)
OF_SCIKIT_LEARN = re.compile(r"set_output|get_metadata_routing|set_\w+_request")
INTERNAL = {"served", "reconstructed"}  # for the commands
SETUP = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "reference" / "estimators.md").read_text(), re.DOTALL)


def public() -> Iterator[str]:
    """Every name that a user is offered: those of the package, of its public modules, and the estimators' methods."""
    for name in onmf.__all__:
        if name != "__version__" and not isinstance(getattr(onmf, name), ModuleType):
            yield f"onmf.{name}"
    yield from (
        f"onmf.plots.{name}" for name in onmf.plots.__all__ if name not in ("new_figure", "require_writable_format")
    )
    yield from (f"onmf.topics.{name}" for name in onmf.topics.__all__ if name != "RANKINGS")
    for estimator in ESTIMATORS:
        for name, member in inspect.getmembers(estimator, inspect.isfunction):
            if not (name.startswith("_") or name in INTERNAL or OF_SCIKIT_LEARN.fullmatch(name)):
                assert member.__doc__, name
                yield f"onmf.{estimator.__name__}.{name}"


def test_every_public_name_is_in_the_reference_and_nothing_else_of_the_estimators() -> None:
    wanted = set(public())
    assert wanted <= NAMES.keys()
    assert {name for name in NAMES if name.startswith(("onmf.OnlineNMF.", "onmf.BatchNMF."))} <= wanted


@pytest.mark.parametrize(
    "name", [name for name in NAMES if inspect.isfunction(pydoc.locate(name)) or inspect.ismethod(pydoc.locate(name))]
)
def test_every_function_has_its_parameters_and_what_it_returns(name: str) -> None:
    function: Any = pydoc.locate(name)
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    if name.rpartition(".")[0] in ("onmf.data.Source", "onmf.divergences.Divergence", "onmf.divergences.Separable"):
        return  # what a class of one's own has to write, in a line each
    assert not (set(signature.parameters) - {"self"}) or "Parameters\n----" in text
    nothing = signature.return_annotation in (None, "None")
    assert nothing or "Returns\n----" in text or "Yields\n----" in text


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


def test_every_name_of_the_package_has_an_example() -> None:
    results = ("Consensus", "RankSelection", "Progress")  # that others return
    without = [name for name in public() if ">>> " not in (pydoc.locate(name).__doc__ or "")]
    assert [name for name in without if name.rpartition(".")[2] not in results] == []
