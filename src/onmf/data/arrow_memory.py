"""The memory that a record batch of Arrow or a page of Parquet takes, found before pyarrow decompresses it."""

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
BOOLEAN, TRUE, WHOLE, BINARY, LISTS, STRUCT = (1, 2), 1, (4, 5, 6), 8, (9, 10), 12
LONGEST = 70  # bits of a number
LONG = {1: 1, 2: 1, 3: 1, 7: 8}  # bytes of a truth in a list, a byte and a fraction
# Fields of Parquet's footer: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData
GROUPS, COLUMNS, FACTS, PATH, COMPRESSED, DATA_PAGE, DICTIONARY_PAGE = 4, 1, 3, 3, 7, 9, 11
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


def row_groups(file: int, columns: Collection[str]) -> list[list[tuple[int, int]]]:
    """Return for each row group of a Parquet file where some of its columns begin and end, from its footer.

    Pyarrow's own description of a column ends the process where the footer is damaged.
    """
    end = os.fstat(file).st_size - 8
    length = _get("I", os.pread(file, 4, end), 0)
    footer, place, field, found = os.pread(file, length, end - length), 0, 0, []
    try:
        while field != GROUPS:
            field, kind, place = _field_head(footer, place, field)
            if field < GROUPS:
                _, place = _value(footer, place, kind)
        count, kind, place = _list_head(footer, place)
        for _ in range(count):
            group, place = _value(footer, place, kind)
            chunks = [chunk[FACTS] for chunk in group[COLUMNS]]
            found.append([_extent(chunk) for chunk in chunks if b".".join(chunk[PATH]).decode() in columns])
    except (IndexError, KeyError, TypeError):
        raise ValueError("its footer is damaged") from None
    return found


def _extent(chunk: dict[int, Any]) -> tuple[int, int]:
    first = min(filter(None, (chunk.get(DICTIONARY_PAGE), chunk[DATA_PAGE])), default=0)
    return first, first + chunk[COMPRESSED]


def require_small_pages(where: object, group: list[tuple[int, int]], file: int, memory: int) -> None:
    """Raise an error if the largest pages of a row group of Parquet, one of each column, do not fit into memory."""
    needed = sum(2 * max(_pages(file, first, end), default=0) for first, end in group)
    require_room(f"a row group of {where}", needed, memory)


def _pages(file: int, place: int, end: int) -> Iterator[int]:
    """Yield how many bytes each page becomes, from its header."""
    while place < end:
        for length in LENGTHS:
            header = os.pread(file, length, place)
            try:
                facts, after = _struct(header, 0)
                break
            except IndexError:
                if len(header) < length or length == LENGTHS[-1]:
                    return  # it breaks off, as pyarrow will say
        yield facts[2]
        place += after + max(0, facts[3])


def _struct(content: bytes, place: int) -> tuple[dict[int, Any], int]:
    """Return the values of a structure by their fields, and where it ends."""
    facts: dict[int, Any] = {}
    field = 0
    while content[place]:
        field, kind, place = _field_head(content, place, field)
        facts[field], place = (kind == TRUE, place) if kind in BOOLEAN else _value(content, place, kind)
    return facts, place + 1


def _field_head(content: bytes, place: int, last: int) -> tuple[int, int, int]:
    """Return the number of the field after the last, its type, and where its value begins."""
    head, place = content[place], place + 1
    if head >> 4:
        return last + (head >> 4), head & 15, place
    field, place = _number(content, place)
    return field, head & 15, place


def _value(content: bytes, place: int, kind: int) -> tuple[Any, int]:
    """Return a value, None where nobody asks for it, and where it ends."""
    if kind in WHOLE:
        return _number(content, place)
    if kind == STRUCT:
        return _struct(content, place)
    if kind in LISTS:
        count, kind, place = _list_head(content, place)
        values = []
        for _ in range(count):
            value, place = _value(content, place, kind)
            values.append(value)
        return values, place
    if kind != BINARY and kind not in LONG:
        raise ValueError(f"a description has a value of type {kind}")
    length, place = _varint(content, place) if kind == BINARY else (LONG[kind], place)
    content[place + length - 1]  # raises IndexError where it breaks off
    return content[place : place + length] if kind == BINARY else None, place + length


def _list_head(content: bytes, place: int) -> tuple[int, int, int]:
    """Return how many values a list has, their type, and where the first one begins."""
    head, place = content[place], place + 1
    count, place = _varint(content, place) if head >> 4 == 15 else (head >> 4, place)
    return count, head & 15, place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    while shift < LONGEST:
        byte, place = content[place], place + 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, place
    raise ValueError("a description has a number that never ends")


def _number(content: bytes, place: int) -> tuple[int, int]:
    """Return a whole number, negative ones being odd, and where it ends."""
    found, place = _varint(content, place)
    return found >> 1 ^ -(found & 1), place
