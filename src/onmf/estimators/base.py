"""What every fitted model does: ``transform``, ``loss``, ``stationarity``. Nothing here learns or changes the model."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from onmf._support import threads
from onmf._support.arrays import Array
from onmf.coefficients import CoefficientSolver
from onmf.divergences import Divergence
from onmf.online import gradient_mapping_norm
from onmf.problem import fits
from onmf.sets import DictionarySet
from onmf.streams import Source
from onmf.units import Units, refuse_bad_entries

BLOCK = 1024  # samples solved side by side: enough for BLAS, little memory


class DomainWarning(UserWarning):
    """Entries of the data lie outside the divergence's domain and were raised to a small positive number."""


@dataclass(frozen=True)
class Progress:
    """What a callback is told after every batch."""

    samples: int  # learnt from so far
    total: int | None  # samples in all passes, if known
    steps: int
    seconds: float
    loss: float  # mean loss of the batch's samples, each just before it was learnt from, in the data's units
    W: Array  # the dictionary now
    H: Array | None = None  # the batch's coefficients as they were found while learning (OnlineNMF)


class FittedNMF(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The half of an estimator that uses a dictionary; a subclass learns one."""

    components_: Array  # W (K, F)
    divergence_: Divergence  # in the data's units
    scale_: float
    n_features_in_: int
    eps: float
    transform_tol: float
    transform_max_iter: int
    _units: Units
    _history: list[tuple[int, float, float]]  # (samples, seconds, loss) after every batch
    n_samples_seen_: int
    callbacks: Any
    _raised: bool  # has the user been told of entries outside the domain?

    @abstractmethod
    def _solver(self) -> CoefficientSolver:
        """The solver of the coefficient step, for the divergence in internal units."""

    def transform(self, X: Any) -> Array:
        """The coefficients H (n, K) of X in the dictionary, solved precisely."""
        X = self._checked(X)
        H = np.empty((X.shape[0], len(self.components_)), dtype=X.dtype)
        for rows, h, _ in self._solved(X):
            H[rows] = h
        H *= self.scale_
        return H

    def inverse_transform(self, X: Any) -> Array:
        """The fit H @ W of coefficients H (n, K)."""
        check_is_fitted(self)
        H = np.asarray(X)
        if H.dtype.kind not in "buif":
            raise ValueError(f"inverse_transform takes coefficients that are real numbers, got {H.dtype}.")
        if H.ndim != 2 or H.shape[1] != len(self.components_):
            raise ValueError(
                f"inverse_transform takes coefficients of shape (n, {len(self.components_)}), got {H.shape}."
            )
        refuse_bad_entries(H)
        return H @ (self._dictionary(H.dtype) if H.dtype == np.float32 else self.components_)

    def loss(self, X: Any) -> float:
        """The mean divergence per sample at the precise coefficients, in the data's units."""
        X = self._checked(X)
        W = self._dictionary(X.dtype)
        total = 0.0
        for _, H, V in self._solved(X):
            problem = fits(self._inside, V, W)
            with threads.ours():
                total += float(problem.value(H, problem.fit(H)).sum(dtype=np.float64))
        n: int = X.shape[0]
        return total / n * self.divergence_.loss_unit(self.scale_)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the loss: higher is better."""
        return -self.loss(X)

    def stationarity(self, X: Any) -> float:
        """||W - P_C(W - grad f(W))||_F in internal units, f being the mean loss over X.

        The distance from the critical points that the theorem speaks of; outside class D2 an indicator only.
        """
        X = self._checked(X)
        blocks = ((dense(V), h) for _, h, V in self._solved(X))
        return gradient_mapping_norm(self._inside, DictionarySet(self.eps), self._dictionary(X.dtype), blocks)

    @property
    def history_(self) -> dict[str, Array]:
        """The course of the learning: equally long arrays "samples", "seconds" and "loss"."""
        if not hasattr(self, "components_"):
            raise AttributeError("history_ is there after fit or partial_fit.")
        # An interrupt may have struck between the entry of a batch and its dictionary: then the entry does not count.
        known = [entry for entry in self._history if entry[0] <= self.n_samples_seen_]
        samples, seconds, losses = zip(*known, strict=True)
        return {"samples": np.asarray(samples), "seconds": np.asarray(seconds), "loss": np.asarray(losses)}

    @property
    def delta_(self) -> float:
        """Huber's delta in the data's units: the given one, or what it has come to by following the residuals."""
        delta = getattr(getattr(self, "divergence_", None), "delta", None)
        if delta is None:
            raise AttributeError("delta_ is there after a fit with the divergence huber.")
        return float(delta)

    def _solved(self, X: Any) -> Iterator[tuple[slice, Array, Array]]:
        """Block by block: the rows, their precise coefficients and their data, in internal units."""
        divergence = self._inside
        solver = self._solver().precise(self.transform_tol, self.transform_max_iter)
        W = self._dictionary(X.dtype)
        sparse = solver.takes_sparse(divergence)
        raised = unsolved = 0
        for first in range(0, X.shape[0], BLOCK):
            rows = slice(first, min(first + BLOCK, X.shape[0]))
            V, count = self._units.inside(X[rows] if sparse else dense(X[rows]), self.divergence_)
            with threads.ours():
                found = solver.solve(divergence, V, W)
            raised += count
            unsolved += int(np.count_nonzero(~found.converged))
            yield rows, found.H, V
        if raised and not self._raised:
            warn_raised(self.divergence_, self._units, raised)
        if unsolved:
            warnings.warn(
                f"The coefficients of {unsolved} of {X.shape[0]} samples did not reach transform_tol="
                f"{self.transform_tol:g}; raise transform_max_iter ({self.transform_max_iter}) or transform_tol.",
                ConvergenceWarning,
                stacklevel=3,
            )

    @property
    def _inside(self) -> Divergence:
        """The divergence in internal units."""
        return self.divergence_.in_units(self.scale_)

    def _dictionary(self, dtype: np.dtype[Any]) -> Array:
        return self.components_.astype(dtype, copy=False)

    def _check_callbacks(self) -> None:
        callbacks = () if self.callbacks is None else self.callbacks
        if not isinstance(callbacks, Iterable) or not all(map(callable, callbacks)):
            raise ValueError(f"callbacks must be a list of functions that take a Progress, got {self.callbacks!r}.")

    @contextmanager
    def _unchanged_by_errors(self) -> Iterator[None]:
        """After an error the model is as it was before; after an interrupt it keeps what it has learnt."""
        before = dict(self.__dict__)
        try:
            yield
        except Exception:
            if "_history" in before:  # the one thing that grows in place
                before["_history"] = [entry for entry in before["_history"] if entry[0] <= before["n_samples_seen_"]]
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _checked(self, X: Any) -> Any:
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        refuse_bad_entries(X)
        return X

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Shape, type and feature names by scikit-learn's rules; the entries are checked by ``refuse_bad_entries``."""
        if isinstance(X, Source):
            raise TypeError(
                "this takes arrays; go over a source's batches: for rows, batch in source.batches(1000): ..."
            )
        if isinstance(X, (str, Path)):
            raise TypeError(f"{str(X)!r} is a name, not data; open the file first, with onmf.streams.open_source.")
        types = [np.float64, np.float32]
        return validate_data(self, X, reset=reset, accept_sparse="csr", dtype=types, ensure_all_finite=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def dense(batch: Any) -> Array:
    """A batch as a C-contiguous array of floats; sparse ones are densified batch by batch, never the whole."""
    X = batch.toarray() if scipy.sparse.issparse(batch) else batch
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.float64
    return np.ascontiguousarray(X, dtype=dtype)


def warn_raised(divergence: Divergence, units: Units, count: int) -> None:
    """Say, once per fit, that entries were raised into the domain."""
    warnings.warn(
        f"{count} entries are zero, outside the domain of {divergence.name}; they are raised to {units.floor:.3g}, "
        "a millionth of the data's mean. Said once per fit.",
        DomainWarning,
        stacklevel=4,
    )
