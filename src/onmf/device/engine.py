"""The engine that runs Algorithm 1 with PyTorch.

It moves a batch to the device, unless it is there already, and learns from it chunk by chunk. Within a batch the host
waits for the device only where something has to be decided, and where it must know how much memory entries take.
``surrogate`` and ``em`` hold the engines of the two methods that run on a device.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch

from onmf._support.arrays import Array, some_of, times, weight_of
from onmf.coefficients.problem import adapted
from onmf.device.cuda_graphs import recordings
from onmf.device.device_state import DeviceState
from onmf.device.problem import DeviceProblem, positive, rough_coefficients
from onmf.device.samples import DeviceBatch
from onmf.divergences import Divergence
from onmf.divergences.base import TINY
from onmf.methods import Method, exchange
from onmf.model.penalty import NO_PENALTY, Penalty
from onmf.model.sets import Box
from onmf.model.state import BatchResult, State
from onmf.samples import FEW_ENTRIES, Samples

log = logging.getLogger("onmf")

SMALLER = 4  # the factor by which chunks shrink once the device has run out of memory
SAMPLED = 2**15  # entries of a chunk by whose residuals a parameter is adapted

_alone = threading.Lock()
_smaller: dict[str, int] = {}  # by how much chunks are smaller on devices whose memory has run out


def engine_of(method: Method) -> type[DeviceEngine]:
    """Return the engine that learns by a method."""
    from onmf.device.em import EMEngine  # which import this module
    from onmf.device.surrogate import SurrogateEngine

    return next(kind for kind in (EMEngine, SurrogateEngine) if isinstance(method, kind.learns_by))


def learn_on_device(
    algorithm: Callable[[DeviceEngine], BatchResult],
    method: Method,
    divergence: Divergence,
    state: State,
    samples: DeviceBatch,
    weights: Array | None,
    options: Mapping[str, Any],
) -> tuple[DeviceEngine, BatchResult]:
    """Learn from a batch; where the device has too little memory, in smaller chunks, once."""
    device = str(samples.rows.device)

    def learning(smaller: int) -> tuple[DeviceEngine, BatchResult]:
        engine = engine_of(method)(method, divergence, state, samples, weights=weights, smaller=smaller, **options)
        return engine, algorithm(engine)

    with _alone:  # recordings have one set of places for what they are given
        try:
            return learning(_smaller.get(device, 1))
        except torch.cuda.OutOfMemoryError:
            if device in _smaller:
                raise MemoryError(_too_large(device)) from None
        _smaller[device] = SMALLER
        recordings.clear()
        torch.cuda.empty_cache()
        log.warning("The memory of %s is full; continuing with chunks of a quarter of their size.", device)
        try:
            return learning(SMALLER)
        except torch.cuda.OutOfMemoryError:
            raise MemoryError(_too_large(device)) from None


def _too_large(device: str) -> str:
    return (
        f"the memory of {device} is full, even with small chunks; free some of it, learn fewer components, or leave "
        "device out to compute on the processor."
    )


@dataclass(frozen=True)
class ChunkOnDevice:
    """Some samples of a batch on the device."""

    rows: slice
    weight: float
    counts: Any  # the weights of its samples (n, 1), if they differ


class DeviceEngine(ABC):
    """The engine that learns from a batch by PyTorch on a device; a subclass serves one method.

    Chunks are ``smaller`` than usual by that factor. ``divergence`` is in internal units. With ``adapt``, a parameter
    of it that was left to the data follows the residuals. ``repeated`` says that an earlier pass has had the samples.
    With ``exchanges``, components may be exchanged.
    """

    learns_by: ClassVar[type[Method]]
    keeps: ClassVar[type[DeviceState]]
    from_entries: ClassVar[bool] = False  # does it look at the entries of sparse samples alone?

    def __init__(
        self,
        method: Method,
        divergence: Divergence,
        state: State,
        samples: DeviceBatch,
        *,
        weights: Array | None,
        box: Any,
        adapt: bool,
        repeated: bool,
        exchanges: bool,
        smaller: int = 1,
    ) -> None:
        self.method: Any = method
        self.divergence, self.state, self.box, self.weights = divergence, state, box, weights
        self.adapt, self.repeated, self.smaller = adapt, repeated, smaller
        self.exchanges = exchanges and not repeated and method.largest_merger_cost(divergence) > 0
        self.penalty = method.penalty(state.penalties)
        self.device_state: Any = self.keeps.of(state, str(samples.rows.device))
        there = {"dtype": samples.dtype, "device": samples.rows.device}
        self.H = torch.zeros((len(samples), len(state.W)), **there)
        self.filled: Any = slice(None)
        if divergence.domain.x.includes_zero and not (samples.units.clip and samples.units.clip[0]):
            filled = samples.filled  # zeros that stay zeros say nothing
            if len(filled) < len(samples):
                self.filled, samples = filled, replace(samples, numbers=samples.numbers[filled])
                weights = some_of(weights, filled.cpu().numpy())
        self.samples = replace(samples)  # which counts what is raised
        self.counts = weights if weights is None else weights.astype(state.W.dtype)
        self.seen, self.clock, self.steps = state.samples, state.clock, 0
        self.losses, self.first_loss = torch.zeros((), dtype=torch.float64, device=self.H.device), 0.0

    @abstractmethod
    def size(self, left: int) -> int:
        """Return how many of the samples that are left of the batch are the next chunk."""

    @abstractmethod
    def weight(self, clock: float, n: float) -> float:
        """Return the weight in the averages of the n samples that bring the clock to ``clock``."""

    def chunks(self) -> Iterator[ChunkOnDevice]:
        """Cut the samples into chunks."""
        first = 0
        while first < len(self.samples):
            part = slice(first, first + self.size(len(self.samples) - first))
            weight, counts = float(part.stop - first), None
            if self.counts is not None:
                weight = float(self.counts[part].sum(dtype=np.float64))
                counts = torch.as_tensor(self.counts[part], device=self.H.device)[:, None]
            yield ChunkOnDevice(part, weight, counts)
            first = part.stop

    def begin_chunk(self, chunk: ChunkOnDevice) -> None:
        """Prepare for a chunk; try an exchange on the samples from there on, if one is due."""
        after = self.clock + (chunk.rows.stop - chunk.rows.start)
        if self.exchanges and self.exchange_due(after):
            self.device_state = self._exchanged(self.device_state, chunk.rows.start)

    def exchange_due(self, after: float) -> bool:
        """Return whether an exchange is due before the clock reaches ``after``."""
        return exchange.due(len(self.state.W), self.clock, after, self.method.horizon)

    def visits(self, chunk: ChunkOnDevice) -> int:
        """Return how often the chunk is looked at."""
        return 1

    @abstractmethod
    def problem(self, chunk: ChunkOnDevice) -> Any:
        """Pose the coefficient problem of a chunk with the dictionary as it is now."""

    @abstractmethod
    def solve(self, chunk: ChunkOnDevice, problem: Any, found: Any) -> tuple[Any, Any]:
        """Return the coefficients and what was found with them; the next chunk may overwrite them."""

    @abstractmethod
    def update(self, chunk: ChunkOnDevice, problem: Any, found: tuple[Any, Any]) -> None:
        """Make the next state, and note the loss."""

    def note_loss(self, chunk: ChunkOnDevice, loss: Any) -> None:
        """Add the sum of a chunk's losses before it changed W."""
        self.losses += loss
        if not self.steps:
            self.first_loss = loss.clone() / chunk.weight
        self.steps += 1

    def keep(self, chunk: ChunkOnDevice, found: tuple[Any, Any]) -> None:
        """Note the coefficients, and advance the clock."""
        self.H[chunk.rows if isinstance(self.filled, slice) else self.filled[chunk.rows]] = found[0]
        self.seen, self.clock = self.seen + chunk.weight, self.clock + chunk.weight

    def result(self) -> BatchResult:
        """Return the state on the host, the losses and the coefficients."""
        total = weight_of(self.weights, len(self.H))
        divergence = self._adapted() if self.adapt and self.steps else self.divergence
        state = self.device_state.after_batch(self.state, self.clock, self.steps)
        return BatchResult(state, divergence, float(self.losses) / (total or 1.0), float(self.first_loss), self.H)

    @property
    def largest(self) -> float:
        """The largest coefficient."""
        return float(self.H.amax()) if len(self.H) else 0.0

    @property
    def usage(self) -> Array:
        """The share of each component in the fits, summed over the samples."""
        parts = self.H * self.device_state.W.sum(dim=1)
        shares = parts / positive(parts.sum(dim=1, keepdim=True))  # a sample whose fit is zero adds nothing
        weights = None if self.weights is None else self.device_state.like(self.weights)[0][:, None]
        sums: Array = times(shares, weights).sum(dim=0, dtype=torch.float64).cpu().numpy()
        return sums

    def _adapted(self) -> Divergence:
        """Return the divergence with its parameter moved by the residuals of some of the batch's samples."""
        W = self.device_state.W
        some = slice(None, None, max(1, len(self.samples) * W.shape[1] // SAMPLED))
        X, present = self.samples.uncounted(some)
        _, Y, _ = rough_coefficients(DeviceProblem(self.divergence, X, W, self.box, NO_PENALTY, present))
        host, weights = X.cpu().numpy(), None if present is None else present.cpu().numpy()
        seen = Samples(host, weights, some_of(self.counts, some))
        return adapted(self.divergence, seen, Y.cpu().numpy(), self.weight(self.clock, self.clock - self.state.clock))

    def _exchanged(self, state: DeviceState, first: int) -> DeviceState:
        """Return the state with a component exchanged, if that is better."""
        part = slice(first, first + exchange.samples_needed(len(state.W)))
        X, present = self.samples.uncounted(part)
        few = self.from_entries and (self.samples.rows.sparse or float((X > 0).double().mean()) < FEW_ENTRIES)
        samples = DeviceExchangeSamples(self.divergence, X, present, self.box, self.penalty, few)
        # In one layout, whatever the state's: a model read from a file resumes bit for bit.
        W, counts = np.ascontiguousarray(state.W.cpu().numpy()), some_of(self.counts, part)
        cost = self.method.largest_merger_cost(self.divergence)
        found = exchange.proposed(cost, W, state.C, state.penalties, samples, counts)
        return state if found is None else state.recombined(self.divergence, *found)


class DeviceExchangeSamples(exchange.ExchangeSamples):
    """Dense samples X (n, F) in internal units on a device.

    ``present`` are the weights of their entries; ``few`` says that most entries are zero, where there is no curvature.
    """

    def __init__(self, divergence: Divergence, X: Any, present: Any, box: Box, penalty: Penalty, few: bool) -> None:
        self.divergence, self.X, self.present, self.number = divergence, X, present, len(X)
        self.box, self.penalty, self.few = box, penalty, few

    def _problem(self, rows: slice, W: Array) -> DeviceProblem:
        there = torch.as_tensor(W, device=self.X.device)
        return DeviceProblem(self.divergence, self.X[rows], there, self.box, self.penalty, some_of(self.present, rows))

    def solved(self, rows: slice, W: Array) -> tuple[Any, Array, Array]:
        problem = self._problem(rows, W)
        H, Y, _ = rough_coefficients(problem)
        objective = problem.objective(H, Y)
        scale = problem.losses(torch.clamp(2 * problem.X, min=TINY))
        values = torch.stack([objective, objective / scale]).cpu().numpy()
        return H, values[0], values[1]

    def grams(self, H: Any, W: Array) -> tuple[Array, Array]:
        problem = self._problem(slice(None), W)
        tiny = torch.finfo(H.dtype).tiny
        r, d = torch.ones_like(H[:, :1]), torch.ones_like(problem.W[0])
        if self.few:
            C = problem.model(problem.fit(H))[1] * (self.X > 0)
            r, d = C.sum(dim=1, keepdim=True), C.mean(dim=0) / C.mean()
        elif not problem.shared:
            C = problem.model(problem.fit(H))[1].expand_as(self.X)
            if self.present is not None:  # a missing entry says nothing of the curvature that it would have
                C = torch.where(self.present > 0, C, torch.ones_like(C))
            logs = torch.log(torch.clamp(C, min=tiny))
            r, d = torch.exp(logs.mean(dim=1, keepdim=True)), torch.exp(logs.mean(dim=0) - logs.mean())
        S, Q = (H * r).T @ H / len(H), (problem.W * d) @ problem.W.T
        both: Array = torch.stack([S, Q]).cpu().numpy()
        return both[0], both[1]

    def lacking(self, rows: slice, H: Any, W: Array, worst: int) -> Array | None:
        problem = self._problem(rows, W)
        slope, C = problem.model(problem.fit(H[rows]))
        C, tiny = C.expand_as(slope), torch.finfo(slope.dtype).tiny
        slope = -slope * (problem.X > 0).any(dim=0)  # where there are no entries, no fit is too small
        u = torch.clamp(slope[worst] / (C[worst] + tiny), min=0)
        for _ in range(exchange.ROUNDS):
            g = torch.clamp(slope @ u, min=0) / (C @ (u * u) + tiny)
            u = torch.clamp(g @ slope, min=0) / ((g * g) @ C + tiny)
            u = u / positive(u.max())
        new: Array = u.cpu().numpy()
        return exchange.with_background(self.divergence, new, W) if new.any() else None
