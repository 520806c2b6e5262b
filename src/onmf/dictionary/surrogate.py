"""The fast dictionary step: an averaged quadratic model of the loss per feature, minimised by coordinate descent.

At the fit y = hW every entry's divergence is replaced by its quadratic model with slope g and curvature c > 0. Summed
over samples, the model of feature f has the sufficient statistics

    A_f = avg c_f h h'   (K x K, packed)        b_f = avg (c_f y_f - g_f) h   (K)

averaged with weights rho that fall like a power of the samples seen. The K weights of the feature then minimise
w A_f w' / 2 - b_f w' over w >= low_f by a few sweeps. Where the curvature is one number a sample (squared l2, l2) one A
serves all features, and for squared l2 this is online dictionary learning as Mairal et al. (2010) do it. No convergence
theorem is claimed for the rest.

Where F K^2 / 2 numbers are too many, A_f is modelled by its diagonal and one correlation matrix for all features:
A_f = diag(r_f) S diag(r_f) with S = avg h h' and r_fk^2 = (A_f)_kk / S_kk, which takes F K numbers. b_f is then the
average of A_f w - g_f h with the chunk's own such A_f, so that the model still has the slope of the loss.

W stays in [0, 1] by a change of units, W = V / u with a unit u_k an atom, its largest weight; the statistics are those
of V, and hardly ever need rescaling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from onmf._support import threads
from onmf._support.arrays import Array
from onmf._support.checks import require_at_least, require_whole
from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.divergences import Divergence
from onmf.problem import fits
from onmf.schedules import Averaging
from onmf.sets import DictionarySet

CACHE = 600_000  # bytes
NOTHING = 1e-10  # of an atom's unit: weights that are all below are rounding, and no measure for it
FAR = 16  # doublings: units beyond are taken up by the statistics


@dataclass(frozen=True)
class Floor:
    """low_f = share * (typical size of feature f) / (sum of the mean coefficients): what a weight may not fall below.

    It comes from the data, not from W: a fraction of W would shrink with it, and rare features would die. The typical
    size is the running mean and a little of the mean over all features, or the geometric mean where zeros are outside
    the domain.
    """

    share: float = 0.0
    geometric: bool = False

    def statistic(self, X: Any) -> Array:
        """Its sum over a chunk."""
        return np.log(X).sum(axis=0) if self.geometric else np.asarray(X.sum(axis=0)).ravel()

    def low(self, average: Array, mass: float) -> Array:
        """low_f from the running average of the statistic."""
        size = np.exp(average) if self.geometric else average + 0.01 * average.mean()
        return self.share * size / max(mass, float(np.finfo(average.dtype).tiny))


@dataclass(frozen=True)
class Surrogate(DictionaryUpdate):
    """Settings of the step. Which statistics are kept, ``start`` decides: one A for all features if ``shared``, else
    one a feature, or its diagonal where two copies of them (one is learnt on) exceed ``max_memory`` bytes.
    """

    chunk: int = 30
    averaging: Averaging = field(default_factory=Averaging)
    sweeps: int = 5
    floor: Floor = field(default_factory=Floor)
    least_share: float = 0.0  # of its old value that a weight keeps in one step
    shared: bool = False
    max_memory: float = 2.0**30
    C: DictionarySet = field(default_factory=DictionarySet)
    skips_empty: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_whole(1, tau=self.chunk, sweeps=self.sweeps)
        require_at_least(0, floor=self.floor.share, least_share=self.least_share, max_memory=self.max_memory)

    def start(self, W: Array) -> State:
        """Empty statistics; the first chunk's weight is one."""
        W = self.C.rescale_into(W)
        K, F = W.shape
        shapes: dict[str, tuple[int, ...]] = {"b": (K, F), "size": (F,), "mass": (K,), "unit": (K,)}
        packed = K * (K + 1) // 2
        if self.shared:
            shapes["S"] = (K, K)
        elif 2 * packed * F * W.itemsize <= self.max_memory:
            shapes["A"] = (packed * F,)  # block by block of features, each (packed, features): one piece of memory
        else:
            shapes |= {"S": (K, K), "a": (K, F)}
        memory = {name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()}
        memory["unit"] += 1.0
        return State(W, memory=memory)

    def local(self, divergence: Divergence, X: Any, H: Array, W: Array) -> Statistics:
        """Slopes G and curvatures C at the fit Y. Sparse data come under squared l2 only: C = 1 and C Y - G = X."""
        problem = fits(divergence, X, W)
        Y = problem.fit(H)
        loss = problem.value(H, Y)
        if scipy.sparse.issparse(X):
            parts = {"X": X, "H": H, "C": np.ones((X.shape[0], 1), dtype=X.dtype)}
        else:
            G, C = divergence.model(X, Y)
            parts = {"X": X, "H": H, "C": C[:, :1] if self.shared else C, "G": G, "Y": Y}
        return Statistics(parts, samples=X.shape[0], loss=float(loss.sum(dtype=np.float64)))

    def apply(self, state: State, statistics: Statistics) -> State:
        """Average, sweep, and bring W back to [0, 1] by a change of units."""
        from onmf.kernels import pack

        parts = statistics.parts
        X, H, C = (parts[name] for name in ("X", "H", "C"))
        memory = dict(state.memory)
        sparse = scipy.sparse.issparse(X)
        T = X if sparse else -parts["G"] if "a" in memory else C * parts["Y"] - parts["G"]
        n = statistics.samples
        samples = state.samples + n
        rho = self.averaging(samples, n, self.chunk)
        unit = memory["unit"]
        H = H / unit
        for name, news in (("size", self.floor.statistic(X)), ("mass", H.sum(axis=0))):
            memory[name] = (1 - rho) * memory[name] + (rho / n) * news
        low = self.floor.low(memory["size"], float((memory["mass"] * unit).sum()))
        V = state.W * unit[:, None]
        Ht = np.ascontiguousarray(H.T)
        S = (Ht * C[:, 0] if self.shared else Ht) @ H
        if "S" in memory:
            memory["S"] = (1 - rho) * memory["S"] + (rho / n) * S
        outer = pack(Ht) if "A" in memory else np.square(Ht)
        b = Ht @ T if sparse else None

        def block(f: slice) -> None:
            news = Ht @ T[:, f] if b is None else np.ascontiguousarray(b[:, f])
            A = None if self.shared else outer @ C[:, f]
            if A is not None and "a" in memory:
                # The chunk's own model of A V, not A V itself: the slope at V is then the loss's, whatever the model.
                r = _ratio(A, S)
                news += r * (S @ (r * V[:, f]))
            self._block(memory, f, A, news, V, low, (1 - rho, rho / n))

        threads.each(block, threads.blocks(V.shape[1], self._features_in_cache(memory)))
        if self.least_share:
            np.maximum(V, self.least_share * unit[:, None] * state.W, out=V)
        largest = V.max(axis=1)
        memory["unit"] = np.where(largest > NOTHING * unit, largest, unit)
        W = self.C.project(V / memory["unit"][:, None])
        self._rebase(memory)
        return State(W, samples=samples, steps=state.steps + 1, memory=memory)

    def _block(
        self,
        memory: dict[str, Array],
        f: slice,
        A: Array | None,
        b: Array,
        V: Array,
        low: Array,
        weights: tuple[float, float],
    ) -> None:
        """The features f: their statistics in place in the memory, their weights in place in V."""
        from onmf.kernels import blend, sweep

        unit = memory["unit"]
        blend(memory["b"], b, f.start, *weights)
        if A is None:
            sweep(memory["S"], b, V, low, unit, f.start, self.sweeps)
        elif "A" in memory:
            blend(memory["A"][len(A) * f.start : len(A) * f.stop].reshape(A.shape), A, 0, *weights)
            sweep(A, b, V, low, unit, f.start, self.sweeps)
        else:  # in units of r the features share S; the floor is applied afterwards
            blend(memory["a"], A, f.start, *weights)
            S = memory["S"]
            r = _ratio(A, S)
            v = V[:, f] * r
            sweep(S, b / r, v, np.zeros_like(low[f]), unit, 0, self.sweeps)
            V[:, f] = np.maximum(v / r, unit[:, None] * low[f])

    def _rebase(self, memory: dict[str, Array]) -> None:
        """Units far from one become nearly one, in place, the statistics taking them up.

        While no sample uses an atom, its weights go where the residuals are, divided by next to nothing: without this,
        the units of a stream without end would leave the range of numbers. Powers of two cost no digit.
        """
        from onmf.kernels import pack

        power = np.round(np.log2(memory["unit"]))
        s = np.exp2(np.where(np.abs(power) > FAR, power, 0.0)).astype(memory["unit"].dtype)
        if (s == 1).all():
            return
        memory["unit"] = memory["unit"] / s
        memory["mass"] = memory["mass"] * s
        memory["b"] *= s[:, None]
        if "S" in memory:
            memory["S"] *= np.outer(s, s)
        if "a" in memory:
            memory["a"] *= np.square(s)[:, None]
        if "A" in memory:
            products = pack(s[:, None])
            for f in threads.blocks(memory["b"].shape[1], self._features_in_cache(memory)):
                A = memory["A"][len(products) * f.start : len(products) * f.stop].reshape(len(products), -1)
                A *= products

    @staticmethod
    def _features_in_cache(memory: dict[str, Array]) -> int:
        """As many features as have their matrices in a core's cache while they are averaged and swept."""
        if "A" not in memory:
            return 256
        size = memory["A"].nbytes // memory["b"].shape[1]
        return max(16, min(256, 1 << int(np.log2(max(CACHE / size, 1)))))


def _ratio(a: Array, S: Array) -> Array:
    """r with diag(r_f) S diag(r_f) having the diagonal a_f; a is (K, B)."""
    tiny = float(np.finfo(S.dtype).tiny)
    return np.sqrt(a / np.maximum(np.diag(S), tiny)[:, None]) + tiny
