"""How long do the coefficients of sound take under Itakura-Saito, and which samples do not converge?

    python -m benchmarks.sound_coefficients

An orchestra is synthesised: eight voices of decaying harmonics with vibrato, attacks and rests, soft and loud passages,
a little noise, silence and fades. Its power spectra (frames of 2048 samples, 512 apart, at 22 kHz) are taken after a
steep low-pass filter, and after Ogg Vorbis and back (soundfile): both leave entries that are 1e-9 to 1e-24 of the mean
without being zero. So does the piano recording of ONMF_DATA, if there is one, at another sample rate after Ogg Vorbis.
Seconds are those of one processor. Prints the table of docs/decisions/0001-coefficients.md.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import time
import warnings
from collections.abc import Iterator

import numpy as np
import scipy.fft
import scipy.io
import scipy.signal
import soundfile
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from onmf import OnlineNMF
from onmf._support.arrays import Array

RATE, SECONDS, WINDOW = 22_050, 46.0, 2048
VOICES, PITCHES = 8, (0, 2, 3, 5, 7, 8, 11, 12)  # semitones of a scale
K = 8


def orchestra(rng: np.random.Generator) -> Array:
    """The waveform."""
    t = np.arange(int(SECONDS * RATE)) / RATE
    sound = np.zeros_like(t)
    for voice in range(VOICES):
        decay, rate, depth = rng.uniform(0.6, 0.9), rng.uniform(4, 6), rng.uniform(0.001, 0.006)
        begins = 0.4
        while begins < SECONDS - 2.5:
            length = rng.choice([0.25, 0.5, 0.5, 1.0, 2.0])
            if rng.random() < 0.8:  # else a rest
                pitch = 55 * 2 ** (voice / 2.2 + rng.choice(PITCHES) / 12)
                now = slice(int(begins * RATE), int((begins + length + 0.4) * RATE))
                s = t[now] - begins
                shape = np.minimum(s / 0.03, 1) * np.exp(-s * rng.uniform(0.3, 2) - 25 * np.maximum(s - length, 0))
                phase = 2 * np.pi * pitch * (s + depth / rate * np.sin(2 * np.pi * rate * s))
                loudness = 10 ** rng.uniform(-1.5, 0)
                for k in range(1, int(min(40, 9000 / pitch))):
                    sound[now] += loudness * shape * decay**k * np.sin(k * phase + k * k)
            begins += length
    sound *= 10 ** np.interp(t, np.linspace(0, SECONDS, 12), rng.uniform(-1.2, 0, 12))
    sound += 1e-3 * np.abs(sound).max() * rng.normal(size=len(t))
    sound *= np.interp(t, [0.3, 0.5, SECONDS - 3, SECONDS - 0.8], [0, 1, 1, 0])
    return 0.7 * sound / np.abs(sound).max()


def low_pass(sound: Array) -> Array:
    """Without what is above 7.8 kHz."""
    return np.convolve(sound, scipy.signal.firwin(511, 7800, fs=RATE, window=("kaiser", 18.0)), "same")


def vorbis(sound: Array) -> Array:
    """Encoded and decoded."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, 1, format="OGG", subtype="VORBIS") as ogg:
        for first in range(0, len(sound), RATE):  # longer pieces can crash the encoder
            ogg.write(sound[first : first + RATE])
    file.seek(0)
    return soundfile.read(file)[0]


def spectra(sound: Array, hop: int) -> Array:
    """As onmf.data.audio makes them."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::hop]
    return np.square(np.abs(scipy.fft.rfft(frames * scipy.signal.get_window("hann", WINDOW), axis=1)))


def sounds() -> Iterator[tuple[str, Array]]:
    """Names and power spectrograms."""
    sound = orchestra(np.random.default_rng(0))
    yield "orchestra, low-pass", spectra(low_pass(sound), 512)
    yield "orchestra, Vorbis", spectra(vorbis(sound), 512)
    if os.environ.get("ONMF_DATA"):
        from benchmarks.data_sets import PIANO

        x = scipy.io.loadmat(PIANO.path(None, "piano_Mary.mat"))["x"].ravel()
        x = scipy.signal.resample(x, int(len(x) * RATE / 16_000))
        yield "piano, Vorbis", spectra(vorbis(0.7 * x / np.abs(x).max()), 64)


def main() -> None:
    """Run and print."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    print("| sound | frames | below 1e-9 of the mean | fit, s | transform, s | not converged | loss |")
    print("|---|---|---|---|---|---|---|")
    for name, X in sounds():
        with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
            warnings.simplefilter("always")
            OnlineNMF(K, divergence="is", random_state=0).fit(X[:300]).transform(X[:300])  # compiles
            caught.clear()
            started = time.process_time()
            model = OnlineNMF(K, divergence="is", random_state=0, max_passes=3).fit(X)
            fitted = time.process_time()
            model.transform(X)
            solved = time.process_time()
            told = [str(each.message) for each in caught if issubclass(each.category, ConvergenceWarning)]
            unsolved = re.findall("[0-9]+", told[0])[0] if told else 0
            negligible = np.mean(X / X.mean() < 1e-9)
            print(
                f"| {name} | {len(X)} | {negligible:.1%} | {fitted - started:.2f} "
                f"| {solved - fitted:.2f} | {unsolved} | {model.loss(X):.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
