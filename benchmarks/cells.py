"""Do the components that runs agree on sort cells into their populations as well as cNMF's do?

    python -m benchmarks.cells                                   # simulated cells, whose truth is known
    python -m benchmarks.cells scanpy/datasets/10x_pbmc68k_reduced.h5ad bulk_labels

Agreement: the share of cells in the most frequent population of the component whose share of the cell is largest, ten
runs, means of three seeds; then the same by raw coefficients. cNMF's way: scikit-learn's NMF under the Frobenius norm
of genes scaled to variance 1, grouped as cNMF does, and usages by least squares. Beside it ``onmf.consensus`` of the
same matrix under squared l2, and of the counts under kl, after ``--passes``. The file holds logarithms of scaled
counts, from which the counts are taken: the least entry of a cell is one count. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.decomposition import non_negative_factorization

import onmf
from onmf.data import examples
from onmf.insight.features import directions
from onmf.selection.agreement import Agreement
from onmf.selection.consensus import PASSES

RUNS, RANKS, SEEDS = 10, (6, 8, 10), (0, 100, 200)
SIMULATED = ((8, 500), (8, 100))  # programmes, counts per cell
COARSE = {"CD19": "B", "CD14": "Monocyte", "Dendritic": "Dendritic", "CD56": "NK", "CD34": "CD34+", "": "T"}


def cnmf(X: Any, K: int, seed: int) -> Any:
    """Coefficients (n, K) as cNMF finds them, brought to length 1 by the sums of rows."""
    settings: dict[str, Any] = {"n_components": K, "max_iter": 1000, "tol": 1e-4}
    runs = [non_negative_factorization(X, init="random", random_state=seed + r, **settings)[1] for r in range(RUNS)]
    found, pooled = Agreement.of(runs), directions(np.concatenate(runs))
    if found is None:
        raise ValueError(f"the runs agree on fewer than {K} components.")
    W = np.stack([np.median(pooled[found.kept & (found.labels == k)], axis=0) for k in range(K)])
    W /= W.sum(axis=1, keepdims=True)
    H = non_negative_factorization(X, H=W, update_H=False, init=None, **settings)[0]
    return H / H.sum(axis=1, keepdims=True)


def consensus(X: Any, K: int, seed: int, divergence: str, passes: int) -> tuple[Any, Any]:
    """Shares and coefficients by ``onmf.consensus``."""
    model = onmf.consensus(X, K, RUNS, divergence=divergence, max_passes=passes, random_state=seed).model
    return model.proportions(X), model.transform(X)


def scaled(X: Any) -> Any:
    """Genes of variance 1, which are not centred."""
    variance = X.multiply(X).mean(axis=0) - np.square(X.mean(axis=0))
    return scipy.sparse.csr_matrix(X @ scipy.sparse.diags_array(1 / np.sqrt(np.asarray(variance).ravel())))


def agreement(H: Any, populations: Any) -> float:
    """The share of cells in the most frequent population of their component."""
    top = np.argmax(H, axis=1)
    found = (np.unique(populations[top == k], return_counts=True)[1].max() for k in np.unique(top))
    return float(sum(found) / len(top))


def of_file(path: str, column: str) -> tuple[Any, Any]:
    """Counts and populations of a file of scanpy's, whose cells are scaled and in logarithms."""
    import anndata

    cells = anndata.read_h5ad(path)
    X = scipy.sparse.csr_matrix(cells.raw.X, dtype=np.float64).expm1()
    ones = np.array([X.data[first:last].min() for first, last in zip(X.indptr[:-1], X.indptr[1:], strict=True)])
    X.data = np.rint(X.data / np.repeat(ones, np.diff(X.indptr)))
    names = cells.obs[column].astype(str)
    return X, np.array([next(coarse for part, coarse in COARSE.items() if part in name) for name in names])


def main() -> None:
    """A line per data set, rank and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?")
    parser.add_argument("column", nargs="?")
    parser.add_argument("--passes", type=int, default=PASSES)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.file:
        data = {"cells": of_file(given.file, given.column)}
    else:
        data = {}
        for K, depth in SIMULATED:
            cells = examples.cells(500, 200, K, depth)
            data[f"{K} programmes, {depth} counts"] = cells.counts.astype(np.float64), cells.usages.argmax(axis=1)
    ways: dict[str, Callable[[Any, int, int], tuple[Any, ...]]] = {
        "cNMF's way": lambda X, K, seed: (cnmf(scaled(X), K, seed),),
        "squared_l2, scaled genes": lambda X, K, seed: consensus(scaled(X), K, seed, "squared_l2", given.passes),
        "kl, counts": lambda X, K, seed: consensus(X, K, seed, "kl", given.passes),
    }
    print(f"{'data':28s}{'way':28s}" + "".join(f"K = {K:<12d}" for K in RANKS) + "seconds")
    for name, (X, populations) in data.items():
        for way, learn in ways.items():
            began, told = time.process_time(), ""
            for K in RANKS:
                found = [[agreement(H, populations) for H in learn(X, K, seed)] for seed in SEEDS]
                told += "  ".join(f"{each:.3f}" for each in np.mean(found, axis=0)).ljust(16)
            print(f"{name:28s}{way:28s}{told}{time.process_time() - began:7.0f}", flush=True)


if __name__ == "__main__":
    main()
