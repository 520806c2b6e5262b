"""The same lesson with PyTorch: a batch goes to the device, or is there, and its chunks are learnt from there.

Chunks are larger than on the processor: a GPU solves thousands of samples in the time of a few. Nothing is waited for
within a batch, as far as nothing has to be decided.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onmf._support.arrays import Array
from onmf._support.known import Known, apart, as_dense
from onmf._support.resident import on_host
from onmf.device.problem import ROUNDS, Problem, hurried
from onmf.device.samples import Chunks, Rows, chosen
from onmf.device.twin import Twin, state_of, twin_of
from onmf.divergences import Divergence, Partial
from onmf.divergences.partial import whole
from onmf.learner import exchange
from onmf.learner.chunks import BatchResult, rank_one_loss, require_finite
from onmf.learner.learned import Coverage, Learned
from onmf.learner.lesson import Lesson, News, as_begun, as_floats, faults_of_batch
from onmf.learner.recipe import Recipe, require_served
from onmf.learner.usage import Usage
from onmf.methods.schedules import Growing
from onmf.methods.surrogate import Surrogate
from onmf.sets import Box, Sets
from onmf.units import refuse_bad_entries, refuse_bounded, refuse_infinite

log = logging.getLogger("onmf")

CHUNKS = Growing(256, 0.02, 4096)
MOST_ENTRIES = 2**28  # of the samples of a chunk, and of their matrices
SMALLER = 4  # times, the chunks where memory runs out
SAMPLED = 2**15  # entries of a chunk by whose residuals a parameter is adapted

_smaller: dict[str, int] = {}  # by how much chunks are smaller on devices whose memory has run out


def learnt_on_device(
    recipe: Recipe, learned: Learned, batch: Any, rows: Any = None, *, repeated: bool = False, shards: int = 1
) -> Lesson:
    """``lesson.learnt`` on the device of the recipe."""
    device, units, method = str(recipe.device), learned.units, learned.method
    batch, weights = apart(as_floats(batch))
    if learned.partial or isinstance(batch, Known):
        batch = as_begun(learned, on_host(batch))
    if weights is not None:
        require_served(method, learned.inside_model, recipe, weighted=True)
    there, numbers = chosen(batch, device)
    if not there.sound:
        refuse_bad_entries(on_host(batch), rows, learned.features.names)
    learning = _Learning(recipe, learned, there, numbers, weights, repeated, shards)
    with faults_of_batch(rows):
        result = _with_enough_memory(learning, device)
    unit = learned.divergence.loss_unit(units.scale)
    require_finite(result, rows, unit)
    H = result.H * result.state.W.dtype.type(learned.coefficient_unit)
    if not np.isfinite(H.sum(dtype=np.float64)):
        refuse_infinite(H, on_host(batch), units.mean, rows)
    if recipe.sets == Sets() and result.H.max(initial=0.0) >= 0.5 * recipe.H.high:  # a bound of the user's own is meant
        refuse_bounded(result.H, recipe.H.high, on_host(batch), units.scale, rows)
    to_beat = learned.loss_to_beat
    if not learned.history.entries and shards == 1:
        first, _ = units.inside(as_dense(on_host(batch)).astype(H.dtype, copy=False), learned.divergence, rows)
        to_beat = max(result.first_loss, rank_one_loss(learned.inside_model, first)) * unit
    weight = len(numbers) if weights is None else float(weights.sum(dtype=np.float64))
    covered = Coverage.of(batch) if learned.partial else None
    usage = Usage.of(result.H, result.state.W, weights)
    news = News(len(numbers), result.loss, weight, usage, learning.raised, there.zeros(), covered)
    return Lesson(result.state, result.divergence, news, H, to_beat)


def _with_enough_memory(learning: _Learning, device: str) -> BatchResult:
    """What comes of a batch; where the device has too little memory, in smaller chunks, once."""
    try:
        return learning.run(_smaller.get(device, 1))
    except torch.cuda.OutOfMemoryError:
        if device in _smaller:
            raise MemoryError(_too_large(device)) from None
    _smaller[device] = SMALLER
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

    def run(self, smaller: int) -> BatchResult:
        """Learn from all chunks, so many times smaller than they would be."""
        recipe, learned, state = self.recipe, self.learned, self.learned.state.on_shard(self.shards)
        method, twin = self._method.on_shard(self.shards), twin_of(learned.state, str(recipe.device))
        divergence, adapt = whole(learned.inside_model), method.adapts and learned.adaptive
        n, K = len(self.numbers), len(state.W)
        H_all = torch.zeros((n, K), dtype=twin.W.dtype, device=twin.W.device)
        filled = torch.nonzero(~self.there.empty()[self.numbers])[:, 0]  # zeros say nothing
        weights = None if self.weights is None else self.weights[filled.cpu().numpy()].astype(state.W.dtype)
        chunks = Chunks(self.there, self.numbers[filled], learned.units, learned.divergence, twin.W.dtype)
        penalty = method.penalty(state.penalties)
        first, clock, steps, losses, first_loss = 0, state.clock, 0, torch.zeros((), device=twin.W.device), None
        while first < len(chunks):
            size = self._size(method, clock, len(chunks) - first, smaller)
            part = slice(first, first + size)
            X, present = chunks[part]
            counts = None if weights is None else weights[part]
            weight = float(len(X)) if counts is None else float(counts.sum(dtype=np.float64))
            count = None if counts is None else torch.as_tensor(counts, device=X.device)[:, None]
            if self._exchanges(method, divergence, clock, size):
                twin = self._exchanged(method, divergence, twin, chunks, first, weights)
            problem = Problem(divergence, X, twin.W, self._box, penalty, present)
            H, Y, loss = hurried(problem)
            clock, steps = clock + weight, steps + 1
            if adapt:
                divergence = _adapted(divergence, problem, Y, method.weight(divergence, clock, weight), counts)
                problem.divergence = divergence
            twin = twin.after(method, divergence, problem, H, Y, n=weight, clock=clock, weights=count)
            loss = (loss if count is None else loss * count[:, 0]).sum(dtype=torch.float64)
            first_loss = loss / weight if first_loss is None else first_loss
            losses = losses + loss
            H_all[filled[part]] = H
            first += size
        self.raised = int(chunks.raised)
        total = n if self.weights is None else float(self.weights.sum(dtype=np.float64))
        after = state_of(twin, state, clock - state.clock, clock, steps)
        inside: Divergence = Partial(divergence) if learned.partial else divergence
        loss, before = float(losses) / (total or 1.0), 0.0 if first_loss is None else float(first_loss)
        return BatchResult(after, inside, loss, before, H_all.cpu().numpy())

    @property
    def _box(self) -> Box:
        if not isinstance(self.recipe.H, Box):
            raise ValueError("coefficients on the simplex are found by the processor only; leave device out.")
        return self.recipe.H

    @property
    def _method(self) -> Surrogate:
        if not isinstance(self.learned.method, Surrogate):
            raise ValueError(f"method {self.learned.method.name!r} runs on the processor only; leave device out.")
        return self.learned.method

    def _size(self, method: Surrogate, clock: float, left: int, smaller: int) -> int:
        """Of the next chunk: chunks without a fixed size share out the batch evenly."""
        if method.tau is not None:
            return min(method.tau, left)
        K, F = self.learned.state.W.shape
        most = max(1, min(CHUNKS(clock), MOST_ENTRIES // max(F, K * K)) // smaller)
        return -(-left // max(1, round(left / most)))

    def _exchanges(self, method: Surrogate, divergence: Divergence, clock: float, size: int) -> bool:
        if self.repeated or self.shards > 1 or not method.exchanges(divergence):
            return False
        return exchange.due(self.recipe.n_components, clock, clock + size, method.horizon)

    def _exchanged(
        self, method: Surrogate, divergence: Divergence, twin: Twin, chunks: Chunks, first: int, weights: Array | None
    ) -> Twin:
        """The twin with an atom exchanged, if that is better; decided by ``learner.exchange`` on the host."""
        part = slice(first, first + exchange.taking_part(len(twin.W)))
        raised = chunks.raised
        X, present = chunks[part]
        chunks.raised = raised  # they will be counted when they are learnt from
        penalty = method.penalty(twin.penalties)

        box = self._box

        def solved(rows: slice, W: Array) -> tuple[Array, Array, Array]:
            dictionary = torch.as_tensor(W, device=X.device)
            some = None if present is None else present[rows]
            problem = Problem(divergence, X[rows], dictionary, box, penalty, some)
            H, Y, _ = hurried(problem, rounds=2 * ROUNDS)
            objective = problem.objective(H, Y)
            scale = problem.losses(torch.clamp(2 * X[rows], min=1e-30))
            h, f, relative = (part.cpu().numpy() for part in (H, objective, objective / scale))
            return h, f, relative

        host = X.cpu().numpy()
        samples: Any = host if present is None else Known(host, present.cpu().numpy())
        inside: Divergence = divergence if present is None else Partial(divergence)
        W = twin.W.cpu().numpy()
        counts = None if weights is None else weights[part]
        found = exchange.proposed(method, inside, W, twin.C, twin.penalties, samples, solved, counts)
        return twin if found is None else twin.recombined(*found)


def _adapted(divergence: Divergence, problem: Problem, Y: Any, weight: float, counts: Array | None) -> Divergence:
    """The divergence with its parameter moved by the residuals of some of the samples."""
    n, F = problem.X.shape
    some = slice(None, None, max(1, n * F // SAMPLED))
    X, fit = problem.X[some].cpu().numpy(), Y[some].cpu().numpy()
    samples: Any = X if problem.present is None else Known(X, problem.present[some].cpu().numpy())
    return divergence.adapted(samples, fit, weight, *(() if counts is None else (counts[some],)))
