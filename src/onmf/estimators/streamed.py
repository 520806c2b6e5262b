"""A model that learns from a stream: how X becomes one, and what the model shows of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from onmf import learner, methods
from onmf._support.seeds import generators
from onmf._support.weights import given_rows, weighted
from onmf.coefficients.problem import Penalty
from onmf.data import Batches, Rows, Source, Spec
from onmf.data.columns import Features
from onmf.data.in_memory import is_stream
from onmf.device.choose_device import device_of
from onmf.device.tensors import as_array, dtype_of, is_tensor, require_samples
from onmf.distributed import Partitions
from onmf.estimators.distributing import is_distributed, partitions_of
from onmf.estimators.fitted_attribute import Shown
from onmf.estimators.reported import Reported
from onmf.estimators.user_warnings import warn_dense
from onmf.learner import Learned, Progress, Reading, Recipe, Skipped
from onmf.learner.rounds import require_shards
from onmf.model.sets import DictionaryBox, DictionarySet
from onmf.model.units import refuse_bad_entries

log = logging.getLogger("onmf")


class Streamed(Reported):
    """A model that holds a ``Learned``, or nothing yet but what it has skipped."""

    shards: int | None
    random_state: Any
    _learned: Learned | None = None
    _unlearned: Skipped = Skipped()  # batches that were skipped before anything was learnt

    method_ = Shown[Learned, methods.Method](lambda learned: learned.method)
    guarantee_ = Shown[Learned, str](learner.guarantee)
    n_steps_ = Shown[Learned, int](lambda learned: learned.state.steps)
    n_iter_ = Shown[Learned, int](lambda learned: learned.passes)
    source_ = Shown[Learned, Spec](lambda learned: learned.source or Spec(names=learned.features.names))
    reconstruction_err_ = Shown[Learned, float](lambda learned: learned.reconstruction_error)

    @property
    def n_skipped_(self) -> int:
        """Samples and batches left out under ``on_error="skip"``."""
        return (self._learned.skipped if self._learned else self._unlearned).count

    @property
    def skipped_(self) -> list[str]:
        """Why the last hundred of them were."""
        return list((self._learned.skipped if self._learned else self._unlearned).reasons)

    def _skip(self, error: Exception) -> None:
        log.warning("Skipped a batch: %s", error)
        if self._learned is None:
            self._unlearned = self._unlearned.and_also(error)
        else:
            self._learned = replace(self._learned, skipped=self._learned.skipped.and_also(error))

    def _source(self, X: Any, weights: tuple[Any, Any]) -> tuple[Source | Partitions, Features]:
        """X as a source of batches, or as partitions, and its features."""
        if is_distributed(X):
            partitions = partitions_of(X, *weights, self.implicit)
            return partitions, Features.of(partitions.n_features, partitions.feature_names)
        if isinstance(X, Source) or is_stream(X):
            if any(each is not None for each in weights):
                raise ValueError(
                    "weights are given with arrays; a table brings its own with ?weight=COLUMN, and batches of your "
                    "own are learnt with partial_fit(batch, sample_weight=...)."
                )
            source = X if isinstance(X, Source) else Batches(X)
            return source, Features.of(source.n_features, source.feature_names)
        device = device_of(self.device)
        if is_tensor(X):
            require_samples(X, device)
            if device is not None and X.is_cuda and self._stays(weights):
                return self._on_device(X, device, dtype_of(X)), Features(X.shape[1])
            X = as_array(X)
        X, features = self._validated(X, reset=True)
        warn_dense(X, self.missing, self.implicit, weights[1], stacklevel=5)
        if device is not None and self._stays(weights):
            from onmf.device.samples import fits  # PyTorch is there, but not for everybody

            if fits(X, device):
                return self._on_device(X, device, X.dtype), features
        X = weighted(X, *weights, self.implicit)
        if self.on_error == "raise" and self.missing is None:
            refuse_bad_entries(X, given_rows(weights[0]), features.names)
        return Rows(X), features

    def _stays(self, weights: tuple[Any, Any]) -> bool:
        """Can data be learnt from where they are, or is there more to look at than their entries?"""
        plain = all(each is None for each in weights) and self.missing is None and self.implicit == "zero"
        return plain and self.on_error == "raise"

    def _on_device(self, X: Any, device: str, dtype: Any) -> Source:
        """X on a device, over all passes."""
        from onmf.device.samples import moved
        from onmf.device.source import RowsOnDevice

        there = moved(X, device)
        there = there if is_tensor(X) else replace(there, given=X)  # which is there anyway
        if not there.sound:
            refuse_bad_entries(as_array(X) if is_tensor(X) else X)
        return RowsOnDevice(there, dtype)

    def _course(
        self, recipe: Recipe, data: Source | Partitions, reading: Reading, features: Features, begun: Learned | None
    ) -> Iterator[tuple[Learned, Progress | None]]:
        """What is learnt, batch by batch or round by round."""
        given = reading, features, generators(self.random_state), begun
        if isinstance(data, Source):
            return learner.run(recipe, data, *given)
        require_shards(recipe)
        from onmf.distributed.rounds import run  # Dask is there, but not for everybody

        return run(recipe, data, *given, self.shards)

    def _feasible(self) -> DictionarySet | DictionaryBox:
        return self.method_.feasible(self._fitted.inside, replace(self._fitted.state, C=self._where[0]))

    def _penalty(self) -> Penalty:
        return self.method_.penalty(self._fitted.state.penalties)
