"""The reproduction is a user of the library: it imports nothing but the public interface."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import onmf
import onmf.coefficients.kernels

FOLDER = Path(__file__).resolve().parents[1] / "reproduction"
FILES = sorted(FOLDER.rglob("*.py"))
PUBLIC = {
    "onmf": set(onmf.__all__),
    "onmf.coefficients": set(onmf.coefficients.__all__),
    "onmf.coefficients.kernels": set(onmf.coefficients.kernels.__all__),
    "onmf.data": {*onmf.data.__all__, "examples"},
    "onmf.data.examples": None,  # every name that has no underscore
    "onmf.divergences": set(onmf.divergences.__all__),
    "onmf.methods": set(onmf.methods.__all__),
}


def private_imports(text: str) -> list[str]:
    """The imports of the library that are not public."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if each.name.startswith("onmf.")]
        elif isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "onmf":
            for each in node.names:
                names = PUBLIC.get(str(node.module), set())
                if each.name.startswith("_") or (names is not None and each.name not in names):
                    found.append(f"{node.module}.{each.name}")
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(FOLDER).as_posix())
def test_only_the_public_interface_is_imported(file: Path) -> None:
    assert private_imports(file.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "from onmf._support.arrays import Array",
        "import onmf.learner.run",
        "from onmf.methods import paper",
        "from onmf.coefficients.kernels.gram import pack",
        "from onmf.data.base import recut",
        "def late():\n    from onmf import estimators",
    ],
)
def test_private_imports_are_found(line: str) -> None:
    assert private_imports(line)
