"""The surrogate's quadratic models: how they lie in memory, their units, how they are averaged and minimised.

The memory holds b (K, F) and, of the matrices A_f, one of three:

    A       each of them, packed, block by block of features
    S       (K, K): one for all features, where they share it
    S, a    their diagonals a (K, F) and one matrix for all correlations: A_f = diag(r_f) S diag(r_f)

They model the loss in V, with W = V / u and a unit u_k per component. ``base`` is the sum of the powers of two by which
the statistics themselves have been rescaled. size (F,), mass (K,) and squares (K,), of the data, the coefficients and
their squares, are averaged alike; the last stays zero without penalties, which alone look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf._support import threads
from onmf._support.arrays import Array, Counts, taken
from onmf.coefficients import kernels
from onmf.coefficients.problem import packed_diagonal, unpacked
from onmf.divergences import Divergence
from onmf.model.penalty import Penalties, carried, falling, resized
from onmf.model.sets import DictionarySet
from onmf.samples import Samples

FEWEST_SWEEPS, MOST_SWEEPS = 5, 20  # over the components per update
CACHE = 600_000  # bytes
DAMPING = 1e-3  # of the mean curvature of a component's weights: kappa
WORK = 1.5e5  # of a thread at a time, in products
NEGLIGIBLE = 1e-10  # of a component's unit: weights that are all below are rounding, and no measure for it
DISTANT = 16  # doublings: units beyond are taken up by the statistics
AVERAGES = ("A", "S", "a", "b", "size", "mass", "squares", "mean")  # as far as they are kept


def empty(divergence: Divergence, W: Array, max_memory: float, masked: bool) -> dict[str, Array]:
    """Return zeros, as the first chunk's weight is one.

    They are S where features share their A, else A or, where two copies of it exceed ``max_memory`` bytes, S and the
    diagonals a.
    """
    K, F = W.shape
    shapes: dict[str, tuple[int, ...]] = {"b": (K, F), "size": (F,)}
    shapes |= dict.fromkeys(("mass", "squares", "unit", "base"), (K,))
    packed = K * (K + 1) // 2
    if divergence.curvature_per_sample and not masked:
        shapes["S"] = (K, K)
    elif 2 * packed * F * W.itemsize <= max_memory:
        shapes["A"] = (packed * F,)  # block by block of features, each (packed, features): one piece of memory
    else:
        shapes |= {"S": (K, K), "a": (K, F)}
    if masked:
        shapes["mean"] = (F,)
    memory = {name: np.zeros(shape, dtype=W.dtype) for name, shape in shapes.items()}
    memory["unit"] += 1.0
    return memory


def blocks(memory: Mapping[str, Array]) -> list[slice]:
    """Return blocks of as many features as have their matrices in a core's cache while they are averaged and swept."""
    F, size = memory["b"].shape[1], 256
    if "A" in memory:
        size = max(16, min(256, 1 << int(np.log2(max(CACHE / (memory["A"].nbytes // F), 1)))))
    return threads.blocks(F, size)


def matrices(memory: Mapping[str, Array], f: slice) -> Array:
    """Return the packed matrices of some features, a block of ``blocks``, as a view (packed, features)."""
    packed = memory["A"].size // memory["b"].shape[1]
    return memory["A"][packed * f.start : packed * f.stop].reshape(packed, -1)


def of_features(
    before: Mapping[str, Array], memory: Mapping[str, Array], places: Counts, most: float
) -> Mapping[str, Array]:
    """Return the memory, which has other features already, with the A of those at these places before; -1: zeros."""
    if "A" not in memory:
        return memory
    A = taken(np.concatenate([matrices(before, f) for f in blocks(before)], axis=1), places, axis=1)
    if 2 * A.nbytes > most:
        raise ValueError(f"the statistics of {len(places)} features are beyond the method's max_memory; raise it.")
    memory = dict(memory) | {"A": np.empty(A.size, A.dtype)}
    for f in blocks(memory):
        matrices(memory, f)[...] = A[:, f]
    return memory


def ratio(a: Array, S: Array) -> Array:
    """Return r for which diag(r_f) S diag(r_f) has the diagonal a_f; a is (K, B)."""
    tiny = float(np.finfo(S.dtype).tiny)
    return np.sqrt(a / np.maximum(np.diag(S), tiny)[:, None]) + tiny


def update(
    memory: dict[str, Array],
    f: slice,
    A: Array | None,
    b: Array,
    V: Array,
    low: Array,
    weights: tuple[float, float],
    sweeps: int,
    C: DictionarySet,
    penalties: Penalties,
) -> tuple[Array, Array] | None:
    """Average the chunk's A and b of the features f into the memory, and sweep their columns of V, both in place.

    Weights of fixed components, whose unit is one, stay. With penalties, return what ``swept`` finds.
    """
    unit = memory["unit"]
    kernels.dictionary.blend(memory["b"], b, f.start, *weights)
    if A is None:
        A = memory["S"]
    elif "A" in memory:
        kernels.dictionary.blend(matrices(memory, f), A, 0, *weights)
    else:
        kernels.dictionary.blend(memory["a"], A, f.start, *weights)
        S = memory["S"]
        r = ratio(A, S)
        if not penalties:  # in units of r the features share S; the floor is applied afterwards
            v = V[:, f] * r
            kernels.dictionary.sweep(S, b / r, v, np.zeros_like(low[f]), unit, np.inf, 0, sweeps, C.fixed)
            V[C.fixed :, f] = np.maximum(v / r, unit[:, None] * low[f])[C.fixed :]
            return None
        A = kernels.gram.pack(r) * S[np.triu_indices(len(S))][:, None]  # bounds from above differ in these units
    if penalties:
        return swept(penalties, C, unit, f, A, b, V, low, sweeps)
    kernels.dictionary.sweep(A, b, V, low, unit, np.inf, f.start, sweeps, C.fixed)
    return None


def average_and_sweep(
    memory: dict[str, Array],
    products: tuple[Array, Array, Array, Array],
    V: Array,
    low: Array,
    weights: tuple[float, float],
    sweeps: int,
    fixed: int,
) -> None:
    """Do what ``update`` does for all features of dense samples, without penalties: a few calls of one kernel.

    The chunk's A and b are the products of the first and third, and of the second and fourth, of four arrays.
    """
    cut = blocks(memory)
    edges = np.array([0, *(f.stop for f in cut)])
    arrays = *products, memory["A"], memory["b"], V, low, memory["unit"], edges
    numbers = *weights, np.inf, sweeps
    step = kernels.dictionary.averaged_step
    groups = threads.by_work(len(cut), memory["A"].size / len(cut) * (sweeps + 10), WORK)
    threads.each(lambda some: step(*arrays, *numbers, some.start, some.stop, fixed), groups)


def swept(
    penalties: Penalties,
    C: DictionarySet,
    unit: Array,
    f: slice,
    A: Array,
    b: Array,
    V: Array,
    low: Array,
    sweeps: int,
) -> tuple[Array, Array]:
    """Sweep with penalties over low <= V / u <= high at the features f, in place; A is packed, (P, B), or (K, K).

    In V = u W the penalty on the dictionary is l1 / u_k per unit of V_k, with the curvature l2 / u_k^2. Return the pull
    and the stiffness of the weights that are at their bound of 1, per component, in units of V.
    """
    K, shared = len(unit), A.shape == (len(unit), len(unit))
    curvature = (penalties.l2_dictionary / np.square(unit)).astype(A.dtype)
    A = A.copy()
    if shared:
        A[np.diag_indices(K)] += curvature
    else:
        A[packed_diagonal(K)] += curvature[:, None]
    b = b - (penalties.l1_dictionary / unit).astype(b.dtype)[:, None]
    kernels.dictionary.sweep(A, b, V, low, unit, C.high, f.start, sweeps, C.fixed)
    v = np.ascontiguousarray(V[:, f])
    slope = (A @ v if shared else kernels.dictionary.packed_product(A, v)) - b
    diagonal = np.diag(A)[:, None] if shared else A[packed_diagonal(K)]
    bounded = v >= unit[:, None] * V.dtype.type(C.high)
    return np.where(bounded, np.maximum(-slope, 0), 0).sum(axis=1), np.where(bounded, diagonal, 0).sum(axis=1)


def settled(
    penalties: Penalties, C: DictionarySet, V: Array, memory: dict[str, Array], found: list[tuple[Array, Array]]
) -> tuple[Array, Array]:
    """Return W and the units that V is best measured in, given what ``swept`` has found in all features."""
    unit = memory["unit"]
    if np.isinf(C.high):  # coefficients sum to one, and no unit changes
        return V / unit[:, None], unit
    pull, stiffness = (np.sum(parts, axis=0) for parts in zip(*found, strict=True))
    W = V / unit[:, None]
    averages = unit * memory["mass"], np.square(unit) * memory["squares"]
    s = resized(penalties, W, averages, falling(unit * pull, np.square(unit) * stiffness), C.fixed)
    return carried(W, s), unit * s


def sweeps(memory: dict[str, Array], n: float) -> int:
    """Return how many sweeps a chunk of n samples is worth: as many as take the time of its coefficients.

    A sweep costs F K^2; the coefficients cost n F K^2, at the speed of BLAS, or n K^3 where all features share one
    matrix.
    """
    K, F = memory["b"].shape
    worth = n / 8 if "A" in memory or "a" in memory else 2 * n * K / F
    return int(min(MOST_SWEEPS, max(FEWEST_SWEEPS, worth)))


def units(V: Array, before: Array, C: DictionarySet) -> Array:
    """Return the largest weight of each component.

    Keep what it was if only rounding is left, if the component is fixed, or if no bound asks for a change.
    """
    if np.isinf(C.high):
        return before
    largest = V.max(axis=1)
    largest[: C.fixed] = before[: C.fixed]
    return np.where(largest > NEGLIGIBLE * before, largest, before)


def rebase(memory: dict[str, Array]) -> None:
    """Make units far from one nearly one, in place; the statistics take them up.

    While no sample uses a component, its weights go where the residuals are, divided by next to nothing: without this,
    the units of a stream without end would leave the range of numbers. Powers of two cost no digit.
    """
    power = distant(memory["unit"])
    if np.count_nonzero(power):
        memory["base"] = memory["base"] + power
        change_units(memory, np.exp2(power).astype(memory["unit"].dtype))


def distant(unit: Array) -> Array:
    """Return the powers of two by which units are far from one; zeros where they are not."""
    power = np.rint(np.log2(unit))
    return power * (np.abs(power) > DISTANT)


def change_units(memory: dict[str, Array], s: Array) -> None:
    """Make statistics of V those of V / s, in place; s holds powers of two, one per component."""
    if (s == 1).all():
        return
    memory["unit"] = memory["unit"] / s
    memory["mass"] = memory["mass"] * s
    memory["squares"] = memory["squares"] * np.square(s)
    memory["b"] = memory["b"] * s[:, None]
    if "S" in memory:
        memory["S"] = memory["S"] * np.outer(s, s)
    if "a" in memory:
        memory["a"] = memory["a"] * np.square(s)[:, None]
    if "A" in memory:
        products = np.outer(s, s)[np.triu_indices(len(s))][:, None]
        memory["A"] = memory["A"].copy()
        for f in blocks(memory):
            matrices(memory, f)[...] *= products


def damped(memory: dict[str, Array], W: Array) -> dict[str, Array]:
    """Return A + kappa and b + kappa V with a small kappa per component, which then is in every chunk's A and b, too.

    So no model is ever flat, and its slope is the loss's: theory.md.
    """
    K = len(W)
    memory = memory | {name: memory[name].copy() for name in ("A", "S") if name in memory}
    where: list[tuple[Array, Any]] = [(memory["S"], np.diag_indices(K))] if "S" in memory else []
    where = where or [(matrices(memory, f), packed_diagonal(K)) for f in blocks(memory)]
    mean = np.concatenate([M[diagonal].reshape(K, -1) for M, diagonal in where], axis=1).mean(axis=1)
    kappa = DAMPING * np.maximum(mean, 1e-3 * mean.mean())
    for M, diagonal in where:
        M[diagonal] += kappa if M.shape == (K, K) else kappa[:, None]
    return memory | {"kappa": kappa, "b": memory["b"] + (kappa * memory["unit"])[:, None] * W}


def recombined(memory: Mapping[str, Array], T: Array) -> dict[str, Array]:
    """Return the statistics of coefficients T h, in the same units."""
    unit = memory["unit"]
    T = T * unit / unit[:, None]
    new = dict(memory) | {"b": T @ memory["b"], "mass": T @ memory["mass"], "squares": np.square(T) @ memory["squares"]}
    if "S" in memory:
        new["S"] = T @ memory["S"] @ T.T
    if "a" in memory:
        r = ratio(memory["a"], memory["S"])
        new["a"] = np.stack([(v * (memory["S"] @ v)).sum(axis=0) for v in (row[:, None] * r for row in T)])
    if "A" in memory:
        new["A"] = memory["A"].copy()
        j, k = np.triu_indices(len(T))
        for f in blocks(memory):
            packed = matrices(new, f)
            packed[...] = (T @ unpacked(packed.T, len(T)) @ T.T)[:, j, k].T
    return new


@dataclass(frozen=True)
class Floor:
    """low_f = share * (typical size of feature f) / (sum of the mean coefficients), below which no weight falls.

    It comes from the data, not from W: a fraction of W would shrink with it, and rare features would die. The typical
    size is the running mean and a little of the mean over all features, or the geometric mean where zeros are outside
    the domain.
    """

    share: float = 0.0
    geometric: bool = False

    def statistic(self, X: Samples) -> Array:
        """Return what is averaged, summed over a chunk by the weights of the samples."""
        if X.sparse:
            matrix = X.matrix_times_sample_weight(X.values)  # its own sum is slower
            return np.bincount(matrix.indices, matrix.data, X.shape[1]).astype(X.dtype, copy=False)
        sizes = np.log(X.matrix) if self.geometric else X.matrix
        return X.times_sample_weight(sizes).sum(axis=0)

    def of_masked(self, X: Samples, before: Array) -> Array:
        """Return the mean of each feature's entries, or its size before where all are missing."""
        X = X.with_sample_weights_in_entries()
        sizes = X.with_values(np.log(X.values)) if self.geometric else X
        weight = X.weight_sums(axis=0)
        return np.divide(sizes.sum(axis=0), weight, out=before.copy(), where=weight > 0)

    def low(self, average: Array, mass: float) -> Array:
        """Return low_f from the running average of the statistic."""
        if not self.share:
            return np.zeros_like(average)
        size = np.exp(average) if self.geometric else average + 0.01 * (average.sum() / len(average))
        return self.share * size / max(mass, float(np.finfo(average.dtype).tiny))


def floor_of(divergence: Divergence, masked: bool) -> Floor:
    """Return the floor for a divergence: none where a fit of zero is admitted, geometric where zeros in data are not.

    Masked samples always have one: a component with next to nothing at the entries of a sample could be given any
    coefficient for a little gain there, and would fill the rest with it.
    """
    if not divergence.domain.x.includes_zero:
        return Floor(1e-4, geometric=True)
    return Floor(0.0 if divergence.domain.y.includes_zero and not masked else 1e-3)
