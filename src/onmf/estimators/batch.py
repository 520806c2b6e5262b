"""``BatchNMF``: multiplicative updates on all samples at once, behind the same conventions as ``OnlineNMF``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning

from onmf import divergences, methods
from onmf._support import threads
from onmf._support.arrays import Array
from onmf._support.checks import require_at_least, require_whole
from onmf._support.seeds import generators, require_seed
from onmf.batch_updates import PATIENCE, DenseUpdates, GramUpdates, Iterate, SparseUpdates, Updates, factorise
from onmf.coefficients import CoefficientSolver
from onmf.divergences import Divergence, Separable, SquaredL2
from onmf.divergences.alpha import NEARLY_ZERO
from onmf.estimators.base import FittedNMF, Progress, dense, warn_raised
from onmf.initial import initial_dictionary
from onmf.sets import Box, DictionarySet, require_positive_fit
from onmf.units import Units, checked_clip, refuse_bad_entries

FIRST = 2000  # samples of which the start is made where all of them would have to be densified


class BatchNMF(FittedNMF):
    """Nonnegative matrix factorization by multiplicative updates, X (n, F) ~ H (n, K) @ W (K, F), for every divergence.

    **Samples are rows.** All of them are in memory, and every iteration goes over all. Under the library's own
    divergences the loss cannot rise: the updates minimise a majorant of it (for l1, of a version rounded at the kink by
    a thousandth of each sample's mean). For data that come as a stream, or are many, see ``OnlineNMF``, which needs far
    fewer passes.

    Parameters
    ----------
    n_components : int, default 40
        K, the number of atoms of the dictionary.
    divergence : str or Divergence, default "kl"
        The loss d(x || hW), as in ``OnlineNMF``. Huber's delta, if not given, is a tenth of the data's mean.
    init : {"kmeans++", "uniform", "samples", "nndsvda"} or array (K, F), default "kmeans++"
        The initial dictionary. Zeros in it stay zeros: no multiplicative update leaves them.
    max_iter : int, default 1000
        Iterations at most.
    tol : float, default 1e-5
        The loss has converged when it falls by less than this share of itself over ten iterations; 0: never.
    update_dictionary : bool, default True
        False keeps the dictionary as ``init`` has it, an array with entries in [0, 1], and finds the coefficients only.
    clip : (low, high) or None, default None
        Clip the data first, in their units.
    eps : float, default 1e-8
        What the weights of a feature sum up to at least: the set C, in internal units.
    transform_tol, transform_max_iter : float and int, default 1e-4 and 5000
        When coefficients count as found in ``transform``, ``loss``, ``score`` and ``stationarity``.
    random_state : int, RandomState, Generator or None, default None
        Seeds the initial dictionary.
    callbacks : iterable of callables or None
        Each is called with a ``Progress`` at the start and after every iteration; one that returns True ends ``fit``.

    Attributes
    ----------
    components_ : array (K, F)
        The dictionary W, entries in [0, 1].
    coefficients_ : array (n, K)
        The H of the last iteration. ``transform`` solves for them precisely instead.
    divergence_ : Divergence
        The divergence in the data's units, with all parameters known.
    scale_ : float
        The internal unit: the mean of the data.
    n_iter_ : int
        Iterations made.
    converged_ : bool
        Whether ``tol`` was reached.
    history_ : dict of arrays "samples", "seconds", "loss"
        At the start and after every iteration: samples gone over, seconds, and the mean loss of a sample.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    coefficients_: Array
    n_iter_: int
    converged_: bool

    def __init__(
        self,
        n_components: int = 40,
        *,
        divergence: Divergence | str = "kl",
        init: Any = "kmeans++",
        max_iter: int = 1000,
        tol: float = 1e-5,
        update_dictionary: bool = True,
        clip: tuple[float, float] | None = None,
        eps: float = 1e-8,
        transform_tol: float = 1e-4,
        transform_max_iter: int = 5000,
        random_state: Any = None,
        callbacks: Iterable[Callable[[Progress], Any]] | None = None,
    ) -> None:
        self.n_components = n_components
        self.divergence = divergence
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.update_dictionary = update_dictionary
        self.clip = clip
        self.eps = eps
        self.transform_tol = transform_tol
        self.transform_max_iter = transform_max_iter
        self.random_state = random_state
        self.callbacks = callbacks

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the dictionary from X: an array, a sparse matrix or a data frame."""
        with self._unchanged_by_errors():
            self._check_settings()
            X = self._validated(X, reset=True)
            refuse_bad_entries(X)
            self.__dict__.pop("components_", None)
            units = Units.of_first_batch(X, checked_clip(self.clip), rescale=True)
            divergence = divergences.get(self.divergence).for_data(units.mean, X.shape[1])
            with threads.ours():
                self._factorise(X, units, divergence)
        if self.tol > 0 and not self.converged_ and self.n_iter_ == self.max_iter:
            still = f"The loss still falls by more than tol={self.tol:g} of itself over ten iterations"
            untold = "Fewer than ten iterations do not tell whether the loss has converged"
            warnings.warn(
                f"{still if self.max_iter >= PATIENCE else untold}; raise max_iter ({self.max_iter}) or tol.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _factorise(self, X: Any, units: Units, divergence: Divergence) -> None:
        started, waited = time.perf_counter(), 0.0  # callbacks' time is theirs
        inside, C = divergence.in_units(units.scale), DictionarySet(self.eps)
        require_positive_fit(divergence, C, Box())
        updates, internal, raised = _updates(X, units, divergence, inside)
        rng = generators(self.random_state)[0]
        first = initial_dictionary(self.init, internal, self.n_components, rng, ratios=not divergence.domain.x.closed)
        W = C.rescale_into(first.astype(X.dtype, copy=False))
        H = updates.start(W)
        self.divergence_, self.scale_, self._units, self._raised = divergence, units.scale, units, raised > 0
        history: list[tuple[int, float, float]] = []
        unit = divergence.loss_unit(units.scale) / X.shape[0]
        total = X.shape[0] * self.max_iter
        try:
            for now in factorise(updates, H, W, self.max_iter, self.tol, self.update_dictionary):
                reached = time.perf_counter()
                seconds = reached - started - waited
                history.append((now.number * X.shape[0], seconds, now.loss * unit))
                progress = Progress(history[-1][0], total, now.number, seconds, history[-1][2], now.W)
                wishes = [callback(progress) for callback in self.callbacks or ()]  # all are called
                if any(wishes):
                    break
                waited += time.perf_counter() - reached
        finally:  # an interrupt leaves the last iteration; an error is undone by the caller
            if history:
                self._keep(now, history, C)
        if raised:
            warn_raised(divergence, units, raised)

    def _keep(self, now: Iterate, history: list[tuple[int, float, float]], C: DictionarySet) -> None:
        """An iterate as the result, its atoms divided by their largest weights."""
        size = np.ones(len(now.W), dtype=now.W.dtype)
        if self.update_dictionary:
            size = np.maximum(now.W.max(axis=1), np.finfo(now.W.dtype).tiny)
        self.components_ = C.project(now.W / size[:, None])
        self.coefficients_ = now.H * (size * now.H.dtype.type(self.scale_))
        self.n_iter_, self.converged_ = now.number, now.converged
        self.n_samples_seen_, self._history = history[-1][0], history

    def _check_settings(self) -> None:
        require_whole(1, n_components=self.n_components, max_iter=self.max_iter)
        require_at_least(0, tol=self.tol, transform_tol=self.transform_tol)
        require_whole(1, transform_max_iter=self.transform_max_iter)
        if not isinstance(self.update_dictionary, (bool, np.bool_)):
            raise ValueError(f"update_dictionary must be True or False, got {self.update_dictionary!r}.")
        if not self.update_dictionary and isinstance(self.init, str):
            raise ValueError(
                f"update_dictionary=False needs the dictionary as an array in init, got init={self.init!r}."
            )
        if not self.update_dictionary and np.max(self.init, initial=0.0) > 1:
            raise ValueError(
                "update_dictionary=False needs an init with entries in [0, 1]; divide atoms by their largest weight."
            )
        self._check_callbacks()
        DictionarySet(self.eps)
        checked_clip(self.clip)
        require_seed(self.random_state)

    def _solver(self) -> CoefficientSolver:
        return methods.build("surrogate", self._inside, methods.Settings(eps=self.eps)).precise


def _updates(X: Any, units: Units, divergence: Divergence, inside: Divergence) -> tuple[Updates, Any, int]:
    """The samples as the updates take them, those that the start looks at, and how many entries were raised.

    Sparse data under a divergence that needs all entries are densified block by block, in every iteration again.
    """
    order = methods.order_of(inside)
    if order is not None and order < NEARLY_ZERO:
        order = None  # its inverse as an exponent would cost digits
    if scipy.sparse.issparse(X) and order is None and not isinstance(inside, SquaredL2):
        filled = np.flatnonzero(np.diff(X.indptr))
        first, _ = units.inside(dense(X[filled[:: -(-len(filled) // FIRST)]]), divergence)
        blocks = DenseUpdates(inside, lambda rows: units.inside(dense(X[rows]), divergence)[0], X.shape)
        raised = sum(units.inside(dense(X[rows]), divergence)[1] for rows in blocks.blocks)
        return blocks, first, raised
    internal, raised = units.inside(X, divergence)
    if isinstance(inside, SquaredL2):
        return GramUpdates(internal), internal, raised
    if scipy.sparse.issparse(internal) and order is not None and isinstance(inside, Separable):
        return SparseUpdates(inside, internal, order), internal, raised
    return DenseUpdates(inside, lambda rows: internal[rows], internal.shape), internal, raised
