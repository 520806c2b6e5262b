"""Every benchmark starts: its imports are there, and ``--help`` says how to use it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))
PROGRAMS = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for file in FILES
    if 'if __name__ == "__main__"' in file.read_text() and file.parts[-2:] != ("referee", "worker.py")
]  # the referee's worker is no program for people: it answers lines that ``times`` sends

# One process for all: most of what each would take is the imports that they share.
ASK_ALL = """
import contextlib, importlib, io, json, runpy, sys
said = {}
for name in json.loads(sys.argv[1]):
    sys.argv, printed = [name, "--help"], io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_module(name, run_name="__main__")
    except SystemExit as stop:
        said[name] = [stop.code or 0, printed.getvalue()]
    except ImportError as error:
        said[name] = [1, f"{type(error).__name__}: {error}"]
missing = []
for module, names in json.loads(sys.argv_imports):
    for name in names:
        try:
            hasattr(importlib.import_module(module), name) or importlib.import_module(f"{module}.{name}")
        except ImportError as error:
            if error.name != "torch":
                missing.append(f"{module}.{name}")
print(json.dumps([said, missing]))
"""


def imports_of(file: Path) -> list[tuple[str, list[str]]]:
    """What a file imports from this repository, also within functions, which ``--help`` does not reach."""
    nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    own = [node for node in nodes if str(node.module).partition(".")[0] in ("onmf", "reproduction", "benchmarks")]
    return [(str(node.module), [each.name for each in node.names]) for node in own]


@pytest.fixture(scope="module")
def answers() -> tuple[dict[str, tuple[int, str]], list[str]]:
    imports = [each for file in FILES for each in imports_of(file)]
    code = ASK_ALL.replace("sys.argv_imports", repr(json.dumps(imports)))
    done = processes.run("-c", code, json.dumps(PROGRAMS), text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    said, missing = json.loads(done.stdout.splitlines()[-1])
    return said, missing


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_says_how_to_use_it(name: str, answers: tuple[dict[str, tuple[int, str]], list[str]]) -> None:
    status, printed = answers[0].get(name, (1, "it took no notice of --help"))
    if "No module named 'torch'" in printed:
        pytest.skip("install onmf[gpu]")
    assert status == 0, printed
    assert printed.startswith("usage: ")


def test_what_benchmarks_import_is_there(answers: tuple[dict[str, tuple[int, str]], list[str]]) -> None:
    assert answers[1] == []
