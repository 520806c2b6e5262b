"""A corpus that everybody has: the docstrings of Python's standard library, by package, read from its sources."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import numpy as np

from onmf.datasets.text import Texts

PACKAGES = ("asyncio", "email", "multiprocessing", "unittest", "xml")
LEAST_WORDS = 8  # shorter texts say too little


def load() -> Texts:
    """The docstrings of a few packages' modules, classes and functions, as counts of words of three or more letters."""
    from sklearn.feature_extraction.text import CountVectorizer

    library = Path(sysconfig.get_path("stdlib"))
    found = [
        (label, text)
        for label, package in enumerate(PACKAGES)
        for path in sorted((library / package).rglob("*.py"))
        if "test" not in path.relative_to(library / package).parts
        for text in _texts(path)
    ]
    labels = [label for label, _ in found]
    if len(set(labels)) < len(PACKAGES):
        raise FileNotFoundError(
            f"the sources of Python's standard library are not in {library}: they are part of a full installation."
        )
    vectoriser = CountVectorizer(stop_words="english", token_pattern=r"(?u)\b[a-z]{3,}\b", min_df=3)  # noqa: S106
    counts = vectoriser.fit_transform(text for _, text in found)
    return Texts(counts, vectoriser.get_feature_names_out().tolist(), np.asarray(labels), list(PACKAGES))


def _texts(path: Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for text in found if text is not None and len(text.split()) >= LEAST_WORDS]
