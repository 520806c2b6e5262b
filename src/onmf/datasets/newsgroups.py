"""20 Newsgroups, sorted by date: word counts of 18774 Usenet posts, the earlier for training, the later for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onmf._support.arrays import Counts
from onmf.datasets.counts import count_matrix
from onmf.datasets.folder import Files, PublicSet
from onmf.datasets.reading import damaged, read_lines, read_table, whole

PUBLIC_SET = PublicSet(
    "20 Newsgroups",
    "20newsgroups",
    "http://qwone.com/~jason/20Newsgroups (20news-bydate-matlab.tgz and vocabulary.txt; K. Lang, ICML 1995)",
)
MOST_GROUPS = 1000  # a larger number of a group is damage


@dataclass(frozen=True, eq=False)
class Part:
    """Counts (documents x words, csr) and the group of each document, numbered from 0."""

    counts: Any
    labels: Counts


@dataclass(frozen=True, eq=False)
class Newsgroups:
    """Both parts over one vocabulary, and the names of the groups, or None where train.map is missing."""

    train: Part
    test: Part
    vocabulary: list[str]
    label_names: list[str] | None


def load(folder: str | Path | None = None) -> Newsgroups:
    """Read train and test (.data, .label), vocabulary.txt and train.map from the folder, or from that in ONMF_DATA."""
    files = PUBLIC_SET.open(folder)
    vocabulary = read_lines(files.path("vocabulary.txt"))
    names = _names(files.find("train.map"))
    n_groups = MOST_GROUPS if names is None else len(names)
    train, test = (_part(files, part, len(vocabulary), n_groups) for part in ("train", "test"))
    return Newsgroups(train, test, vocabulary, names)


def _part(files: Files, name: str, n_words: int, n_groups: int) -> Part:
    """As many documents as there are labels: some may have no word at all."""
    path = files.path(f"{name}.label")
    labels = whole(path, read_table(path, 1)[:, 0], 1, n_groups, "group") - 1
    path = files.path(f"{name}.data")
    documents, words, counts = read_table(path, 3).T
    return Part(count_matrix(path, documents, words, counts, (len(labels), n_words)), labels)


def _names(path: Path | None) -> list[str] | None:
    """Lines of a name and its number, from 1."""
    if path is None:
        return None
    pairs = [line.rsplit(maxsplit=1) for line in read_lines(path)]
    if any(len(pair) != 2 for pair in pairs):
        raise damaged(path, "a line is not a name and a number")
    names = {number: name for name, number in pairs}
    numbers = [str(number) for number in range(1, len(pairs) + 1)]
    if set(names) != set(numbers):
        raise damaged(path, f"its numbers are not 1 to {len(pairs)}")
    return [names[number] for number in numbers]
