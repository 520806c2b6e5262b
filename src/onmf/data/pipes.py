"""Standard input, FIFOs and other devices, read once from front to back: their lines, bytes, and format."""

from __future__ import annotations

import csv
import io
import json
import logging
import string
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar
from weakref import WeakKeyDictionary, finalize

from onmf.data.base import SourceError, reading
from onmf.data.columns import is_number, spelt

log = logging.getLogger("onmf")

KEPT = "surrogateescape"  # how Python keeps bytes that are not UTF-8: as lone surrogates, from which they can be told
CURE = "convert the data to UTF-8, with iconv for example"
OF_16_BITS = (b"\xff\xfe".decode(errors=KEPT), b"\xfe\xff".decode(errors=KEPT))
LINES = 3  # to tell a format by: perhaps one of names, and two of samples
ARRAY, ARROW = "a NumPy array", "an Arrow stream"
STREAMS = {b"\x93NUMPY": (ARRAY, "npy"), b"\xff\xff\xff\xff": (ARROW, "arrow")}
FILES = {
    b"PAR1": "Parquet",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "HDF5",
    b"PK\x03\x04": "a zip archive, perhaps .npz",
}
PRINTED = string.printable.encode()
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

# Standard input belongs to the whole process, and so do its lines that were looked at and are still to be read.
_looked_at: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
_held: ContextVar[list[KeyboardInterrupt] | None] = ContextVar("_held", default=None)  # those that have ended a pipe
Item = TypeVar("Item")


def is_pipe(path: Path) -> bool:
    """Can it be read only once? So can ``-``, FIFOs, process substitutions, and /dev/stdin behind a pipe."""
    return str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def name_of(path: Path) -> str:
    """Return what messages call a path."""
    return "standard input" if str(path) == "-" else str(path)


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file or pipe in UTF-8, each as soon as it is there; what is not UTF-8 is kept in them."""
    if str(path) != "-":
        with path.open(encoding="utf-8-sig", errors=KEPT) as file:
            yield from _of_8_bits(str(path), until_interrupted(file) if is_pipe(path) else file)
        return
    standard_input = _standard_input()
    looked_at = _looked_at.pop(standard_input, None)
    if isinstance(standard_input, io.TextIOWrapper) and looked_at is None:
        standard_input.reconfigure(encoding="utf-8-sig", errors=KEPT)  # whatever the locale
    yield from _of_8_bits(name_of(path), until_interrupted(chain(looked_at or (), standard_input)))


def _of_8_bits(where: str, found: Iterator[str]) -> Iterator[str]:
    """Return the lines, unless they begin as UTF-16: lines of ASCII would be taken for text, with zeros between."""
    first = next(found, "")
    if first.startswith(OF_16_BITS):
        raise SourceError(f"{where} is UTF-16; {CURE}.")
    return chain([first] if first else (), found)  # a chain: a generator that is left closes what it yields from


def not_utf8(line: str) -> str | None:
    """Return what is wrong with a line that held bytes that are not UTF-8; None if it held none."""
    if line.isascii():  # which Python knows without looking
        return None
    try:
        line.encode()
    except UnicodeEncodeError as error:
        return f"holds the byte 0x{ord(line[error.start]) & 0xFF:02x}, which is not UTF-8 there; {CURE}"
    return None


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Take Ctrl-C or SIGTERM while a pipe is waited for as its end, so that what has come of it is not lost.

    The interrupt has its effect when the block is done, or has failed over what came last: that must not cost what came
    before.
    """
    held: list[KeyboardInterrupt] = []
    token = _held.set(held)
    try:
        yield
    except Exception as error:
        if not held:
            raise
        log.warning("What came last was not learnt: %s", error)
    finally:
        _held.reset(token)
    if held:
        raise held[0]


def until_interrupted(items: Iterator[Item]) -> Iterator[Item]:
    """Yield what a pipe brings, to its end or, if it has brought anything, to an interrupt that is held back."""
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
    """Open a pipe of bytes, closed when its owner is gone; standard input, which is the process's, stays open."""
    if str(path) == "-":
        found: BinaryIO = _standard_input().buffer
        return found
    with reading(path, "from its beginning"):
        file = path.open("rb")
    finalize(owner, file.close)
    return file


def first_bytes(stream: BinaryIO | None = None) -> bytes:
    """Return as many bytes as a format is told by, of a stream or of standard input; they stay to be read."""
    waiting: Any = stream or getattr(_standard_input(), "buffer", None)
    return bytes(waiting.peek(1)[:8]) if hasattr(waiting, "peek") else b""


def _first_lines(wanted: int) -> list[str]:
    """Return the first lines of standard input that are not blank; they stay to be read."""
    seen: list[str] = []
    found: list[str] = []
    with reading("standard input", "as text"):
        for line in lines(Path("-")):
            seen.append(line)
            if line.strip():
                found.append(line)
            if len(found) == wanted:
                break
    _looked_at[_standard_input()] = seen
    return found


def _standard_input() -> TextIO:
    if sys.stdin is None or sys.stdin.closed:
        raise SourceError("standard input is closed; pipe the samples into the command, or name a file.")
    return sys.stdin


def require_texts() -> None:
    """Raise an error if standard input does not hold texts, with the scheme to write instead; it stays to be read."""
    _require_not_binary(Path("-"), first_bytes(), "texts")
    instead = _scheme_of(_first_lines(LINES))
    if instead is not None:
        raise SourceError(f"standard input does not hold texts; write {instead} to read it, or text:- to count words.")


def require_format(path: Path, head: bytes, wanted: str) -> None:
    """Raise an error if a pipe begins as another format than that which was ``wanted``; only now is it known."""
    _require_not_binary(path, head, wanted)
    if head and all(byte in PRINTED for byte in head):
        those = f"csv:{path}, tsv:{path} or jsonl:{path}"
        raise SourceError(f"{name_of(path)} holds text, not {wanted}; write {those} to read it.")


def _require_not_binary(path: Path, head: bytes, wanted: str) -> None:
    where = name_of(path)
    for magic, (what, scheme) in STREAMS.items():
        if head.startswith(magic) and what != wanted:
            raise SourceError(f"{where} holds {what}, not {wanted}; write {scheme}:{path} to read it.")
    for magic, what in FILES.items():
        if head.startswith(magic):
            raise SourceError(f"{where} holds {what}, which no pipe can deliver; write it to a file first.")
    for magic, what in COMPRESSED.items():
        if head.startswith(magic):
            raise SourceError(f"{where} is compressed by {what}; decompress it first.")


def _scheme_of(lines: list[str]) -> str | None:
    """Return what to write instead of a bare ``-`` for these lines; None for texts. Numbers are no words."""
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
    """Are most fields numbers? Beside them a sample may have a name, a time, and missing values."""
    filled = [field for field in fields if field.strip()]
    numbers = sum(map(is_number, filled))
    return numbers > 0 and numbers >= share * len(filled)
