"""The paper's Algorithm 1: for every chunk of samples, coefficients first, then one step of the dictionary.

An engine does the arithmetic: the one here by NumPy and compiled kernels, that of ``device.engine`` by PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from onmf.coefficients import Coefficients, CoefficientSolver
from onmf.coefficients.problem import Problem, adapted
from onmf.divergences import Divergence
from onmf.learner.reservoir import PER_NEW_SAMPLE, Reservoir
from onmf.methods import Method, exchange
from onmf.model.sets import Box, Simplex
from onmf.model.state import BatchResult, State
from onmf.samples import Samples


class Engine(Protocol):
    """The arithmetic of a batch, by NumPy and compiled kernels or by PyTorch on a device; an engine holds the state."""

    def chunks(self) -> Iterator[Any]:
        """Cut the samples of the batch into chunks of the method's sizes."""

    def begin_chunk(self, chunk: Any) -> None:
        """Prepare for a chunk: try to exchange a component before it is learnt from, where the method does that."""

    def visits(self, chunk: Any) -> int:
        """Return how often the chunk is looked at."""

    def problem(self, chunk: Any) -> Any:
        """Pose the coefficient problem of a chunk with the dictionary as it is now."""

    def solve(self, chunk: Any, problem: Any, H: Any) -> Any:
        """Return the coefficients and what was found with them, starting from those of the last visit."""

    def update(self, chunk: Any, problem: Any, H: Any) -> None:
        """Make the next state."""

    def keep(self, chunk: Any, H: Any) -> None:
        """Note the coefficients of a chunk."""

    def result(self) -> BatchResult:
        """Return the new state, the losses and the coefficients."""


def learn(engine: Engine) -> BatchResult:
    """Learn from the samples of a batch, by the steps 1) to 3) of Algorithm 1.

    Letters are the paper's, transposed: samples are rows, X ~ H W, and X is its V. W_0 comes from
    ``learner.initialise``, v_t from ``learner.run``, and eta_t from ``methods.steps``.

    ``methods.paper`` has the paper's update of W; others make better steps. In the paper's method a chunk is visited
    once, and nothing is exchanged. When another method visits a chunk again, ``update`` starts from the statistics
    before the chunk, so that what it adds replaces what the last visit added. On a device, the surrogate makes steps 2)
    and 3) in ``solve``, as one CUDA graph, and its ``update`` only notes the loss.
    """
    for chunk in engine.chunks():  # 1) draw v_t, or a mini-batch of tau samples
        engine.begin_chunk(chunk)
        H = None
        for _ in range(engine.visits(chunk)):
            problem = engine.problem(chunk)
            # 2) h_t minimises d(v_t || h W_{t-1}) + penalty(h) over h in H.
            H = engine.solve(chunk, problem, H)
            # 3) W_t = P_C(W_{t-1} - eta_t G_t), where G_t is the sum of h_t^T (d/dy) d(v_t || y) at y = h_t W_{t-1}.
            engine.update(chunk, problem, H)
        engine.keep(chunk, H)
    return engine.result()


@dataclass(frozen=True)
class Chunk:
    """Some samples of a batch: new ones, and behind them old ones from the reservoir."""

    rows: slice  # of the batch without its empty samples
    samples: Samples
    new: Samples
    solver: CoefficientSolver  # makes the effort that the chunk is worth


class HostEngine:
    """The engine that learns from a batch X (n, F) in internal units by NumPy and compiled kernels.

    With ``adapt``, a divergence with a parameter left to the data lets it follow the residuals. ``repeated`` says that
    an earlier pass has had these samples. With ``exchanges``, components may be exchanged: not on a shard, as all
    shards have their components in common.
    """

    def __init__(
        self,
        method: Method,
        divergence: Divergence,
        state: State,
        X: Samples,
        *,
        box: Box | Simplex,
        reservoir: Reservoir | None = None,
        adapt: bool = False,
        repeated: bool = False,
        exchanges: bool = False,
    ) -> None:
        self.method, self.divergence, self.box, self.reservoir = method, divergence, box, reservoir
        self.adapt, self.repeated = adapt, repeated
        self.H = np.zeros((len(X), len(state.W)), dtype=state.W.dtype)
        self.losses: list[float] = []
        self.total, self.first_weight = X.weight, 0.0
        self.filled: Any = slice(None)
        shares = isinstance(box, Simplex)
        # On the simplex, a sample of zeros is data like any other: some component must be near zero.
        if method.skips_empty and not shares and np.count_nonzero(X.totals) < len(X):
            self.filled = np.flatnonzero(X.totals)
            X = X[self.filled]
        self.X = X.with_sample_weights_in(state.W.dtype)
        self.state = state.copy(method.layout, method.made_anew)
        self.old = {name: self.state.memory[name] for name in (reservoir.start(state.W) if reservoir else ())}
        self.penalties = state.penalties
        # Samples once learnt from cannot judge; a component scaled to what two carry takes shares off the simplex.
        self.exchanges = exchanges and not repeated and not shares and method.largest_merger_cost(divergence) > 0

    def chunks(self) -> Iterator[Chunk]:
        """Cut the samples into chunks; with a reservoir, one sample in four of a chunk is new."""
        first, factor, method = 0, self._per_new_sample, self.method
        while first < len(self.X):
            left, clock = len(self.X) - first, self.state.clock
            size = max(1, min(left, method.chunk(clock, factor * left) // factor))
            rows = slice(first, first + size)
            new = self.X if size == len(self.X) else self.X[rows]
            self.first_weight = self.first_weight or float(new.weight)
            penalties = method.penalties_after(clock, self.penalties)
            self.state = replace(self.state, penalties=penalties)
            self.penalty = method.penalty(penalties)
            solver = method.solver_after(clock, bool(penalties), self.divergence, new)
            yield Chunk(rows, self._mixed(new), new, solver.within(self.box))
            if self.reservoir:
                self.reservoir.keep(self.old, new)
            first += size

    @property
    def _per_new_sample(self) -> int:
        """The samples in a chunk for each new one."""
        return PER_NEW_SAMPLE if self.reservoir else 1

    def _mixed(self, new: Samples) -> Samples:
        return self.reservoir.mixed(self.old, new) if self.reservoir else new

    def begin_chunk(self, chunk: Chunk) -> None:
        """Prepare for a chunk; try an exchange on the samples from there on, if one is due."""
        K, factor, clock = len(self.state.W), self._per_new_sample, self.state.clock
        after = clock + factor * len(chunk.new)
        if (
            self.exchanges
            and not self.method.is_certified(clock)
            and exchange.due(K, clock, after, self.method.horizon)
        ):
            first = chunk.rows.start
            some = self._mixed(self.X[first : first + -(-exchange.samples_needed(K) // factor)])
            self.state = exchange.exchanged(self.method, self.divergence, self.state, some, self.box)
        self.before, self.visited = self.state, False

    def visits(self, chunk: Chunk) -> int:
        """Return how often the method looks at the chunk; each visit replaces what the last one added."""
        return self.method.visits(self.before.clock)

    def problem(self, chunk: Chunk) -> Problem:
        """Pose the coefficient problem of the chunk with the dictionary as it is now."""
        return Problem(self.divergence, chunk.samples, self.state.W, self.box, self.penalty)

    def solve(self, chunk: Chunk, problem: Problem, found: Coefficients | None) -> Coefficients:
        """Return the coefficients, starting from those of the last visit."""
        return chunk.solver.solve(problem, None if found is None else found.H)

    def update(self, chunk: Chunk, problem: Problem, found: Coefficients) -> None:
        """Let the method make the next state; note the loss of the new samples before that."""
        X, H = chunk.samples, found.H
        Y = problem.fit(H) if found.Y is None else found.Y
        if not self.visited:
            losses = problem.loss(H, Y) if found.loss is None else found.loss
            self.losses.append(float(X.times_sample_weight(losses)[: len(chunk.new)].sum(dtype=np.float64)))
            self.visited = True
        self.state = self.method.update(self.before, problem, H, Y, 0 if self.repeated else len(chunk.new))
        if self.adapt and not self.method.is_certified(self.before.clock):
            rho = self.method.weight(self.divergence, self.before.clock + X.weight, X.weight)
            self.divergence = adapted(self.divergence, X, Y, rho)

    def keep(self, chunk: Chunk, found: Coefficients) -> None:
        """Note the coefficients of the new samples."""
        self.H[chunk.rows if isinstance(self.filled, slice) else self.filled[chunk.rows]] = found.H[: len(chunk.new)]

    def result(self) -> BatchResult:
        """Return the state in one layout in memory, whatever the method prefers: resumed runs match bit for bit."""
        state = self.state.with_arrays(np.ascontiguousarray(self.state.W), dict(self.state.memory) | self.old)
        state = replace(state, penalties=self.penalties)
        first = self.losses[0] / self.first_weight if self.losses else 0.0
        return BatchResult(state, self.divergence, sum(self.losses) / (self.total or 1.0), first, self.H)
