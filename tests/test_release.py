"""What is published: versions that agree, pinned actions, a recipe, a solver for benchopt, and nothing forgotten."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from runpy import run_path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onmf import __version__

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yml"
RECIPE = ROOT / "packaging" / "conda-forge" / "recipe.yaml"
IN_CONDA = {"xxhash": "python-xxhash"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_hash_and_name_their_version(workflow: Path) -> None:
    used = [step["uses"] for job in read(workflow)["jobs"].values() for step in job["steps"] if "uses" in step]
    pinned = re.findall(r"uses: ([\w./-]+@[0-9a-f]{40}) # v\d+\.\d+\.\d+$", workflow.read_text(), re.MULTILINE)
    assert used == pinned
    assert used


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_write_nothing_but_the_identity_of_a_release(workflow: Path) -> None:
    told = read(workflow)
    assert set(told["permissions"].items()) <= {("contents", "read")}
    for name, job in told["jobs"].items():
        allowed = {"id-token": "write"} if (workflow, name) == (RELEASE, "publish") else {"contents": "read"}
        assert job.get("permissions", allowed) == allowed


@pytest.mark.parametrize(
    ("tag", "heading", "left", "complaint"),
    [
        ("v1.2.3", "## 1.2.3 (2030-01-01)", "", ""),
        ("v1.2.4", "## 1.2.3 (2030-01-01)", "", "The tag is not v1.2.3."),
        ("v1.2.3", "## Unreleased", "", "CHANGELOG.md has no heading for 1.2.3."),
        ("v1.2.3", "## 1.2.3 (2030-01-01)", "Write to FILL-IN.", "Fill these in first."),
    ],
)
def test_a_tag_publishes_only_its_own_version_described_and_complete(
    tmp_path: Path, tag: str, heading: str, left: str, complaint: str
) -> None:
    (check,) = (step["run"] for step in read(RELEASE)["jobs"]["build"]["steps"] if "CHANGELOG" in step.get("run", ""))
    for name, text in {
        "src/onmf/_support/version.py": '__version__ = "1.2.3"\n',
        "CHANGELOG.md": f"{heading}\n",
        "RELEASING.md": "FILL-IN marks each place",
        "CODE_OF_CONDUCT.md": left,
        ".github/workflows/release.yml": "grep FILL-IN",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    told = {**os.environ, "GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-ec", check], cwd=tmp_path, env=told, capture_output=True, text=True)  # noqa: S607
    assert (done.returncode != 0, complaint in done.stdout) == (bool(complaint), True), done.stdout + done.stderr


def test_every_place_that_is_left_to_fill_in_is_in_the_list_for_the_owner() -> None:
    listed = (ROOT / "RELEASING.md").read_text().split("\n## ")[1]
    files = [path for kind in ("*.md", "*.toml", "*.cff", "mkdocs.yml") for path in ROOT.glob(kind)]
    marked = [path for path in [*files, RECIPE] if "FILL-IN" in path.read_text() and path.name != "RELEASING.md"]
    assert [path.name for path in marked if f"`{path.relative_to(ROOT)}`" not in listed] == []


def test_the_citation_and_the_recipe_name_the_version_of_the_package() -> None:
    assert read(ROOT / "CITATION.cff")["version"] == __version__
    assert read(RECIPE)["context"]["version"] == __version__


def test_classifiers_the_matrix_and_the_lowest_python_agree() -> None:
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    lowest = PROJECT["requires-python"].removeprefix(">=")
    assert named == [f"3.{minor}" for minor in range(int(lowest.partition(".")[2]), 11 + len(named))]
    assert named == read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert read(RECIPE)["context"]["python_min"] == lowest


def test_the_versions_that_contributing_names_are_the_lowest_ones() -> None:
    stated = (ROOT / "CONTRIBUTING.md").read_text().split("\n## Supported versions\n")[1]
    bounds = [f"python>={PROJECT['requires-python'].removeprefix('>=')}", *PROJECT["dependencies"]]
    bounds += PROJECT["optional-dependencies"]["plots"] + PROJECT["optional-dependencies"]["zarr"]
    lowest = dict(bound.split(">=") for bound in bounds)
    found = re.findall(r"(Python|NumPy|SciPy|scikit-learn|Matplotlib|Zarr) (\d+\.\d+)", stated.replace("\n", " "))
    assert len(found) == 6
    for name, version in found:
        assert f"{lowest[name.lower()]}.".startswith(f"{version}.")


def test_the_recipe_installs_what_the_package_does() -> None:
    recipe = read(RECIPE)
    needed = [line.replace(">=", " >=") for line in PROJECT["dependencies"]]
    named = [f"{IN_CONDA.get(line.split()[0], line.split()[0])} {line.split()[1]}" for line in needed]
    assert recipe["requirements"]["run"] == ["python >=${{ python_min }}", *named]
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert recipe["requirements"]["host"][2:] == [line.replace(">=", " >=") for line in backend]
    commands = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == commands
    assert recipe["about"]["license"] == PROJECT["license"]


def test_forms_for_issues_ask_for_something_and_say_what_they_are_for() -> None:
    forms = {path.stem: read(path) for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")}
    assert sorted(forms) == ["bug", "feature", "wrong-result"]
    for form in forms.values():
        assert {"name", "description", "body"} <= set(form)
        assert f'"{form["name"]}"' in (ROOT / "SUPPORT.md").read_text()
        assert any(field["validations"]["required"] for field in form["body"])


@pytest.mark.parametrize("estimator", ["online", "batch"])
def test_the_solver_for_benchopt_lowers_the_loss_that_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, estimator: str
) -> None:
    """Benchopt is no dependency: what the file takes from it stands in for it here."""
    criterion = SimpleNamespace(SufficientProgressCriterion=lambda **given: SimpleNamespace(**given))
    monkeypatch.setitem(sys.modules, "benchopt", ModuleType("benchopt"))
    monkeypatch.setattr(sys.modules["benchopt"], "BaseSolver", object, raising=False)
    monkeypatch.setitem(sys.modules, "benchopt.stopping_criterion", criterion)
    Solver = run_path(str(ROOT / "packaging" / "benchopt" / "onmf.py"))["Solver"]
    rng = np.random.default_rng(0)
    X, start = rng.random((40, 3)) @ rng.random((3, 12)), (rng.random((40, 3)), rng.random((3, 12)))
    for factor in start:
        factor.flags.writeable = False  # as the benchmark's are
    solver = Solver()
    solver.estimator, losses = estimator, []
    for solver.loss in Solver.parameters["loss"]:
        assert solver.skip(X, 3, start) == (False, None)
        assert solver.skip(-X, 3, start)[0]
        solver.set_objective(X, 3, start)
        assert solver.stopping_criterion.key_to_monitor == f"objective_{solver.loss}"
        for n_iter in (0, 1, 20):
            solver.run(n_iter)
            found = solver.get_result()
            losses.append(np.square(X - found["W"] @ found["H"]).sum())
        assert losses[-1] < losses[-2] / 2 < losses[-3] / 4
