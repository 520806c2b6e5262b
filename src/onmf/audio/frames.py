"""From sound to the spectra of overlapping frames and back, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import scipy.fft

from onmf._support.arrays import Array

BLOCK = 2**21  # numbers that a block of frames takes, or the sound of all that is made of it: 16 MiB
Complex = npt.NDArray[np.complex128]


class Frames:
    """Frames under a Hann window, as the source of sound makes them, and the sound of their spectra.

    Frames begin at the multiples of ``hop``; so that the first and the last sample lie in as many of them as all others
    do, some begin before the sound and some end after it, where there is silence. Spectra become sound by weighted
    overlap-add: each is windowed once more, their sum is divided by that of the squared windows. Frames must overlap by
    half at least, since a sample at the edge of a single frame is multiplied by next to nothing and cannot be found
    again; a longer hop is halved until they do.
    """

    def __init__(self, window: int, hop: int) -> None:
        from scipy.signal import get_window  # takes a while to import

        while 2 * hop > window:
            hop //= 2
        self.window, self.hop = window, hop
        self.before = -(-window // hop) - 1  # frames that a sample lies in, besides the one that begins last
        self.shape: Array = get_window("hann", window)
        padded = np.zeros((self.before + 1) * hop)
        padded[:window] = np.square(self.shape)
        self.weight: Array = padded.reshape(-1, hop).sum(axis=0)  # of the samples between two beginnings

    def spectra(self, blocks: Iterable[Array], parts: int = 1) -> Iterator[Complex]:
        """Of the frames of a sound that comes in blocks (samples, channels): (frames, channels, frequencies).

        So few of them at a time that so many ``parts`` made of them need little memory.
        """
        waiting: Array | None = None
        most = 1
        for block in blocks:
            if waiting is None:
                waiting = np.zeros((self.before * self.hop, block.shape[1]))
                most = max(1, BLOCK // (max(self.window, parts * self.hop) * block.shape[1]))
            waiting = np.concatenate([waiting, block])
            while len(waiting) >= (most - 1) * self.hop + self.window:
                yield self._transformed(waiting, most)
                waiting = waiting[most * self.hop :]
        while waiting is not None and len(waiting):
            frames = min(most, -(-len(waiting) // self.hop))
            silence = max(0, (frames - 1) * self.hop + self.window - len(waiting))
            yield self._transformed(np.pad(waiting, ((0, silence), (0, 0))), frames)
            waiting = waiting[frames * self.hop :]

    def _transformed(self, sound: Array, frames: int) -> Complex:
        cut = np.lib.stride_tricks.sliding_window_view(sound, self.window, axis=0)[: frames * self.hop : self.hop]
        found: Complex = scipy.fft.rfft(cut * self.shape, axis=2)
        return found


class Overlapping:
    """The sound of spectra that come block by block; what later frames add to is kept until they have come."""

    def __init__(self, frames: Frames) -> None:
        self.frames, self.silent = frames, frames.before  # so many hops come before the sound
        self.tail: Array | None = None

    def add(self, spectra: Complex) -> Array:
        """The sound (samples, channels) that no later frame reaches; at the end as much as to complete a hop."""
        window, hop, before = self.frames.window, self.frames.hop, self.frames.before
        count, channels, _ = spectra.shape
        cut = np.zeros((count, (before + 1) * hop, channels))
        cut[:, :window] = (scipy.fft.irfft(spectra, window, axis=2) * self.frames.shape).transpose(0, 2, 1)
        pieces = cut.reshape(count, before + 1, hop, channels)
        sound = np.zeros((count + before, hop, channels))
        if self.tail is not None:
            sound[:before] = self.tail
        for place in range(before + 1):
            sound[place : place + count] += pieces[:, place]
        self.tail = sound[count:].copy()
        skipped = min(self.silent, count)
        self.silent -= skipped
        whole: Array = sound[skipped:count] / self.frames.weight[:, None]
        return whole.reshape(-1, channels)
