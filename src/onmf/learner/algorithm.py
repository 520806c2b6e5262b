"""The paper's Algorithm 1: for every chunk of samples, coefficients first, then one step of the dictionary.

An engine does the arithmetic: the one here by NumPy and compiled kernels, that of ``device.engine`` by PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients import Coefficients, CoefficientSolver
from onmf.coefficients.problem import Problem, adapted
from onmf.divergences import Divergence
from onmf.methods import Method, exchange
from onmf.model.sets import Box, Simplex
from onmf.model.state import BatchResult, State
from onmf.samples import Samples, stacked

NEW_SHARE = 4  # with a reservoir, one sample in this many is new, the others are old


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

    def solve(self, problem: Any, H: Any) -> Any:
        """Return the coefficients and what was found with them, starting from those of the last visit.

        On a device, the surrogate makes the step of W here, too.
        """

    def update(self, chunk: Any, problem: Any, H: Any) -> None:
        """Make the next state."""

    def keep(self, chunk: Any, H: Any) -> None:
        """Note the coefficients of a chunk."""

    def result(self) -> BatchResult:
        """Return the new state, the losses and the coefficients."""


def learn(engine: Engine) -> BatchResult:
    """Learn from the samples of a batch.

    Letters are the paper's, transposed: samples are rows, X ~ H W, and X is its V. ``methods.paper`` has its update of
    W; others make better steps. In the paper's method a chunk is visited once, and nothing is exchanged.
    """
    for chunk in engine.chunks():  # v_t, or a mini-batch of tau samples
        engine.begin_chunk(chunk)
        H = None
        for _ in range(engine.visits(chunk)):
            problem = engine.problem(chunk)
            H = engine.solve(problem, H)  # eq:solve_h   h_t = argmin over h in H of d(v_t || h W_{t-1})
            engine.update(chunk, problem, H)  # eq:upd_dict  W_t = P_C(W_{t-1} - eta_t G_t), G_t = h_t' d'(v_t || h_t W)
        engine.keep(chunk, H)
    return engine.result()


@dataclass(frozen=True)
class Chunk:
    """Some samples of a batch: new ones, and behind them old ones from the reservoir."""

    rows: slice  # of the batch without its empty samples
    samples: Samples
    new: Samples
    solver: CoefficientSolver


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
        # Of shares, zeros say that there is a component of them.
        if method.skips_empty and not shares and np.count_nonzero(X.totals) < len(X):
            self.filled = np.flatnonzero(X.totals)
            X = X[self.filled]
        self.X, self.state = X.with_sample_weights_in(state.W.dtype), state.copy(method.layout)
        self.old = {name: self.state.memory[name] for name in (reservoir.start(state.W) if reservoir else ())}
        self.solver = method.coefficient_solver(divergence, X.masked).within(box)
        self.penalty = method.penalty(state.penalties)
        # Samples once learnt from cannot judge; a component scaled to what two carry takes shares off the simplex.
        self.exchanges = exchanges and not repeated and not shares and method.largest_merger_cost(divergence) > 0

    def chunks(self) -> Iterator[Chunk]:
        """Cut the samples into chunks; with a reservoir, one sample in four of a chunk is new."""
        first, share, method = 0, NEW_SHARE if self.reservoir else 1, self.method
        while first < len(self.X):
            left, clock = len(self.X) - first, self.state.clock
            size = max(1, min(left, method.chunk(clock, share * left) // share))
            rows = slice(first, first + size)
            new = self.X if size == len(self.X) else self.X[rows]
            self.first_weight = self.first_weight or float(new.weight)
            effort = method.effort(clock) * (method.penalised_effort if self.state.penalties else 1)
            usual = self.solver
            solver = usual if effort == 1 else usual.stopping(usual.tol, effort * usual.max_iter)
            yield Chunk(rows, self._mixed(new), new, solver)
            if self.reservoir:
                self.reservoir.keep(self.old, new)
            first += size

    def _mixed(self, new: Samples) -> Samples:
        return self.reservoir.mixed(self.old, new) if self.reservoir else new

    def begin_chunk(self, chunk: Chunk) -> None:
        """Prepare for a chunk; try an exchange on the samples from there on, if one is due."""
        K, share, clock = len(self.state.W), NEW_SHARE if self.reservoir else 1, self.state.clock
        after = clock + share * len(chunk.new)
        if self.exchanges and exchange.due(K, clock, after, self.method.horizon):
            first = chunk.rows.start
            some = self._mixed(self.X[first : first + -(-exchange.samples_needed(K) // share)])
            self.state = exchange.exchanged(self.method, self.divergence, self.state, some, self.box)
        self.before, self.visited = self.state, False

    def visits(self, chunk: Chunk) -> int:
        """Return how often the method looks at the chunk; its share of the statistics is replaced every time."""
        return self.method.visits(self.before.clock)

    def problem(self, chunk: Chunk) -> tuple[Problem, CoefficientSolver]:
        """Pose the coefficient problem, for a solver that makes the effort that the chunk is worth."""
        return Problem(self.divergence, chunk.samples, self.state.W, self.box, self.penalty), chunk.solver

    def solve(self, problem: tuple[Problem, CoefficientSolver], H: Coefficients | None) -> Coefficients:
        """Return the coefficients, starting from those of the last visit."""
        posed, solver = problem
        return solver.solve(posed, None if H is None else H.H)

    def update(self, chunk: Chunk, problem: tuple[Problem, CoefficientSolver], found: Coefficients) -> None:
        """Let the method make the next state; note the loss of the new samples before that."""
        posed, X, H = problem[0], chunk.samples, found.H
        Y = posed.fit(H) if found.Y is None else found.Y
        if not self.visited:
            losses = posed.loss(H, Y) if found.loss is None else found.loss
            self.losses.append(float(X.times_sample_weight(losses)[: len(chunk.new)].sum(dtype=np.float64)))
            self.visited = True
        self.state = self.method.update(self.before, posed, H, Y, 0 if self.repeated else len(chunk.new))
        if self.adapt:
            share = self.method.weight(self.divergence, self.before.clock + X.weight, X.weight)
            self.divergence = adapted(self.divergence, X, Y, share)

    def keep(self, chunk: Chunk, found: Coefficients) -> None:
        """Note the coefficients of the new samples."""
        self.H[chunk.rows if isinstance(self.filled, slice) else self.filled[chunk.rows]] = found.H[: len(chunk.new)]

    def result(self) -> BatchResult:
        """Return the state in one layout in memory, whatever the method prefers: resumed runs match bit for bit."""
        state = self.state.with_arrays(np.ascontiguousarray(self.state.W), dict(self.state.memory) | self.old)
        first = self.losses[0] / self.first_weight if self.losses else 0.0
        return BatchResult(state, self.divergence, sum(self.losses) / (self.total or 1.0), first, self.H)


@dataclass(frozen=True)
class Reservoir:
    """A few of all samples seen, each equally likely to be among them, to mix with new ones (Vitter's algorithm R).

    A stream in temporal order (the frames of a recording) shows the same few components for a long time; without a
    reminder of the rest, the dictionary forgets it. Random numbers depend on the samples seen alone, so that a run can
    be resumed.
    """

    size: int

    def start(self, W: Array) -> dict[str, Array]:
        """Return an empty reservoir."""
        return {"kept": np.zeros((self.size, W.shape[1]), dtype=W.dtype), "kept_of": np.zeros(1)}

    def mixed(self, memory: Mapping[str, Array], V: Samples) -> Samples:
        """Return new rows V followed by old ones, three times as many."""
        seen = int(memory["kept_of"][0])
        if seen == 0:
            return V
        rows = np.random.default_rng((0, seen)).integers(min(seen, self.size), size=(NEW_SHARE - 1) * len(V))
        old = Samples(memory["kept"][rows])
        both: Samples = stacked([V, old.sparsified() if V.sparse else old])
        return both

    def keep(self, memory: Mapping[str, Array], V: Samples) -> None:
        """Let the rows V take their chance, in place."""
        seen = int(memory["kept_of"][0])
        number = seen + np.arange(len(V))
        place = (np.random.default_rng((1, seen)).random(len(number)) * (number + 1)).astype(np.int64)
        place = np.where(number < self.size, number, place)
        inside = place < self.size
        memory["kept"][place[inside]] = V[inside].densified().matrix
        memory["kept_of"][0] = seen + len(V)
