"""The compiled parts of an interior-point method for least absolute deviations; see ``coefficients.interior_point``.

One row per sample. ``state`` (n, 4, F) holds u, t, s, o: the residual is u - t, the dual variable a is 1 - s = o - 1.
``bounds`` (n, 4, K) holds q, p, z, v: the distances of the coefficients from their lower and upper bounds, and the
multipliers of these bounds. All are positive. ``work`` (5, n, F) is what one part hands to the next.
"""

from __future__ import annotations

import numpy as np

from onmf._support.arrays import Array
from onmf.coefficients.kernels.compiled import VECTOR_SUMS, kernel

FAST = VECTOR_SUMS | {"nnan"}  # maxima in any order, too; the order within a row is always the same
SHARE = 0.9995  # of the way to the boundary


@kernel("nF nF* n4F* 5nF* 2n*", error_model="numpy", fastmath=FAST)
def measure(X: Array, Y: Array, state: Array, work: Array, sums: Array) -> None:
    """Take x - y for the residual, and let ``sums`` become sum |r| and sum a x of every row.

    work[0] becomes r, work[1] the weights d = 1 / (u/s + t/o), work[2] a + d r, and Y becomes a.
    """
    n, F = X.shape
    zero, half = X.dtype.type(0.0), X.dtype.type(0.5)
    for i in range(n):
        x, y = X[i], Y[i]
        u, t, s, o = state[i, 0], state[i, 1], state[i, 2], state[i, 3]
        r, d, right = work[0, i], work[1, i], work[2, i]
        size, dual = zero, zero
        for f in range(F):
            e = min(u[f], t[f])
            rf = x[f] - y[f]
            plus = max(rf, zero) + e
            minus = max(-rf, zero) + e
            a = half * (o[f] - s[f])
            df = s[f] * o[f] / (plus * o[f] + minus * s[f])
            r[f], d[f], right[f], y[f] = rf, df, a + df * rf, a
            u[f], t[f] = plus, minus
            size += abs(rf)
            dual += a * x[f]
        sums[0, i], sums[1, i] = size, dual


@kernel("nP* n4K nK", error_model="numpy", fastmath=FAST)
def factor(M: Array, bounds: Array, l2: Array, relative: float) -> None:
    """Add z/q + v/p + l2 to the diagonals of the packed M, and replace M by its Cholesky factors U, M = U'U.

    Row by row, four earlier rows at a time; instead of the diagonal of U its inverse is kept. A pivot of which less
    than ``relative`` is left counts as zero.
    """
    n, K = l2.shape
    U = np.zeros((K, K), dtype=M.dtype)
    for i in range(n):
        packed = M[i]
        q, p, z, v = bounds[i, 0], bounds[i, 1], bounds[i, 2], bounds[i, 3]
        first = 0
        for j in range(K):
            row = U[j]
            for k in range(j, K):
                row[k] = packed[first + k - j]
            row[j] += z[j] / q[j] + v[j] / p[j] + l2[i, j]
            least = relative * row[j]
            m = 0
            while m + 4 <= j:
                a, b, c, d = U[m, j], U[m + 1, j], U[m + 2, j], U[m + 3, j]
                for k in range(j, K):
                    row[k] -= a * U[m, k] + b * U[m + 1, k] + c * U[m + 2, k] + d * U[m + 3, k]
                m += 4
            while m < j:
                a = U[m, j]
                for k in range(j, K):
                    row[k] -= a * U[m, k]
                m += 1
            # Where only rounding is left of a pivot, the component depends on those before it and does not move.
            inverse = 1 / np.sqrt(row[j]) if row[j] > least else least - least
            for k in range(j, K):
                row[k] *= inverse
                packed[first + k - j] = row[k]
            packed[first] = inverse
            first += K - j


@kernel("nP nK*", fastmath=FAST)
def solve_factored(M: Array, B: Array) -> None:
    """Solve the factored systems M for the right-hand sides B, in place."""
    n, K = B.shape
    for i in range(n):
        packed, b = M[i], B[i]
        first = 0
        for j in range(K):
            x = b[j] * packed[first]
            b[j] = x
            for k in range(j + 1, K):
                b[k] -= x * packed[first + k - j]
            first += K - j
        for j in range(K - 1, -1, -1):
            first -= K - j
            x = b[j]
            for k in range(j + 1, K):
                x -= packed[first + k - j] * b[k]
            b[j] = x * packed[first]


@kernel("nF* 5nF* n4F n4K nK n2K*", error_model="numpy", fastmath=FAST)
def predict(P: Array, work: Array, state: Array, bounds: Array, dq: Array, extra: Array, joint: bool) -> None:
    """Make Mehrotra's predictor: find how far dq and its fit P = dq W lead, and what they neglect.

    P becomes a + d (r - k), the corrector's right-hand side over the features, and ``extra`` what the bounds add. With
    ``joint`` the primal and the dual step have the same length.
    """
    n, F = P.shape
    K = dq.shape[1]
    zero, half, one, pairs = P.dtype.type(0.0), P.dtype.type(0.5), P.dtype.type(1.0), P.dtype.type(2 * (F + K))
    for i in range(n):
        u, t, s, o = state[i, 0], state[i, 1], state[i, 2], state[i, 3]
        q, p, z, v = bounds[i, 0], bounds[i, 1], bounds[i, 2], bounds[i, 3]
        r, d, right, k1, k2 = work[0, i], work[1, i], work[2, i], work[3, i], work[4, i]
        g, x, dz, dv = P[i], dq[i], extra[i, 0], extra[i, 1]
        primal, dual = one, one  # inverse step lengths
        now, along, across, both = zero, zero, zero, zero  # sum u s + t o + q z + p v after steps of any lengths
        for f in range(F):
            a = d[f] * (r[f] - g[f])
            a1, a2 = a / s[f], a / o[f]
            du, dt = u[f] * (a1 - one), -t[f] * (a2 + one)
            primal = max(primal, max(one - a1, one + a2))
            dual = max(dual, max(a1, -a2))
            k1[f], k2[f] = du * a1, -dt * a2
            now += u[f] * s[f] + t[f] * o[f]
            along += du * s[f] + dt * o[f]
            across += a * (t[f] - u[f])
            both += a * (dt - du)
        for k in range(K):
            b1, b2 = x[k] / q[k], x[k] / p[k]
            dz[k], dv[k] = -z[k] * (one + b1), v[k] * (b2 - one)
            primal = max(primal, max(-b1, b2))
            dual = max(dual, max(one + b1, one - b2))
            now += q[k] * z[k] + p[k] * v[k]
            along += x[k] * (z[k] - v[k])
            across += q[k] * dz[k] + p[k] * dv[k]
            both += x[k] * (dz[k] - dv[k])
        if joint:
            primal = max(primal, dual)
            dual = primal
        ratio = max(now + along / primal + across / dual + both / (primal * dual), zero) / now
        mu = ratio * ratio * ratio * now / pairs
        for f in range(F):
            k1[f] += mu / s[f]
            k2[f] += mu / o[f]
            right[f] = d[f] * (r[f] - k1[f] + k2[f])
            g[f] = half * (o[f] - s[f]) + right[f]
        for k in range(K):
            dz[k] = (mu - x[k] * dz[k]) / q[k]
            dv[k] = (mu + x[k] * dv[k]) / p[k]


@kernel("nF* 5nF* n4F* n4K* nK n2K*", error_model="numpy", fastmath=FAST)
def advance(
    P: Array, work: Array, state: Array, bounds: Array, dq: Array, extra: Array, joint: bool, least: float
) -> None:
    """Make the corrected step dq, whose fit is P = dq W, as far as the boundary allows, in place in state and bounds.

    Nothing falls below ``least``.
    """
    n, F = P.shape
    K = dq.shape[1]
    one, share = P.dtype.type(1.0), P.dtype.type(SHARE)
    for i in range(n):
        u, t, s, o = state[i, 0], state[i, 1], state[i, 2], state[i, 3]
        q, p, z, v = bounds[i, 0], bounds[i, 1], bounds[i, 2], bounds[i, 3]
        d, right, du, dt = work[1, i], work[2, i], work[3, i], work[4, i]
        da, x, dz, dv = P[i], dq[i], extra[i, 0], extra[i, 1]
        primal, dual = share, share
        for f in range(F):
            a = right[f] - d[f] * da[f]
            da[f] = a
            a1, a2 = a / s[f], a / o[f]
            du[f] += u[f] * (a1 - one)
            dt[f] -= t[f] * (a2 + one)
            primal = max(primal, max(-du[f] / u[f], -dt[f] / t[f]))
            dual = max(dual, max(a1, -a2))
        for k in range(K):
            b1, b2 = x[k] / q[k], x[k] / p[k]
            dz[k] -= z[k] * (one + b1)
            dv[k] += v[k] * (b2 - one)
            primal = max(primal, max(-b1, b2))
            dual = max(dual, max(-dz[k] / z[k], -dv[k] / v[k]))
        if joint:
            primal = max(primal, dual)
            dual = primal
        A, B = share / primal, share / dual
        for f in range(F):
            u[f] = max(u[f] + A * du[f], least)
            t[f] = max(t[f] + A * dt[f], least)
            s[f] = max(s[f] - B * da[f], least)
            o[f] = max(o[f] + B * da[f], least)
        for k in range(K):
            q[k] = max(q[k] + A * x[k], least)
            p[k] = max(p[k] - A * x[k], least)
            z[k] = max(z[k] + B * dz[k], least)
            v[k] = max(v[k] + B * dv[k], least)
