"""Recordings as power spectrograms: every frame is one row of powers |STFT|^2 (soundfile)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, numbered, reading
from onmf.data.files import matching, named
from onmf.data.registry import register

SUFFIXES = (".wav", ".flac", ".ogg", ".aiff", ".aif", ".mp3", ".opus")


class Spectrogram(Sequential):
    """Frames of ``window`` samples, ``hop`` apart, under a Hann window; channels are averaged first.

    Several recordings, all of one sample rate, follow each other; no frame reaches from one into the next.
    """

    def __init__(self, paths: list[Path], window: int, hop: int) -> None:
        self.n_features = count_frequencies(window, hop)
        self.where, self.window, self.hop = paths[0], window, hop
        self.chosen = {"hop": hop}
        self.rows_in = dict.fromkeys(paths, 0)
        rate = channels = 0
        for path in paths:
            try:
                with opened(path) as file:
                    found, length, channels = file.samplerate, file.frames, max(channels, file.channels)
            except SourceError as error:
                self.bad[path] = error  # reported when it is reached
                continue
            rate = rate or found
            self.rows_in[path] = max(0, 1 + (length - window) // hop)
            if found != rate:
                raise SourceError(
                    f"{path} has {found} samples per second, those before it have {rate}; resample one of them."
                )
        if len(self.bad) == len(paths):
            raise self.bad[paths[0]]
        self.n_samples = sum(self.rows_in.values())
        if not self.n_samples:
            raise SourceError(f"{paths[0]} is shorter than one window of {window} samples; give a smaller window.")
        # Of a frame: it is cut out, shaped, transformed and squared, and its frequencies have names.
        self.row_bytes = 64 * window + 16 * hop * channels
        self.fitting(1)
        self.feature_names = frequencies(rate, window)

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        return numbered(self._blocks(size, on_bad))

    def _blocks(self, size: int, on_bad: OnBad | None) -> Iterator[npt.NDArray[Any]]:
        for path in self.rows_in:
            if path not in self.bad:
                yield from self._spectra(path, size)
            elif on_bad is None:
                raise self.bad[path]
            else:
                on_bad(self.bad[path])

    def _spectra(self, path: Path, size: int) -> Iterator[npt.NDArray[Any]]:
        from scipy.signal import get_window  # takes a while to import

        shape = get_window("hann", self.window)
        wanted = (size - 1) * self.hop + self.window
        sound, found = np.empty(0), 0
        with opened(path) as file:
            while True:
                with reading(path, "to the end"):
                    block = file.read(wanted - len(sound), always_2d=True)
                sound = np.concatenate([sound, block.mean(axis=1)])
                if len(sound) < self.window:
                    break
                frames = np.lib.stride_tricks.sliding_window_view(sound, self.window)[:: self.hop]
                found += len(frames)
                yield np.square(np.abs(scipy.fft.rfft(frames * shape, axis=1)))
                sound = sound[len(frames) * self.hop :]
        if found < self.rows_in[path]:
            raise SourceError(f"{path} ends after {found} frames, but its header announced {self.rows_in[path]}.")


def count_frequencies(window: int, hop: int) -> int:
    """Return the number of features of frames of this length."""
    if window < 2 or not 1 <= hop <= window:
        raise SourceError(f"the window must be at least 2 and the hop from 1 to the window, got {window} and {hop}.")
    return window // 2 + 1


@register(
    "audio",
    SUFFIXES,
    takes=["folders", "patterns"],
    needs="soundfile",
    extra="audio",
    feature_options=["window", "hop"],
    count_features=count_frequencies,
)
def recordings(path: Path, window: int = 1024, hop: int | None = None) -> Source:
    """Open a recording, or all those in a folder or matching a pattern such as ``songs/*.flac``."""
    paths = matching(path, SUFFIXES)
    source = Spectrogram(paths, window, window // 2 if hop is None else hop)
    source.files = None if path.is_file() else named(path, paths)
    return source


def frequencies(rate: float, window: int) -> list[str]:
    """Return the names of the features, as in ``440 Hz``."""
    return [f"{k * rate / window:.6g} Hz" for k in range(window // 2 + 1)]


def opened(path: Path) -> Any:
    """Open a recording for reading."""
    import soundfile

    with reading(path, "as sound"):
        return soundfile.SoundFile(path)
