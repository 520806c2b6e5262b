"""Coefficients and losses on the device that the user has named; tensors in, tensors out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from onmf._support.arrays import Array
from onmf._support.known import Known, apart
from onmf.device.choose_device import device_of
from onmf.device.tensors import as_array, is_tensor, require_samples
from onmf.divergences.partial import require_weighed
from onmf.estimators.base import NMF
from onmf.estimators.user_warnings import warn_raised, warn_unsolved
from onmf.model.sets import Box
from onmf.model.validation import refuse_bad_entries, refuse_bounded, refuse_infinite


class Accelerated(NMF):
    """The base of the estimators, with PyTorch where a device is named."""

    device: str | None = None  # which OnlineNMF leaves to the user

    def transform(self, X: Any, *, weights: Any = None) -> Any:
        H = super().transform(X, weights=weights)
        return _like(X, H)

    def proportions(self, X: Any) -> Any:
        return _like(X, super().proportions(X))

    def stationarity(self, X: Any) -> float:
        return super().stationarity(_host(X))

    def complete(self, X: Any, *, weights: Any = None) -> Any:
        return _like(X, super().complete(_host(X), weights=weights))

    def inverse_transform(self, X: Any) -> Any:
        return _like(X, super().inverse_transform(as_array(X) if is_tensor(X) else X))

    def _checked(self, X: Any, weights: Any = None, sample_weight: Any = None) -> Any:
        if not is_tensor(X):
            return super()._checked(X, weights, sample_weight)
        check_is_fitted(self)
        device = device_of(self.device)
        require_samples(X, device, self.n_features_in_)
        if device is None or weights is not None or sample_weight is not None or self.missing is not None:
            return super()._checked(as_array(X), weights, sample_weight)
        low, high = (float(each) for each in X.detach().aminmax())
        if not (low >= 0 and high < np.inf):
            refuse_bad_entries(as_array(X))
        return X.detach()

    def _solver_device(self) -> str | None:
        """Where coefficients are found: those of absolute deviations by the processor, as linear programmes."""
        return None if self.divergence_.absolute_deviations else device_of(self.device)

    def _coefficients(self, X: Any) -> Array:
        device = self._solver_device()
        if device is None:
            return super()._coefficients(_host(X))
        H: Any = None
        for block in self._solved_on(device, X):
            found = block.H.cpu().numpy()
            H = np.empty((X.shape[0], found.shape[1]), dtype=found.dtype) if H is None else H
            H[block.rows] = found
        H *= self._fitted.coefficient_unit
        return np.asarray(H)

    def _loss(self, X: Any) -> float:
        device = self._solver_device()
        if device is None:
            return super()._loss(_host(X))
        X, counts = apart(X)
        total, unit = 0.0, self.divergence_.loss_unit(self.scale_)
        for block in self._solved_on(device, X):
            losses = block.losses.cpu().numpy().astype(np.float64)
            refuse_infinite(losses * unit, _host(X[block.rows]), self._fitted.units.mean, _numbers(block.rows))
            total += float((losses if counts is None else losses * counts[block.rows]).sum())
        return total / (X.shape[0] if counts is None else float(counts.sum())) * unit

    def _solved_on(self, device: str, X: Any) -> Iterator[Any]:
        from onmf.device.solving import Solver  # PyTorch is there, but not for everybody

        fitted, box = self._fitted, self._where[1]
        if not fitted.divergence.separable or not isinstance(box, Box):
            raise ValueError(f"this model is solved by the processor only: set_params(device=None), not {device!r}.")
        if isinstance(X, Known):
            require_weighed(fitted.divergence)
        double = str(X.dtype).endswith("float64")  # of arrays and of tensors
        W = fitted.state.W.astype(np.float64 if double else np.float32, copy=False)
        raised = unsolved = 0
        sets = fitted.units, box, self._penalty()
        solver = Solver(W, fitted.divergence, fitted.inside, *sets, self.transform_tol, self.transform_max_iter)
        for block in solver.solved(X, device):
            found, numbers = block.H, _numbers(block.rows)
            if not bool(found.sum().isfinite()) or bool(found.max() >= 0.5 * box.high):
                given, H = _host(X[block.rows]), found.cpu().numpy()
                refuse_bad_entries(given, numbers)
                refuse_infinite(H, given, fitted.units.mean, numbers)
                if self.sets is None:  # a bound of the user's own is meant
                    refuse_bounded(H, box.high, given, fitted.units.scale, numbers)
            raised, unsolved = raised + block.raised, unsolved + block.unsolved
            yield block
        if raised and not fitted.raised:
            warn_raised(fitted.divergence, raised)
        if unsolved:
            warn_unsolved(unsolved, X.shape[0], self.transform_tol, self.transform_max_iter)


def _like(X: Any, result: Any) -> Any:
    """The result where the user's data are: a tensor there, if they are a tensor."""
    if not is_tensor(X) or not isinstance(result, np.ndarray):
        return result
    import torch

    return torch.from_numpy(result).to(X.device)


def _host(X: Any) -> Any:
    return as_array(X) if is_tensor(X) else X


def _numbers(rows: slice) -> range:
    return range(rows.start, rows.stop)
