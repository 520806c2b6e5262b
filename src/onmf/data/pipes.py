"""Standard input, FIFOs and other devices, read once from front to back: their lines, bytes, and format."""

import csv
import gzip
import io
import json
import logging
import string
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar
from weakref import WeakKeyDictionary, finalize

from onmf.data.base import SourceError, reading
from onmf.data.budget import allowed, characters
from onmf.data.columns import parses_as_number, spelt

log = logging.getLogger("onmf")

KEPT = "surrogateescape"  # how Python keeps bytes that are not UTF-8: as lone surrogates, which can be found again
CURE = "convert the data to UTF-8, with iconv for example"
OF_16_BITS = (b"\xff\xfe".decode(errors=KEPT), b"\xfe\xff".decode(errors=KEPT))
LINES = 3  # to tell a format by: perhaps one of names, and two of samples
ARRAY, ARROW = "a NumPy array", "an Arrow stream"
NO_PIPE = "which no pipe can deliver; write it to a file first"
FOREIGN = {  # how data begin that are no text, and what to do about them
    b"\x93NUMPY": f"holds {ARRAY}, not {{wanted}}; write npy:{{path}} to read it",
    b"\xff\xff\xff\xff": f"holds {ARROW}, not {{wanted}}; write arrow:{{path}} to read it",
    b"PAR1": f"holds Parquet, {NO_PIPE}",
    b"ARROW1": f"holds an Arrow file, {NO_PIPE}",
    b"\x89HDF": f"holds HDF5, {NO_PIPE}",
    b"PK\x03\x04": f"holds a zip archive, perhaps .npz, {NO_PIPE}",
    b"\x1f\x8b": "is compressed by gzip; decompress it first",
    b"BZh": "is compressed by bzip2; decompress it first",
    b"\xfd7zXZ": "is compressed by xz; decompress it first",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; decompress it first",
}
PRINTED = string.printable.encode()

# Standard input belongs to the whole process, and so do its lines that were looked at and are still to be read.
_looked_at: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
_held: ContextVar[list[KeyboardInterrupt] | None] = ContextVar("_held", default=None)  # those that have ended a pipe
Item = TypeVar("Item")


def is_pipe(path: Path) -> bool:
    """Return whether it can be read only once, as ``-``, FIFOs and process substitutions can."""
    return str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def name_of(path: Path) -> str:
    """Return the name of a path in messages."""
    return "standard input" if str(path) == "-" else str(path)


def lines(path: Path, most: int) -> Iterator[str]:
    """Yield the lines of a file or pipe, each as soon as it is there; bytes that are not UTF-8 stay in them.

    A file whose name ends in .gz is decompressed. A line longer than ``most`` characters is cut one after them.
    """
    if str(path) != "-":
        packed = path.suffix.lower() == ".gz"
        with (gzip.open if packed else open)(path, "rt", encoding="utf-8-sig", errors=KEPT) as file:
            found = _cut(file, most)
            yield from _of_8_bits(str(path), until_interrupted(found) if is_pipe(path) else found)
        return
    standard_input = _standard_input()
    looked_at = _looked_at.pop(standard_input, None)
    if isinstance(standard_input, io.TextIOWrapper) and looked_at is None:
        standard_input.reconfigure(encoding="utf-8-sig", errors=KEPT)  # whatever the locale
    yield from _of_8_bits(name_of(path), until_interrupted(chain(looked_at or (), _cut(standard_input, most))))


def _cut(file: TextIO, most: int) -> Iterator[str]:
    while line := file.readline(most + 1):
        yield line
        while len(line) > most and line[-1] != "\n":
            line = file.readline(most + 1)


class LineCount:
    """How much of a pipe has come, in lines or, of arrays, in rows; what names columns is not counted."""

    def __init__(self) -> None:
        self.samples = self.passed = 0  # passed: lines without a sample that come before samples that were learnt from
        self.blank: dict[int, int] = {}  # the others, by the number of samples before them
        self.half: bool | None = None  # did it end within a line? None: it has not ended

    def counted(self, found: Iterator[str], holds_sample: Callable[[str], bool]) -> Iterator[str]:
        """Yield the lines that hold a sample."""
        line = "\n"
        for line in found:
            if holds_sample(line):
                self.samples += 1
                yield line
            else:
                self.blank[self.samples] = self.blank.get(self.samples, 0) + 1
        self.half = line[-1] != "\n"

    def leave_out_first(self) -> None:
        """Count from the line after the first, which names the columns."""
        self.samples -= 1
        self.blank = {before - 1: number for before, number in self.blank.items() if before}

    @property
    def all(self) -> int:
        """The lines that have come, once the pipe has ended; half a line is not one."""
        return 0 if self.half is None else self.samples + self.passed + sum(self.blank.values()) - self.half

    def up_to(self, row: int) -> int:
        """Return how many lines end with the sample of this number; those asked for ascend."""
        for before in [each for each in list(self.blank) if each <= row]:
            self.passed += self.blank.pop(before)
        return row + 1 + self.passed


def some(found: Iterator[Item], size: int, most: int, length: Callable[[Item], int]) -> list[Item]:
    """Return the next ``size`` lines or texts, fewer if their lengths add up to more than ``most``."""
    block: list[Item] = []
    while len(block) < size and most > 0 and (item := next(found, None)) is not None:
        block.append(item)
        most -= length(item)
    return block


def _of_8_bits(where: str, found: Iterator[str]) -> Iterator[str]:
    """Return the lines, or raise an error if they begin as UTF-16, which would be read as text with zeros between."""
    first = next(found, "")
    if first.startswith(OF_16_BITS):
        raise SourceError(f"{where} is UTF-16; {CURE}.")
    return chain([first] if first else (), found)  # a chain: a generator that is left closes what it yields from


def not_utf8(line: str) -> str | None:
    """Return the fault of a line with bytes that are not UTF-8; None if it has none."""
    if line.isascii():  # which Python knows without looking
        return None
    try:
        line.encode()
    except UnicodeEncodeError as error:
        return f"holds the byte 0x{ord(line[error.start]) & 0xFF:02x}, which is not UTF-8 there; {CURE}"
    return None


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Take Ctrl-C or SIGTERM while a pipe is waited for as its end, so that no samples that have come are lost.

    The interrupt has its effect when the block is done, or has failed over the last samples, which must not cost the
    earlier ones.
    """
    held: list[KeyboardInterrupt] = []
    token = _held.set(held)
    try:
        yield
    except Exception as error:
        if not held:
            raise
        log.warning("The last samples were not learnt from: %s", error)
    finally:
        _held.reset(token)
    if held:
        raise held[0]


def until_interrupted(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items of a pipe to its end or, if any have come, to an interrupt, which is held back."""
    begun = False
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except KeyboardInterrupt as interrupt:
            held = _held.get()
            if held is None or not begun:
                raise
            held.append(interrupt)
            return
        begun = True
        yield item


def bytes_of(path: Path, owner: object) -> BinaryIO:
    """Open a pipe of bytes, closed when its owner is gone; standard input belongs to the process and stays open."""
    if str(path) == "-":
        found: BinaryIO = _standard_input().buffer
        return found
    with reading(path, "from its beginning"):
        file = path.open("rb")
    finalize(owner, file.close)
    return file


def first_bytes(stream: BinaryIO | None = None) -> bytes:
    """Return the bytes that tell the format of a stream or of standard input; they stay to be read."""
    waiting: Any = stream or getattr(_standard_input(), "buffer", None)
    return bytes(waiting.peek(1)[:8]) if hasattr(waiting, "peek") else b""


def _first_lines(wanted: int) -> list[str]:
    """Return the first lines of standard input that are not blank; they stay to be read."""
    seen: list[str] = []
    found: list[str] = []
    most = characters(allowed())
    with reading("standard input", "as text"):
        for line in lines(Path("-"), most):
            seen.append(line)
            most -= len(line)
            if line.strip():
                found.append(line)
            if len(found) == wanted or most < 0:
                break
    _looked_at[_standard_input()] = seen
    return found


def _standard_input() -> TextIO:
    if sys.stdin is None or sys.stdin.closed:
        raise SourceError("standard input is closed; pipe the samples into the command, or name a file.")
    return sys.stdin


def require_texts() -> None:
    """Raise an error if standard input does not hold texts, with the scheme to write instead; it stays to be read."""
    _require_not_foreign(Path("-"), first_bytes(), "texts")
    instead = _scheme_of(_first_lines(LINES))
    if instead is not None:
        raise SourceError(f"standard input does not hold texts; write {instead} to read it, or text:- to count words.")


def require_format(path: Path, head: bytes, wanted: str) -> None:
    """Raise an error if a pipe begins as another format than the one that is ``wanted``."""
    _require_not_foreign(path, head, wanted)
    if head and all(byte in PRINTED for byte in head):
        those = f"csv:{path}, tsv:{path} or jsonl:{path}"
        raise SourceError(f"{name_of(path)} holds text, not {wanted}; write {those} to read it.")


def _require_not_foreign(path: Path, head: bytes, wanted: str) -> None:
    for magic, fault in FOREIGN.items():
        if head.startswith(magic) and wanted not in fault:
            raise SourceError(f"{name_of(path)} {fault.format(wanted=wanted, path=path)}.")


def _scheme_of(lines: list[str]) -> str | None:
    """Return the name to write instead of a bare ``-`` for these lines; None for texts."""
    if not lines:
        return None
    if lines[0].lstrip()[0] in "{[":
        return _scheme_of_json(lines[0])
    samples = lines[1:] or lines
    for delimiter, scheme in ((",", "csv:-"), ("\t", "tsv:-"), (";", "csv:- with commas")):
        rows = list(csv.reader((line.rstrip("\r\n") for line in samples), delimiter=delimiter))
        if all(len(row) > 1 and _mostly_numbers(row) for row in rows):
            return scheme
    if all(_mostly_numbers(line.split(), share=1.0) for line in samples):
        return "csv:- with commas" if any(len(line.split()) > 1 for line in samples) else "csv:-"
    return None


def _scheme_of_json(line: str) -> str | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        # One object over many lines, or none: texts may begin with a bracket too.
        return "jsonl:-?field=NAME with one object per line" if line.lstrip()[0] == "{" else None
    if not isinstance(found, dict):
        return "jsonl:-?field=NAME with one object per line"
    texts = [name for name, value in found.items() if isinstance(value, str)]
    numbers = [name for name, value in found.items() if isinstance(value, (int, float))]
    text = max(texts, key=lambda name: len(found[name])) if texts else "NAME"
    if not numbers:
        return f"jsonl:-?field={text}"
    of_numbers = f"jsonl:-?features={spelt(numbers)}"
    return f"{of_numbers} (its numbers) or jsonl:-?field={text} (its words)" if texts else of_numbers


def _mostly_numbers(fields: list[str], share: float = 0.5) -> bool:
    """Return whether most fields are numbers; beside them a sample may have a name, a time, and missing values."""
    filled = [field for field in fields if field.strip()]
    numbers = sum(map(parses_as_number, filled))
    return numbers > 0 and numbers >= share * len(filled)
