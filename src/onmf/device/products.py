"""Products over many terms on tensor cores: TF32, whose numbers have eleven bits, summed in single precision.

The matrices of quadratic models are sums over all features, or over all samples of a chunk. The rounding of their terms
is as often up as down, and what is left of it in a sum of a thousand is about 1e-5 of the sum: less than samples have
of noise. Where there are few terms, or the device has no tensor cores, products are plain.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # ``placing`` says so where it is needed
    triton = None

MANY = 256  # terms
TENSOR_CORES = 8  # the compute capability from which on they take TF32
TILE = {"ROWS": 128, "COLUMNS": 128, "TERMS": 32, "num_warps": 8, "num_stages": 3}


def summed_product(A: Any, B: Any) -> Any:
    """A @ B, (m, terms) times (terms, p); each is read fastest along its terms."""
    if not A.is_cuda or A.dtype != torch.float32 or A.shape[1] < MANY or not _has_tensor_cores(A.device):
        return A @ B
    out = torch.empty((A.shape[0], B.shape[1]), dtype=A.dtype, device=A.device)
    if not out.numel():
        return out
    grid = triton.cdiv(A.shape[0], TILE["ROWS"]), triton.cdiv(B.shape[1], TILE["COLUMNS"])
    with torch.cuda.device(A.device):
        _kernel[grid](A, B, out, *out.shape, A.shape[1], *A.stride(), *B.stride(), **TILE)
    return out


def _has_tensor_cores(device: Any) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= TENSOR_CORES


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _kernel(  # type: ignore[no-untyped-def] # pragma: no cover - runs on a GPU
        A,
        B,
        out,
        M,
        N,
        D,
        a_m,
        a_d,
        b_d,
        b_n,
        ROWS: tl.constexpr,
        COLUMNS: tl.constexpr,
        TERMS: tl.constexpr,
    ):
        m = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        n = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
        for first in range(0, D, TERMS):
            d = first + tl.arange(0, TERMS)
            a = tl.load(A + m[:, None] * a_m + d[None, :] * a_d, mask=(m < M)[:, None] & (d < D)[None, :], other=0.0)
            b = tl.load(B + d[:, None] * b_d + n[None, :] * b_n, mask=(d < D)[:, None] & (n < N)[None, :], other=0.0)
            total = tl.dot(a, b, total, input_precision="tf32")
        tl.store(out + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
