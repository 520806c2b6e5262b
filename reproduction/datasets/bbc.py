"""BBC News: stemmed word counts of 2225 articles of 2004 and 2005 in five classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from onmf.data.examples import Texts
from reproduction.arrays import Counts
from reproduction.datasets.files import PublicSet, damaged, read_lines, read_table, whole
from reproduction.datasets.text import count_matrix

PUBLIC_SET = PublicSet(
    "BBC News",
    "bbc",
    "http://mlg.ucd.ie/datasets/bbc.html (pre-processed; D. Greene and P. Cunningham, ICML 2006)",
)
CLUSTERS = "%Clusters"  # the header line of bbc.classes that names the classes


def load(folder: str | Path | None = None) -> Texts:
    """Read bbc.mtx, bbc.terms and bbc.classes from the folder, by default $ONMF_DATA; the labels are the classes."""
    files = PUBLIC_SET.open(folder)
    terms = read_lines(files.path("bbc.terms"))
    labels, label_names = _classes(files.path("bbc.classes"))
    return Texts(_counts(files.path("bbc.mtx"), len(labels), len(terms)), terms, labels, label_names)


def _classes(path: Path) -> tuple[Counts, list[str]]:
    """Read lines of a document and its class, both numbered from 0, after a header that names the classes."""
    header = next((line.split(maxsplit=2) for line in read_lines(path) if line.startswith(CLUSTERS)), [])
    if len(header) != 3:
        raise damaged(path, f"no line '{CLUSTERS} NUMBER NAMES' names the classes")
    names = [name.strip() for name in header[2].split(",")]
    table = read_table(path, 2)
    documents = whole(path, table[:, 0], 0, len(table) - 1, "document number")
    if len(np.unique(documents)) != len(documents):
        raise damaged(path, "a document has two classes")
    labels = np.empty(len(table), dtype=np.int64)
    labels[documents] = whole(path, table[:, 1], 0, len(names) - 1, "class")
    return labels, names


def _counts(path: Path, n_documents: int, n_terms: int) -> Any:
    """Read a Matrix Market file of terms x documents: the first line of numbers is the size, the others are entries."""
    kind = read_lines(path)[0].lower().split()
    if kind not in (["%%matrixmarket", "matrix", "coordinate", field, "general"] for field in ("real", "integer")):
        raise damaged(path, "its first line is not that of a Matrix Market file of coordinates")
    table = read_table(path, 3)
    (*size, n_entries), entries = table[0], table[1:]
    if size != [n_terms, n_documents]:
        raise damaged(path, f"its size is not the {n_terms} terms x {n_documents} documents of the other files")
    if n_entries != len(entries):
        raise damaged(path, f"it has {len(entries)} entries instead of {n_entries:.15g}")
    words, documents, counts = entries.T
    return count_matrix(path, documents, words, counts, (n_documents, n_terms))
