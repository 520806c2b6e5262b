"""Sound files: recordings are read block by block, and their parts appear together once all are complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.atomic import replacing
from onmf._support.wording import counted
from onmf.data import SourceError
from onmf.data.audio import opened
from onmf.data.base import reading

READ = 2**18  # samples at a time
LARGEST = 2**32 - 2**16  # bytes of sound in a WAV file, whose header counts them with 32 bits
STEPS = 2**23  # of 24 bits, from 0 to full scale


@dataclass(frozen=True)
class Format:
    """A file format for the parts of a sound."""

    name: str  # of libsndfile
    subtype: str
    precision: str  # of the parts and of their sum, in words

    def for_length(self, samples: int, channels: int) -> str:
        """Return the format of libsndfile: RF64, which has a larger header, where WAV cannot count the bytes."""
        return "RF64" if self.name == "WAV" and 4 * samples * channels > LARGEST else self.name


FORMATS = {
    "wav": Format("WAV", "FLOAT", "32-bit floats; their sum is the recording to the seventh digit of the loudest part"),
    "flac": Format("FLAC", "PCM_24", "24 bits; their sum is the recording rounded to 24 bits"),
}


class Recording:
    """A file of sound: the facts of its header, and its samples in blocks (samples, channels)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened(path) as file:
            self.rate, self.samples, self.channels = file.samplerate, file.frames, file.channels
        if not self.samples:
            raise SourceError(f"{path} has no samples; there is nothing to separate.")

    def blocks(self) -> Iterator[Array]:
        """Yield blocks of samples, with full scale at 1; fewer samples than the header announces raise an error."""
        found = 0
        with opened(self.path) as file:
            while found < self.samples:
                with reading(self.path, "to the end"):
                    block = file.read(READ, dtype="float64", always_2d=True)
                if not len(block):
                    raise SourceError(
                        f"{self.path} ends after {counted(found, 'sample')}, but its header announced {self.samples}."
                    )
                found += len(block)
                yield block


class PartFiles(ExitStack):
    """The files of all parts, written side by side; none appears unless the ``with`` around the writing ends well.

    ``energy`` is the sum of the squares of each part. ``close`` puts all files in their places.
    """

    def __init__(self, paths: Sequence[Path], kind: Format, recording: Recording) -> None:
        super().__init__()
        self.paths, self.kind, self.recording = paths, kind, recording
        self.energy, self.written = np.zeros(len(paths)), 0
        self.files: list[Any] = []

    def open(self) -> None:
        """Begin to write, inside the ``with``."""
        import soundfile

        form = self.kind.for_length(self.recording.samples, self.recording.channels)
        layout = {"samplerate": self.recording.rate, "channels": self.recording.channels}
        for path in self.paths:
            place = self.enter_context(replacing(path))
            with _writing(path):
                file = soundfile.SoundFile(place, "w", **layout, format=form, subtype=self.kind.subtype)
            self.files.append(self.enter_context(file))

    def write(self, parts: Array) -> None:
        """Append a block (parts, samples, channels), cut off at the end of the recording."""
        parts = parts[:, : self.recording.samples - self.written]
        self.written += parts.shape[1]
        self.energy += np.square(parts).sum(axis=(1, 2))
        for path, file, part in zip(self.paths, self.files, self._rounded(parts), strict=True):
            with _writing(path):
                file.write(part)

    def _rounded(self, parts: Array) -> Any:
        """Return parts as the format holds them; their running sums are rounded, so that they still add up."""
        if self.kind.name != "FLAC":
            return parts.astype(np.float32)
        whole = np.diff(np.rint(STEPS * np.cumsum(parts, axis=0)), axis=0, prepend=0.0)
        loud = (np.abs(whole) >= STEPS).any(axis=(1, 2))
        if loud.any():
            raise ValueError(
                f"{self.paths[int(loud.argmax())]} would be louder than 24 bits can hold; write the parts as WAV."
            )
        return whole.astype(np.int32) << 8


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    import soundfile

    try:
        yield
    except (soundfile.SoundFileError, ValueError) as error:
        raise ValueError(f"cannot write {path}: {' '.join(str(error).split()).rstrip('.')}.") from None
