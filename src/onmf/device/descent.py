"""Coordinate descent on many small quadratic programmes, min over low <= x <= high of x'Ax / 2 - b'x, side by side.

On a GPU it is a kernel in Triton, a problem per program: its x lies in registers, and its matrix is read row by row.
Elsewhere it is a plain loop.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # ``placing`` says so where it is needed
    triton = None

WARP = 128  # entries of x that one warp of threads holds well


def descend(A: Any, b: Any, x: Any, low: Any, high: Any, sweeps: int, first: int = 0) -> Any:
    """x (P, K) after so many sweeps over its coordinates from the first on.

    A is (P, K, K) or, if all problems share it, (1, K, K); the bounds are numbers or tensors that broadcast to x.
    Coordinates without curvature stay.
    """
    diagonal = torch.diagonal(A, dim1=1, dim2=2)
    inverse = (1 / diagonal.clamp(min=torch.finfo(x.dtype).tiny) * (diagonal > 0)).contiguous()
    x, b, A = x.clone(memory_format=torch.contiguous_format), b.contiguous(), A.contiguous()
    low, high = (bound(each, x) for each in (low, high))
    if x.is_cuda:
        return _on_gpu(A, b, inverse, x, low, high, sweeps, first)
    return _plainly(A, b, inverse, x, low, high, sweeps, first)


def bound(given: Any, x: Any) -> Any:
    """One per coordinate; a number is written by the device itself, so that nobody waits for it to be sent."""
    if isinstance(given, torch.Tensor):
        return given.expand_as(x)
    return torch.full((), given, dtype=x.dtype, device=x.device).expand_as(x)


def _plainly(A: Any, b: Any, inverse: Any, x: Any, low: Any, high: Any, sweeps: int, first: int) -> Any:
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


def _on_gpu(A: Any, b: Any, inverse: Any, x: Any, low: Any, high: Any, sweeps: int, first: int) -> Any:
    P, K = x.shape
    if not P or first >= K:
        return x
    block = triton.next_power_of_2(K)
    each = int(len(A) > 1)  # or one matrix for all
    with torch.cuda.device(x.device):
        _kernel[(P,)](
            *(A, b, inverse, x, low, high, K, first, sweeps),
            *(each * K * K, each * K, *low.stride(), *high.stride()),
            BLOCK=block,
            num_warps=max(1, min(8, block // WARP)),
        )
    return x


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
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
