"""How much memory a record batch of Arrow or a page of Parquet takes, told before pyarrow decompresses it."""

import os
import struct
from collections.abc import Collection, Iterator
from typing import Any

from onmf.data.base import require_room

CONTINUED = b"\xff\xff\xff\xff"  # before the length of a message
DICTIONARY, RECORDS = 2, 3  # kinds of messages
# Fields of Arrow's tables (FlatBuffers): Message, DictionaryBatch, RecordBatch
HEADER_TYPE, HEADER, DATA, BUFFERS, COMPRESSION = 1, 2, 1, 2, 3
# Types of Parquet's headers (compact Thrift)
WHOLE, BINARY, STRUCT = (4, 5, 6), 8, 12
LONG = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of true, false, a byte and a fraction
LENGTHS = (2**12, 2**16, 2**24)  # bytes of a page's header to try, the last of which pyarrow allows


class BoundedStream:
    """A stream of Arrow's messages, for pyarrow to read from; a message that takes too much memory raises an error."""

    closed = False

    def __init__(self, stream: Any, where: object, memory: int) -> None:
        self.stream, self.where, self.memory = stream, where, memory
        self.next, self.message = "length", b""

    def readable(self) -> bool:
        """Return True, as pyarrow wants to know."""
        return True

    def read(self, wanted: int) -> bytes:
        """Return this many bytes, or fewer at the end: in turns the length, the description and the body of a message.

        Pyarrow asks for these one by one.
        """
        require_room(f"a record batch of {self.where}", wanted, self.memory)
        found: bytes = self.stream.read(wanted)
        if self.next == "body":
            require_room(f"a record batch of {self.where}", len(found) + decompressed(self.message, found), self.memory)
            self.next = "length"
        elif self.next == "message":
            self.message, self.next = found, "body" if _body_length(found) else "length"
        elif found != CONTINUED:
            self.next = "message"
        return found


def _get(kind: str, content: bytes, place: int) -> int:
    found: int = struct.unpack_from(f"<{kind}", content, place)[0]
    return found


def _field(content: bytes, table: int, number: int) -> int | None:
    """Return where a field of a table lies; None if it is left out."""
    facts = table - _get("i", content, table)
    there = 4 + 2 * number < _get("H", content, facts)
    offset = _get("H", content, facts + 4 + 2 * number) if there else 0
    return table + offset if offset else None


def _inside(content: bytes, table: int, number: int) -> int | None:
    """Return where the table or vector lies that a field leads to."""
    place = _field(content, table, number)
    return None if place is None else place + _get("I", content, place)


def _body_length(message: bytes) -> int:
    place = _field(message, _get("I", message, 0), 3)
    return 0 if place is None else _get("q", message, place)


def decompressed(message: bytes, body: bytes) -> int:
    """Return how many bytes the buffers of a message become, each of which begins with that number."""
    root = _get("I", message, 0)
    kind, records = _field(message, root, HEADER_TYPE), _inside(message, root, HEADER)
    kind = 0 if kind is None else message[kind]
    if kind == DICTIONARY and records is not None:
        records = _inside(message, records, DATA)
    if kind not in (DICTIONARY, RECORDS) or records is None or _field(message, records, COMPRESSION) is None:
        return 0
    buffers = _inside(message, records, BUFFERS)
    if buffers is None:
        return 0
    count = _get("I", message, buffers)
    places = struct.iter_unpack("<qq", message[buffers + 4 : buffers + 4 + 16 * count])
    return sum(max(0, _get("q", body, place)) for place, length in places if length)


def require_small_pages(where: object, group: Any, columns: Collection[str], file: Any, memory: int) -> None:
    """Raise an error if the largest pages of a row group of Parquet, one of each column, do not fit into memory."""
    needed = 0
    for column in map(group.column, range(group.num_columns)):
        if column.path_in_schema in columns:
            first = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)), default=0)
            sizes = _pages(file.fileno(), first, first + column.total_compressed_size)
            needed += 2 * max(sizes, default=0)
    require_room(f"a row group of {where}", needed, memory)


def _pages(file: int, place: int, end: int) -> Iterator[int]:
    """Yield how many bytes each page becomes, from its header."""
    while place < end:
        for length in LENGTHS:
            header = os.pread(file, length, place)
            try:
                numbers, after = _struct(header, 0)
                break
            except IndexError:
                if len(header) < length or length == LENGTHS[-1]:
                    return  # it breaks off, as pyarrow will say
        yield numbers[2]
        place += after + max(0, numbers[3])


def _struct(content: bytes, place: int) -> tuple[dict[int, int], int]:
    """Return the whole numbers of a structure by their fields, and where it ends."""
    numbers: dict[int, int] = {}
    field = 0
    while head := content[place]:
        place += 1
        if head >> 4:
            field += head >> 4
        else:
            field, place = _number(content, place)
        kind = head & 15
        if kind in WHOLE:
            numbers[field], place = _number(content, place)
        else:
            place = _after(content, place, kind)
    return numbers, place + 1


def _after(content: bytes, place: int, kind: int) -> int:
    """Return where a value ends."""
    if kind == STRUCT:
        return _struct(content, place)[1]
    if kind == BINARY:
        length, place = _varint(content, place)
        return place + length
    if kind not in LONG:
        raise ValueError(f"a header of its pages has a value of type {kind}")
    return place + LONG[kind]


def _varint(content: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte, place = content[place], place + 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, place


def _number(content: bytes, place: int) -> tuple[int, int]:
    """Return a whole number, negative ones being odd, and where it ends."""
    found, place = _varint(content, place)
    return found >> 1 ^ -(found & 1), place
