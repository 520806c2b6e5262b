"""The entries of a chunk of sparse samples, row by row and feature by feature, and weighted sums over them.

On a GPU a sum is one program of a kernel in Triton, which adds its terms in the order in which they lie: the same
entries give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # ``placing`` says so where it is needed
    triton = None

BLOCK = 512  # numbers that a program has before it at a time


@dataclass(frozen=True, eq=False)
class Entries:
    """Those that are stored of samples (n, F), sorted by rows."""

    values: Any  # (m,)
    columns: Any
    rows: Any
    starts: Any  # of the rows: (n + 1,)
    shape: tuple[int, int]

    @classmethod
    def of_rows(cls, values: Any, columns: Any, starts: Any, some: Any, shape: tuple[int, int]) -> Entries:
        """Those of some of the compressed rows of a matrix of this shape."""
        first = starts[:-1][some]
        lengths = starts[1:][some] - first
        begins = torch.cat([torch.zeros_like(lengths[:1]), torch.cumsum(lengths, 0)])
        n, m = len(some), int(begins[-1])
        rows = torch.repeat_interleave(torch.arange(n, device=some.device), lengths, output_size=m)
        place = torch.arange(m, device=some.device) + (first - begins[:-1])[rows]
        return cls(values[place], columns[place].long(), rows, begins, (n, shape[1]))

    @classmethod
    def of_dense(cls, X: Any) -> Entries:
        """The entries of X (n, F) that are not zero."""
        rows, columns = torch.nonzero(X, as_tuple=True)
        starts = torch.searchsorted(rows, torch.arange(X.shape[0] + 1, device=X.device))
        return cls(X[rows, columns], columns, rows, starts, (X.shape[0], X.shape[1]))

    @cached_property
    def _by_features(self) -> tuple[Any, Any]:
        """Where the entries of the first feature are, of the second and so on, and the starts of these."""
        columns, order = torch.sort(self.columns, stable=True)
        return order, torch.searchsorted(columns, torch.arange(self.shape[1] + 1, device=columns.device))

    def summed(self, values: Any, H: Any) -> Any:
        """V'H (F, K) of a V that has these values where the entries are."""
        order, starts = self._by_features
        return sums(starts, self.rows[order], values[order], H)

    @cached_property
    def totals(self) -> Any:
        """The sum of each sample's: (n,)."""
        one = torch.ones((1, 1), dtype=self.values.dtype, device=self.values.device)
        return sums(self.starts, torch.zeros_like(self.rows), self.values, one)[:, 0]


def sums(starts: Any, places: Any, values: Any, V: Any) -> Any:
    """sum of v V_p over the values v and places p from a start to the next: (len(starts) - 1, K)."""
    out = torch.empty((len(starts) - 1, V.shape[1]), dtype=V.dtype, device=V.device)
    V = V.contiguous()
    if V.is_cuda:
        return _on_gpu(starts, places, values, V, out)
    to = torch.repeat_interleave(torch.arange(len(out)), torch.diff(starts))
    return out.zero_().index_add_(0, to, values[:, None] * V[places])


def width(K: int) -> int:
    """Of the block that holds K numbers."""
    return int(triton.next_power_of_2(K))


def _on_gpu(starts: Any, places: Any, values: Any, V: Any, out: Any) -> Any:
    K = V.shape[1]
    if len(out):
        with torch.cuda.device(V.device):
            _kernel[(len(out),)](
                *(starts, places, values, V, out, K),
                WIDTH=width(K),
                STEP=max(1, BLOCK // width(K)),
                num_warps=1,
            )
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
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
