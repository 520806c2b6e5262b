from __future__ import annotations

import re
from pathlib import Path

import pytest
from sklearn.base import clone

from onmf.divergences import base as divergences
from onmf.streams import registry as sources

PAPERS = ("l1", "l2", "huber", "alpha", "hellinger", "kl", "mahalanobis", "beta", "is", "squared_l2")
ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples() -> list:
    found = []
    for page in PAGES:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            found.append(pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}"))
    return found


@pytest.mark.parametrize("code", examples())
def test_examples_in_the_docs_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for registry in (divergences, sources):  # what an example registers does not stay
        monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})  # noqa: S102


def test_the_example_of_the_readme_learns(capsys):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    names: dict = {}
    exec(code, names)  # noqa: S102
    capsys.readouterr()
    X, model = names["X"], names["model"]
    still = clone(model).set_params(method="paper", a=1e-12).fit(X)
    assert model.loss(X[:100]) < 0.5 * still.loss(X[:100])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_the_docs_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_readme_names_the_divergences_of_the_paper():
    text = (ROOT / "README.md").read_text()
    assert all(f"`{name}" in text for name in PAPERS)
