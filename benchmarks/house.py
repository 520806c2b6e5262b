"""The size of the house: lines, files, and how far a sample walks. ``make house`` prints them beside their limits.

Modules and calls are traced with ``sys.setprofile`` on small fits; generators are counted on the stack while a Parquet
file is read.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pkgutil
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "onmf"
WEIGHTS = re.compile(r"\.masked\b|sample_weight is (not )?None|entry_weight is (not )?None|weights is (not )?None")


def traced(function: Callable[[], Any]) -> tuple[int, set[str]]:
    """Return how many Python functions a call calls, and the modules of onmf that they are in."""
    calls, modules = 0, set[str]()

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        if event == "call":
            calls += 1
            name = frame.f_globals.get("__name__", "")
            if name.startswith("onmf"):
                modules.add(name)

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls, modules


def generators_from_parquet() -> int:
    """Return the most generators of onmf that are on the stack while a fit reads a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from onmf import OnlineNMF
    from onmf.data import open_source

    most = 0

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal most
        if event != "call" or "pyarrow" not in frame.f_globals.get("__name__", ""):
            return
        names, above = set(), frame
        while above is not None:
            code = above.f_code
            if code.co_flags & inspect.CO_GENERATOR and above.f_globals.get("__name__", "").startswith("onmf"):
                names.add((code.co_filename, code.co_firstlineno))
            above = above.f_back
        most = max(most, len(names))

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        X = np.random.default_rng(0).poisson(3.0, (3000, 8)).astype(float)
        pq.write_table(pa.table({f"f{k}": column for k, column in enumerate(X.T)}), path, row_group_size=500)
        source = open_source(str(path))
        sys.setprofile(watch)
        try:
            OnlineNMF(3, random_state=0).fit(source)
        finally:
            sys.setprofile(None)
    return most


def overriding() -> list[str]:
    """Return the public methods that override an implemented public method of another concrete class of onmf."""
    import onmf

    found = []
    for module in pkgutil.walk_packages(onmf.__path__, "onmf."):
        if module.name == "onmf.__main__" or ".device" in module.name:
            continue
        for cls in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(cls) or cls.__module__ != module.name:
                continue
            for name, value in vars(cls).items():
                if name.startswith("_") or not inspect.isfunction(value):
                    continue
                for base in cls.__mro__[1:]:
                    other = vars(base).get(name)
                    ours = base.__module__.startswith("onmf") and inspect.isfunction(other)
                    if ours and not getattr(other, "__isabstractmethod__", False) and not inspect.isabstract(base):
                        found.append(f"{cls.__module__}.{cls.__name__}.{name} overrides {base.__name__}.{name}")
    return found


def length_of(path: Path, function: str) -> int:
    """Return the lines of a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    return (node.end_lineno or 0) - node.lineno + 1


def figures() -> list[tuple[str, float, float]]:
    """Return every figure with its limit."""
    from onmf import OnlineNMF

    sources = sorted(PACKAGE.rglob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in sources]
    lines = sum(text.count("\n") for text in texts)
    beside = sum(path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "reproduction").rglob("*.py"))
    root = {path.name for path in PACKAGE.iterdir()} - {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    X = np.random.default_rng(0).poisson(3.0, (200, 8)).astype(float)
    Z = np.random.default_rng(0).poisson(3.0, (120, 30)).astype(float)
    warnings.simplefilter("ignore")
    model = OnlineNMF(5, divergence="kl", random_state=0, batch_size=200).fit(X)  # compiles and imports
    model.transform(X[:50])
    fit = traced(lambda: OnlineNMF(5, divergence="kl", random_state=0, batch_size=200).fit(X))
    transform = traced(lambda: model.transform(X[:50]))
    stream = OnlineNMF(5, divergence="kl", random_state=0)
    for first in range(0, 100, 10):
        stream.partial_fit(Z[first : first + 10])
    partial = traced(lambda: stream.partial_fit(Z[100:110]))
    return [
        ("lines of src/onmf", lines, 25_000),
        ("lines of src/onmf and reproduction", lines + beside, 28_500),
        ("files of src/onmf", len(sources), 190),
        ("names at the root", len(root), 15),
        ("modules that a fit passes through", len(fit[1]), 40),
        ("modules that transform passes through", len(transform[1]), 20),
        ("calls of partial_fit of 10 samples", partial[0], 500),
        ("generators between a Parquet file and a chunk", generators_from_parquet(), 5),
        ("files that know of missing values or weights", sum(bool(WEIGHTS.search(text)) for text in texts), 10),
        ("files that know of sparse matrices", sum("issparse" in text for text in texts), 10),
        ("methods that override an implemented one", len(overriding()), 0),
        ("lines of Algorithm 1", length_of(PACKAGE / "learner" / "algorithm.py", "learn"), 50),
    ]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.house")
    parser.add_argument("--overrides", action="store_true", help="list the methods that override implemented ones")
    given = parser.parse_args()
    if given.overrides:
        print("\n".join(overriding()))
        return
    for name, value, limit in figures():
        print(f"{name:50} {value:>8,} {'<=' if value <= limit else '> '} {limit:>8,}")


if __name__ == "__main__":
    main()
