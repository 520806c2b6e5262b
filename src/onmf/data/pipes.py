"""Standard input, FIFOs and other devices: read once, from front to back."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar
from weakref import WeakKeyDictionary, finalize

from onmf.data.base import SourceError, reading
from onmf.data.encoding import KEPT, of_8_bits

log = logging.getLogger("onmf")

# Standard input belongs to the whole process, and so do its lines that were looked at and are still to be read.
_looked_at: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
_held: ContextVar[list[KeyboardInterrupt] | None] = ContextVar("_held", default=None)  # those that have ended a pipe
Item = TypeVar("Item")


def is_pipe(path: Path) -> bool:
    """Can it be read only once? So can ``-``, FIFOs, process substitutions, and /dev/stdin behind a pipe."""
    return str(path) == "-" or (path.exists() and not path.is_file() and not path.is_dir())


def name_of(path: Path) -> str:
    """As messages call it."""
    return "standard input" if str(path) == "-" else str(path)


def lines(path: Path) -> Iterator[str]:
    """The lines of a file or pipe in UTF-8, each as soon as it is there; what is not UTF-8 is kept in them."""
    if str(path) != "-":
        with path.open(encoding="utf-8-sig", errors=KEPT) as file:
            yield from of_8_bits(str(path), until_interrupted(file) if is_pipe(path) else file)
        return
    standard_input = _standard_input()
    looked_at = _looked_at.pop(standard_input, None)
    if isinstance(standard_input, io.TextIOWrapper) and looked_at is None:
        standard_input.reconfigure(encoding="utf-8-sig", errors=KEPT)  # whatever the locale
    yield from of_8_bits(name_of(path), until_interrupted(chain(looked_at or (), standard_input)))


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Within this, Ctrl-C or SIGTERM while a pipe is waited for is its end, so that what has come of it is not lost.

    It has its effect when the block is done, or has failed over what came last: that must not cost what came before.
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
    """What a pipe brings, to its end or, if it has brought anything, to an interrupt that is held back."""
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
    """For formats that are not text; closed when its owner is gone, but for standard input, which is the process's."""
    if str(path) == "-":
        found: BinaryIO = _standard_input().buffer
        return found
    with reading(path, "from its beginning"):
        file = path.open("rb")
    finalize(owner, file.close)
    return file


def first_bytes(stream: BinaryIO | None = None) -> bytes:
    """Of a stream, or of standard input, as many as a format is told by; they stay to be read."""
    waiting: Any = stream or getattr(_standard_input(), "buffer", None)
    return bytes(waiting.peek(1)[:8]) if hasattr(waiting, "peek") else b""


def first_lines(wanted: int) -> list[str]:
    """Of standard input, those that are not blank; they stay to be read."""
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
