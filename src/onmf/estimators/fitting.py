"""How a model learns: from all batches or partitions of ``fit``, or from one more."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Self

from sklearn.exceptions import ConvergenceWarning

from onmf import learner
from onmf._support.checks import require_whole
from onmf._support.device_rows import on_host
from onmf._support.known import as_learnt
from onmf._support.seeds import generators
from onmf._support.weights import given_rows, weighted
from onmf.data.columns import Features
from onmf.data.pipes import ended_by_interrupts
from onmf.device.choose_device import device_of
from onmf.device.tensors import as_array, dtype_of, is_tensor, require_samples
from onmf.estimators.distributing import is_distributed
from onmf.estimators.resume import Beginning
from onmf.estimators.streamed import Streamed
from onmf.estimators.user_warnings import warn_raised
from onmf.learner import Learned, Progress, Reading, Recipe
from onmf.model.validation import DataError, refuse_bad_entries
from onmf.persistence.checkpoint import Checkpoint
from onmf.persistence.model import lasting


class Fitting(Streamed):
    """A model that learns; the scikit-learn skin gives it its parameters."""

    divergence: Any

    def _fit(
        self, X: Any, weights: tuple[Any, Any], recipe: Recipe, keep: Checkpoint | None, resume: bool, resume_from: Any
    ) -> Self:
        """Learn, and write checkpoints that nobody else writes."""
        reading = Reading.of(self._as_placed(), keep is not None, keep is not None and keep.verify)
        settings = self.get_params(deep=False) | {"divergence": lasting(self.divergence, recipe.divergence)}
        beginning = Beginning.of(settings, keep, resume, resume_from, recipe.divergence)
        source, features = self._source(X, weights)
        begun = beginning.ready(recipe, source, features)
        before, learned, kept = self._learned, begun, begun  # kept: what the checkpoint holds
        if beginning.same_data:
            self._learned = begun or before
        course = self._course(recipe, source, reading, features, begun)
        listeners = self._listeners()
        try:
            with ended_by_interrupts():
                for learned, progress in course:
                    self._learned = learned
                    if progress is None:
                        continue
                    if progress.raised:
                        warn_raised(learned.divergence, progress.raised)
                    wishes = [listener(progress) for listener in listeners]  # all are called, whatever the first says
                    if keep is not None and keep.write_if_due(settings, learned):
                        kept = learned
                    if any(wishes):
                        break
            if learned is not None and (advice := learned.advice()):
                warnings.warn(advice, ConvergenceWarning, stacklevel=2)
            if learned is not None and learned.coverage and (gaps := learned.coverage.warning):
                warnings.warn(gaps, UserWarning, stacklevel=3)
        except Exception:
            self._learned = before  # an error leaves the model as it was, Ctrl-C keeps what was learnt
            raise
        finally:
            if keep is not None and learned is not None and learned is not kept:
                keep.write(settings, learned)  # at the end, and before an error or Ctrl-C gets away
        return self

    def _fit_more(self, X: Any, weights: tuple[Any, Any], recipe: Recipe) -> Self:
        """Go on learning from one batch, or from all partitions of X."""
        before = self._learned
        known = None if before is None else learner.continued(recipe, before)
        try:
            if is_distributed(X):
                self._learn_partitions(X, weights, recipe, known)
            else:
                self._learn_batch(X, weights, recipe, known)
        except Exception:
            self._learned = before  # as in fit: an interrupt keeps what was learnt, an error does not
            raise
        return self

    def _learn_partitions(self, X: Any, weights: tuple[Any, Any], recipe: Recipe, known: Learned | None) -> None:
        reading = replace(Reading.of(self._as_placed()), max_passes=1, shuffle=False)
        data, features = self._source(X, weights)
        if known is not None:
            learner.require_features(known, features, "the model")
            known = replace(known, position=None)
        unlearned = self._unlearned if known is None else learner.Skipped()
        for learned, progress in self._course(recipe, data, reading, features, known):
            self._learned = replace(learned, position=None, skipped=unlearned + learned.skipped)
            if progress is not None:
                self._tell(learned, progress)

    def _learn_batch(self, X: Any, weights: tuple[Any, Any], recipe: Recipe, known: Learned | None) -> None:
        rows = given_rows(weights[0])
        try:
            batch, features = self._taken(X, weights, recipe, known)
        except ValueError as error:
            if known is None or self.on_error == "raise":
                raise
            return self._skip(error)
        try:
            begun = known
            if begun is None:
                host = on_host(batch)
                refuse_bad_entries(host, rows, features.names)
                begun = learner.begin(recipe, host, features, generators(self.random_state)[0], None, rows)
            learned, progress = learner.step(recipe, begun, batch, rows)
        except DataError as error:
            if self.on_error == "raise":
                raise
            return self._skip(error)
        self._learned = learned if known else replace(learned, skipped=self._unlearned)
        return self._tell(learned, progress)

    def _taken(self, X: Any, weights: tuple[Any, Any], recipe: Recipe, known: Learned | None) -> tuple[Any, Features]:
        """One batch as it is learnt from, a tensor on the device that was named, and its features."""
        if is_tensor(X):
            require_samples(X, recipe.device, None if known is None else known.state.W.shape[1])
            if recipe.device is not None and self._stays(weights):
                _, batch = next(iter(self._on_device(X, recipe.device, dtype_of(X)).batches(len(X))))
                return batch, Features(X.shape[1])
            X = as_array(X)
        X, features = self._validated(X, reset=known is None)
        return as_learnt(weighted(X, *weights, self.implicit), self.missing, self.implicit), features

    def _tell(self, learned: Learned, progress: Progress) -> None:
        if progress.raised:
            warn_raised(learned.divergence, progress.raised)
        for listener in self._listeners():
            listener(progress)

    def _as_placed(self) -> dict[str, Any]:
        """The parameters, with the device that they come to here."""
        return vars(self) | {"device": device_of(self.device)}

    def _recipe(self) -> Recipe:
        """The settings as the learner takes them, checked."""
        self._check_settings()
        if self.shards is not None:
            require_whole(1, shards=self.shards)
        Reading.of(self._as_placed())
        return Recipe.of(self._as_placed())
