"""How a model learns from batches: units, start, the step, what is kept of it, and where it stands in its data."""

from __future__ import annotations

import dataclasses
import logging
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from onmf import divergences, methods
from onmf._support import threads
from onmf._support.arrays import Array
from onmf._support.seeds import generators
from onmf.coefficients import CoefficientSolver
from onmf.dictionary import State
from onmf.estimators.base import FittedNMF, Progress, dense, warn_raised
from onmf.initial import initial_dictionary
from onmf.online import Method, learn, rank_one_loss
from onmf.streams import Source, SourceError
from onmf.units import FEW_ENTRIES, DataError, Units, checked_clip, density, refuse_bad_entries

log = logging.getLogger("onmf")
LONG_HISTORY = 8192  # entries
KEPT_REASONS = 100  # of batches that were left out


@dataclass(frozen=True)
class Position:
    """Where ``fit`` stands in its data: in which pass, after how many of its batches, and how it is shuffled."""

    passes: int
    batches: int
    generator: Mapping[str, Any]  # the state of the shuffling generator when the pass began
    n_samples: int | None = None  # of the data, where that is known
    mark: int | None = None  # of the batches of this pass, by which they are known again
    faults: int = 0  # met and counted after that batch, before the next one


@dataclass
class _Faults:
    """Those that are known from an earlier run: all so far, or some more."""

    more: int
    all: bool = False


class LearningNMF(FittedNMF):
    """The half of ``OnlineNMF`` that learns; its parameters are documented there."""

    n_components: int
    divergence: divergences.Divergence | str
    method: str
    batch_size: int | None
    max_passes: int
    shuffle: bool
    init: Any
    scale: str
    clip: tuple[float, float] | None
    on_error: str
    random_state: Any
    n_samples_seen_: int
    n_steps_: int
    n_iter_: int
    method_: str
    _memory: dict[str, Array]
    _averaged: int  # samples in the statistics: those seen, and old ones mixed in
    n_skipped_: int
    skipped_: list[str]
    feature_names_in_: Any
    _loss_to_beat: float
    _position: Position | None  # of ``fit`` in its data: where to go on

    def _learn_from(self, source: Source, checkpoint: Callable[[Self], None] | None, resume: bool) -> None:
        if self.max_passes > 1 and not source.rewinds:
            raise SourceError(
                f"these data can be read only once, so max_passes={self.max_passes} is one too many or more."
            )
        first, shuffling = generators(self.random_state)
        total = None if source.n_samples is None else source.n_samples * self.max_passes
        done = self._position if resume else None
        if done is not None:
            shuffling.bit_generator.state = done.generator
        known_faults = _Faults(done.faults if done else 0)
        for number in range(done.passes if done else 1, self.max_passes + 1):
            before = shuffling.bit_generator.state
            order = shuffling if self.shuffle and source.any_order else None
            known = done.batches if done else 0  # of this pass
            marks = checkpoint is not None or known > 0
            count = mark = 0
            known_faults.all = known > 0  # until the batches of an earlier run are passed
            on_bad = partial(self._meet, known_faults) if self.on_error == "skip" else None
            for count, (rows, batch) in enumerate(source.batches(self._batch_size(), order, on_bad), start=1):
                mark = _mark(batch, mark) if marks else 0
                if count <= known:
                    if count == known:
                        self._require_mark(mark)
                        known_faults.all = False
                    continue
                position = Position(number, count, before, source.n_samples, mark if marks else None)
                ended = self._learn_or_skip(batch, rows, total, first, position)
                if checkpoint is not None and hasattr(self, "components_"):
                    checkpoint(self)
                if ended:
                    return
            if count < known:
                raise SourceError(
                    f"the data end after {count} batches of a pass; the checkpoint has learnt from {known}."
                )
            if not count and number > 1:
                raise SourceError(
                    f"pass {number} found no batches: these data can be read only once, so take one pass."
                )
            done = None

    def _require_position(self, source: Source) -> None:
        """Refuse to go on in data where this model never was."""
        check_is_fitted(self)
        if self._position is None:
            raise ValueError(
                "resume=True goes on with a fit that was interrupted; this model was not read from its checkpoint."
            )
        if source.n_features != len(self.components_[0]):
            raise ValueError(
                f"the data have {source.n_features} features, those of the checkpoint {len(self.components_[0])}."
            )
        if source.n_samples != self._position.n_samples:
            raise ValueError(
                f"the data have {source.n_samples} samples, those of the checkpoint {self._position.n_samples}."
            )
        names = getattr(self, "feature_names_in_", None)
        if names is not None and source.feature_names is not None and list(names) != source.feature_names:
            other = next(pair for pair in zip(names, source.feature_names, strict=True) if pair[0] != pair[1])
            raise ValueError(f"the data have a feature {other[1]!r} where those of the checkpoint have {other[0]!r}.")

    def _require_mark(self, mark: int) -> None:
        """Refuse to go on in data that are not those of the checkpoint, or come in another order."""
        position = self._position
        if position is not None and position.mark not in (None, mark):
            raise SourceError(
                f"the data are not those of the checkpoint: the first {position.batches} batches of pass "
                f"{position.passes}, which it has learnt from, are others; give the same data, or begin a new run."
            )

    def _learn_or_skip(self, batch: Any, rows: Any, total: int | None, rng: Any, position: Position | None) -> bool:
        """Learn from a batch; with ``on_error="skip"`` leave it out if it is bad."""
        try:
            return self._learn(batch, rows, total, rng, position)
        except DataError as error:
            if self.on_error != "skip":
                raise
            self._leave_out(error)
            if hasattr(self, "components_"):
                self._position = position
            return False

    def _meet(self, known: _Faults, error: Exception) -> None:
        """A fault of the source, between two batches: count it, unless an earlier run has."""
        if known.all:
            return
        if known.more:
            known.more -= 1
            return
        self._leave_out(error)
        position: Position | None = getattr(self, "_position", None)
        if position is not None:
            self._position = dataclasses.replace(position, faults=position.faults + 1)

    def _leave_out(self, error: Exception) -> None:
        self.n_skipped_ = self.n_skipped_ + 1
        self.skipped_ = [*self.skipped_[1 - KEPT_REASONS :], str(error)]
        log.warning("A batch is left out: %s", error)

    def _learn(
        self, batch: Any, rows: Any, total: int | None, rng: np.random.Generator | None, position: Position | None
    ) -> bool:
        """Learn from one batch, ``rng`` drawing the start; the result says whether a callback wants to end."""
        started = time.perf_counter()
        batch = as_floats(batch)
        refuse_bad_entries(batch, rows)
        start = None if hasattr(self, "components_") or rng is None else self._start(batch, rng, total)
        units, divergence, name, state = start or (self._units, self.divergence_, self.method_, self._state())
        X = self._stored(name, divergence, batch)
        internal, raised = units.inside(X.astype(state.W.dtype, copy=False), divergence)
        inside = divergence.in_units(units.scale)
        method = self._method(name, inside)
        adapt = name in methods.ADAPT and divergences.get(self.divergence).adaptive
        with threads.ours():
            learnt = learn(method, inside, state, internal, adapt, position is not None and position.passes > 1)
        require_finite(learnt.state, rows)
        loss = learnt.loss * divergence.loss_unit(units.scale) if learnt.loss else 0.0  # the unit may be infinite
        if adapt:
            divergence = learnt.divergence.in_units(1 / units.scale)

        steps, W = learnt.state.steps, learnt.state.W
        before = 0 if start is not None else self.n_samples_seen_
        samples = before + X.shape[0]
        history = [] if start is not None else self._history
        while history and history[-1][0] > before:
            history.pop()  # left by an interrupt, which came before its dictionary
        seconds = time.perf_counter() - started + (history[-1][1] if history else 0.0)
        history.append((samples, seconds, loss))
        if len(history) > LONG_HISTORY:
            del history[1:-2:2]  # the first and the last two stay
        warned = start is None and self._raised
        news = {"components_": W, "n_samples_seen_": samples, "n_steps_": steps, "_raised": warned or raised > 0}
        news |= {"_memory": learnt.state.memory, "_averaged": learnt.state.samples, "divergence_": divergence}
        news |= {"_position": position, "n_iter_": position.passes if position else 1}
        if start is not None:
            to_beat = max(learnt.first_loss, rank_one_loss(inside, internal)) * divergence.loss_unit(units.scale)
            news |= {
                "_loss_to_beat": to_beat,
                "_units": units,
                "method_": name,
                "scale_": units.scale,
                "_history": history,
            }
        self.__dict__.update(news)  # at one stroke: an interrupt finds the model as before the batch or as after it
        if raised and not warned:
            warn_raised(divergence, units, raised)
        progress = Progress(samples, total, steps, seconds, loss, W, learnt.H * W.dtype.type(units.scale))
        wishes = [callback(progress) for callback in self.callbacks or ()]  # all are called, whatever the first says
        return any(wishes)

    def _start(
        self, batch: Any, rng: np.random.Generator, total: int | None
    ) -> tuple[Units, divergences.Divergence, str, State]:
        """The units, the divergence, the method and the initial dictionary, all from the first batch."""
        units = Units.of_first_batch(batch, checked_clip(self.clip), rescale=self.scale == "mean")
        divergence = divergences.get(self.divergence).for_data(units.mean, batch.shape[1])
        name = self.method
        if name == "auto":
            name = methods.choose(divergence, density(batch))
        X = self._stored(name, divergence, batch)
        internal, _ = units.inside(X, divergence)
        with threads.ours():
            W = initial_dictionary(self.init, internal, self.n_components, rng, ratios=not divergence.domain.x.closed)
        n_samples = None if total is None else total // self.max_passes
        return units, divergence, name, self._method(name, divergence.in_units(units.scale), n_samples).start(W)

    def _method(self, name: str, divergence: divergences.Divergence, n_samples: int | None = None) -> Method:
        names = (field.name for field in dataclasses.fields(methods.Settings) if field.name != "n_samples")
        settings = {name: getattr(self, name) for name in names}
        return methods.build(name, divergence, methods.Settings(**settings, n_samples=n_samples))

    @staticmethod
    def _stored(name: str, divergence: divergences.Divergence, batch: Any) -> Any:
        """The batch as the method learns from it fastest."""
        if not methods.takes_sparse(name, divergence):
            return dense(batch)
        few = name == "em" and not scipy.sparse.issparse(batch) and density(batch) < FEW_ENTRIES
        return scipy.sparse.csr_matrix(batch) if few else batch

    def _solver(self) -> CoefficientSolver:
        return self._method(self.method_, self._inside).precise

    def _state(self) -> State:
        return State(self.components_, self._averaged, self.n_steps_, self._memory)

    def _batch_size(self) -> int:
        return max(5 * self.n_components, 200) if self.batch_size is None else int(self.batch_size)


def _mark(batch: Any, before: int) -> int:
    """A checksum of a batch's shape, of its first and last row, and of the mark before it."""
    mark = zlib.crc32(str((batch.shape, batch.dtype.str)).encode(), before)
    ends = [batch[:1], batch[-1:]]
    parts = [array for end in ends for array in ((end.indices, end.data) if scipy.sparse.issparse(end) else (end,))]
    for part in parts:
        mark = zlib.crc32(np.ascontiguousarray(part).tobytes(), mark)
    return mark


def as_floats(batch: Any) -> Any:
    """A batch in single or double precision, as it is or as the latter."""
    if batch.dtype in (np.float32, np.float64) and batch.dtype.isnative:
        return batch
    return batch.astype(np.float64)


def require_finite(state: State, rows: Any) -> None:
    """Refuse to go on with a dictionary that is no longer made of numbers."""
    if all(np.isfinite(array.sum(dtype=np.float64)) for array in (state.W, *state.memory.values())):
        return
    where = "" if rows is None or not len(rows) else f", rows {min(rows)} to {max(rows)},"
    raise DataError(
        f"The batch{where} makes the dictionary infinite or NaN, so it is not learnt from: its numbers are too large "
        "or too unequal for this divergence; rescale or clip them."
    )
