"""``BatchNMF``: multiplicative updates on all samples at once, behind the same conventions as ``OnlineNMF``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy
from sklearn.exceptions import ConvergenceWarning

from onmf import divergences
from onmf._support import threads
from onmf._support.arrays import Array, dense
from onmf._support.checks import require_at_least, require_whole
from onmf._support.seeds import generators
from onmf.batch_updates import PATIENCE, DenseUpdates, GramUpdates, Iterate, SparseUpdates, Updates, factorise
from onmf.divergences import Divergence
from onmf.estimators.serving import Serving
from onmf.estimators.shown import Shown
from onmf.estimators.warned import warn_raised
from onmf.initial import initial_dictionary
from onmf.learner import Features, Fitted, Progress
from onmf.methods import State
from onmf.problem import Penalties
from onmf.sets import Sets
from onmf.units import DataError, Units, checked_clip, refuse_bad_entries, refuse_infinite

FIRST = 2000  # samples of which the start is made where all of them would have to be densified


@dataclass(frozen=True, kw_only=True)
class Factorised(Fitted):
    """What the iterations have come to."""

    H: Array  # in the data's units
    converged: bool

    @property
    def reconstruction_error(self) -> float:
        """sqrt(2 sum of d(x || hW)) at the last iteration."""
        return float(np.sqrt(2 * len(self.H)) * np.sqrt(self.history.entries[-1][2]))


class BatchNMF(Serving):
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
        The loss, with penalties, has converged when it falls by less than this share of itself over ten iterations; 0:
        never.
    update_dictionary : bool, default True
        False keeps the dictionary as ``init`` has it, an array with entries in [0, 1], and finds the coefficients only.
    clip : (low, high) or None, default None
        Clip the data first, in their units.
    l1_coefficients, l2_coefficients, l1_dictionary, l2_dictionary : float, default 0
        Prices of ||h||_1, ||h||^2 / 2, ||W||_1 and ||W||_F^2 / 2 on top of the mean loss, as in ``OnlineNMF``.
    sets : Sets or None, default None
        The constants of the sets C and H, in internal units; None: Sets(eps=1e-8, eps_prime=1e-8, U=1e8).
    transform_tol, transform_max_iter : float and int, default 1e-4 and 5000
        When coefficients count as found in ``transform``, ``loss``, ``score`` and ``stationarity``.
    random_state : int, RandomState, Generator or None, default None
        Seeds the initial dictionary.
    callbacks : list of callables or None
        Each is called with a ``Progress`` at the start and after every iteration; one that returns True ends ``fit``.
    verbose : int, default 0
        1 prints a line of progress every second, 2 after every iteration.

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
    n_components_, n_iter_ : int
        K, and the iterations made.
    reconstruction_err_ : float
        sqrt(2 sum of d(x || hW)) over the samples, at the last iteration's coefficients, as in scikit-learn.
    converged_ : bool
        Whether ``tol`` was reached.
    history_ : dict of arrays "samples", "seconds", "loss"
        At the start and after every iteration: samples gone over, seconds, and the mean loss of a sample.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    _learned: Factorised | None = None

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
        l1_coefficients: float = 0.0,
        l2_coefficients: float = 0.0,
        l1_dictionary: float = 0.0,
        l2_dictionary: float = 0.0,
        sets: Sets | None = None,
        transform_tol: float = 1e-4,
        transform_max_iter: int = 5000,
        random_state: Any = None,
        callbacks: Collection[Callable[[Progress], Any]] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.divergence = divergence
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.update_dictionary = update_dictionary
        self.clip = clip
        self.l1_coefficients = l1_coefficients
        self.l2_coefficients = l2_coefficients
        self.l1_dictionary = l1_dictionary
        self.l2_dictionary = l2_dictionary
        self.sets = sets
        self.transform_tol = transform_tol
        self.transform_max_iter = transform_max_iter
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the dictionary from X, an array, sparse matrix or data frame. An error leaves the model as it was."""
        self._check_settings()
        X, features = self._validated(X, reset=True)
        refuse_bad_entries(X)
        units = Units.of_first_batch(X, checked_clip(self.clip), rescale=True)
        divergence = divergences.get(self.divergence).for_data(units.mean, X.shape[1])
        self._sets.require_positive_fit(divergence)
        penalties = Penalties.of(vars(self))
        penalties.require_effect(coefficients_bounded=False)
        if penalties and divergence.multiplicative_slope is None:
            raise ValueError(f"BatchNMF refuses penalties under {divergence.name} with its parameter; use OnlineNMF.")
        before = self._learned
        try:
            with threads.taken_from_blas():
                self._factorise(X, units, divergence, features, penalties)
            self._warn_unless_converged()
        except Exception:
            self._learned = before
            raise
        return self

    def _warn_unless_converged(self) -> None:
        if self.tol > 0 and not self.converged_ and self.n_iter_ == self.max_iter:
            still = f"The loss still falls by more than tol={self.tol:g} of itself over ten iterations"
            untold = "Fewer than ten iterations do not tell whether the loss has converged"
            warnings.warn(
                f"{still if self.max_iter >= PATIENCE else untold}; raise max_iter ({self.max_iter}) or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _factorise(
        self, X: Any, units: Units, divergence: Divergence, features: Features, penalties: Penalties
    ) -> None:
        started, waited = time.perf_counter(), 0.0  # callbacks' time is theirs
        inside, C, n = divergence.in_units(units.scale), self._sets.dictionaries, X.shape[0]
        updates, internal, raised = _updates(X, units, divergence, inside)
        updates.penalties = penalties
        rng = generators(self.random_state)[0]
        first = initial_dictionary(self.init, internal, self.n_components, rng, ratios=not divergence.domain.x.closed)
        if not self.update_dictionary and first.max() > 1:
            raise ValueError(
                "update_dictionary=False needs an init with entries in [0, 1]; divide atoms by their largest weight."
            )
        W = C.rescale_into(first.astype(X.dtype, copy=False))
        state = State(W, C, penalties=penalties)
        fitted = Fitted(state=state, divergence=divergence, units=units, features=features, raised=raised > 0)
        unit = divergence.loss_unit(units.scale) / n
        listeners, now = self._listeners(), None
        seconds = 0.0
        try:
            for now in factorise(updates, updates.start(W), W, self.max_iter, self.tol, self.update_dictionary):
                reached = time.perf_counter()
                if not (np.isfinite(now.loss * unit) and np.isfinite(now.W).all()):
                    raise DataError(
                        "The loss of these data is beyond the range of numbers: they are too large or too unequal for "
                        "this divergence; rescale or clip them."
                    )
                spent, seconds = reached - started - waited - seconds, reached - started - waited
                fitted = replace(fitted, history=fitted.history.after(n if now.number else 0, spent, now.loss * unit))
                told = fitted.history.samples, n * self.max_iter, now.number, seconds, now.loss * unit, now.W
                wishes = [listener(Progress(*told)) for listener in listeners]  # all are called
                if any(wishes):
                    break
                waited += time.perf_counter() - reached
        finally:  # an interrupt leaves the last iteration; the caller undoes it after an error
            if now is not None:
                self._learned = self._kept(fitted, now)
        refuse_infinite(self.coefficients_, X, units.mean)
        if raised:
            warn_raised(divergence, raised)

    def _kept(self, fitted: Fitted, now: Iterate) -> Factorised:
        """An iterate as the result, its atoms divided by their largest weights unless that has a price."""
        size = np.ones(len(now.W), dtype=now.W.dtype)
        if self.update_dictionary and not fitted.state.penalties:
            size = np.maximum(now.W.max(axis=1), np.finfo(now.W.dtype).tiny)
        W = fitted.state.C.project(now.W / size[:, None])
        H = now.H * (size * now.H.dtype.type(fitted.units.scale))
        state = replace(fitted.state, W=W, samples=fitted.history.samples, steps=now.number)
        return Factorised(**(vars(fitted) | {"state": state}), H=H, converged=now.converged)

    coefficients_ = Shown[Factorised, Array](lambda factorised: factorised.H)
    n_iter_ = Shown[Factorised, int](lambda factorised: factorised.state.steps)
    converged_ = Shown[Factorised, bool](lambda factorised: factorised.converged)
    reconstruction_err_ = Shown[Factorised, float](lambda factorised: factorised.reconstruction_error)

    def _check_settings(self) -> None:
        super()._check_settings()
        require_whole(1, max_iter=self.max_iter)
        require_at_least(0, tol=self.tol)
        self._require_switches("update_dictionary")
        if not self.update_dictionary and isinstance(self.init, str):
            raise ValueError(
                f"update_dictionary=False needs the dictionary as an array in init, got init={self.init!r}."
            )


def _updates(X: Any, units: Units, divergence: Divergence, inside: Divergence) -> tuple[Updates, Any, int]:
    """The samples as the updates take them, those that the start looks at, and how many entries were raised.

    Sparse data under a divergence that needs all entries are densified block by block, in every iteration again.
    """
    order, gram = inside.alpha_order, inside.quadratic and inside.metric is None
    if scipy.sparse.issparse(X) and order is None and not gram:
        filled = np.flatnonzero(np.diff(X.indptr))
        first, _ = units.inside(dense(X[filled[:: -(-len(filled) // FIRST)]]), divergence)
        blocks = DenseUpdates(inside, lambda rows: units.inside(dense(X[rows]), divergence)[0], X.shape)
        raised = sum(units.inside(dense(X[rows]), divergence)[1] for rows in blocks.blocks)
        return blocks, first, raised
    internal, raised = units.inside(X, divergence)
    if gram:
        return GramUpdates(internal), internal, raised
    if scipy.sparse.issparse(internal) and order is not None:
        return SparseUpdates(inside, internal, order), internal, raised
    return DenseUpdates(inside, lambda rows: internal[rows], internal.shape), internal, raised
