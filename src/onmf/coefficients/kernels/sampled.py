"""Products at the non-zeros of a CSR matrix."""

from __future__ import annotations

from onmf._support.arrays import Array
from onmf.coefficients.kernels.checked import CSR, VECTOR_SUMS, kernel


@kernel("nFm nK FK m*", fastmath=VECTOR_SUMS)
def sampled_product(X: CSR, H: Array, Wt: Array, out: Array, first: int, last: int) -> None:
    """HW at the non-zeros of the rows of X from ``first`` to ``last``."""
    indptr, indices, _, _ = X
    n, K = H.shape
    if not 0 <= first <= last <= n:
        raise ValueError("shapes do not fit: X does not have these rows.")
    for i in range(first, last):
        for p in range(indptr[i], indptr[i + 1]):
            f = indices[p]
            y = H[i, 0] * Wt[f, 0]
            for k in range(1, K):
                y += H[i, k] * Wt[f, k]
            out[p] = y


@kernel("nFm m FK nP*")
def sampled_hessians(X: CSR, C: Array, Wt: Array, out: Array) -> None:
    """out += sum of c w_f w_f' over the entries of each sample, packed; C has a weight c for each of them."""
    indptr, indices, _, _ = X
    K = Wt.shape[1]
    for i in range(len(out)):
        row = out[i]
        for p in range(indptr[i], indptr[i + 1]):
            w = Wt[indices[p]]
            q = 0
            for j in range(K):
                a = C[p] * w[j]
                for k in range(j, K):
                    row[q] += a * w[k]
                    q += 1
