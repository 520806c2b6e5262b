from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples() -> list:
    found = []
    for page in PAGES:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            found.append(pytest.param(code, id=f"{page.relative_to(ROOT)}-{number}"))
    return found


@pytest.mark.parametrize("code", examples())
def test_examples_in_the_docs_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})  # noqa: S102


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_the_docs_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_readme_names_every_divergence():
    from onmf import divergences

    text = (ROOT / "README.md").read_text()
    assert all(f"`{name}" in text for name in divergences.names())
