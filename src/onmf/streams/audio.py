"""Recordings as power spectrograms: every frame is one row of powers |STFT|^2 (soundfile, scipy)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft
import scipy.signal

from onmf.streams.base import Source, SourceError, numbered, rebatch, require

SUFFIXES = {".wav", ".flac", ".ogg", ".aiff", ".aif", ".mp3", ".opus"}


class Spectrogram(Source):
    """Frames of ``window`` samples, ``hop`` apart, under a Hann window; channels are averaged first."""

    def __init__(self, path: Path, window: int = 1024, hop: int | None = None) -> None:
        hop = window // 2 if hop is None else hop
        if window < 2 or not 1 <= hop <= window:
            msg = f"{path}: the window must be at least 2 and the hop from 1 to the window, got {window} and {hop}."
            raise SourceError(msg)
        self.path, self.window, self.hop = path, window, hop
        self.library = require("soundfile", "audio")
        with self._opened() as file:
            length, rate = file.frames, file.samplerate
        self.n_features = window // 2 + 1
        self.n_samples = 1 + (length - window) // hop if length >= window else 0
        if not self.n_samples:
            msg = f"{path} has {length} samples, fewer than one window of {window}."
            raise SourceError(msg)
        self.feature_names = [f"{k * rate / window:.6g} Hz" for k in range(self.n_features)]

    def batches(self, size: int, rng: np.random.Generator | None = None) -> Iterator[tuple[npt.NDArray[Any], Any]]:
        """Frames in the order of time."""
        del rng
        return numbered(rebatch(self._blocks(size), size))

    def _blocks(self, size: int) -> Iterator[npt.NDArray[Any]]:
        shape = scipy.signal.get_window("hann", self.window)
        wanted = (size - 1) * self.hop + self.window
        with self._opened() as file:
            sound = np.empty(0)
            while True:
                try:
                    block = file.read(wanted - len(sound), always_2d=True)
                except RuntimeError as error:
                    msg = f"{self.path} could not be read on: {error}"
                    raise SourceError(msg) from None
                sound = np.concatenate([sound, block.mean(axis=1)])
                if len(sound) < self.window:
                    return
                frames = np.lib.stride_tricks.sliding_window_view(sound, self.window)[:: self.hop]
                yield np.square(np.abs(scipy.fft.rfft(frames * shape, axis=1)))
                sound = sound[len(frames) * self.hop :]

    def _opened(self) -> Any:
        try:
            return self.library.SoundFile(self.path)
        except RuntimeError as error:  # soundfile's own errors are among these
            msg = f"{self.path} cannot be read as sound: {error}"
            raise SourceError(msg) from None
