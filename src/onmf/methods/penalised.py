"""The dictionary steps with penalties: over W <= 1, and then in the units that cost least.


For the surrogate's quadratic models in V = u W, the penalty on the dictionary is l1 / u_k per unit of V_k, with the
curvature l2 / u_k^2. For em, W is the root of (D + alpha l1) w^alpha + alpha l2 w^(1 + alpha) = N.

How large components are follows from the penalties.

A change of units, W_k / s and s h_k, leaves the fit as it is, and costs nothing without penalties: components are then
divided by their largest weight. With penalties it costs, in terms of W <= 1, m = avg h_k and m2 = avg h_k^2,

    p(s) = l1_coefficients m s + l2_coefficients m2 s^2 / 2
         + l1_dictionary ||W_k||_1 / s + l2_dictionary ||W_k||^2 / (2 s^2)

Weights at their bound of 1 stay there when s grows: the fit gets better at their features as if they had grown, at the
rate pull(s), the sum of their multipliers, which falls with s. Where s = 1 is best for every component, and W for the
bounds as they are, (W, H) is a critical point of the whole objective; s only leads there sooner, the statistics of all
past samples being taken along.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.problem import packed_diagonal
from onmf.model.penalty import Penalties
from onmf.model.sets import DictionarySet

MOST = 2.0  # by which s changes at a time where weights are at their bound
HALVINGS = 24


def resized(
    penalties: Penalties,
    W: Array,
    averages: tuple[Array, Array],
    pull: Callable[[Array], Array],
    fixed: int = 0,
) -> Array:
    """The s of every component at which p'(s) = pull(s), in bounds; ``averages`` are m and m2.

    The first ``fixed`` components keep their size.
    """
    m, m2 = np.asarray(averages, dtype=np.float64)
    largest = W.max(axis=1).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rising, bending = penalties.l1_coefficients * m, penalties.l2_coefficients * m2
        size = penalties.l1_dictionary * W.sum(axis=1, dtype=np.float64)
        square = penalties.l2_dictionary * np.square(W, dtype=np.float64).sum(axis=1)
        low = np.log(np.where(largest >= 1, 1 / MOST, np.maximum(largest, np.finfo(np.float64).tiny)))
        high = np.full_like(low, np.log(MOST))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            s = np.exp(middle)
            slope = rising + bending * s - size / s**2 - square / s**3 - pull(s)
            high, low = np.where(slope > 0, middle, high), np.where(slope > 0, low, middle)
    # Of a component that nobody uses, or that has no weights, nothing tells the size.
    known = (largest > 0) & ((rising + bending > 0) | (size + square > 0))
    known[:fixed] = False
    return np.where(known, np.exp(low), 1.0).astype(W.dtype)


def falling(pull: Array, stiffness: Array) -> Callable[[Array], Array]:
    """A pull that falls by ``stiffness`` per unit of s."""
    return lambda s: pull - stiffness * (s - 1)


def carried(W: Array, s: Array) -> Array:
    """W / s, the weights at their bound of 1 being carried along with it."""
    return np.where(W >= 1, np.ones_like(W), np.minimum(W / s[:, None], 1.0))


NEWTON_STEPS = 6
STRONGEST = 1e30  # pull of l2, relative to the other terms: beyond, its square is out of range


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
    """Sweeps over low <= V / u <= high at the features f, in place in V; A is packed, (P, B), or shared, (K, K).

    Also the pull and the stiffness of the weights that are at their bound of 1, per component, in units of V.
    """
    from onmf.coefficients.kernels.dictionary import packed_product, sweep

    K, shared = len(unit), A.shape == (len(unit), len(unit))
    curvature = (penalties.l2_dictionary / np.square(unit)).astype(A.dtype)
    A = A.copy()
    if shared:
        A[np.diag_indices(K)] += curvature
    else:
        A[packed_diagonal(K)] += curvature[:, None]
    b = b - (penalties.l1_dictionary / unit).astype(b.dtype)[:, None]
    sweep(A, b, V, low, unit, C.high, f.start, sweeps, C.fixed)
    v = np.ascontiguousarray(V[:, f])
    slope = (A @ v if shared else packed_product(A, v)) - b
    diagonal = np.diag(A)[:, None] if shared else A[packed_diagonal(K)]
    bounded = v >= unit[:, None] * V.dtype.type(C.high)
    return np.where(bounded, np.maximum(-slope, 0), 0).sum(axis=1), np.where(bounded, diagonal, 0).sum(axis=1)


def settled(
    penalties: Penalties, C: DictionarySet, V: Array, memory: dict[str, Array], found: list[tuple[Array, Array]]
) -> tuple[Array, Array]:
    """W and the units that V is best measured in, given what ``swept`` has found in all features."""
    unit = memory["unit"]
    if np.isinf(C.high):  # coefficients sum to one, and no unit changes
        return V / unit[:, None], unit
    pull, stiffness = (np.sum(parts, axis=0) for parts in zip(*found, strict=True))
    W = V / unit[:, None]
    averages = unit * memory["mass"], np.square(unit) * memory["squares"]
    s = resized(penalties, W, averages, falling(unit * pull, np.square(unit) * stiffness), C.fixed)
    return carried(W, s), unit * s


def divided(
    penalties: Penalties,
    order: float,
    Wt: Array,
    N: Array,
    D: Array,
    low: Array,
    averages: tuple[Array, Array],
    fixed: int,
) -> tuple[Array, Array]:
    """em's W and its change of units s, from the roots w of D w^order = N; all (F, K). D holds l1 already."""
    l2 = penalties.l2_dictionary
    Wt = np.maximum(_shrunk(Wt, D, order, l2), low[:, None])
    bounded = Wt >= 1
    pull = np.where(bounded, np.maximum((N - D) / order - l2, 0), 0).sum(axis=0)
    stiffness = np.where(bounded, N + l2, 0).sum(axis=0)
    W = np.minimum(Wt.T, 1)
    s = resized(penalties, W, averages, falling(pull, stiffness), fixed)
    return np.ascontiguousarray(carried(W, s).T), s


def _shrunk(W: Array, D: Array, order: float, l2: float) -> Array:
    """From the roots w of D w^order = N to those of D w^order + order l2 w^(1 + order) = N, by Newton's steps.

    In t, the logarithm of how much a root changes, order t + log(1 + order l2 w e^t / D) is convex, grows, and is not
    negative at t = 0: all steps go down, and none too far.
    """
    if not l2:
        return W
    z, t = np.minimum(order * min(l2, STRONGEST) * (W / D), STRONGEST), np.zeros_like(W)
    for _ in range(NEWTON_STEPS):
        pull = z * np.exp(t)
        t -= (order * t + np.log1p(pull)) / (order + pull / (1 + pull))
    return W * np.exp(t)
