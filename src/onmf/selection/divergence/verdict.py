"""From what was measured to a divergence, and the reason in a sentence or two."""

from __future__ import annotations

from dataclasses import dataclass

from onmf.selection.divergence.noise import FAR, FLAT, Growth, Tails

DEFAULT = "kl"  # convex, takes zeros, and lies between the others; it is what the estimators take, too
POWERS = {"squared_l2": 0.0, "huber": 0.0, "l1": 0.0, "kl": 1.0, "is": 2.0}
NEAR = 0.35  # of a power: the divergence with a name is taken, which is faster than the one between
UNCLEAR = 0.4  # the standard error of a power beyond which it tells nothing
FEW, FEW_PEAKED = 0.005, 0.015  # the share of far entries that makes outliers, as 0.4 % of Laplacian noise lie there
MANY = 0.2
WIDE = 1.15  # times a Gaussian's quartile: then all the noise is heavy-tailed, or the fit is poor; no few outliers


@dataclass(frozen=True)
class Verdict:
    """A divergence, why, whether the data have decided it, and all candidates, the best first."""

    divergence: str
    reason: str
    ranking: tuple[str, ...]
    decided: bool = True


def undecided(cause: str) -> Verdict:
    """The default, if the data do not tell."""
    reason = f"Cannot tell: {cause} {DEFAULT} is the safe choice, being convex and defined at zeros."
    others = tuple(name for name in ("squared_l2", "huber", "l1", "is") if name != DEFAULT)
    return Verdict(DEFAULT, reason, (DEFAULT, *others), decided=False)


def verdict(growth: Growth, tails: Tails | None, zeros: float) -> Verdict:
    """Outliers first, then the power; ``tails`` are None where most entries are zero, and outliers cannot be told."""
    power = f"power {growth.power:.2f} ± {growth.error:.2f}"
    if tails is not None and (found := _robust(tails, growth.power, power)):
        return _ranked(*found, growth.power, zeros)
    if growth.error > UNCLEAR:
        return undecided(f"the means of the entries differ too little to show how the variance grows ({power}).")
    name, reason = _by_power(growth.power, power, zeros)
    if tails is not None and tails.outliers >= FEW:
        reason += (
            f" {100 * tails.outliers:.2g} % of the entries are far from the fit, but the others spread widely, too."
        )
    return _ranked(name, reason, growth.power, zeros)


def _robust(tails: Tails, power: float, measured: str) -> tuple[str, str] | None:
    """What outliers, or noise with a Laplacian's tails, call for."""
    peaked = tails.peak > 0.5
    far = f"{100 * tails.outliers:.2g} % of the entries lie more than {FAR:.0f} standard deviations from a low-rank fit"
    if tails.outliers >= MANY:
        return "l1", f"{far}: so many outliers that only the size of a residual should count, not its square."
    few = tails.outliers >= (FEW_PEAKED if peaked else FEW)
    if few and (power < FLAT or tails.width < WIDE):
        return "huber", f"{far}, where noise alone has none: a few outliers, whose influence Huber's loss bounds."
    if power < FLAT and peaked:
        return "l1", (
            f"The variance of the noise does not grow with the mean ({measured}), and its tails are those of a "
            "Laplacian rather than a Gaussian distribution."
        )
    return None


def _by_power(power: float, measured: str, zeros: float) -> tuple[str, str]:
    if power <= NEAR:
        how = "does not grow with the mean" if power > -NEAR else "falls where the mean grows, if anything"
        return "squared_l2", f"The variance of the noise {how} ({measured}), as that of additive Gaussian noise."
    if abs(power - 1) <= NEAR:
        return "kl", f"The variance of the noise grows in proportion to the mean ({measured}), as that of counts does."
    if power < 2 - NEAR:
        low, high = ("squared_l2 (0)", "kl (1)") if power < 1 else ("kl (1)", "is (2)")
        beta = f"beta:{2 - power:.1f}"
        return beta, f"The variance of the noise grows as the mean to a power between {low} and {high} ({measured})."
    grows = f"The variance of the noise grows with the square of the mean ({measured}): the noise is multiplicative"
    if zeros:
        return "beta:0.5", (
            f"{grows}, which is what is stands for; but {100 * zeros:.2g} % of the entries are zero, where is is not "
            "defined, and beta:0.5 is close to it and takes zeros."
        )
    return "is", f"{grows}, as in power spectra, and loud and quiet count alike."


def _ranked(divergence: str, reason: str, power: float, zeros: float) -> Verdict:
    """The others by how near their power is; is comes last if there are zeros."""
    robust = divergence in ("huber", "l1")
    ties = ("huber", "l1", "squared_l2") if robust else ("squared_l2", "huber", "l1")
    order = sorted((*ties, "kl", "is"), key=lambda name: (name == "is" and zeros > 0, abs(POWERS[name] - power)))
    return Verdict(divergence, reason, (divergence, *(name for name in order if name != divergence)))
