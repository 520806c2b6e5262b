"""What every fitted model does: ``transform``, ``loss``, ``stationarity``. Nothing here learns or changes the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from onmf._support import threads
from onmf._support.arrays import Array
from onmf._support.checks import require_at_least, require_whole
from onmf._support.known import Known, apart, as_dense, as_known, checked_missing
from onmf._support.seeds import require_seed
from onmf._support.weights import given_rows, weighted
from onmf.coefficients import precise
from onmf.model.penalty import Penalty
from onmf.coefficients.problem import Problem, pose
from onmf.data.columns import Features
from onmf.data.inputs import matrix_of, require_same_features
from onmf.divergences import Divergence, Partial
from onmf.divergences.partial import require_weighed
from onmf.estimators.annotating import Annotating
from onmf.estimators.described import Described
from onmf.estimators.fitted_attribute import Shown
from onmf.estimators.parameters import Parametrised
from onmf.estimators.user_warnings import NOTHING_IMPLICIT, warn_raised, warn_unsolved
from onmf.estimators.verbose import printer
from onmf.learner import Fitted, Progress
from onmf.learner.usage import proportions
from onmf.model.sets import Box, DictionaryBox, DictionarySet, Sets, Simplex
from onmf.model.validation import DataError, refuse_bad_entries, refuse_bounded, refuse_infinite
from onmf.model.units import checked_clip

BLOCK = 1024  # samples solved side by side: enough for BLAS, little memory


def _delta(fitted: Fitted) -> Any:
    return getattr(fitted.divergence, "delta", None)


def _names(fitted: Fitted) -> Any:
    names = fitted.features.names
    return None if names is None else np.asarray(names, dtype=object)


class NMF(TransformerMixin, Annotating, Described, Parametrised):
    """The base of the estimators: it holds one ``Fitted``, shows it through attributes, and uses its dictionary."""

    n_components: int
    divergence: Divergence | str
    clip: tuple[float, float] | None
    missing: str | None
    implicit: str
    sets: Sets | None
    transform_tol: float
    transform_max_iter: int
    random_state: Any
    callbacks: Any
    verbose: Any
    _learned: Fitted | None = None

    # What was learnt

    @property
    def _fitted(self) -> Fitted:
        if self._learned is None:
            check_is_fitted(self)
            raise AttributeError("nothing has been learnt yet.")
        return self._learned

    components_ = Shown[Fitted, Array](lambda fitted: fitted.W)
    n_components_ = Shown[Fitted, int](lambda fitted: len(fitted.state.W))
    divergence_ = Shown[Fitted, Divergence](lambda fitted: fitted.divergence)
    scale_ = Shown[Fitted, float](lambda fitted: fitted.units.scale)
    n_samples_seen_ = Shown[Fitted, int](lambda fitted: fitted.history.samples)
    history_ = Shown[Fitted, dict[str, Array]](lambda fitted: fitted.history.columns())
    delta_ = Shown[Fitted, float](_delta, "a fit with the divergence huber")
    n_features_in_ = Shown[Fitted, int](lambda fitted: fitted.features.number)
    feature_names_in_ = Shown[Fitted, Any](_names, "a fit on data with names of features")

    # Using it

    def transform(self, X: Any, *, weights: Any = None) -> Array:
        """The coefficients H (n, K) of X in the dictionary, solved precisely."""
        return self._coefficients(self._checked(X, weights))

    def _coefficients(self, X: Any) -> Array:
        H = np.empty((X.shape[0], self.n_components_), dtype=X.dtype)
        for rows, h, _ in self._solved(X):
            H[rows] = h
        H *= self._fitted.coefficient_unit
        refuse_infinite(H, X, self._fitted.units.mean)
        return H

    def proportions(self, X: Any) -> Array:
        """How much of each sample's fit every atom carries: rows of numbers that sum to one (n, K).

        Atoms have maximum 1, not sum 1, so that H alone does not tell: h_k sum_f W_kf is what atom k contributes.
        Coefficients on the simplex are shares already, of the sample's contents; bright atoms carry more of its fit.
        """
        return proportions(self._coefficients(self._checked(X)), self.components_)

    def inverse_transform(self, X: Any) -> Array:
        """The fit H @ W of coefficients H (n, K)."""
        W = self._fitted.W
        H = np.asarray(X)
        if H.dtype.kind not in "buif":
            raise ValueError(f"inverse_transform takes coefficients that are real numbers, got {H.dtype}.")
        if H.ndim != 2 or H.shape[1] != len(W):
            raise ValueError(f"inverse_transform takes coefficients of shape (n, {len(W)}), got {H.shape}.")
        refuse_bad_entries(H)
        with threads.taken_from_blas():
            X = H @ (W.astype(H.dtype, copy=False) if H.dtype == np.float32 else W)
        refuse_infinite(X, H, self._fitted.units.mean)
        return X

    def complete(self, X: Any, *, weights: Any = None) -> Array:
        """X (n, F) with its holes filled by the fit: what is NaN, of weight zero or, with ``implicit="missing"``, not
        stored in a sparse X. What is known stays as it is.

        A sample of which nothing is known is filled with zeros.
        """
        known = self._checked(X, weights)
        if not isinstance(known, Known) and self.implicit == "missing":
            raise ValueError(f"complete needs to know what is missing: {NOTHING_IMPLICIT}.")
        if not isinstance(known, Known):
            raise ValueError("complete needs to know what is missing: set missing='nan', or implicit='missing'.")
        fit = self.inverse_transform(self._coefficients(known)).astype(known.dtype, copy=False)
        dense = known.densified()
        return np.where(dense.present > 0, dense.X, fit)

    def loss(self, X: Any, *, sample_weight: Any = None, weights: Any = None) -> float:
        """The mean divergence per sample at the precise coefficients, in the data's units.

        Of what is known, by its weights; penalties are no part of it.
        """
        return self._loss(self._checked(X, weights, sample_weight))

    def _loss(self, X: Any) -> float:
        X, counts = apart(X)
        share = np.full(X.shape[0], 1 / X.shape[0]) if counts is None else counts / counts.sum()
        total, unit = 0.0, self.divergence_.loss_unit(self.scale_)
        for rows, H, problem in self._solved(X):
            with threads.taken_from_blas():
                losses = problem.loss(H, problem.fit(H)).astype(np.float64)
            refuse_infinite(losses * unit, X[rows], self._fitted.units.mean, range(rows.start, rows.stop))
            total += float((losses / X.shape[0] if counts is None else losses * share[rows]).sum())
        return total * unit

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None, weights: Any = None) -> float:
        """Minus the loss: higher is better."""
        return -self.loss(X, sample_weight=sample_weight, weights=weights)

    def stationarity(self, X: Any) -> float:
        """||W - P_C(W - grad f(W))||_F in internal units, f being the mean loss over X with all penalties.

        The distance from the critical points that the theorem speaks of; outside class D2 an indicator only. By
        Danskin's theorem grad f is the mean of h' (d/dy) d(x || hW) at the minimising h.
        """
        X = self._checked(X)
        divergence, W = self._fitted.inside, self._fitted.state.W.astype(X.dtype, copy=False)
        divergence = Partial(divergence) if isinstance(X, Known) else divergence
        gradient = self._fitted.state.penalties.slope(W)
        for rows, H, problem in self._solved(X):
            with threads.taken_from_blas():
                slope = divergence.grad(as_dense(problem.X), H @ W)
                refuse_infinite(slope, X[rows], self._fitted.units.mean, range(rows.start, rows.stop))
                gradient += H.T @ slope / X.shape[0]
        feasible = self._feasible()
        gradient[: feasible.fixed] = 0  # known atoms do not move
        distance = float(np.linalg.norm(W - feasible.project(W - gradient)))
        if not np.isfinite(gradient).all() or not np.isfinite(distance):
            raise DataError("The gradient at these data is beyond the range of numbers; rescale or clip them.")
        return distance

    @property
    def _sets(self) -> Sets:
        return Sets() if self.sets is None else self.sets

    def _feasible(self) -> DictionarySet | DictionaryBox:
        """The set that W lies in."""
        return self._where[0]

    @property
    def _where(self) -> tuple[DictionarySet, Box | Simplex]:
        """The sets of dictionaries and of coefficients that what was learnt belongs to."""
        C, H = self._sets.where("simplex" if self._fitted.shares else "nonnegative")
        return dataclasses.replace(C, fixed=self._fitted.state.C.fixed), H

    def _penalty(self) -> Penalty:
        """On the coefficients."""
        return self._fitted.state.penalties.of_coefficients

    def _solved(self, X: Any) -> Iterator[tuple[slice, Array, Problem]]:
        """Block by block: the rows, their precise coefficients, and the problem that they solve in internal units."""
        fitted, penalty, box = self._fitted, self._penalty(), self._where[1]
        divergence, W = fitted.inside, fitted.state.W.astype(X.dtype, copy=False)
        if isinstance(X, Known):
            require_weighed(divergence)
            divergence = Partial(divergence)
        solver = precise(divergence).stopping(self.transform_tol, self.transform_max_iter)
        sparse = solver.takes_sparse(divergence)
        raised = unsolved = 0
        for first in range(0, X.shape[0], BLOCK):
            rows = slice(first, min(first + BLOCK, X.shape[0]))
            given, numbers = X[rows] if sparse else as_dense(X[rows]), range(rows.start, rows.stop)
            V, count = fitted.units.inside(given, fitted.divergence, numbers)
            problem = pose(divergence, V, W, box, penalty)
            with threads.taken_from_blas():
                found = solver.solve(problem)
            refuse_infinite(found.H, given, fitted.units.mean, numbers)
            if self.sets is None and not fitted.shares:  # a bound of the user's own is meant
                refuse_bounded(found.H, box.high, given, fitted.units.scale, numbers)
            raised += count
            unsolved += int(np.count_nonzero(~found.converged))
            yield rows, found.H, problem
        if raised and not fitted.raised:
            warn_raised(fitted.divergence, raised)
        if unsolved:
            warn_unsolved(unsolved, X.shape[0], self.transform_tol, self.transform_max_iter)

    # Checks

    def _check_settings(self) -> None:
        """Refuse settings that no data could make work; the learner checks its own."""
        require_whole(1, n_components=self.n_components, transform_max_iter=self.transform_max_iter)
        require_at_least(0, transform_tol=self.transform_tol)
        if not isinstance(self._sets, Sets):
            raise TypeError(f"sets must be an onmf.Sets, as in Sets(eps=1e-8), got {self.sets!r}.")
        callbacks = () if self.callbacks is None else self.callbacks
        if not isinstance(callbacks, Collection) or not all(map(callable, callbacks)):
            raise ValueError(f"callbacks must be a list of functions that take a Progress, got {self.callbacks!r}.")
        require_whole(0, verbose=int(self.verbose) if isinstance(self.verbose, (bool, np.bool_)) else self.verbose)
        checked_clip(self.clip)
        checked_missing(self.missing, self.implicit)
        require_seed(self.random_state)

    def _require_switches(self, *names: str) -> None:
        for name in names:
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}.")

    def _listeners(self) -> list[Callable[[Progress], Any]]:
        """The user's callbacks, and what ``verbose`` prints."""
        listeners = [] if self.callbacks is None else list(self.callbacks)
        return [*listeners, printer(int(self.verbose))] if self.verbose else listeners

    def _checked(self, X: Any, weights: Any = None, sample_weight: Any = None) -> Any:
        check_is_fitted(self)
        X, features = self._validated(X, reset=False)
        return self._meant(X, features, sample_weight, weights)

    def _meant(self, X: Any, features: Features, sample_weight: Any, weights: Any) -> Any:
        """X as the settings and the weights mean it, without bad entries."""
        missing, implicit = checked_missing(self.missing, self.implicit)
        X = as_known(weighted(X, sample_weight, weights, implicit), missing, implicit)
        refuse_bad_entries(X, given_rows(sample_weight), features.names)
        return X

    def _validated(self, X: Any, *, reset: bool) -> tuple[Any, Features]:
        """Shape, type and feature names by scikit-learn's rules; the entries are checked by ``refuse_bad_entries``."""
        X, named = matrix_of(X, None if reset else self._fitted.features)
        options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "ensure_all_finite": False}
        if named is not None:
            if not reset:
                require_same_features(named, self._fitted.features)
            return check_array(X, estimator=self, **options), named
        if not reset:
            return validate_data(self, X, reset=False, **options), self._fitted.features
        # scikit-learn writes down the features that it finds: on a stand-in, so that a refused X changes nothing here.
        found = type(type(self).__name__, (BaseEstimator,), {})()
        X = validate_data(found, X, reset=True, **options)
        return X, Features.of(found.n_features_in_, getattr(found, "feature_names_in_", None))

    # scikit-learn's conventions

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The columns of H: component_0, component_1, ..."""
        return np.asarray([f"component_{k}" for k in range(self._fitted.state.W.shape[0])], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return self._learned is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = isinstance(self.missing, str) and self.missing == "nan"
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
