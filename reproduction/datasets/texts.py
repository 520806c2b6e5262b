"""Collections of texts as counts of documents x words, and the weighting and selection of words.

- BBC News: stemmed word counts of 2225 articles of 2004 and 2005 in five classes.
- 20 Newsgroups, sorted by date: word counts of 18774 Usenet posts, the earlier for training, the later for tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from onmf.data.examples import Texts
from reproduction.arrays import Array, Counts
from reproduction.datasets.files import PublicSet, damaged, read_lines, read_table, whole

BBC = PublicSet(
    "BBC News",
    "bbc",
    "http://mlg.ucd.ie/datasets/bbc.html (pre-processed; D. Greene and P. Cunningham, ICML 2006)",
)
CLUSTERS = "%Clusters"  # the header line of bbc.classes that names the classes


def load_bbc(folder: str | Path | None = None) -> Texts:
    """Read bbc.mtx, bbc.terms and bbc.classes from the folder, by default $ONMF_DATA; the labels are the classes."""
    terms = read_lines(BBC.path(folder, "bbc.terms"))
    labels, label_names = _bbc_classes(BBC.path(folder, "bbc.classes"))
    return Texts(_bbc_counts(BBC.path(folder, "bbc.mtx"), len(labels), len(terms)), terms, labels, label_names)


def _bbc_classes(path: Path) -> tuple[Counts, list[str]]:
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


def _bbc_counts(path: Path, n_documents: int, n_terms: int) -> Any:
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


NEWSGROUPS = PublicSet(
    "20 Newsgroups",
    "20newsgroups",
    "http://qwone.com/~jason/20Newsgroups (20news-bydate-matlab.tgz and vocabulary.txt; K. Lang, ICML 1995)",
)
MOST_GROUPS = 1000  # where train.map does not name them


def load_newsgroups(folder: str | Path | None = None) -> tuple[Texts, Texts]:
    """Read the training and the test posts, over one vocabulary; labels are groups.

    They are in train and test (.data, .label), vocabulary.txt and train.map in the folder, by default $ONMF_DATA.
    Without train.map, groups are named "group 1", "group 2", ...
    """
    vocabulary = read_lines(NEWSGROUPS.path(folder, "vocabulary.txt"))
    path = NEWSGROUPS.find(folder, "train.map")
    names = [f"group {number}" for number in range(1, MOST_GROUPS + 1)] if path is None else _group_names(path)
    train, test = (_newsgroups_part(folder, part, vocabulary, names) for part in ("train", "test"))
    return train, test


def _newsgroups_part(folder: str | Path | None, name: str, words: list[str], names: list[str]) -> Texts:
    """Read one document per label; some may have no words at all."""
    path = NEWSGROUPS.path(folder, f"{name}.label")
    labels = whole(path, read_table(path, 1)[:, 0], 1, len(names), "group") - 1
    path = NEWSGROUPS.path(folder, f"{name}.data")
    documents, word, counts = read_table(path, 3).T
    return Texts(count_matrix(path, documents, word, counts, (len(labels), len(words))), words, labels, names)


def _group_names(path: Path) -> list[str]:
    """Read lines of a name and its number, from 1."""
    pairs = [line.rsplit(maxsplit=1) for line in read_lines(path)]
    if any(len(pair) != 2 for pair in pairs):
        raise damaged(path, "a line is not a name and a number")
    names = {number: name for name, number in pairs}
    numbers = [str(number) for number in range(1, len(pairs) + 1)]
    if set(names) != set(numbers):
        raise damaged(path, f"its numbers are not 1 to {len(pairs)}")
    return [names[number] for number in numbers]


MOST = 10**9  # a larger count means damage


def count_matrix(path: Path, documents: Array, words: Array, counts: Array, shape: tuple[int, int]) -> Any:
    """Return the csr matrix, documents as rows, of entries numbered from 1, which were read from ``path``.

    ``shape`` comes from other files, so documents without words keep their rows.
    """
    rows = whole(path, documents, 1, shape[0], "document number") - 1
    columns = whole(path, words, 1, shape[1], "word number") - 1
    values = whole(path, counts, 0, MOST, "count").astype(np.float64)
    # 32-bit indices, since not every sparse routine takes longer ones.
    matrix = scipy.sparse.csr_array((values, (rows.astype(np.int32), columns.astype(np.int32))), shape=shape)
    matrix.eliminate_zeros()
    return matrix


def tfidf(counts: Any) -> Any:
    """Return (1 + log count) * log(documents / documents with the word) as csr; the zeros of ``counts`` stay zeros.

    The logarithm keeps a frequent word from drowning out the others; a word that is in every document gets 0.
    """
    weights = scipy.sparse.csr_array(counts, dtype=np.float64, copy=True)
    weights.sum_duplicates()
    weights.eliminate_zeros()
    if not (np.isfinite(weights.data) & (weights.data >= 1)).all():
        raise ValueError("tf-idf needs counts: entries must be finite, and either 0 or at least 1.")
    n_documents, n_words = weights.shape
    document_frequency = np.bincount(weights.indices, minlength=n_words)
    idf = np.log(n_documents / np.maximum(document_frequency, 1))  # a word in no document has no entry to weigh
    weights.data = (1.0 + np.log(weights.data)) * idf[weights.indices]
    weights.eliminate_zeros()
    return weights


def leading_words(counts: Any, n: int) -> Counts:
    """Return the indices of the n columns of largest l1 norm, largest first; all if there are fewer."""
    if n < 1:
        raise ValueError(f"n must be at least 1, not {n}.")
    norms = np.asarray(abs(counts).sum(axis=0), dtype=np.float64).ravel()
    return np.argsort(-norms, kind="stable")[:n].astype(np.int64)
