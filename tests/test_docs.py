"""The pages: their examples run, their links lead somewhere, and what they say of the code is so."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

import onmf
from onmf import OnlineNMF, coefficients, divergences, methods
from onmf.cli import main as cli
from onmf.coefficients.problem import Problem
from onmf.data import open_source
from onmf.data import registry as sources
from onmf.divergences import Divergence
from onmf.methods import Choice

PAPERS = ("l1", "l2", "huber", "alpha", "hellinger", "kl", "mahalanobis", "beta", "is", "squared_l2")
ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "onmf"
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
ARCHITECTURE = (ROOT / "docs" / "project" / "architecture.md").read_text()
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
X = np.random.default_rng(0).gamma(1, 1, (200, 3)) @ np.random.default_rng(1).gamma(1, 1, (3, 10))


def examples(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


# Examples and links

RUN = {
    f"{page.relative_to(ROOT)}-{number}": code
    for page in PAGES
    for number, code in enumerate(examples(page))
    if not code.startswith("# src/onmf/")  # those are modules, used below
}


@pytest.mark.parametrize("name", RUN)
def test_examples_in_the_docs_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2 if "checkpoint=" in RUN[name] else 1):  # the second time, the files of the first are there
        exec(compile(RUN[name], "example", "exec"), {"__name__": "__main__"})  # noqa: S102


def test_the_example_of_the_readme_learns(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(examples(ROOT / "README.md")[0], names)  # noqa: S102
    capsys.readouterr()
    samples, model = names["X"], names["model"]
    still = clone(model).set_params(method="paper:step=canonical,a=1e-12,max_iter=1").fit(samples)
    assert model.loss(samples[:100]) < 0.5 * still.loss(samples[:100])


def test_the_tutorial_the_library_and_the_command_choose_the_same_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "start" / "tutorial.md"
    monkeypatch.chdir(tmp_path)
    (table,) = (code for code in examples(page) if "savetxt" in code)
    exec(table, {})  # noqa: S102
    answer = CliRunner().invoke(cli.app, ["suggest", "words.csv", "--json"])
    chosen = set(re.findall(r'divergence="(\w+)"|--divergence (\w+)|It suggests `(\w+)`', page.read_text()))
    assert {name for names in chosen for name in names if name} == {json.loads(answer.stdout)["divergence"]}
    assert onmf.suggest_divergence(onmf.data.examples.docstrings().counts).divergence == "kl"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_the_docs_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_docs_name_the_divergences_of_the_paper_and_all_methods() -> None:
    built_in = [name for name in methods.names() if methods.find(name).__module__.startswith("onmf.")]
    assert all(f"`{name}" in (ROOT / "docs" / "guides" / "divergences.md").read_text() for name in PAPERS)
    assert all(f'`"{name}"`' in (ROOT / "docs" / "explanation" / "methods.md").read_text() for name in built_in)


def test_every_method_that_the_docs_write_with_constants_is_one() -> None:
    spelt = re.compile(rf"[`\"' ]((?:{'|'.join(methods.names())}):\w+=[\w.,=+-]*\w)")
    found = [text for page in PAGES for text in spelt.findall(page.read_text())]
    assert len(found) > 5
    for text in found:
        methods.get(text.replace("accelerated", "constant"))  # CONTRIBUTING.md adds it


# What CONTRIBUTING.md and architecture.md say of the code


def section(title: str) -> str:
    return f"{ARCHITECTURE}\n{CONTRIBUTING}".split(f"\n## {title}\n")[1].split("\n## ")[0]


def folders() -> list[str]:
    """The folders of the package in architecture.md, in its order."""
    block = re.search(r"```\nsrc/onmf/\n(.*?)```", section("How the code is laid out"), re.DOTALL)
    assert block
    return [line.split()[0].rstrip("/") for line in block[1].splitlines() if line.startswith("    ")]


def test_the_folders_on_the_page_are_those_of_the_package() -> None:
    real = {path.name for path in SOURCES.iterdir()} - {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    assert sorted(folders()) == sorted(real)


def test_the_folders_on_the_page_are_in_the_order_of_the_import_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    level = {name.strip(): number for number, layer in enumerate(layers) for name in layer.split("|")}
    levels = [level[name.removesuffix(".py")] for name in folders()]
    assert levels == sorted(levels)


def lines_of_code(text: str) -> int:
    """The lines of a module that are no docstrings."""
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, holders) and ast.get_docstring(node)]
    return len(text.splitlines()) - sum(node.body[0].end_lineno - node.body[0].lineno + 1 for node in nodes)  # type: ignore[operator]


def test_no_file_of_the_package_is_longer_than_contributing_allows() -> None:
    most = int(re.search(r"in (\d+) lines at most besides", section("Rules"))[1])  # type: ignore[index]
    lines = {str(path.relative_to(SOURCES)): lines_of_code(path.read_text()) for path in SOURCES.rglob("*.py")}
    assert {name: count for name, count in lines.items() if count > most} == {}


def test_the_path_of_a_fit_is_the_one_that_a_fit_takes(tmp_path: Path) -> None:
    named = re.findall(r"[\w/]+\.py", section("The path of a fit"))
    assert [name for name in named if not (SOURCES / name).exists()] == []
    passed = set()

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            passed.add(frame.f_globals.get("__name__", "").removeprefix("onmf.").replace(".", "/") + ".py")

    np.save(tmp_path / "x.npy", X)
    sys.setprofile(watch)
    try:
        model = OnlineNMF(3, divergence="kl", random_state=0)
        model.fit(open_source(str(tmp_path / "x.npy")), checkpoint=onmf.Checkpoint(tmp_path / "run"))
        model.transform(X)
    finally:
        sys.setprofile(None)
    elsewhere = {"cli/fit.py", "device/engine.py", "device/problem.py", "learner/rounds.py"}
    assert set(named) - passed == elsewhere


# One new file each


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """The module of a section, imported from a folder that its package looks in; everything is forgotten afterwards."""
    for family in (Divergence, Choice, coefficients.CoefficientSolver):
        monkeypatch.setattr(family, "_classes", dict(family._classes))
    monkeypatch.setattr(sources, "_registry", dict(sources._registry))
    monkeypatch.setattr(cli.app, "registered_commands", list(cli.app.registered_commands))
    monkeypatch.chdir(tmp_path)

    def add(title: str) -> ModuleType:
        (code,) = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
        path = Path(code.splitlines()[0].removeprefix("# src/onmf/"))
        package = importlib.import_module(f"onmf.{path.parent}")
        (tmp_path / path.parent).mkdir()
        (tmp_path / path).write_text(code)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / path.parent)])
        assert path.stem in [module.name for module in pkgutil.iter_modules(package.__path__)]  # the package finds it
        name = f"onmf.{path.parent}.{path.stem}"
        monkeypatch.setitem(sys.modules, name, None)
        del sys.modules[name]
        monkeypatch.setattr(package, path.stem, None, raising=False)
        return importlib.import_module(name)

    return add


def test_a_divergence_is_one_new_file(added: Callable[[str], ModuleType]) -> None:
    with pytest.raises(ValueError, match="unknown divergence 'logcosh'"):
        divergences.get("logcosh")
    added("Adding a divergence")
    for method in ("surrogate", "paper"):
        model = OnlineNMF(3, divergence="logcosh", method=method, random_state=0, max_passes=3).fit(X)
        assert model.loss(X) < 0.5 * OnlineNMF(1, divergence="logcosh", random_state=0).fit(X).loss(X)
    onmf.save(model, "m")
    assert onmf.load("m").divergence_ == model.divergence_


def test_a_coefficient_solver_is_one_new_file(added: Callable[[str], ModuleType]) -> None:
    module = added("Adding a coefficient solver")
    model = OnlineNMF(3, divergence="huber", method="paper:solver=accelerated", random_state=0).fit(X)
    assert isinstance(model.method_.coefficient_solver(model.divergence_), module.Accelerated)
    problem = Problem(model.divergence_, X, model.components_)
    fast, plain = (
        coefficients.find(name)(tol=1e-6, max_iter=20_000).solve(problem) for name in ("accelerated", "constant")
    )
    assert fast.converged.all()
    assert fast.iterations.mean() < 0.5 * plain.iterations.mean()
    with pytest.raises(ValueError, match=r"Accelerated cannot solve kl: .* use armijo"):
        OnlineNMF(3, divergence="kl", method="paper:solver=accelerated").fit(X)


def test_a_method_is_one_new_file(added: Callable[[str], ModuleType]) -> None:
    added("Adding a method")
    losses = {}
    for eta in (1e-12, 0.1):
        model = OnlineNMF(3, divergence="kl", method=f"adagrad:eta={eta}", init="uniform", random_state=0)
        losses[eta] = model.fit(X).loss(X)
    assert losses[0.1] < 0.3 * losses[1e-12]
    onmf.save(model, "m")
    on = onmf.load("m").partial_fit(X)
    assert np.array_equal(on.components_, model.partial_fit(X).components_)
    with pytest.raises(ValueError, match="method 'adagrad' has no constant 'a'; its constants are tau, eta"):
        OnlineNMF(3, method="adagrad:a=3").fit(X)


def test_a_source_is_one_new_file(added: Callable[[str], ModuleType]) -> None:
    added("Adding a source")
    X.astype(np.float32).tofile("spectra.f32")
    source = open_source("spectra.f32?columns=10")
    assert source.n_samples == len(X)
    expected = OnlineNMF(3, random_state=0).fit(X.astype(np.float32))
    assert np.array_equal(OnlineNMF(3, random_state=0).fit(source).components_, expected.components_)


def test_a_command_is_one_new_file(added: Callable[[str], ModuleType]) -> None:
    added("Adding a command")
    np.savetxt("x.csv", X, delimiter=",", header=",".join("abcdefghij"), comments="")
    runner = CliRunner()
    assert "List the heaviest features" in runner.invoke(cli.app, ["--help"], env={"COLUMNS": "200"}).stdout
    assert runner.invoke(cli.app, ["fit", "x.csv", "-k", "3", "-o", "m"]).exit_code == 0
    said = runner.invoke(cli.app, ["components", "m", "--top", "2"]).stdout.splitlines()
    W = onmf.load("m").components_
    assert said == [f"{k}: {', '.join(np.array(list('abcdefghij'))[np.argsort(-W[k])[:2]])}" for k in range(3)]
