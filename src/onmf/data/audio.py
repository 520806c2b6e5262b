"""Recordings as power spectrograms: every frame is one row of powers |STFT|^2 (soundfile)."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from onmf._support.wording import counted
from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, numbered, reading
from onmf.data.files import matching, named
from onmf.data.registry import Spec, register

SUFFIXES = (".wav", ".flac", ".ogg", ".aiff", ".aif", ".mp3", ".opus")
LONGEST = 10_000  # of the two numbers of a ratio of sample rates, whose filter is twenty times as long


class Spectrogram(Sequential):
    """Frames of ``window`` samples, ``hop`` apart, under a Hann window: the mean of the channels' powers.

    Several recordings, of one sample rate unless they are resampled to ``rate``, follow each other; no frame reaches
    from one into the next.
    """

    index_name = "seconds"

    def __init__(self, paths: list[Path], window: int, hop: int, resampled_to: int | None = None) -> None:
        self.n_features = count_frequencies(window, hop)
        self.where, self.window, self.hop = paths[0], window, hop
        self.chosen = {"hop": hop}
        self.rows_in = dict.fromkeys(paths, 0)
        rate, channels, margin = resampled_to or 0, 0, 0
        for path in paths:
            try:
                with opened(path) as file:
                    found, length, channels = file.samplerate, file.frames, max(channels, file.channels)
            except SourceError as error:
                self.bad[path] = error  # reported when it is reached
                continue
            rate = rate or found
            if found != rate and resampled_to is None:
                raise SourceError(
                    f"{path} has {found} samples per second, those before it have {rate}; resample them: ?rate={rate}."
                )
            up, down = ratio(path, found, rate)
            self.rows_in[path] = max(0, 1 + (-(-length * up // down) - window) // hop)
            margin = max(margin, margin_of(up, down))
        if len(self.bad) == len(paths):
            raise self.bad[paths[0]]
        self.n_samples = sum(self.rows_in.values())
        if not self.n_samples:
            raise SourceError(f"{paths[0]} is shorter than one window of {window} samples; give a smaller window.")
        # Of a frame: its samples are read, cut out, shaped, transformed and squared; its frequencies have names.
        self.row_bytes = 64 * window + 16 * window * channels + 32 * margin * channels
        self.fitting(1)
        self.rate, self.feature_names = rate, frequencies(rate, window)

    def labels(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the seconds at which frames begin in their recordings."""
        ends = np.cumsum(list(self.rows_in.values()))
        begins = np.append(0, ends)[np.minimum(np.searchsorted(ends, rows, side="right"), len(ends) - 1)]
        return np.array([f"{t:.6f}" for t in (rows - begins) * (self.hop / self.rate)], dtype=object)

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
        found = 0
        with opened(path) as file:
            channels = range(file.channels)  # added up one by one, as some may cancel in the mean of their samples
            sound = np.empty((0, len(channels)))
            for block in self._sound(path, file, size * self.hop):
                sound = np.concatenate([sound, block])
                if len(sound) < self.window:
                    continue
                frames = np.lib.stride_tricks.sliding_window_view(sound, self.window, axis=0)[:: self.hop]
                found += len(frames)
                yield sum(np.square(np.abs(scipy.fft.rfft(frames[:, c] * shape))) for c in channels) / len(channels)
                sound = sound[len(frames) * self.hop :]
        if found < self.rows_in[path]:
            raise SourceError(f"{path} ends after {found} frames, but its header announced {self.rows_in[path]}.")

    def _sound(self, path: Path, file: Any, samples: int) -> Iterator[npt.NDArray[Any]]:
        """Yield blocks (samples, channels) at the wanted rate, those of ``scipy.signal.resample_poly`` of them all."""
        from scipy.signal import resample_poly

        up, down = ratio(path, file.samplerate, self.rate)
        margin = margin_of(up, down)
        silence = np.zeros((margin, file.channels))
        waiting = silence  # what a block is made of reaches into its neighbours, and beyond the ends into silence
        block = None
        while block is None or len(block):
            with reading(path, "to the end"):
                block = file.read(max(1, samples * down // up), always_2d=True)
            waiting = np.concatenate([waiting, block if len(block) else silence])
            whole = len(waiting) - 2 * margin
            whole -= whole % down if len(block) else 0
            if whole > 0:
                found = resample_poly(waiting[: whole + 2 * margin], up, down)[margin * up // down :]
                yield found[: -(-whole * up // down)]
                waiting = waiting[whole:]


def ratio(path: Path, rate: int, wanted: int) -> tuple[int, int]:
    """Return the whole numbers whose ratio leads from one sample rate to another."""
    if rate < 1:
        raise SourceError(f"{path} says that it has {rate} samples per second; perhaps it is damaged.")
    up, down = wanted // math.gcd(rate, wanted), rate // math.gcd(rate, wanted)
    if max(up, down) > LONGEST:
        raise SourceError(f"{path} has {rate} samples per second, which has too little in common with rate={wanted}.")
    return up, down


def margin_of(up: int, down: int) -> int:
    """Return how many samples next to a block make it when it is resampled: a multiple of ``down``, or none."""
    return 0 if up == down else down * (10 * max(up, down) // (up * down) + 2)


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
def recordings(
    path: Path, window: int = 1024, hop: int | None = None, rate: int | None = None, *, like: Spec | None = None
) -> Source:
    """Open a recording, or all those in a folder or matching a pattern such as ``songs/*.flac``.

    ``rate`` resamples them to as many samples per second.
    """
    if rate == 0:
        raise SourceError(f"{path}: the rate must be at least one sample per second, got rate=0.")
    paths = matching(path, SUFFIXES)
    source = Spectrogram(paths, window, window // 2 if hop is None else hop, rate)
    if like is not None and like.scheme == "audio" and like.names:
        require_rate(like.names, source.rate, window, str(path), "add rate={rate} to its options")
    source.files = None if path.is_file() else named(path, paths)
    return source


def frequencies(rate: float, window: int) -> list[str]:
    """Return the names of the features, as in ``440 Hz``."""
    return [f"{k * rate / window:.6g} Hz" for k in range(window // 2 + 1)]


def sample_rate(names: Sequence[str], window: int) -> float:
    """Return the samples per second of sound whose spectra, under this window, have features of these names."""
    rate = float(names[-1].removesuffix(" Hz")) * window / (window // 2)
    if not 0 < rate < np.inf:
        raise ValueError(f"{names[-1]!r} is not a frequency.")
    return rate


def require_rate(names: Sequence[str], rate: float, window: int, sound: str, cure: str) -> None:
    """Raise an error for a sound whose frequencies are not the features of a model."""
    if list(names) == frequencies(rate, window):
        return
    try:
        learnt = round(sample_rate(names, window))
    except ValueError:
        raise SourceError(f"the model's features are not frequencies: the last one is {names[-1]!r}.") from None
    raise SourceError(
        f"{sound} has {rate:g} samples per second, but the model was learnt at {counted(learnt, 'sample')} per second; "
        f"{cure.format(rate=learnt)}, or learn a model from sound like it."
    )


def opened(path: Path) -> Any:
    """Open a recording for reading."""
    import soundfile

    with reading(path, "as sound"):
        return soundfile.SoundFile(path)
