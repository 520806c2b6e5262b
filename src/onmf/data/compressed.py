"""The size of compressed data when decompressed, found before a library allocates whatever they ask for."""

import bz2
import zlib
from collections.abc import Callable
from typing import Any

RATIOS = {"gzip": 1032, "zlib": 1032, "lzf": 88}  # bytes that one byte can become
PIECE = 2**20  # bytes to decompress at a time
BLOCK = 2**17  # bytes that a block of zstd becomes at most
ZSTD, SKIPPABLE = 0xFD2FB528, range(0x184D2A50, 0x184D2A60)  # how its frames begin


def decompressed(codec: str, content: bytes, most: int) -> int:
    """Return how many bytes these become, at most; a larger number than ``most`` if they become more than that."""
    return HOW[codec](content, most)


def _whole(content: bytes, first: int, size: int) -> int:
    return int.from_bytes(content[first : first + size], "little")


def _zstd(content: bytes, most: int) -> int:
    """Add up the blocks of all frames, or what a frame says of its own length if that is more."""
    place = found = 0
    while (magic := _whole(content, place, 4)) == ZSTD or magic in SKIPPABLE:
        place += 4
        if magic in SKIPPABLE:
            place += 4 + _whole(content, place, 4)
            continue
        flags = content[place] if place < len(content) else 0
        single, checked = flags >> 5 & 1, flags >> 2 & 1
        told = (single, 2, 4, 8)[flags >> 6]  # the bytes of its length
        place += 1 + (not single) + (0, 1, 2, 4)[flags & 3] + told
        last, length, before = 0, _whole(content, place - told, told), found
        while not last and place < len(content) and found <= most + BLOCK:
            header = _whole(content, place, 3)
            last, kind, size = header & 1, header >> 1 & 3, header >> 3
            found += size if kind < 2 else BLOCK  # as it is, or one byte repeated, or compressed
            place += 3 + (1 if kind == 1 else size)
        found = max(found, before + length)
        place += 4 * checked
    return found


def _lzf(content: bytes, most: int) -> int:
    """Add up runs of bytes as they are, and repetitions of earlier ones."""
    place = found = 0
    while place < len(content) and found <= most:
        control = content[place]
        if control < 32:
            found, place = found + control + 1, place + control + 2
        else:
            long = control >> 5 == 7
            found += 2 + (control >> 5) + (_whole(content, place + 1, 1) if long else 0)
            place += 3 if long else 2
    return found


def _by_pieces(start: Callable[[], Any]) -> Callable[[bytes, int], int]:
    """Return a function that decompresses piece by piece and keeps none; such formats do not tell their length."""

    def count(content: bytes, most: int) -> int:
        found = 0
        while content and found <= most:
            try:
                stream = start()
                found += len(stream.decompress(content, PIECE))
                while not stream.eof and found <= most:
                    more = stream.decompress(getattr(stream, "unconsumed_tail", b""), PIECE)
                    if not more:
                        return found  # it breaks off
                    found += len(more)
            except (OSError, EOFError, zlib.error):
                return found  # it ends here, perhaps with a check sum; or it is damaged, as its own library will say
            content = stream.unused_data
        return found

    return count


HOW: dict[str, Callable[[bytes, int], int]] = {
    "blosc": lambda content, most: _whole(content, 4, 4),
    "lz4": lambda content, most: _whole(content, 0, 4),
    "lzf": _lzf,
    "zstd": _zstd,
    "gzip": _by_pieces(lambda: zlib.decompressobj(47)),  # with the header of gzip or of zlib
    "zlib": _by_pieces(lambda: zlib.decompressobj(47)),
    "bz2": _by_pieces(lambda: bz2.BZ2Decompressor()),
}
