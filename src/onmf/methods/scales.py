"""How large atoms are where their size has a price.

A change of units, W_k / s and s h_k, leaves the fit as it is, and costs nothing without penalties: atoms are then
divided by their largest weight. With penalties it costs, in terms of W <= 1, m = avg h_k and m2 = avg h_k^2,

    p(s) = l1_coefficients m s + l2_coefficients m2 s^2 / 2
         + l1_dictionary ||W_k||_1 / s + l2_dictionary ||W_k||^2 / (2 s^2)

Weights at their bound of 1 stay there when s grows: the fit gets better at their features as if they had grown, at the
rate pull(s), the sum of their multipliers, which falls with s. Where s = 1 is best for every atom, and W for the bounds
as they are, (W, H) is a critical point of the whole objective; s only leads there sooner, the statistics of all past
samples being taken along.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onmf._support.arrays import Array
from onmf.model.penalty import Penalties

MOST = 2.0  # by which s changes at a time where weights are at their bound
HALVINGS = 24


def resized(
    penalties: Penalties,
    W: Array,
    averages: tuple[Array, Array],
    pull: Callable[[Array], Array],
    fixed: int = 0,
) -> Array:
    """The s of every atom at which p'(s) = pull(s), in bounds; ``averages`` are m and m2.

    The first ``fixed`` atoms keep their size.
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
    # Of an atom that nobody uses, or that has no weights, nothing tells the size.
    known = (largest > 0) & ((rising + bending > 0) | (size + square > 0))
    known[:fixed] = False
    return np.where(known, np.exp(low), 1.0).astype(W.dtype)


def falling(pull: Array, stiffness: Array) -> Callable[[Array], Array]:
    """A pull that falls by ``stiffness`` per unit of s."""
    return lambda s: pull - stiffness * (s - 1)


def carried(W: Array, s: Array) -> Array:
    """W / s, the weights at their bound of 1 being carried along with it."""
    return np.where(W >= 1, np.ones_like(W), np.minimum(W / s[:, None], 1.0))
