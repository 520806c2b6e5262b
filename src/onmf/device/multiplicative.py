"""Multiplicative steps of the alpha family for the coefficients of sparse samples, as ``kernels.multiplicative``.

On a GPU all steps of a sample are one program of a kernel in Triton: its coefficients stay in registers, and the atoms
at its entries are read anew in every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from onmf.device.entries import BLOCK, Entries, sums, width

try:
    import triton
    import triton.language as tl
except ImportError:  # ``placing`` says so where it is needed
    triton = None


@dataclass(frozen=True)
class Steps:
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
        """The coefficients after them, from H (n, K), and their fits at the entries.

        Wt is (F, K), and ``mass`` the sums of its columns.
        """
        return self._on_gpu(X, Wt, mass, H) if H.is_cuda else self._plainly(X, Wt, mass, H)

    def _plainly(self, X: Entries, Wt: Any, mass: Any, H: Any) -> tuple[Any, Any]:
        atoms = Wt[X.columns]
        for _ in range(self.count):
            ratio = (X.values / (atoms * H[X.rows]).sum(dim=1)) ** self.order
            pull = self.l2 * H
            below = mass + self.l1 + pull
            factor = (sums(X.starts, X.columns, ratio, Wt) / below) ** (below / (self.order * below + pull))
            H = torch.clamp(H * factor, self.low, self.high)
        return H, (atoms * H[X.rows]).sum(dim=1)

    def _on_gpu(self, X: Entries, Wt: Any, mass: Any, H: Any) -> tuple[Any, Any]:
        H, fits, K = H.clone(memory_format=torch.contiguous_format), torch.empty_like(X.values), H.shape[1]
        if len(H):
            with torch.cuda.device(H.device):
                _kernel[(len(H),)](
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
    def _kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
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
