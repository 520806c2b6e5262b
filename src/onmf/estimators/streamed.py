"""What a model shows of the stream that it has learnt from."""

from __future__ import annotations

import logging
from dataclasses import replace

from onmf import learner, methods
from onmf.estimators.serving import Serving
from onmf.estimators.shown import Shown
from onmf.learner import Learned, Skipped
from onmf.streams import Spec

log = logging.getLogger("onmf")


class Streamed(Serving):
    """A model that holds a ``Learned``, or nothing yet but what it has skipped."""

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
