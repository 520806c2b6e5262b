"""Accumulated multiplicative statistics ("online EM") for Kullback-Leibler and the alpha family with alpha > 0.

For fixed H the multiplicative (majorisation-minimisation) update of W is

    W^alpha = N / D,    N_fk = W_kf^alpha sum_n h_nk (x_nf / y_nf)^alpha,    D_k = sum_n h_nk

Online, both sums are averaged over the chunks with falling weights. Memory is O(F K), and on sparse X a chunk costs
O(nnz K): entries with x = 0 add nothing to N. Each chunk is visited a few times, its own share of the statistics being
replaced each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array
from onmf._support.checks import require_whole
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence
from onmf.problem import fits
from onmf.schedules import Averaging
from onmf.sets import DictionarySet

VISITS = 10.0  # times the weight of a chunk: how often it is looked at
LITTLE, VERY_LITTLE = 0.08, 0.02  # a chunk's weight: after some 17000 and 110000 samples
FLOOR, SURE = 0.01, 20_000.0  # of a feature's mean that every atom keeps, and the samples from which on it falls
BLOCK = 2048  # features that a thread divides at a time


@dataclass(frozen=True)
class OnlineEM(DictionaryUpdate):
    """Settings of the step. ``order`` is alpha: 1 for Kullback-Leibler, 1/2 for Hellinger."""

    order: float = 1.0
    chunk: int = 200
    most_visits: int = 3
    averaging: Averaging = field(default_factory=lambda: Averaging(exponent=0.75))
    patient: bool = True  # may the coefficients take longer later on?
    C: DictionarySet = field(default_factory=DictionarySet)
    layout: ClassVar[Literal["C", "F"]] = "F"
    skips_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk, most_visits=self.most_visits)

    def visits(self, samples: int) -> int:
        """Many while a chunk weighs much, one later: what a chunk hardly changes need not be looked at again."""
        weight = self.averaging(samples + self.chunk, self.chunk, self.chunk)
        return max(1, min(self.most_visits, round(VISITS * weight)))

    def effort(self, samples: int) -> int:
        """Twice as many iterations once chunks weigh little, and again.

        W settles where the coefficients as they are found want it, a little off in loss if they are found in haste.
        Early on haste costs little, since the dictionary moves on anyway.
        """
        weight = self.averaging(samples + self.chunk, self.chunk, self.chunk) if self.patient else 1.0
        return 1 if weight >= LITTLE else 2 if weight >= VERY_LITTLE else 4

    def start(self, W: Array) -> State:
        """Empty statistics. An atom of zeros, which no multiplicative step can leave, begins flat."""
        W = self.C.rescale_into(np.where(W.any(axis=1, keepdims=True), W, np.ones_like(W)))
        K, F = W.shape
        shapes = {"N": (F, K), "D": (K,), "size": (F,), "entries": (2,), "evidence": (1,)}
        return State(W, memory={name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()})

    def local(self, divergence: Divergence, X: Any, H: Array, W: Array) -> Statistics:
        """(x / y)^alpha where it is needed."""
        problem = fits(divergence, X, W)
        Y = problem.fit(H)
        loss = float(problem.value(H, Y).sum(dtype=np.float64))
        sparse = scipy.sparse.issparse(X)
        ratio = (X.data if sparse else X) / Y
        if self.order != 1:
            ratio **= self.order
        return Statistics({"X": X, "H": H, "ratio": ratio, "W": W}, samples=X.shape[0], loss=loss)

    def apply(self, state: State, statistics: Statistics) -> State:
        """Average, divide, keep a little mass for features that are rare or not seen yet, and rescale."""
        from onmf.kernels import accumulate, divide

        X, H, ratio = (statistics.parts[name] for name in ("X", "H", "ratio"))
        Wt = np.ascontiguousarray(statistics.parts["W"].T)
        N = state.memory["N"]
        n = statistics.samples
        samples = state.samples + n
        rho = self.averaging(samples, n, self.chunk)
        tiny = float(np.finfo(N.dtype).tiny)
        sparse = scipy.sparse.issparse(X)
        D = (1 - rho) * state.memory["D"] + (rho / n) * H.sum(axis=0)
        # The floor counts evidence: these two are plain means over all samples, and a sample seen again is no news.
        entries = np.array([X.data.sum() if sparse else X.sum(), X.nnz if sparse else np.count_nonzero(X)], N.dtype)
        size = np.bincount(X.indices, X.data, len(N)).astype(N.dtype) if sparse else X.sum(axis=0)
        sums = {"size": size, "entries": entries}
        memory: dict[str, Array] = {
            key: state.memory[key] + (total / n - state.memory[key]) * (n / samples) for key, total in sums.items()
        }
        memory["evidence"] = state.memory["evidence"] + statistics.new
        typical = float(memory["entries"][0] / max(memory["entries"][1], tiny))  # a non-zero's mean
        evidence = max(float(memory["evidence"][0]), 1.0)
        share = FLOOR * min(1.0, SURE / evidence)
        low = (share * memory["size"] + 0.3 * typical / evidence) / max(float(D.sum()), tiny)

        N_new, W_new = np.empty_like(N), np.empty_like(N)
        divisor = np.maximum(D, tiny)

        def block(f: slice) -> Array:
            if sparse:
                news = np.zeros((f.stop - f.start, H.shape[1]), dtype=N.dtype)
                accumulate(X, ratio, H, f.start, news)
            else:
                news = ratio[:, f].T @ H
            return divide(N, news, Wt, divisor, low, 1 - rho, rho / n, self.order, f, (N_new, W_new))

        def rescale(f: slice) -> None:
            W_new[f] /= s
            if self.order != 1:
                N_new[f] *= s ** (1 - self.order)

        features = threads.blocks(len(N), BLOCK)
        s = np.max(threads.each(block, features), axis=0)
        threads.each(rescale, features)
        memory |= {"N": N_new, "D": D * s}
        # The floor alone gives most features more than eps, and dividing by s has brought all weights to [0, 1].
        feasible = len(D) * float(low.min()) >= self.C.eps * float(s.max())
        W = W_new.T if feasible else self.C.project(W_new.T)
        return State(W, samples=samples, steps=state.steps + 1, memory=memory)
