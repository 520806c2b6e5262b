"""The share of the chip that each part of a step reaches: operations and bytes over its time, and the ceilings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from onmf import divergences
from onmf.device import problem as problems
from onmf.device import quadratic_programmes
from onmf.device.entries import MultiplicativeSteps
from onmf.device.problem import DeviceProblem
from onmf.device.quadratic_programmes import descend
from onmf.device.samples import DeviceRows
from onmf.model.penalty import NO_PENALTY
from onmf.model.sets import Box

REPEATS = 30


@dataclass(frozen=True)
class Part:
    """A part of a step: median seconds, floating-point operations, bytes that must move."""

    name: str
    seconds: float
    operations: float
    moved: float


def seconds_of(function: Callable[[], Any]) -> float:
    """The median on the device's own clock, of runs that are recorded: the host's launches are not its time."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph, taken = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        function()
    for _ in range(REPEATS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        taken.append(began.elapsed_time(ended) / 1e3)
    return sorted(taken)[REPEATS // 2]


def ceilings() -> tuple[float, float]:
    """Bytes per second of a large copy, read and written, and single-precision operations per second of a product."""
    X = torch.rand(2**28, device="cuda")
    Y = torch.empty_like(X)
    bandwidth = 2 * X.nbytes / seconds_of(lambda: Y.copy_(X))
    A = torch.rand((8192, 8192), device="cuda")
    return bandwidth, 2 * 8192**3 / seconds_of(lambda: A @ A)


def parts(n: int, F: int, K: int, divergence: str = "kl") -> list[Part]:
    """Time, for a chunk of n samples, one round of the coefficients and the dictionary's step."""
    draw = torch.Generator("cuda").manual_seed(0)
    W = torch.rand((K, F), generator=draw, device="cuda")
    H = torch.rand((n, K), generator=draw, device="cuda")
    X = torch.poisson(5 * H @ W, generator=draw)
    problem = DeviceProblem(divergences.get(divergence), X, W, Box(), NO_PENALTY)
    Y, P = problem.fit(H), K * (K + 1) // 2
    slope, C = problem.model(Y)
    T, M = C * Y - slope, problem.matrices(C)
    b, Hs = T @ W.T, problems.packed(H.T)
    A, big = torch.rand((F, P), device="cuda"), 4.0
    per_feature = problems.unpacked(C.T @ Hs.T, K)
    v, low = W.T.contiguous(), torch.zeros((F, K), device="cuda")

    def kernel(count: int, sweeps: int, matrices: Any, right: Any, x: Any) -> Part:
        name = f"kernel, {count} problems, {sweeps} sweeps"
        work = seconds_of(lambda: descend(matrices, right, x, 0.0, 1e8, sweeps))
        return Part(name, work, 2.0 * count * sweeps * K * K, big * count * (K * K + 3 * K))

    return [
        Part("gather of samples", seconds_of(lambda: X[torch.arange(n, device="cuda")]), 0, 2 * big * n * F),
        Part("fit, H W", seconds_of(lambda: problem.fit(H)), 2.0 * n * F * K, big * (n * F + n * K + F * K)),
        Part("slopes, curvatures, targets", seconds_of(lambda: _targets(problem, Y)), 5.0 * n * F, 4 * big * n * F),
        Part("losses", seconds_of(lambda: problem.losses(Y)), 8.0 * n * F, 2 * big * n * F),
        Part(
            "matrices, C (W x W)",
            seconds_of(lambda: C @ problem.products.T),
            2.0 * n * F * P,
            big * (n * F + P * (n + F)),
        ),
        Part(
            "unpacking them",
            seconds_of(lambda: problems.unpacked(C @ problem.products.T, K))
            - seconds_of(lambda: C @ problem.products.T),
            0,
            big * n * (P + K * K),
        ),
        Part("right sides", seconds_of(lambda: T @ W.T), 2.0 * n * F * K, big * (n * F + n * K + F * K)),
        Part(
            f"pivots, {n} problems",
            seconds_of(lambda: quadratic_programmes._pivot_on_gpu(M, b, 1e-8)),
            2.0 * n * K * K * K,
            big * n * (K * K + 2 * K),
        ),
        Part(
            "statistics, C' (H x H)",
            seconds_of(lambda: torch.addmm(A, C.T, Hs.T)),
            2.0 * n * F * P,
            big * (n * F + n * P + 2 * F * P),
        ),
        kernel(F, 20, per_feature, A[:, :K].contiguous(), torch.maximum(v, low)),
    ]


def _targets(problem: DeviceProblem, Y: Any) -> Any:
    slope, C = problem.model(Y)
    return C * Y - slope


def sparse_parts(n: int, F: int, K: int, entries: int, steps: int = 20) -> list[Part]:
    """Time a chunk of n samples with that many entries each, as em learns from it."""
    draw = torch.Generator("cuda").manual_seed(0)
    columns = torch.rand((2 * n, F), generator=draw, device="cuda").topk(entries, dim=1).indices.sort(dim=1).values
    starts = torch.arange(0, 2 * n * entries + 1, entries, device="cuda")
    values = 1 + torch.poisson(torch.ones(2 * n * entries, device="cuda"), generator=draw)
    stored = DeviceRows(values, (2 * n, F), starts=starts, columns=columns.ravel().int(), longest=entries)
    some = torch.arange(0, 2 * n, 2, device="cuda")
    X, m, big = stored.entries(some), n * entries, 4.0
    Wt, H = (torch.rand(shape, generator=draw, device="cuda") for shape in ((F, K), (n, K)))
    mass, made = Wt.sum(dim=0), MultiplicativeSteps(1.0, 0.0, 0.0, 1e-8, 1e8, steps)
    gathered = big * m * (K + 2)  # components, or coefficients, that mostly lie in the cache
    return [
        Part("sorting entries by features", seconds_of(lambda: torch.sort(X.columns, stable=True)), 0, 32.0 * m),
        Part(
            f"{steps} multiplicative steps",
            seconds_of(lambda: made.made(X, Wt, mass, H)),
            4.0 * steps * m * K,
            steps * gathered,
        ),
        Part("sums over entries by features", seconds_of(lambda: X.summed(X.values, H)), 2.0 * m * K, gathered),
    ]


def sparse_table(n: int, F: int, K: int, entries: int) -> list[str]:
    """Return the table as Markdown."""
    return _table(sparse_parts(n, F, K, entries), f"{n} samples with {entries} of F = {F} entries, K = {K}")


def table(n: int, F: int, K: int) -> list[str]:
    """Return the table as Markdown."""
    return _table(parts(n, F, K), f"{n} samples, F = {F}, K = {K}")


def _table(found: list[Part], chunk: str) -> list[str]:
    bandwidth, rate = ceilings()
    lines = [
        f"Ceilings: {bandwidth / 1e12:.2f} TB/s copied, {rate / 1e12:.1f} TFLOP/s in single-precision products. "
        f"A chunk of {chunk}.",
        "",
        "| part | microseconds | of the bandwidth | of the arithmetic |",
        "|---|---|---|---|",
    ]
    for part in found:
        moved, done = part.moved / part.seconds / bandwidth, part.operations / part.seconds / rate
        lines.append(f"| {part.name} | {1e6 * part.seconds:.0f} | {100 * moved:.0f} % | {100 * done:.0f} % |")
    return lines
