"""The same quadratic programmes, min over x >= low of x'Ax / 2 - b'x, solved by principal pivots, to the end.

With z = x - low and the slopes w = q + A z, q = A low - b, the minimum has z >= 0, w >= 0 and z'w = 0: a linear
complementarity problem. A pivot p = M_kk exchanges z_k and w_k in the table M, at first A, by

    M_ij - a_i M_kj   and   q_i - a_i q_k      with a_i = M_ik / p,  a_k = 1 + 1 / p  and, on the right, p - 1 for M_kk

As long as a variable that should not be negative is, the most negative one is exchanged. About as many pivots as there
are coefficients above the bound are enough, where coordinate descent takes hundreds of sweeps if atoms are alike.

On a GPU a problem's table lies in the registers of one program. Tables too large for them are left to coordinate
descent. What rounding leaves, a few sweeps of it mend.
"""

from __future__ import annotations

from typing import Any

import torch

from onmf.device.descent import bound, descend

try:
    import triton
    import triton.language as tl
except ImportError:  # ``placing`` says so where it is needed
    triton = None

LARGEST = 128  # K of a table that fits
PIVOTS = 3  # times K at most
SINGULAR = 1e-5  # a pivot below, relative to the diagonal, has no digits left
NEGATIVE = 1e-6  # of the largest slope at the start
POLISH, PLAIN = 2, 200  # sweeps after the pivots, and without them


def solve(A: Any, b: Any, x: Any, low: float, high: Any, polish: bool = True) -> Any:
    """The minima (P, K); A is (P, K, K), or (1, K, K) for all. Without pivots, x is where to begin.

    Upper bounds are met by clipping, and by what coordinate descent makes of it, if there is ``polish``.
    """
    K = b.shape[1]
    if K > LARGEST:
        return descend(A, b, x, low, high, PLAIN)
    A, b = A.contiguous(), b.contiguous()
    found = _on_gpu(A, b, low) if b.is_cuda else _plainly(A, b, low)
    found = torch.minimum(found, bound(high, found))
    return descend(A, b, found, low, high, POLISH) if polish else found


def _plainly(A: Any, b: Any, low: float) -> Any:
    P, K = b.shape
    diagonal = torch.diagonal(A, dim1=1, dim2=2)
    roots = torch.rsqrt(diagonal.clamp(min=torch.finfo(b.dtype).tiny)) * (diagonal > 0)  # every table has ones there
    M = (A * roots[:, :, None] * roots[:, None, :]).expand(P, K, K).clone()
    roots = roots.expand(P, K)
    q = (low * A.sum(dim=2) - b) * roots
    usable, basic = roots > 0, torch.zeros((P, K), dtype=torch.bool)
    least = -NEGATIVE * q.abs().amax(dim=1)
    problems = torch.arange(P)
    for _ in range(PIVOTS * K):
        value, k = (q * usable).min(dim=1)
        going = value < least
        if not going.any():
            break
        row, column = M[problems, k].clone(), M[problems, :, k]
        pivot = row[problems, k].clone()
        good = going & (pivot >= SINGULAR)
        inverse = (good / pivot.clamp(min=SINGULAR)).to(b.dtype)
        usable[problems, k] &= ~(going & ~good)
        change = inverse[:, None] * column
        change[problems, k] = good + inverse
        row[problems, k] = pivot - 1
        M = M - change[:, :, None] * row[:, None, :]
        q = q - change * value[:, None]
        basic[problems, k] ^= good
    return low + q.clamp(min=0) * basic * roots


def _on_gpu(A: Any, b: Any, low: float) -> Any:
    P, K = b.shape
    x = torch.empty_like(b)
    if not P:
        return x
    block = max(16, triton.next_power_of_2(K))
    with torch.cuda.device(x.device):
        _kernel[(P,)](
            *(A, b, x, low, K, PIVOTS * K, K * K if len(A) > 1 else 0),
            BLOCK=block,
            SINGULAR=SINGULAR,
            NEGATIVE=NEGATIVE,
            num_warps={16: 1, 32: 1, 64: 1, 128: 4}[block],
        )
    return x


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
        A, b, x, low, K, most, a_p, BLOCK: tl.constexpr, SINGULAR: tl.constexpr, NEGATIVE: tl.constexpr
    ):
        p = tl.program_id(0).to(tl.int64)
        j = tl.arange(0, BLOCK)
        rows, columns = j[:, None], j[None, :]
        M = tl.load(A + p * a_p + rows * K + columns, mask=(rows < K) & (columns < K), other=0.0)
        right = tl.load(b + p * K + j, mask=j < K, other=0.0)
        diagonal = tl.sum(tl.where(rows == columns, M, 0.0), axis=1)
        roots = tl.where(diagonal > 0, 1.0 / tl.sqrt(tl.where(diagonal > 0, diagonal, 1.0)), 0.0)
        q = (low * tl.sum(M, axis=1) - right) * roots
        across = tl.sum(tl.where(rows == columns, roots[:, None], 0.0), axis=0)
        M = M * roots[:, None] * across[None, :]
        sign = tl.where(j < BLOCK, 1.0, 0.0)  # -1: exchanged
        usable = tl.where(roots > 0, 1.0, 0.0)
        least = -NEGATIVE * tl.max(tl.abs(q), axis=0)
        value = tl.min(q * usable, axis=0)
        count = 0
        while value < least:
            k = tl.argmin(q * usable, axis=0)
            row = tl.sum(M * tl.where(j == k, 1.0, 0.0)[:, None], axis=0)
            pivot = tl.sum(tl.where(j == k, row, 0.0), axis=0)
            # The table is symmetric but for the signs of what was exchanged.
            column = row * sign * tl.sum(tl.where(j == k, sign, 0.0), axis=0)
            inverse = tl.where(pivot >= SINGULAR, 1.0 / pivot, 0.0)
            change = tl.where(j == k, 1.0 + inverse, column * inverse) * tl.where(pivot >= SINGULAR, 1.0, 0.0)
            M -= change[:, None] * tl.where(j == k, pivot - 1.0, row)[None, :]
            q -= change * value
            sign = tl.where(j == k, tl.where(pivot >= SINGULAR, -sign, sign), sign)
            usable = tl.where(j == k, tl.where(pivot >= SINGULAR, usable, 0.0), usable)
            count += 1
            value = tl.where(count < most, tl.min(q * usable, axis=0), 0.0)
        tl.store(x + p * K + j, low + tl.where(sign < 0, tl.maximum(q, 0.0), 0.0) * roots, mask=j < K)
