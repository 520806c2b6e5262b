"""Recordings read block by block, and their parts written so, as files that appear together once they are whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
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
    """How parts are written, and what their sum is then."""

    name: str  # of libsndfile
    subtype: str
    told: str

    def for_length(self, samples: int, channels: int) -> str:
        """RF64, the same with a larger header, where WAV cannot count so many bytes."""
        return "RF64" if self.name == "WAV" and 4 * samples * channels > LARGEST else self.name


FORMATS = {
    "wav": Format("WAV", "FLOAT", "32-bit floats; their sum is the recording to the seventh digit of the loudest part"),
    "flac": Format("FLAC", "PCM_24", "24 bits; their sum is the recording rounded to 24 bits"),
}


class Recording:
    """A file of sound: what its header says, and its samples in blocks (samples, channels)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with opened(path) as file:
            self.rate, self.samples, self.channels = file.samplerate, file.frames, file.channels
        if not self.samples:
            raise SourceError(f"{path} has no samples; there is nothing to separate.")

    def blocks(self) -> Iterator[Array]:
        """As floating-point numbers, full scale being one; fewer than the header announced are an error."""
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


class PartFiles:
    """The files of all parts, written side by side; none appears unless the ``with`` around the writing ends well.

    ``energy`` is the sum of the squares of each part.
    """

    def __init__(self, paths: Sequence[Path], kind: Format, recording: Recording) -> None:
        self.paths, self.kind, self.recording = paths, kind, recording
        self.energy, self.written = np.zeros(len(paths)), 0
        self.files: list[Any] = []

    def __enter__(self) -> PartFiles:
        import soundfile

        form = self.kind.for_length(self.recording.samples, self.recording.channels)
        layout = {"samplerate": self.recording.rate, "channels": self.recording.channels}
        with ExitStack() as stack:
            for path in self.paths:
                place = stack.enter_context(replacing(path))
                with _writing(path):
                    file = soundfile.SoundFile(place, "w", **layout, format=form, subtype=self.kind.subtype)
                self.files.append(stack.enter_context(file))
            self.stack = stack.pop_all()
        return self

    def write(self, parts: Array) -> None:
        """Append a block (parts, samples, channels), without what goes beyond the end of the recording."""
        parts = parts[:, : self.recording.samples - self.written]
        self.written += parts.shape[1]
        self.energy += np.square(parts).sum(axis=(1, 2))
        for path, file, part in zip(self.paths, self.files, self._rounded(parts), strict=True):
            with _writing(path):
                file.write(part)

    def _rounded(self, parts: Array) -> Any:
        """As the format holds them. Sums of parts are rounded, not parts, so that those of the numbers are the sums."""
        if self.kind.name != "FLAC":
            return parts.astype(np.float32)
        whole = np.diff(np.rint(STEPS * np.cumsum(parts, axis=0)), axis=0, prepend=0.0)
        loud = (np.abs(whole) >= STEPS).any(axis=(1, 2))
        if loud.any():
            raise ValueError(
                f"{self.paths[int(loud.argmax())]} would be louder than 24 bits can hold; write the parts as WAV."
            )
        return whole.astype(np.int32) << 8

    def complete(self) -> None:
        """Put all files in their places."""
        self.stack.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stack.__exit__(kind, error, trace)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    import soundfile

    try:
        yield
    except (soundfile.SoundFileError, ValueError) as error:
        raise ValueError(f"cannot write {path}: {' '.join(str(error).split()).rstrip('.')}.") from None
