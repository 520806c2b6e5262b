"""10x Genomics' folders: matrix.mtx, genes x cells, with features.tsv (or genes.tsv) and barcodes.tsv, perhaps .gz."""

import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import scipy

from onmf.data.base import Source, SourceError, reading, require_filled, require_matrix, require_room
from onmf.data.budget import allowed
from onmf.data.columns import Genes
from onmf.data.files import require_own
from onmf.data.in_memory import Rows
from onmf.data.registry import Spec, register

EXPRESSION = "Gene Expression"  # the type of the features that are genes; others are proteins or guides
ENTRY = 32  # bytes of an entry while it is read and transposed


def is_10x(path: Path) -> bool:
    """Tell whether this is a matrix of 10x, or its folder."""
    return path.name.endswith((".mtx", ".mtx.gz")) or (path.is_dir() and _found(path, "matrix.mtx") is not None)


@register("10x", takes=["folders"], holds=is_10x)
def tenx(path: Path, columns: list[str] | None = None, *, like: Spec | None = None) -> Source:
    """Open cells x genes, named by the genes' symbols; ``columns`` chooses some, as in an .h5ad file."""
    folder = path if path.is_dir() else path.parent
    matrix = _found(path, "matrix.mtx") if path.is_dir() else path
    features = _found(folder, "features.tsv") or _found(folder, "genes.tsv")
    if matrix is None:
        raise SourceError(f"{path} has no matrix.mtx (or .gz).")
    if features is None:
        raise SourceError(
            f"{path} has no features.tsv or genes.tsv (or .gz); write the names of its rows there, one per line."
        )
    require_own(folder, [matrix, features])
    with reading(matrix, "as a matrix of 10x"):
        genes, cells, entries, *_ = scipy.io.mminfo(matrix)
        require_filled(matrix, (cells, genes), entries)
        require_room(matrix, ENTRY * entries, allowed())
        X = scipy.io.mmread(matrix, spmatrix=True).T.tocsr()
    require_matrix(matrix, X)
    with reading(features, "as a list of genes"):
        lines = list(islice(_lines(features), genes + 1))
    if len(lines) != genes or not all(lines):
        raise SourceError(f"{features} names {len(lines)} genes, but {matrix} has {genes}; they belong to other cells.")
    kept = [place for place, line in enumerate(lines) if len(line) < 3 or line[2] == EXPRESSION]
    names = _unique([lines[place][min(1, len(lines[place]) - 1)] for place in kept])
    of_model = like is not None and like.names is not None and columns == list(like.names)
    chosen = Genes.of(path, names, columns, lacking=of_model)
    source = Rows(chosen.of_batch(X if len(kept) == genes else X[:, kept]))
    source.feature_names = list(chosen.names)
    return source


def _found(folder: Path, name: str) -> Path | None:
    return next((folder / each for each in (name, f"{name}.gz") if (folder / each).is_file()), None)


def _lines(path: Path) -> Iterator[list[str]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        yield from csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def _unique(names: list[str]) -> list[str]:
    """Number symbols that several genes have, as scanpy does: A, A-1, A-2."""
    times: Counter[str] = Counter()
    found = []
    for name in names:
        found.append(f"{name}-{times[name]}" if times[name] else name)
        times[name] += 1
    return found
