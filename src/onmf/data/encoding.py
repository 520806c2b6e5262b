"""Text is UTF-8: a byte that is not costs the row that it is in, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from onmf.data.base import SourceError

KEPT = "surrogateescape"  # how Python keeps bytes that are not UTF-8: as lone surrogates, from which they can be told
CURE = "convert the data to UTF-8, with iconv for example"
OF_16_BITS = (b"\xff\xfe".decode(errors=KEPT), b"\xfe\xff".decode(errors=KEPT))


def not_utf8(line: str) -> str | None:
    """What is wrong with a line that held bytes that are not UTF-8; None of a line that held none."""
    if line.isascii():  # which Python knows without looking
        return None
    try:
        line.encode()
    except UnicodeEncodeError as error:
        return f"holds the byte 0x{ord(line[error.start]) & 0xFF:02x}, which is not UTF-8 there; {CURE}"
    return None


def are_utf8(lines: list[str]) -> bool:
    """Is none of them wrong?"""
    return all(map(str.isascii, lines)) or not any(map(not_utf8, lines))


def of_8_bits(where: str, found: Iterator[str]) -> Iterator[str]:
    """The lines, unless they begin as UTF-16 does: lines of ASCII would be taken for text, with zeros between."""
    first = next(found, None)
    if first is None:
        return
    if first.startswith(OF_16_BITS):
        raise SourceError(f"{where} is UTF-16; {CURE}.")
    yield from chain((first,), found)  # a chain: a generator that is left closes what it yields from
