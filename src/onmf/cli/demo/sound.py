"""Draw the third page of the demo: a tune of known notes, and the notes that Itakura-Saito finds in its spectrogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from onmf import OnlineNMF
from onmf._support.arrays import Array, Counts, Mask
from onmf.cli.terminal import console
from onmf.insight.features import decibels
from onmf.plots import new_figure
from onmf.plots.drawing import VERMILION, heat, ridges

RATE, WINDOW, HOP = 8000, 1024, 256
BEAT, RELEASE, ATTACK, DECAY = 0.3, 0.1, 0.02, 3.0  # seconds, and per second
HARMONICS = 8
HISS = 0.03  # the standard deviation of the noise; a note's first harmonic has the amplitude 1
SILENCE = 1e-4  # a power far below the noise: no entry is next to zero, where Itakura-Saito is infinite
COOLING = {"kl": 5, "beta:0.5": 5, "is": 20}  # the passes under each
HEARD = 25.0  # dB below its loudest moment a note still counts as sounding: notes fade by 16 dB, then are let go
NOTES = {"C3": 130.81, "G3": 196.0, "C4": 261.63, "D4": 293.66, "E4": 329.63, "F4": 349.23, "G4": 392.0}  # Hz
MELODY = "E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 E4 D4 D4 . E4 E4 F4 G4 G4 F4 E4 D4 C4 C4 D4 E4 D4 C4 C4 ."
BASS = "C3 G3 C3 G3 . C3 G3 . C3 . G3 C3 . G3 . C3"  # of two beats each
Score = list[tuple[str, float, float]]  # name, beginning and length of every note


def score() -> Score:
    """Return the Ode to Joy, and a bass that makes two notes sound at a time."""
    melody = [(name, BEAT * beat, BEAT) for beat, name in enumerate(MELODY.split()) if name != "."]
    bass = [(name, 2 * BEAT * bar, 2 * BEAT) for bar, name in enumerate(BASS.split()) if name != "."]
    return melody + bass


def played(notes: Score, rng: np.random.Generator) -> Array:
    """Play notes whose harmonics fade together, with a little noise over all."""
    sound = HISS * rng.normal(size=int(RATE * (max(begins + lasts for _, begins, lasts in notes) + 2 * RELEASE)))
    for name, begins, lasts in notes:
        t = np.arange(int(RATE * (lasts + RELEASE))) / RATE
        loudness = np.minimum(t / ATTACK, 1) * np.clip((lasts + RELEASE - t) / RELEASE, 0, 1) * np.exp(-DECAY * t)
        tone = sum(k**-1.2 * np.sin(2 * np.pi * NOTES[name] * k * t) for k in range(1, HARMONICS + 1))
        start = int(begins * RATE)
        sound[start : start + len(t)] += loudness * tone
    return sound


def spectrogram(sound: Array) -> Array:
    """Return powers of frames as rows, as ``onmf fit song.wav`` reads them, plus a tiny constant."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
    return np.square(np.abs(np.fft.rfft(frames * np.hanning(WINDOW), axis=1))) + SILENCE


@dataclass(frozen=True, eq=False)
class SoundPage:
    """Components, one per note from the lowest, then the rest: spectra (K, F), and their part of the frames (n, K)."""

    spectra: Array
    powers: Array
    frequencies: Array  # of the notes' components, where each is largest
    truth: Mask  # (n, notes): which sound at the middle of a frame, be it fading

    @property
    def right(self) -> float:
        """Return the share of notes and frames in which a note is heard exactly if it is played."""
        powers = self.powers[:, : len(NOTES)]
        heard = powers > powers.max(axis=0) * 10 ** (-HEARD / 10)
        return float((heard == self.truth).mean())


def learn(seed: int) -> SoundPage:
    """Learn spectra under Itakura-Saito, one per note and one for the noise, without knowing the notes.

    Itakura-Saito has many local minima. Kullback-Leibler, which hears loud harmonics first, and a divergence between
    them lead to a good one: ten seeds of ten find all notes; otherwise, one run in six does.
    """
    notes = score()
    X = spectrogram(played(notes, np.random.default_rng(seed)))
    start: Any = "kmeans++"
    for divergence, passes in COOLING.items():
        model = OnlineNMF(len(NOTES) + 1, divergence=divergence, init=start, max_passes=passes, random_state=seed)
        start = model.fit(X).components_
    W, powers = model.components_, model.transform(X) * model.components_.sum(axis=1)
    peaks = W.argmax(axis=1) * RATE / WINDOW
    order = _in_order(peaks)
    middle = (np.arange(len(X)) * HOP + WINDOW / 2) / RATE
    sounds = {name: np.zeros(len(X), dtype=bool) for name in NOTES}
    for name, begins, lasts in notes:
        sounds[name] |= (middle >= begins) & (middle < begins + lasts + RELEASE)
    return SoundPage(W[order], powers[:, order], peaks[order][: len(NOTES)], np.column_stack(list(sounds.values())))


def _in_order(peaks: Array) -> Counts:
    """Return the components matched to the notes by their largest frequencies, then those that are left."""
    apart = np.abs(np.log(np.maximum(peaks, 1.0))[None] - np.log(list(NOTES.values()))[:, None])
    matched = linear_sum_assignment(apart)[1]
    return np.append(matched, np.setdiff1d(np.arange(len(peaks)), matched)).astype(np.int64)


def figure(learnt: SoundPage) -> Any:
    """Draw the spectra on the left; on the right when they sound, with the notes of the score as frames around it."""
    from matplotlib.patches import Rectangle

    drawn = new_figure(11.0, 5.0)
    left, right = drawn.subplots(1, 2, width_ratios=(2, 3))
    names = [*NOTES, "noise"]
    upwards = np.arange(len(names))[::-1]  # the highest note on top, the noise below all: roll it to the end
    upwards = np.append(upwards[1:], upwards[0])
    places = {names[k]: place for place, k in enumerate(upwards)}
    shown = learnt.spectra[upwards, : WINDOW // 4]
    ridges(left, decibels(shown, shown.max(axis=1, keepdims=True)), np.arange(shown.shape[1]) * RATE / WINDOW)
    left.set_yticks(range(len(names)), list(places))
    left.set(xlabel="frequency (Hz)", title="what was learnt: a spectrum per note")
    seconds = (np.arange(len(learnt.powers)) * HOP + WINDOW / 2) / RATE
    heat(right, decibels(learnt.powers.T[upwards], learnt.powers.max()), seconds, "dB below the largest")
    for name, begins, lasts in score():
        right.add_patch(
            Rectangle((begins, places[name] - 0.42), lasts, 0.84, fill=False, edgecolor=VERMILION, linewidth=1.1)
        )
    right.set_yticks(range(len(names)), list(places))
    right.set(xlabel="seconds", title="when each sounds (shades), and the score (frames)")
    drawn.suptitle("A tune from its spectrogram, learnt under Itakura–Saito without a word about notes", fontsize=12)
    return drawn


def draw(seed: int) -> Any:
    """Learn the notes, say how many were found, and return their picture."""
    learnt = learn(seed)
    console.print(
        f"A tune of {len(score())} notes, {len(learnt.powers)} frames: {len(NOTES)} pitches found; whether one sounds "
        f"is right in {learnt.right:.0%} of all cases."
    )
    return figure(learnt)
