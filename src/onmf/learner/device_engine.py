"""The same lesson with PyTorch: a batch goes to the device, or is there, and its chunks are learnt from there.

Within a batch the host waits for the device where something has to be decided, and where it must know how much memory
entries take.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from onmf._support.arrays import Array
from onmf.device.cuda_graphs import recordings
from onmf.device.device_state import Twin, state_of, twin_of
from onmf.device.em import EMRunning
from onmf.device.engine import Running
from onmf.device.problem import Problem, hurried, positive
from onmf.device.samples import Chunks, Rows, chosen
from onmf.device.step import SurrogateRunning
from onmf.divergences import Divergence
from onmf.learner import exchange
from onmf.learner.algorithm import BatchResult, learn
from onmf.learner.config import Recipe, require_served
from onmf.learner.engine import adapted
from onmf.learner.exchange_on_device import SamplesThere
from onmf.learner.learned import Coverage, Learned
from onmf.learner.update import Lesson, News, as_begun, faults_of_batch, rank_one_loss, unlearnable
from onmf.learner.usage import Usage
from onmf.methods import EM, Method, Surrogate
from onmf.model.penalty import Penalty
from onmf.model.sets import Box, Sets
from onmf.model.validation import refuse_bad_entries, refuse_bounded, refuse_infinite
from onmf.samples import FEW_ENTRIES, Samples

log = logging.getLogger("onmf")

FIRST_EXCHANGE, LAST_EXCHANGE = 3000, 200_000  # samples before it
SMALLER = 4  # times, the chunks where memory runs out
FEW = 256  # samples that tell what any dictionary should beat
SAMPLED = 2**15  # entries of a chunk by whose residuals a parameter is adapted

_alone = threading.Lock()
_smaller: dict[str, int] = {}  # by how much chunks are smaller on devices whose memory has run out


def learnt_on_device(
    recipe: Recipe, learned: Learned, batch: Samples, rows: Any = None, *, repeated: bool = False, shards: int = 1
) -> Lesson:
    """``lesson.learnt`` on the device of the recipe."""
    device, units, method = str(recipe.device), learned.units, learned.method
    weights = batch.sample_weight
    if learned.masked or batch.masked:
        batch = as_begun(learned, batch.on_host())
    if weights is not None:
        require_served(method, learned.inside, recipe, masked=learned.masked, weighted=True)
    there, numbers = chosen(batch, device)
    if not there.sound:
        refuse_bad_entries(batch.on_host(), rows, learned.features.names)

    def learning(smaller: int) -> tuple[DeviceEngine, BatchResult]:
        given = recipe, learned, there, numbers, weights
        engine = DeviceEngine(*given, repeated=repeated, shards=shards, smaller=smaller)
        return engine, learn(engine)

    with faults_of_batch(rows), _alone:  # recordings have one set of places for what they are given
        engine, result = _with_enough_memory(learning, device)
    unit = learned.divergence.loss_unit(units.scale)
    if not engine.finite:
        raise unlearnable("makes the dictionary infinite or NaN", rows)
    if result.loss and not np.isfinite(result.loss * unit):
        raise unlearnable("has a loss beyond the range of numbers", rows)
    largest = engine.largest
    if not np.isfinite(largest) or (recipe.sets == Sets() and largest >= 0.5 * recipe.H.high):
        given, H = batch.on_host(), result.H.cpu().numpy()
        refuse_infinite(H, given, units.mean, rows)
        refuse_bounded(H, recipe.H.high, given, units.scale, rows)
    to_beat = learned.loss_to_beat
    if not learned.history.entries and shards == 1:
        filled = torch.nonzero(~there.empty[numbers])[:FEW, 0].cpu().numpy()
        some = batch[filled].on_host().densified().astype(learned.W.dtype)
        first, _ = units.inside(some, learned.divergence, rows)
        to_beat = max(result.first_loss, rank_one_loss(learned.inside, first)) * unit
    weight = len(numbers) if weights is None else float(weights.sum(dtype=np.float64))
    covered = Coverage.of(batch) if learned.masked else None
    news = News(len(numbers), result.loss, weight, engine.usage, engine.raised, there.zeros, covered)
    return Lesson(result.state, result.divergence, news, None, to_beat)


Learnt = TypeVar("Learnt")


def _with_enough_memory(learning: Callable[[int], Learnt], device: str) -> Learnt:
    """Return what comes of a batch; where the device has too little memory, in smaller chunks, once."""
    try:
        return learning(_smaller.get(device, 1))
    except torch.cuda.OutOfMemoryError:
        if device in _smaller:
            raise MemoryError(_too_large(device)) from None
    _smaller[device] = SMALLER
    recordings.forget()
    torch.cuda.empty_cache()
    log.warning("The memory of %s is full; continuing with chunks of a quarter of their size.", device)
    try:
        return learning(SMALLER)
    except torch.cuda.OutOfMemoryError:
        raise MemoryError(_too_large(device)) from None


def _too_large(device: str) -> str:
    return (
        f"the memory of {device} is full, even with small chunks; free some of it, learn fewer atoms, or leave device "
        "out to compute on the processor."
    )


@dataclass(frozen=True)
class Chunk:
    """Some samples of a batch on the device."""

    rows: slice
    weight: float
    counts: Any  # the weights of its samples (n, 1), if they differ


class DeviceEngine:
    """A batch on the device that is about to be learnt from, in chunks a few times ``smaller`` than they would be."""

    def __init__(
        self,
        recipe: Recipe,
        learned: Learned,
        there: Rows,
        numbers: Any,
        weights: Array | None,
        *,
        repeated: bool,
        shards: int,
        smaller: int,
    ) -> None:
        self.recipe, self.learned, self.weights = recipe, learned, weights
        self.repeated, self.shards, self.smaller = repeated, shards, smaller
        self.state = state = learned.state.on_shard(shards)
        self.method, self.divergence = learned.method.on_shard(shards), learned.inside
        kind = running_of(self.method)
        twin = twin_of(kind.kept, learned.state, str(recipe.device))
        self.running = kind(self.method, self.divergence, self._box, state, twin, repeated)
        self.H = torch.zeros((len(numbers), len(state.W)), dtype=twin.W.dtype, device=twin.W.device)
        self.filled = None
        empty, lowest = there.empty[numbers], learned.units.clip[0] if learned.units.clip else 0.0
        if self.divergence.domain.x.closed and not lowest and bool(empty.any()):  # zeros that stay zeros say nothing
            self.filled = torch.nonzero(~empty)[:, 0]
            numbers = numbers[self.filled]
            weights = None if weights is None else weights[self.filled.cpu().numpy()]
        self.counts = None if weights is None else weights.astype(state.W.dtype)
        self.samples = Chunks(there, numbers, learned.units, learned.divergence, twin.W.dtype)
        self.steps, self.losses = 0, torch.zeros((), dtype=torch.float64, device=twin.W.device)
        self.first_loss: Any = 0.0

    def chunks(self) -> Iterator[Chunk]:
        """Cut the samples into chunks, larger than on the processor."""
        first = 0
        while first < len(self.samples):
            size = self.running.size(len(self.samples) - first, self.smaller)
            part, weight, counts = slice(first, first + size), float(size), None
            if self.counts is not None:
                weight = float(self.counts[part].sum(dtype=np.float64))
                counts = torch.as_tensor(self.counts[part], device=self.H.device)[:, None]
            yield Chunk(part, weight, counts)
            first += size

    def exchange(self, chunk: Chunk) -> None:
        """Try an exchange on the samples from the chunk on, if one is due."""
        if self._exchanges(self.running.clock, chunk.rows.stop - chunk.rows.start):
            self.running.twin = self._exchanged(self.running.twin, chunk.rows.start)

    def visits(self, chunk: Chunk) -> int:
        """Return one: further visits of em are part of its step on a device."""
        return 1

    def problem(self, chunk: Chunk) -> Chunk:
        """Return the chunk: problem, coefficients and update are one recording on a GPU."""
        return chunk

    def solve(self, problem: Chunk, H: Any) -> tuple[Any, Any]:
        """Find coefficients and the sum of their losses; the twin has made its step by then, too."""
        return self.running.learnt(self.samples, problem.rows, problem.weight, problem.counts)

    def update(self, chunk: Chunk, problem: Chunk, H: tuple[Any, Any]) -> None:
        """Note the loss: the step was part of the recording."""
        self.losses += H[1]
        if not self.steps:
            self.first_loss = H[1].clone() / chunk.weight
        self.steps += 1

    def keep(self, chunk: Chunk, H: tuple[Any, Any]) -> None:
        """Note the coefficients."""
        self.H[chunk.rows if self.filled is None else self.filled[chunk.rows]] = H[0]

    def result(self) -> BatchResult:
        """Return the state on the host, and what the batch did."""
        twin, clock, before = self.running.twin, self.running.clock, self.state
        total = len(self.H) if self.weights is None else float(self.weights.sum(dtype=np.float64))
        divergence = self.divergence
        if self.method.adapts and self.learned.adaptive and self.steps:
            divergence = self._adapted(divergence, twin, self.running.weight(clock, clock - before.clock))
        after = state_of(twin, before, clock - before.clock, clock, self.steps)
        return BatchResult(after, divergence, float(self.losses) / (total or 1.0), float(self.first_loss), self.H)

    @property
    def raised(self) -> int:
        """The entries outside the domain that were raised."""
        return int(self.samples.raised)

    @property
    def largest(self) -> float:
        """The largest coefficient."""
        return float(self.H.amax()) if len(self.H) else 0.0

    @property
    def finite(self) -> bool:
        """Are dictionary and statistics made of numbers?"""
        return self.running.twin.finite

    @property
    def usage(self) -> Usage:
        """How much of the fits each component carries."""
        return _usage(self.H, self.running.twin.W, self.weights)

    @property
    def _box(self) -> Box:
        if not isinstance(self.recipe.H, Box):
            raise ValueError("coefficients on the simplex are found by the processor only; leave device out.")
        return self.recipe.H

    def _adapted(self, divergence: Divergence, twin: Twin, weight: float) -> Divergence:
        """The divergence with its parameter moved by the residuals of some of the batch's samples."""
        chunks = self.samples
        some = slice(None, None, max(1, len(chunks) * twin.W.shape[1] // SAMPLED))
        raised = chunks.raised
        X, present = chunks[some]
        chunks.raised = raised
        _, Y, _ = hurried(Problem(divergence, X, twin.W, self._box, Penalty(), present))
        host, fit = X.cpu().numpy(), Y.cpu().numpy()
        counts = None if self.counts is None else self.counts[some]
        samples = Samples(host, None if present is None else present.cpu().numpy(), counts)
        return adapted(divergence, samples, fit, weight)

    def _exchanges(self, clock: float, size: int) -> bool:
        method, divergence = self.method, self.divergence
        if self.repeated or self.shards > 1 or not method.exchanges(divergence):
            return False
        if isinstance(method, EM) or np.isfinite(method.horizon):
            return exchange.due(self.recipe.n_components, clock, clock + size, method.horizon)
        # Less often than on the processor: an exchange takes as long as the chunks of several thousand samples.
        fourths = (int(np.log2(max(each, 1.0))) // 2 for each in (clock, clock + size))
        return FIRST_EXCHANGE <= clock <= LAST_EXCHANGE and next(fourths) < next(fourths)

    def _exchanged(self, twin: Twin, first: int) -> Twin:
        """The twin with a component exchanged, if that is better."""
        method, divergence, chunks, weights = self.method, self.divergence, self.samples, self.counts
        part = slice(first, first + exchange.taking_part(len(twin.W)))
        raised = chunks.raised
        X, present = chunks[part]
        chunks.raised = raised  # they will be counted when they are learnt from
        compressed = chunks.rows.starts is not None or float((X > 0).double().mean()) < FEW_ENTRIES
        few = isinstance(method, EM) and compressed
        some = SamplesThere(divergence, X, present, self._box, method.penalty(twin.penalties), few)
        # In one layout, whatever the twin's: a model read from a file goes on to the bit.
        W, counts = np.ascontiguousarray(twin.W.cpu().numpy()), None if weights is None else weights[part]
        found = exchange.proposed(method.exchanges(divergence), W, twin.C, twin.penalties, some, counts)
        return twin if found is None else twin.recombined(divergence, *found)


def _usage(H: Any, W: Any, weights: Array | None) -> Usage:
    """``Usage.of`` coefficients on the device."""
    parts = H * W.sum(dim=1)
    total = parts.sum(dim=1, keepdim=True)
    shares = parts / positive(total)  # of samples of which nothing is fitted, nothing
    counts = shares if weights is None else shares * torch.as_tensor(weights, dtype=H.dtype, device=H.device)[:, None]
    sums: Array = counts.sum(dim=0, dtype=torch.float64).cpu().numpy()
    return Usage(sums)


def running_of(method: Method) -> type[Running]:
    """What learns by a method on a device."""
    if isinstance(method, Surrogate):
        return SurrogateRunning
    if type(method) is EM:
        return EMRunning
    raise ValueError(f"method {method.name!r} runs on the processor only; leave device out.")
