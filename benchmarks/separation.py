"""Separation with fixed components: how much better two sources are heard apart if one of them was learnt alone.

    python -m benchmarks.separation

Two planted sources, instruments of five harmonic notes each, in registers of their own or in the same one; their
short-time Fourier coefficients are complex Gaussian with variances HW. The components of the first are learnt from its
solo, and kept (``fixed=``) while as many are learnt beside them from a mixture of both. The fixed components' share of
the fit is the mask that gives the first source back, the rest is the second. Itakura-Saito, whose noise this is, and
beta = 0.5 see powers, the others magnitudes, as is usual for them. Improvements of the signal-to-distortion ratio over
the mixture itself, in dB, the mean of both sources; masks made of the true variances show the best that any could do.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onmf import OnlineNMF
from onmf._support.arrays import Array

COMPONENTS, FREQUENCIES, FRAMES = 5, 128, 1500
REGISTERS = {
    "own registers": ((5.0, 8.0), (9.0, 15.0)),
    "the same register": ((5.0, 15.0), (5.0, 15.0)),
}  # lowest peaks
POWERS = {"is": 2, "beta:0.5": 2, "kl": 1, "hellinger": 1, "huber": 1, "squared_l2": 1}  # of the magnitudes
SEEDS = 5


@dataclass(frozen=True)
class Mixture:
    """A solo of the first source, and both sources, which sound together: complex coefficients, and true variances."""

    solo: Array
    sources: Array  # (2, n, F)
    variances: Array

    @cached_property
    def sound(self) -> Array:
        """The mixture."""
        mixed: Array = self.sources.sum(axis=0)
        return mixed

    def ratio(self, share: Array | float) -> float:
        """The mean signal-to-distortion ratio of both sources if the first one is that share of the mixture."""
        estimates = np.stack([share * self.sound, (1 - share) * self.sound])
        return _ratio(self.sources, estimates)

    @property
    def ratio_before(self) -> float:
        """That of the mixture, taken for either source."""
        return _ratio(self.sources, np.stack([self.sound, self.sound]))


def planted(seed: int, registers: str = "own registers", frames: int = FRAMES) -> Mixture:
    """A note sounds in about a third of the frames."""
    rng = np.random.default_rng(seed)

    def played(W: Array) -> Array:
        return (rng.gamma(1.0, 1.0, (frames, COMPONENTS)) * (rng.random((frames, COMPONENTS)) < 1 / 3) + 1e-4) @ W

    def sounds(variances: Array) -> Array:
        return np.sqrt(variances / 2) * (rng.normal(size=variances.shape) + 1j * rng.normal(size=variances.shape))

    instruments = [_harmonic_spectra(rng.uniform(*register, COMPONENTS)) for register in REGISTERS[registers]]
    variances = np.stack([played(W) for W in instruments])
    return Mixture(sounds(played(instruments[0])), sounds(variances), variances)


def share_of_known(mixed: Mixture, divergence: str) -> Array:
    """What of the mixture the first source is, by components that were learnt from its solo."""
    power = POWERS[divergence]
    X, solo = np.abs(mixed.sound) ** power, np.abs(mixed.solo) ** power
    alone = OnlineNMF(COMPONENTS, divergence=divergence, max_passes=5, random_state=0).fit(solo)
    both = OnlineNMF(2 * COMPONENTS, divergence=divergence, fixed=alone.components_, max_passes=5, random_state=0).fit(
        X
    )
    H, W = both.transform(X), both.components_
    share: Array = H[:, :COMPONENTS] @ W[:COMPONENTS] / (H @ W)
    return share


def main() -> None:
    """Print the improvements."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")
    print("| registers | divergence | mean improvement | of each seed |\n|---|---|---|---|")
    for registers in REGISTERS:
        _print_rows(registers)


def _print_rows(registers: str) -> None:
    mixtures = [planted(seed, registers) for seed in range(SEEDS)]
    before = np.array([mixed.ratio_before for mixed in mixtures])
    best = np.array([mixed.ratio(mixed.variances[0] / mixed.variances.sum(axis=0)) for mixed in mixtures]) - before
    for divergence in POWERS:
        gains = np.array([mixed.ratio(share_of_known(mixed, divergence)) for mixed in mixtures]) - before
        print(f"| {registers} | {divergence} | {gains.mean():.1f} | {_listed(gains)} |")
    print(f"| {registers} | true variances | {best.mean():.1f} | {_listed(best)} |")


def _harmonic_spectra(pitches: Array) -> Array:
    """Combs of peaks that fall off with frequency, above a little noise."""
    f, peaks = np.arange(FREQUENCIES), np.arange(1, 27)[:, None]
    return np.array([(np.exp(-0.5 * np.square(f - p * peaks)) * 0.8**peaks).sum(axis=0) + 1e-3 for p in pitches])


def _ratio(sources: Array, estimates: Array) -> float:
    signal, distortion = (np.square(np.abs(a)).sum(axis=(1, 2)) for a in (sources, sources - estimates))
    return float(np.mean(10 * np.log10(signal / distortion)))


def _listed(numbers: Array) -> str:
    return ", ".join(f"{number:.1f}" for number in numbers)


if __name__ == "__main__":
    main()
