"""Extended Yale B: faces under changing light, all subjects as they are, and single ones under salt and pepper."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.peers.data.base import Samples, Source, split

WHITE = 255.0
HIT = 0.3  # share of the pixels that salt and pepper replace


@dataclass(frozen=True)
class Faces(Source):
    """All 38 subjects."""

    name: str = "yaleb"
    divergences: tuple[str, ...] = ("squared_l2", "kl")
    real: bool = True

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        """Held-out images are of the same subjects in other light."""
        from reproduction.datasets import matlab

        images = matlab.load_yaleb().images
        if small:
            images = images[:, ::4]
        return Samples(*split(images, rng, 800 if small else None, 250), 10 if small else 60, divergence)


@dataclass(frozen=True)
class SaltAndPepper(Source):
    """Denoising one subject's 64 images, of another subject for every seed.

    With one copy the noisy images are learnt from and rebuilt: they are their own held-out samples. More copies are a
    stream of the same images, each with fresh noise; what is rebuilt then is one more copy.
    """

    name: str = "yaleb_salt"
    copies: int = 1
    divergences: tuple[str, ...] = ("huber",)
    real: bool = True

    def draw(self, divergence: str, small: bool, rng: np.random.Generator) -> Samples:
        """Huber's delta is the library's default without adaptation, the same for all."""
        from reproduction.datasets import matlab

        faces = matlab.load_yaleb()
        clean = faces.images[faces.subjects == rng.choice(np.unique(faces.subjects))]
        if small:
            clean = clean[:, ::4]
        X = np.vstack([_salted(clean, rng) for _ in range(self.copies)])
        held_out = X if self.copies == 1 else _salted(clean, rng)
        return Samples(X, held_out, 40, f"{divergence}:{0.1 * X.mean():.6g}", clean=clean)


def _salted(clean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(clean.shape) < HIT, WHITE * (rng.random(clean.shape) < 0.5), clean)


SETS = (Faces(), SaltAndPepper(), SaltAndPepper("yaleb_salt_stream", copies=32))
