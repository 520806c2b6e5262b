"""Simulated single cells: counts of genes, made by planted programmes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from onmf._support.arrays import Array

MARKED = 0.1  # the share of genes that a programme raises
RAISED = 2.0  # by how much, on the scale of logarithms
LEVELS = 1.0  # how unequal genes are, on the same scale
USED, RAREST = 0.3, 0.2  # the Dirichlet distribution of usages: most cells use few programmes, some are used by few
DEPTHS = 0.4  # how unequal the cells' counts are, on the scale of logarithms


@dataclass(frozen=True)
class Cells:
    """Counts of cells x genes and what lies beneath them."""

    counts: Any  # (cells, genes), CSR
    programmes: Array  # (programmes, genes): what each expresses, rows that sum to one
    usages: Array  # (cells, programmes): which share of a cell's counts each has made
    markers: tuple[tuple[str, ...], ...]  # the genes that each programme raises
    genes: tuple[str, ...]
    cells: tuple[str, ...]

    def anndata(self) -> Any:
        """As an AnnData object, with the true usages in ``obsm["usages"]``."""
        from anndata import AnnData

        obs, var = {"obs_names": list(self.cells)}, {"var_names": list(self.genes)}
        return AnnData(self.counts.copy(), obs=obs, var=var, obsm={"usages": self.usages})


def simulate(cells: int = 500, genes: int = 200, programmes: int = 5, depth: float = 500.0, seed: Any = 0) -> Cells:
    """Poisson counts, about ``depth`` per cell: the smaller, the more noise.

    All programmes express all genes, at levels that genes have in common; each raises a tenth of them about sevenfold,
    some of which others raise too. The first programme is the most used, the last the rarest.
    """
    rng = np.random.default_rng(seed)
    raised = np.zeros((programmes, genes), dtype=bool)
    for programme in raised:
        programme[rng.choice(genes, max(1, round(MARKED * genes)), replace=False)] = True
    levels = rng.normal(0.0, LEVELS, genes) + raised * rng.normal(RAISED, 0.3, raised.shape)
    W = np.exp(levels)
    W /= W.sum(axis=1, keepdims=True)
    H = rng.dirichlet(USED * np.geomspace(1.0, RAREST, programmes), cells)
    depths = depth * rng.lognormal(-(DEPTHS**2) / 2, DEPTHS, (cells, 1))
    counts = scipy.sparse.csr_matrix(rng.poisson(depths * (H @ W)).astype(np.float32))
    names = tuple(f"gene{g:0{len(str(genes - 1))}d}" for g in range(genes))
    markers = tuple(tuple(names[g] for g in np.flatnonzero(row)) for row in raised)
    return Cells(counts, W, H, markers, names, tuple(f"cell{c:0{len(str(cells - 1))}d}" for c in range(cells)))
