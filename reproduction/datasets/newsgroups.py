"""20 Newsgroups, sorted by date: word counts of 18774 Usenet posts, the earlier for training, the later for tests."""

from __future__ import annotations

from pathlib import Path

from onmf.data.examples import Texts
from reproduction.datasets.files import Files, PublicSet, damaged, read_lines, read_table, whole
from reproduction.datasets.text import count_matrix

PUBLIC_SET = PublicSet(
    "20 Newsgroups",
    "20newsgroups",
    "http://qwone.com/~jason/20Newsgroups (20news-bydate-matlab.tgz and vocabulary.txt; K. Lang, ICML 1995)",
)
MOST_GROUPS = 1000  # where train.map does not name them


def load(folder: str | Path | None = None) -> tuple[Texts, Texts]:
    """Read the training and the test posts, over one vocabulary; labels are groups.

    They are in train and test (.data, .label), vocabulary.txt and train.map in the folder, by default $ONMF_DATA.
    Without train.map, groups are named "group 1", "group 2", ...
    """
    files = PUBLIC_SET.open(folder)
    vocabulary = read_lines(files.path("vocabulary.txt"))
    path = files.find("train.map")
    names = [f"group {number}" for number in range(1, MOST_GROUPS + 1)] if path is None else _names(path)
    train, test = (_part(files, part, vocabulary, names) for part in ("train", "test"))
    return train, test


def _part(files: Files, name: str, words: list[str], names: list[str]) -> Texts:
    """Read one document per label; some may have no words at all."""
    path = files.path(f"{name}.label")
    labels = whole(path, read_table(path, 1)[:, 0], 1, len(names), "group") - 1
    path = files.path(f"{name}.data")
    documents, word, counts = read_table(path, 3).T
    return Texts(count_matrix(path, documents, word, counts, (len(labels), len(words))), words, labels, names)


def _names(path: Path) -> list[str]:
    """Read lines of a name and its number, from 1."""
    pairs = [line.rsplit(maxsplit=1) for line in read_lines(path)]
    if any(len(pair) != 2 for pair in pairs):
        raise damaged(path, "a line is not a name and a number")
    names = {number: name for name, number in pairs}
    numbers = [str(number) for number in range(1, len(pairs) + 1)]
    if set(names) != set(numbers):
        raise damaged(path, f"its numbers are not 1 to {len(pairs)}")
    return [names[number] for number in numbers]
