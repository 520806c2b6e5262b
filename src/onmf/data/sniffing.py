"""What standard input holds, by its first bytes and lines: numbers are never taken for words."""

from __future__ import annotations

import csv
import json
import string
from pathlib import Path

from onmf.data.base import SourceError
from onmf.data.pipes import first_bytes, first_lines, name_of
from onmf.data.spec import spelt
from onmf.data.tables import is_number

LINES = 3  # perhaps one of names, and two of samples
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


def refuse_all_but_texts() -> None:
    """Refuse a bare ``-`` that does not hold texts, with the scheme to write instead; it stays to be read."""
    _refuse_binary(Path("-"), first_bytes(), "texts")
    instead = _scheme(first_lines(LINES))
    if instead is not None:
        raise SourceError(f"standard input does not hold texts; write {instead} to read it, or text:- to count words.")


def refuse_another_format(path: Path, head: bytes, wanted: str) -> None:
    """Refuse what begins as another format than that which was ``wanted``; the cause is plain only now."""
    _refuse_binary(path, head, wanted)
    if head and all(byte in PRINTED for byte in head):
        those = f"csv:{path}, tsv:{path} or jsonl:{path}"
        raise SourceError(f"{name_of(path)} holds text, not {wanted}; write {those} to read it.")


def _refuse_binary(path: Path, head: bytes, wanted: str) -> None:
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


def _scheme(lines: list[str]) -> str | None:
    """What to write instead; None for texts."""
    if not lines:
        return None
    if lines[0].lstrip()[0] in "{[":
        return _json(lines[0])
    samples = lines[1:] or lines
    for delimiter, scheme in ((",", "csv:-"), ("\t", "tsv:-"), (";", "csv:- with commas")):
        rows = list(csv.reader((line.rstrip("\r\n") for line in samples), delimiter=delimiter))
        if all(len(row) > 1 and _mostly_numbers(row) for row in rows):
            return scheme
    if all(_mostly_numbers(line.split(), share=1.0) for line in samples):
        return "csv:- with commas" if any(len(line.split()) > 1 for line in samples) else "csv:-"
    return None


def _json(line: str) -> str | None:
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
    """Beside numbers a sample may have a name, a time, and gaps."""
    filled = [field for field in fields if field.strip()]
    numbers = sum(map(is_number, filled))
    return numbers > 0 and numbers >= share * len(filled)
