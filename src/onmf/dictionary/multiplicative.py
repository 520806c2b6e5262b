"""Accumulated multiplicative statistics ("online EM") for Kullback-Leibler and the alpha family with alpha > 0.

For fixed H the multiplicative (majorisation-minimisation) update of W is

    W^alpha = N / D,    N_fk = W_kf^alpha sum_n h_nk (x_nf / y_nf)^alpha,    D_k = sum_n h_nk

Online, both sums are averaged over the chunks with falling weights. Memory is O(F K), and on sparse X a chunk costs
O(nnz K): entries with x = 0 add nothing to N. Each chunk is visited a few times, its own share of the statistics being
replaced each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from onmf.arrays import Array
from onmf.checks import require_whole
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence
from onmf.products import fits
from onmf.schedules import Averaging
from onmf.sets import DictionarySet


@dataclass(frozen=True)
class OnlineEM(DictionaryUpdate):
    """Settings of the step. ``order`` is alpha: 1 for Kullback-Leibler, 1/2 for Hellinger."""

    order: float = 1.0
    chunk: int = 128
    visits: int = 3
    averaging: Averaging = field(default_factory=lambda: Averaging(exponent=0.75))
    C: DictionarySet = field(default_factory=DictionarySet)

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk, visits=self.visits)

    def start(self, W: Array) -> State:
        """Empty statistics."""
        W = self.C.rescale_into(W)
        K, F = W.shape
        shapes = {"N": (F, K), "D": (K,), "size": (F,), "entries": (2,)}
        return State(W, memory={name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()})

    def local(self, divergence: Divergence, X: Any, H: Array, W: Array) -> Statistics:
        """The sums over a chunk."""
        problem = fits(divergence, X, W)
        Y = problem.fit(H)
        loss = float(problem.value(H, Y).sum(dtype=np.float64))
        sparse = scipy.sparse.issparse(X)
        ratio = (X.data if sparse else X) / Y
        if self.order != 1:
            ratio **= self.order
        if sparse:
            ratio = scipy.sparse.csr_matrix((ratio, X.indices, X.indptr), shape=X.shape)
        N = np.asarray(ratio.T @ H)
        N *= W.T if self.order == 1 else W.T**self.order
        sums = {
            "N": N,
            "D": H.sum(axis=0),
            "size": np.asarray(X.sum(axis=0)).ravel(),
            "entries": np.array([X.sum(), X.nnz if sparse else np.count_nonzero(X)], dtype=W.dtype),
        }
        return Statistics(sums, samples=X.shape[0], loss=loss)

    def apply(self, state: State, statistics: Statistics) -> State:
        """Average, divide, keep a little mass for features that are rare or not seen yet, and rescale."""
        n = statistics.samples
        samples = state.samples + n
        rho = self.averaging(samples, n, self.chunk)
        memory = {key: (1 - rho) * old + (rho / n) * statistics.sums[key] for key, old in state.memory.items()}
        # The floor counts evidence, so these two are plain means over all samples.
        for key in ("size", "entries"):
            memory[key] = state.memory[key] + (statistics.sums[key] / n - state.memory[key]) * (n / samples)
        D = memory["D"]
        tiny = float(np.finfo(D.dtype).tiny)
        Wt = memory["N"] / np.maximum(D, tiny)
        if self.order != 1:
            Wt **= 1.0 / self.order
        typical = float(memory["entries"][0] / max(memory["entries"][1], tiny))  # a non-zero's mean
        low = (0.01 * memory["size"] + 0.3 * typical / samples) / max(float(D.sum()), tiny)
        np.maximum(Wt, low[:, None], out=Wt)
        s = Wt.max(axis=0)
        Wt /= s
        memory["D"] = D * s
        memory["N"] = memory["N"] * s ** (1 - self.order)
        return State(self.C.project(Wt.T.copy()), samples=samples, steps=state.steps + 1, memory=memory)
