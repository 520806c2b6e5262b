"""Many small quadratic programmes, min over low <= x <= high of x'Ax / 2 - b'x, side by side.

``descend`` makes sweeps of coordinate descent. On a GPU it is a kernel in Triton, a problem per program: its x lies in
registers, and its matrix is read row by row. Elsewhere it is a plain loop.

``solve`` makes principal pivots, to the end. With z = x - low and the slopes w = q + A z, q = A low - b, the minimum
has z >= 0, w >= 0 and z'w = 0: a linear complementarity problem. A pivot p = M_kk exchanges z_k and w_k in the table M,
at first A, by

    M_ij - a_i M_kj   and   q_i - a_i q_k      with a_i = M_ik / p,  a_k = 1 + 1 / p  and, on the right, p - 1 for M_kk

As long as a variable that should not be negative is, the most negative one is exchanged. About as many pivots as there
are coefficients above the bound are enough, where coordinate descent takes hundreds of sweeps if components are alike.
On a GPU a problem's table lies in the registers of one program. Tables too large for them are left to coordinate
descent. What rounding leaves, a few sweeps of it mend.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # ``choose_device`` says so where it is needed
    triton = None

WARP = 128  # entries of x that one warp of threads holds well
LARGEST = 128  # K of a table that fits
PIVOTS = 3  # times K at most
SINGULAR = 1e-5  # a pivot below, relative to the diagonal, has no digits left
NEGATIVE = 1e-6  # of the largest slope at the start
POLISH, PLAIN = 2, 200  # sweeps after the pivots, and without them


def descend(A: Any, b: Any, x: Any, low: Any, high: Any, sweeps: int, first: int = 0) -> Any:
    """Return x (P, K) after that many sweeps over its coordinates from the first on.

    A is (P, K, K) or, if all problems share it, (1, K, K); the bounds are numbers or tensors that broadcast to x.
    Coordinates without curvature stay.
    """
    diagonal = torch.diagonal(A, dim1=1, dim2=2)
    inverse = (1 / diagonal.clamp(min=torch.finfo(x.dtype).tiny) * (diagonal > 0)).contiguous()
    x, b, A = x.clone(memory_format=torch.contiguous_format), b.contiguous(), A.contiguous()
    low, high = (bound(each, x) for each in (low, high))
    if x.is_cuda:
        return _descend_on_gpu(A, b, inverse, x, low, high, sweeps, first)
    return _descend_plainly(A, b, inverse, x, low, high, sweeps, first)


def bound(given: Any, x: Any) -> Any:
    """Return one bound per coordinate; the device writes a plain number itself, so that nothing has to be sent."""
    if isinstance(given, torch.Tensor):
        return given.expand_as(x)
    return torch.full((), given, dtype=x.dtype, device=x.device).expand_as(x)


def _descend_plainly(A: Any, b: Any, inverse: Any, x: Any, low: Any, high: Any, sweeps: int, first: int) -> Any:
    A = A.clone()
    torch.diagonal(A, dim1=1, dim2=2).zero_()
    rows = A[0] if len(A) == 1 else A.transpose(0, 1).contiguous()
    moves, least = inverse > 0, torch.finfo(x.dtype).eps
    for _ in range(sweeps):
        before = x.clone()
        for k in range(first, x.shape[1]):
            rest = x @ rows[k] if len(A) == 1 else (rows[k] * x).sum(dim=1)
            new = torch.clamp((b[:, k] - rest) * inverse[:, k], min=low[:, k], max=high[:, k])
            x[:, k] = torch.where(moves[:, k], new, x[:, k])
        if torch.equal(x, before) or float((x - before).abs().max()) <= least * float(x.abs().max()):
            break
    return x


def _descend_on_gpu(A: Any, b: Any, inverse: Any, x: Any, low: Any, high: Any, sweeps: int, first: int) -> Any:
    P, K = x.shape
    if not P or first >= K:
        return x
    block = triton.next_power_of_2(K)
    each = int(len(A) > 1)  # or one matrix for all
    with torch.cuda.device(x.device):
        _descent_kernel[(P,)](
            *(A, b, inverse, x, low, high, K, first, sweeps),
            *(each * K * K, each * K, *low.stride(), *high.stride()),
            BLOCK=block,
            num_warps=max(1, min(8, block // WARP)),
        )
    return x


def solve(A: Any, b: Any, x: Any, low: float, high: Any, polish: bool = True) -> Any:
    """Return the minima (P, K); A is (P, K, K), or (1, K, K) for all. Without pivots, x is where to begin.

    Upper bounds are met by clipping, and by what coordinate descent makes of it, if there is ``polish``.
    """
    K = b.shape[1]
    if K > LARGEST:
        return descend(A, b, x, low, high, PLAIN)
    A, b = A.contiguous(), b.contiguous()
    found = _pivot_on_gpu(A, b, low) if b.is_cuda else _pivot_plainly(A, b, low)
    found = torch.minimum(found, bound(high, found))
    return descend(A, b, found, low, high, POLISH) if polish else found


def _pivot_plainly(A: Any, b: Any, low: float) -> Any:
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


def _pivot_on_gpu(A: Any, b: Any, low: float) -> Any:
    P, K = b.shape
    x = torch.empty_like(b)
    if not P:
        return x
    block = max(16, triton.next_power_of_2(K))
    with torch.cuda.device(x.device):
        _pivoting_kernel[(P,)](
            *(A, b, x, low, K, PIVOTS * K, K * K if len(A) > 1 else 0),
            BLOCK=block,
            SINGULAR=SINGULAR,
            NEGATIVE=NEGATIVE,
            num_warps={16: 1, 32: 1, 64: 1, 128: 4}[block],
        )
    return x


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _descent_kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
        A, b, inverse, x, low, high, K, first, sweeps, a_p, i_p, l_p, l_k, h_p, h_k, BLOCK: tl.constexpr
    ):
        p = tl.program_id(0).to(tl.int64)
        j = tl.arange(0, BLOCK)
        inside = j < K
        A += p * a_p
        v = tl.load(x + p * K + j, mask=inside, other=0.0)
        target = tl.load(b + p * K + j, mask=inside, other=0.0)
        size = tl.load(inverse + p * i_p + j, mask=inside, other=0.0)
        least = tl.load(low + p * l_p + j * l_k, mask=inside, other=0.0)
        most = tl.load(high + p * h_p + j * h_k, mask=inside, other=0.0)
        for _ in range(sweeps):
            row = tl.load(A + first * K + j, mask=inside, other=0.0)
            for k in range(first, K):
                # The next row is on its way while this one is summed up: nothing in it depends on x.
                following = tl.load(A + tl.minimum(k + 1, K - 1) * K + j, mask=inside, other=0.0)
                rest = tl.sum(tl.where(j == k, 0.0, row * v), axis=0)
                # What the coordinate would be, for all of them: to pick one out of registers would be a sum of its own.
                new = tl.minimum(tl.maximum((target - rest) * size, least), most)
                v = tl.where((j == k) & (size > 0), new, v)
                row = following
        tl.store(x + p * K + j, v, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _pivoting_kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
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
