"""Two instruments heard apart by ``onmf.separate``, blindly and with the notes of one of them fixed.

    python -m benchmarks.instruments

A synthesised piano and a synthesised clarinet, equally loud, play random notes of overlapping registers. Blindly, eight
components are learnt from the mixture, and each part is given to the instrument that it resembles more. With fixed
components, five are learnt from another piece that the piano plays alone, and kept while four are learnt beside them.
SI-SDR in dB, the mean of both instruments; that of the mixture is 0.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
import soundfile

from onmf import DomainWarning, OnlineNMF, separate
from onmf._support.arrays import Array
from onmf.data import open_source

RATE, SECONDS, MIXTURES = 16000, 12.0, 5
PIANO, CLARINET = (261.6, 329.6, 392.0, 523.3), (220.0, 293.7, 349.2)


def struck(pitch: float, seconds: float, rng: np.random.Generator) -> Array:
    """Harmonics a little too high, the higher the sooner gone."""
    t, sound = np.arange(int(seconds * RATE)) / RATE, 0.0
    for k in range(1, 20):
        frequency = k * pitch * np.sqrt(1 + 4e-4 * k * k)
        if frequency < RATE / 2:
            wave = np.sin(2 * np.pi * frequency * t + rng.uniform(0, 2 * np.pi))
            sound = sound + 0.75**k * np.exp(-(1.5 + 0.6 * k) * t) * wave
    return np.asarray(sound)


def blown(pitch: float, seconds: float, rng: np.random.Generator) -> Array:
    """Odd harmonics above all, with a vibrato."""
    t, sound = np.arange(int(seconds * RATE)) / RATE, 0.0
    for k in range(1, 20):
        if k * pitch < RATE / 2:
            phase = 0.02 * k * np.sin(10 * np.pi * t) + rng.uniform(0, 2 * np.pi)
            sound = sound + (1 if k % 2 else 0.15) / k * np.sin(2 * np.pi * k * pitch * t + phase)
    return np.asarray(sound * np.clip(np.minimum(t / 0.05, (seconds - t) / 0.08), 0, 1))


def played(seed: int) -> tuple[Array, Array]:
    """Piano and clarinet."""
    rng = np.random.default_rng(seed)
    found = []
    for note, pitches, every, first, lasts in ((struck, PIANO, 0.5, 0.0, 0.9), (blown, CLARINET, 0.8, 0.13, 0.75)):
        sound = np.zeros(int(SECONDS * RATE))
        for start in np.arange(first, SECONDS, every):
            place = sound[int(start * RATE) :]
            heard = note(rng.choice(pitches), lasts, rng)[: len(place)]
            place[: len(heard)] += heard
        found.append(0.1 * sound / sound.std())
    return found[0], found[1]


def ratio(true: Array, found: Array) -> float:
    """SI-SDR."""
    part = (true @ found) / (true @ true) * true
    return float(10 * np.log10(np.square(part).sum() / np.square(found - part).sum()))


def learnt(sound: Array, folder: Path, components: int, passes: int, fixed: Array | None = None) -> OnlineNMF:
    """A model of a recording of it."""
    soundfile.write(folder / "sound.wav", sound, RATE, subtype="DOUBLE")
    model = OnlineNMF(components, divergence="is", max_passes=passes, random_state=0, fixed=fixed)
    return model.fit(open_source(f"{folder / 'sound.wav'}?window=1024&hop=512"))


def main() -> None:
    """Print a table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore", DomainWarning)  # between notes there is silence
    print("| components | passes | mean | of each mixture |\n|---|---|---|---|")
    for passes in (5, 20):
        blind, fixed = [], []
        for seed in range(MIXTURES):
            piano, clarinet = played(seed)
            mixture = piano + clarinet
            with tempfile.TemporaryDirectory() as place:
                parts = separate(learnt(mixture, Path(place), 8, passes), mixture, RATE)
                its = parts @ piano / (piano @ piano) > parts @ clarinet / (clarinet @ clarinet)
                heard = parts[its].sum(axis=0), parts[~its].sum(axis=0)
                blind.append((ratio(piano, heard[0]) + ratio(clarinet, heard[1])) / 2)
                notes = learnt(played(seed + 100)[0], Path(place), 5, passes).components_
                model = learnt(mixture, Path(place), 9, passes, notes)
                heard = separate(model, mixture, RATE, groups="fixed")
                fixed.append((ratio(piano, heard[0]) + ratio(clarinet, heard[1])) / 2)
        for name, found in (("8, learnt blindly", blind), ("9, of which 5 are fixed", fixed)):
            print(f"| {name} | {passes} | {np.mean(found):.1f} | {', '.join(f'{each:.1f}' for each in found)} |")


if __name__ == "__main__":
    main()
