"""phi_p(u) = (u^p - 1 - p (u - 1)) / (p (p - 1)): what the alpha and the beta family have in common.

The alpha-divergence is sum y phi_alpha(x / y), the beta-divergence sum y^beta phi_beta(x / y). Written as
printed, phi loses all digits for p near 0 and 1. With the deformed logarithm

    ln_a(u) = (u^a - 1) / a = expm1(a log u) / a,    ln_0(u) = log u

there are two exact forms, each without cancellation at the limit it contains:

    phi_p(u) = (u ln_{p-1}(u) - u + 1) / p     for p >= 1/2 (p = 1: u log u - u + 1)
    phi_p(u) = (u - 1 - ln_p(u)) / (1 - p)     for p <  1/2 (p = 0: u - 1 - log u)
"""

from typing import Any


def deformed_log(xp: Any, a: float, u: Any) -> Any:
    """Return ln_a(u), continuous in a through 0; u > 0, or u >= 0 when a > 0."""
    log_u = xp.log(xp.where(u > 0, u, 1.0))
    inside = log_u if a == 0 else xp.expm1(a * log_u) / a
    return inside if a <= 0 else xp.where(u > 0, inside, -1.0 / a)


def phi(xp: Any, p: float, u: Any) -> Any:
    """Return phi_p(u) >= 0 for u > 0, or u >= 0 when p > 0; rounding below zero is cut off."""
    if p < 0.5:
        value = (u - 1.0 - deformed_log(xp, p, u)) / (1.0 - p)
    else:
        # At u = 0 the product u ln_{p-1}(u) = (u^p - u)/(p - 1) is 0, also where the logarithm is not.
        safe = xp.where(u > 0, u, 1.0)
        value = (u * deformed_log(xp, p - 1.0, safe) - u + 1.0) / p
    return xp.maximum(value, 0.0)
