"""The entries of a chunk of sparse samples: weighted sums over them, and multiplicative steps of the coefficients.

On a GPU a sum is one program of a kernel in Triton, which adds its terms in the order in which they lie: the same
entries give the same bits. All steps of a sample are one program, too: its coefficients stay in registers, and the
components at its entries are read anew in every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from onmf._support.threads import cached_property

try:
    import triton
    import triton.language as tl
except ImportError:  # ``choose_device`` says so where it is needed
    triton = None

BLOCK = 512  # numbers that a program has before it at a time


@dataclass(frozen=True, eq=False)
class Entries:
    """The stored entries of samples (n, F), sorted by rows."""

    values: Any  # (m,)
    columns: Any
    rows: Any
    starts: Any  # of the rows: (n + 1,)
    shape: tuple[int, int]

    @classmethod
    def of_rows(cls, values: Any, columns: Any, starts: Any, some: Any, shape: tuple[int, int]) -> Entries:
        """Return the entries of some of the compressed rows of a matrix of this shape."""
        first = starts[:-1][some]
        lengths = starts[1:][some] - first
        begins = torch.cat([torch.zeros_like(lengths[:1]), torch.cumsum(lengths, 0)])
        n, m = len(some), int(begins[-1])
        rows = torch.repeat_interleave(torch.arange(n, device=some.device), lengths, output_size=m)
        place = torch.arange(m, device=some.device) + (first - begins[:-1])[rows]
        return cls(values[place], columns[place].long(), rows, begins, (n, shape[1]))

    @classmethod
    def of_dense(cls, X: Any) -> Entries:
        """Return the entries of X (n, F) that are not zero."""
        rows, columns = torch.nonzero(X, as_tuple=True)
        starts = torch.searchsorted(rows, torch.arange(X.shape[0] + 1, device=X.device))
        return cls(X[rows, columns], columns, rows, starts, (X.shape[0], X.shape[1]))

    @cached_property
    def _by_features(self) -> tuple[Any, Any]:
        """The places of the entries, those of the first feature first, and where each feature's start."""
        columns, order = torch.sort(self.columns, stable=True)
        return order, torch.searchsorted(columns, torch.arange(self.shape[1] + 1, device=columns.device))

    def summed(self, values: Any, H: Any) -> Any:
        """Return V'H (F, K) of a V that has these values where the entries are."""
        order, starts = self._by_features
        return sums(starts, self.rows[order], values[order], H)

    @cached_property
    def totals(self) -> Any:
        """The sums of the samples: (n,)."""
        one = torch.ones((1, 1), dtype=self.values.dtype, device=self.values.device)
        return sums(self.starts, torch.zeros_like(self.rows), self.values, one)[:, 0]


def sums(starts: Any, places: Any, values: Any, V: Any) -> Any:
    """Return the sums of v V_p over the values v and places p from a start to the next: (len(starts) - 1, K)."""
    out = torch.empty((len(starts) - 1, V.shape[1]), dtype=V.dtype, device=V.device)
    V = V.contiguous()
    if V.is_cuda:
        return _sums_on_gpu(starts, places, values, V, out)
    to = torch.repeat_interleave(torch.arange(len(out)), torch.diff(starts))
    return out.zero_().index_add_(0, to, values[:, None] * V[places])


def width(K: int) -> int:
    """Return the width of the block that holds K numbers."""
    return int(triton.next_power_of_2(K))


def _sums_on_gpu(starts: Any, places: Any, values: Any, V: Any, out: Any) -> Any:
    K = V.shape[1]
    if len(out):
        with torch.cuda.device(V.device):
            _sum_kernel[(len(out),)](
                *(starts, places, values, V, out, K),
                WIDTH=width(K),
                STEP=max(1, BLOCK // width(K)),
                num_warps=1,
            )
    return out


@dataclass(frozen=True)
class MultiplicativeSteps:
    """h <- h (sum_f W_kf (x_f / y_f)^order / b_k)^(1/order), ``count`` times, within bounds.

    b_k = mass_k + l2 h_k + l1, the last two being ``order`` times the penalty's; the share s of l2 in b_k makes the
    exponent 1 / (order + s).
    """

    order: float
    l1: float
    l2: float
    low: float
    high: float
    count: int

    def made(self, X: Entries, Wt: Any, mass: Any, H: Any) -> tuple[Any, Any]:
        """Return the coefficients after the steps, from H (n, K), and their fits at the entries.

        Wt is (F, K), and ``mass`` the sums of its columns.
        """
        return self._on_gpu(X, Wt, mass, H) if H.is_cuda else self._plainly(X, Wt, mass, H)

    def _plainly(self, X: Entries, Wt: Any, mass: Any, H: Any) -> tuple[Any, Any]:
        weights = Wt[X.columns]
        for _ in range(self.count):
            ratio = (X.values / (weights * H[X.rows]).sum(dim=1)) ** self.order
            pull = self.l2 * H
            below = mass + self.l1 + pull
            factor = (sums(X.starts, X.columns, ratio, Wt) / below) ** (below / (self.order * below + pull))
            H = torch.clamp(H * factor, self.low, self.high)
        return H, (weights * H[X.rows]).sum(dim=1)

    def _on_gpu(self, X: Entries, Wt: Any, mass: Any, H: Any) -> tuple[Any, Any]:
        H, fits, K = H.clone(memory_format=torch.contiguous_format), torch.empty_like(X.values), H.shape[1]
        if len(H):
            with torch.cuda.device(H.device):
                _step_kernel[(len(H),)](
                    *(X.starts, X.columns, X.values, Wt.contiguous(), mass, H, fits),
                    *(self.l1, self.l2, self.low, self.high, self.count, K),
                    ORDER=self.order,
                    PLAIN=self.order == 1 and not self.l2,
                    WIDTH=width(K),
                    STEP=max(1, BLOCK // width(K)),
                    num_warps=1,
                )
        return H, fits


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _sum_kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
        starts, places, values, V, out, K, WIDTH: tl.constexpr, STEP: tl.constexpr
    ):
        r = tl.program_id(0).to(tl.int64)
        first, last = tl.load(starts + r), tl.load(starts + r + 1)
        k = tl.arange(0, WIDTH)
        total = tl.zeros((STEP, WIDTH), dtype=out.dtype.element_ty)
        for start in range(first, last, STEP):
            i = start + tl.arange(0, STEP)
            value = tl.load(values + i, mask=i < last, other=0.0)
            place = tl.load(places + i, mask=i < last, other=0).to(tl.int64)
            part = tl.load(V + place[:, None] * K + k[None, :], mask=(i < last)[:, None] & (k < K)[None, :], other=0.0)
            total += value[:, None] * part
        tl.store(out + r * K + k, tl.sum(total, axis=0), mask=k < K)

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _step_kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
        starts,
        columns,
        values,
        Wt,
        mass,
        H,
        fits,
        l1,
        l2,
        low,
        high,
        count,
        K,
        ORDER: tl.constexpr,
        PLAIN: tl.constexpr,
        WIDTH: tl.constexpr,
        STEP: tl.constexpr,
    ):
        n = tl.program_id(0).to(tl.int64)
        first, last = tl.load(starts + n), tl.load(starts + n + 1)
        k = tl.arange(0, WIDTH)
        h = tl.load(H + n * K + k, mask=k < K, other=0.0)
        size = tl.load(mass + k, mask=k < K, other=1.0)
        for _ in range(count):
            total = tl.zeros((STEP, WIDTH), dtype=h.dtype)
            for start in range(first, last, STEP):
                i = start + tl.arange(0, STEP)
                x = tl.load(values + i, mask=i < last, other=0.0)
                f = tl.load(columns + i, mask=i < last, other=0).to(tl.int64)
                w = tl.load(Wt + f[:, None] * K + k[None, :], mask=(i < last)[:, None] & (k < K)[None, :], other=0.0)
                y = tl.sum(w * h[None, :], axis=1)
                ratio = x / tl.where(i < last, y, 1.0)
                if not PLAIN:
                    ratio = tl.where(ratio > 0, tl.exp(ORDER * tl.log(tl.where(ratio > 0, ratio, 1.0))), 0.0)
                total += ratio[:, None] * w
            above = tl.sum(total, axis=0)
            pull = l2 * h
            below = size + l1 + pull
            factor = above / below
            if not PLAIN:
                power = below / (ORDER * below + pull)
                factor = tl.where(factor > 0, tl.exp(power * tl.log(tl.where(factor > 0, factor, 1.0))), 0.0)
            h = tl.minimum(tl.maximum(h * factor, low), high)
        tl.store(H + n * K + k, h, mask=k < K)
        h = tl.where(k < K, h, 0.0)
        for start in range(first, last, STEP):
            i = start + tl.arange(0, STEP)
            f = tl.load(columns + i, mask=i < last, other=0).to(tl.int64)
            w = tl.load(Wt + f[:, None] * K + k[None, :], mask=(i < last)[:, None] & (k < K)[None, :], other=0.0)
            tl.store(fits + i, tl.sum(w * h[None, :], axis=1), mask=i < last)
