"""The same lesson with PyTorch: a batch goes to the device, or is there, and its chunks are learnt from there.

Within a batch the host waits for the device where something has to be decided, and where it must know how much memory
entries take.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any

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
from onmf.learner.algorithm import BatchResult
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
    learning = _Learning(recipe, learned, there, numbers, weights, repeated, shards)
    with faults_of_batch(rows), _alone:  # recordings have one set of places for what they are given
        result = _with_enough_memory(learning, device)
    unit = learned.divergence.loss_unit(units.scale)
    if not learning.finite:
        raise unlearnable("makes the dictionary infinite or NaN", rows)
    if result.loss and not np.isfinite(result.loss * unit):
        raise unlearnable("has a loss beyond the range of numbers", rows)
    largest = float(learning.largest)
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
    news = News(len(numbers), result.loss, weight, learning.usage, learning.raised, there.zeros, covered)
    return Lesson(result.state, result.divergence, news, None, to_beat)


def _with_enough_memory(learning: _Learning, device: str) -> BatchResult:
    """What comes of a batch; where the device has too little memory, in smaller chunks, once."""
    try:
        return learning.run(_smaller.get(device, 1))
    except torch.cuda.OutOfMemoryError:
        if device in _smaller:
            raise MemoryError(_too_large(device)) from None
    _smaller[device] = SMALLER
    recordings.forget()
    torch.cuda.empty_cache()
    log.warning("The memory of %s is full; going on with chunks of a quarter of their size.", device)
    try:
        return learning.run(SMALLER)
    except torch.cuda.OutOfMemoryError:
        raise MemoryError(_too_large(device)) from None


def _too_large(device: str) -> str:
    return (
        f"the memory of {device} is full, even with small chunks; free some of it, learn fewer atoms, or leave device "
        "out to compute on the processor."
    )


@dataclass
class _Learning:
    """A batch on the device that is about to be learnt from."""

    recipe: Recipe
    learned: Learned
    there: Rows
    numbers: Any  # of its rows
    weights: Array | None  # of its samples
    repeated: bool
    shards: int
    raised: int = 0
    largest: Any = 0.0  # of the coefficients
    usage: Usage = field(default_factory=Usage)
    finite: bool = True  # are dictionary and statistics made of numbers?

    def run(self, smaller: int) -> BatchResult:
        """Learn from all chunks, so many times smaller than they would be."""
        recipe, learned, state = self.recipe, self.learned, self.learned.state.on_shard(self.shards)
        method, divergence = learned.method.on_shard(self.shards), learned.inside
        kind = running_of(method)
        twin, adapt = twin_of(kind.kept, learned.state, str(recipe.device)), method.adapts and learned.adaptive
        running, n = kind(method, divergence, self._box, state, twin, self.repeated), len(self.numbers)
        H_all = torch.zeros((n, len(state.W)), dtype=twin.W.dtype, device=twin.W.device)
        filled, numbers, weights = None, self.numbers, self.weights
        empty, lowest = self.there.empty[numbers], learned.units.clip[0] if learned.units.clip else 0.0
        if divergence.domain.x.closed and not lowest and bool(empty.any()):  # zeros that stay zeros say nothing
            filled = torch.nonzero(~empty)[:, 0]
            numbers = numbers[filled]
            weights = None if weights is None else weights[filled.cpu().numpy()]
        weights = None if weights is None else weights.astype(state.W.dtype)
        chunks = Chunks(self.there, numbers, learned.units, learned.divergence, twin.W.dtype)
        first, steps, losses = 0, 0, torch.zeros((), dtype=torch.float64, device=twin.W.device)
        first_loss: Any = 0.0
        while first < len(chunks):
            size = running.size(len(chunks) - first, smaller)
            part = slice(first, first + size)
            if self._exchanges(method, divergence, running.clock, size):
                running.twin = self._exchanged(method, divergence, running.twin, chunks, first, weights)
            weight, count = float(size), None
            if weights is not None:
                weight = float(weights[part].sum(dtype=np.float64))
                count = torch.as_tensor(weights[part], device=twin.W.device)[:, None]
            H, loss = running.learnt(chunks, part, weight, count)
            losses += loss
            if first == 0:
                first_loss = loss.clone() / weight
            H_all[part if filled is None else filled[part]] = H
            first, steps = first + size, steps + 1
        twin, clock = running.twin, running.clock
        total = n if self.weights is None else float(self.weights.sum(dtype=np.float64))
        if adapt and steps:
            divergence = self._adapted(divergence, twin, chunks, running.weight(clock, clock - state.clock), weights)
        self.raised, self.largest = int(chunks.raised), H_all.amax() if n else 0.0
        self.usage, self.finite = _usage(H_all, twin.W, self.weights), twin.finite
        after = state_of(twin, state, clock - state.clock, clock, steps)
        return BatchResult(after, divergence, float(losses) / (total or 1.0), float(first_loss), H_all)

    @property
    def _box(self) -> Box:
        if not isinstance(self.recipe.H, Box):
            raise ValueError("coefficients on the simplex are found by the processor only; leave device out.")
        return self.recipe.H

    def _adapted(
        self, divergence: Divergence, twin: Twin, chunks: Chunks, weight: float, weights: Array | None
    ) -> Divergence:
        """The divergence with its parameter moved by the residuals of some of the batch's samples."""
        some = slice(None, None, max(1, len(chunks) * twin.W.shape[1] // SAMPLED))
        raised = chunks.raised
        X, present = chunks[some]
        chunks.raised = raised
        _, Y, _ = hurried(Problem(divergence, X, twin.W, self._box, Penalty(), present))
        host, fit = X.cpu().numpy(), Y.cpu().numpy()
        counts = None if weights is None else weights[some]
        samples = Samples(host, None if present is None else present.cpu().numpy(), counts)
        return adapted(divergence, samples, fit, weight)

    def _exchanges(self, method: Method, divergence: Divergence, clock: float, size: int) -> bool:
        if self.repeated or self.shards > 1 or not method.exchanges(divergence):
            return False
        if isinstance(method, EM) or np.isfinite(method.horizon):
            return exchange.due(self.recipe.n_components, clock, clock + size, method.horizon)
        # Less often than on the processor: an exchange takes as long as the chunks of several thousand samples.
        fourths = (int(np.log2(max(each, 1.0))) // 2 for each in (clock, clock + size))
        return FIRST_EXCHANGE <= clock <= LAST_EXCHANGE and next(fourths) < next(fourths)

    def _exchanged(
        self, method: Method, divergence: Divergence, twin: Twin, chunks: Chunks, first: int, weights: Array | None
    ) -> Twin:
        """The twin with an atom exchanged, if that is better."""
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
