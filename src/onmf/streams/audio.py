"""Recordings as power spectrograms: every frame is one row of powers |STFT|^2 (soundfile, scipy)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft
import scipy.signal

from onmf.streams.base import Source, SourceError, matching, numbered, recut, require

SUFFIXES = {".wav", ".flac", ".ogg", ".aiff", ".aif", ".mp3", ".opus"}


class Spectrogram(Source):
    """Frames of ``window`` samples, ``hop`` apart, under a Hann window; channels are averaged first.

    Several recordings, of one sample rate, follow each other; no frame reaches from one into the next.
    """

    def __init__(self, paths: list[Path], window: int = 1024, hop: int | None = None) -> None:
        hop = window // 2 if hop is None else hop
        if window < 2 or not 1 <= hop <= window:
            raise SourceError(
                f"the window must be at least 2 and the hop from 1 to the window, got {window} and {hop}."
            )
        self.paths, self.window, self.hop = paths, window, hop
        self.library = require("soundfile", "audio")
        rates = {}
        self.frames = {}
        for path in paths:
            with self._opened(path) as file:
                rates[path], length = file.samplerate, file.frames
            self.frames[path] = 1 + (length - window) // hop if length >= window else 0
            if rates[path] != rates[paths[0]]:
                raise SourceError(
                    f"{path} has {rates[path]} samples a second, {paths[0]} {rates[paths[0]]}; resample one of them."
                )
        self.n_features = window // 2 + 1
        self.n_samples = sum(self.frames.values())
        if not self.n_samples:
            raise SourceError(f"{paths[0]} has fewer samples than one window of {window}.")
        self.feature_names = [f"{k * rates[paths[0]] / window:.6g} Hz" for k in range(self.n_features)]

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Frames in the order of time, file after file."""
        return recut(numbered(block for path in self.paths for block in self._blocks(path, size)), size)

    def _blocks(self, path: Path, size: int) -> Iterator[npt.NDArray[Any]]:
        shape = scipy.signal.get_window("hann", self.window)
        wanted = (size - 1) * self.hop + self.window
        sound, found = np.empty(0), 0
        with self._opened(path) as file:
            while True:
                try:
                    block = file.read(wanted - len(sound), always_2d=True)
                except RuntimeError as error:
                    raise SourceError(f"{path} could not be read on: {error}") from None
                sound = np.concatenate([sound, block.mean(axis=1)])
                if len(sound) < self.window:
                    break
                frames = np.lib.stride_tricks.sliding_window_view(sound, self.window)[:: self.hop]
                found += len(frames)
                yield np.square(np.abs(scipy.fft.rfft(frames * shape, axis=1)))
                sound = sound[len(frames) * self.hop :]
        if found < self.frames[path]:
            raise SourceError(f"{path} ends after {found} frames; its header promises {self.frames[path]}.")

    def _opened(self, path: Path) -> Any:
        try:
            return self.library.SoundFile(path)
        except RuntimeError as error:  # soundfile's own errors are among these
            raise SourceError(f"{path} cannot be read as sound: {error}") from None


def sounds(where: str | Path, window: int = 1024, hop: int | None = None) -> Source:
    """A recording, those of a folder, or those that a pattern such as ``songs/*.flac`` matches."""
    return Spectrogram(matching(where, SUFFIXES, "recordings"), window, hop)
