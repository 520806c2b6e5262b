"""The coefficient problem, min over h in a set of d(x || hW) + penalty(h): all that a coefficient solver sees.

A solver asks for a fit, its loss, its gradient in h and its Hessians, and does not see which kind of X it has. Sparse X
cost O(nnz K): for divergences that are linear in y at x = 0, d(0, y) = slope * y, the zeros enter only through sums.
"""

from typing import Any

import scipy

from onmf._support.arrays import Array
from onmf._support.known import Known
from onmf.coefficients.problem.base import DEFAULT_BOX, Problem, packed_diagonal, uniform_start
from onmf.coefficients.problem.dense import DenseProblem, weighted_grams
from onmf.coefficients.problem.gram import GramProblem, least_squares
from onmf.coefficients.problem.known import KnownProblem, OwnMass, SparseKnownProblem
from onmf.coefficients.problem.penalty import NO_PENALTIES, NO_PENALTY, Penalties, Penalty
from onmf.coefficients.problem.sparse import SparseProblem
from onmf.divergences import Divergence
from onmf.model.sets import Box, Simplex

__all__ = [
    "DEFAULT_BOX",
    "NO_PENALTIES",
    "NO_PENALTY",
    "DenseProblem",
    "GramProblem",
    "KnownProblem",
    "OwnMass",
    "Penalties",
    "Penalty",
    "Problem",
    "SparseKnownProblem",
    "SparseProblem",
    "least_squares",
    "packed_diagonal",
    "pose",
    "takes_sparse",
    "uniform_start",
    "weighted_grams",
]


def pose(
    divergence: Divergence,
    X: Any,
    W: Array,
    box: Box | Simplex = DEFAULT_BOX,
    penalty: Penalty = NO_PENALTY,
    weights: Array | None = None,
) -> Problem:
    """The problem in the form that suits X: dense, sparse, or on the Gram matrix (sparse X under squared l2).

    ``weights`` are those of the samples, for whoever learns W from them.
    """
    kind: type[Problem] = DenseProblem
    if isinstance(X, Known):
        kind = SparseKnownProblem if X.sparse else KnownProblem
    elif scipy.sparse.issparse(X):
        kind = GramProblem if _separable_least_squares(divergence) else SparseProblem
    problem = kind(divergence, X, W, box, penalty)
    if weights is not None:
        problem.weights = weights
    return problem


def takes_sparse(divergence: Divergence) -> bool:
    """Does sparse X cost O(nnz) under this divergence? Others must be densified, batch by batch."""
    if divergence.partial:
        return divergence.separable and not divergence.absolute_deviations
    return divergence.slope_at_zero is not None or _separable_least_squares(divergence)


def _separable_least_squares(divergence: Divergence) -> bool:
    return divergence.quadratic and divergence.metric is None
