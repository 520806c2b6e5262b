"""The samples that are learnt from, and those that are held out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data_sets import load_samson
from onmf.data.examples import (
    CLIP,
    GAMMA_SHAPE,
    GAUSSIAN_SIGMA,
    NOISE_OF,
    OFFSET,
    OUTLIER_MAGNITUDE,
    OUTLIER_SHARE,
    SIGMA,
    Planted,
)
from reproduction.datasets import matlab

DIVERGENCES = ("kl", "is", "squared_l2", "huber")
F, K, HELD_OUT = 1000, 40, 1000
DELTA = 100.0  # Huber's, given, so that all are scored by one loss
REAL = {"Yale B": ("huber:0.05", 49), "Samson": ("kl", 3)}
REPEATED = 100_000


def name_of(divergence: str) -> str:
    """With its parameter."""
    return f"huber:{DELTA:g}" if divergence == "huber" else divergence


@dataclass(frozen=True)
class Synthetic:
    """The paper's synthetic data with more features."""

    divergence: str
    F: int = F
    K: int = K

    @property
    def planted(self) -> Planted:
        return Planted.draw(self.F, self.K, NOISE_OF[self.divergence], np.random.default_rng(0))

    def held_out(self) -> Any:
        return self.planted.sample(HELD_OUT, np.random.default_rng(1)).V.astype(np.float32) + self.least

    @property
    def least(self) -> Any:
        """Itakura-Saito has no zeros."""
        return np.float32(1e-3 if self.divergence == "is" else 0.0)

    def on_host(self, n: int) -> Any:
        """N samples, drawn by NumPy."""
        rng, parts = np.random.default_rng(2), []
        for first in range(0, n, 10_000):
            parts.append(self.planted.sample(min(10_000, n - first), rng).V.astype(np.float32))
        return np.concatenate(parts) + self.least

    def on_gpu(self, n: int) -> Any:
        """N samples of the same distribution, drawn on the GPU."""
        import torch

        draw = torch.Generator("cuda").manual_seed(2)
        W = torch.as_tensor(self.planted.W, dtype=torch.float32, device="cuda")
        X = torch.empty((n, self.F), device="cuda")
        for first in range(0, n, 20_000):
            part = X[first : first + 20_000]
            shape = (len(part), self.K)
            H = OFFSET + (SIGMA * torch.randn(shape, generator=draw, device="cuda")).abs()
            clean, noise = H @ W, NOISE_OF[self.divergence]
            if noise == "poisson":
                drawn = torch.poisson(clean, generator=draw)
            elif noise == "gamma":
                drawn = clean * torch._standard_gamma(torch.full_like(clean, GAMMA_SHAPE), generator=draw) / GAMMA_SHAPE
            elif noise == "gaussian":
                drawn = clean + GAUSSIAN_SIGMA * torch.randn(clean.shape, generator=draw, device="cuda")
            else:
                ranks = torch.rand(clean.shape, generator=draw, device="cuda").argsort(dim=1)
                spread = 2 * torch.rand(clean.shape, generator=draw, device="cuda") - 1
                drawn = clean + OUTLIER_MAGNITUDE * spread * (ranks < round(OUTLIER_SHARE * self.F))
            part.copy_(drawn.clamp(*CLIP) + float(self.least))
        return X


def real(name: str, folder: Path | None) -> tuple[Any, Any]:
    """Samples to learn from, repeated in a random order to 100,000, and every tenth, held out."""
    loaded = matlab.load_yaleb(folder).images / 255.0 if name == "Yale B" else load_samson(folder).pixels
    X = np.ascontiguousarray(loaded, dtype=np.float32)
    X = X[X.sum(axis=1) > 0]
    held_out = X[::10]
    rest = np.delete(X, np.s_[::10], axis=0)
    return rest[np.random.default_rng(0).permutation(REPEATED) % len(rest)], held_out


def cells(n: int, entries: int = 800) -> Any:
    """Counts of 20,000 genes, 3 % of them above zero, of n cells with thirty programmes: compressed rows.

    Fewer or more ``entries`` are drawn for other densities.
    """
    import scipy.sparse

    genes, programmes = 20_000, 30
    rng = np.random.default_rng(0)
    popular = rng.dirichlet(np.full(genes, 0.05), programmes)
    own = [rng.choice(genes, size=40_000, p=each) for each in popular]
    columns = np.empty((n, entries), dtype=np.int64)
    kind = rng.integers(0, programmes, n)
    for programme in range(programmes):
        rows = np.flatnonzero(kind == programme)
        columns[rows] = own[programme][rng.integers(0, 40_000, (len(rows), entries))]
    counts = rng.geometric(0.4, n * entries).astype(np.float32)
    X = scipy.sparse.csr_matrix((counts, columns.ravel(), np.arange(0, n * entries + 1, entries)), shape=(n, genes))
    X.sum_duplicates()
    return X
