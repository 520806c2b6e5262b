"""What standard input holds, by its first bytes and lines: numbers are never taken for words."""

from __future__ import annotations

import csv
import json

from onmf.streams.base import SourceError
from onmf.streams.pipes import first_bytes, first_lines
from onmf.streams.tables import is_number

LINES = 3  # perhaps one of names, and two of samples
STREAMS = {b"\x93NUMPY": ("a NumPy array", "npy:-"), b"\xff\xff\xff\xff": ("an Arrow stream", "arrow:-")}
FILES = {
    b"PAR1": "Parquet",
    b"ARROW1": "an Arrow file",
    b"\x89HDF": "HDF5",
    b"PK\x03\x04": "a zip archive, perhaps .npz",
}
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


def refuse_all_but_texts() -> None:
    """Refuse a bare ``-`` that does not hold texts, with the scheme to write instead; it stays to be read."""
    head = first_bytes()
    for magic, (what, scheme) in STREAMS.items():
        if head.startswith(magic):
            raise SourceError(f"standard input holds {what}, not texts; write {scheme} to read it.")
    for magic, what in FILES.items():
        if head.startswith(magic):
            raise SourceError(f"standard input holds {what}, which no pipe can deliver; write it to a file first.")
    for magic, what in COMPRESSED.items():
        if head.startswith(magic):
            raise SourceError(f"standard input is compressed by {what}; decompress it first.")
    instead = _scheme(first_lines(LINES))
    if instead is not None:
        raise SourceError(f"standard input does not hold texts; write {instead} to read it, or text:- to count words.")


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
    if texts:
        return f"jsonl:-?field={max(texts, key=lambda name: len(found[name]))}"
    return f"jsonl:-?features={','.join(numbers)}" if numbers else "jsonl:-?field=NAME"


def _mostly_numbers(fields: list[str], share: float = 0.5) -> bool:
    """Beside numbers a sample may have a name, a time, and gaps."""
    filled = [field for field in fields if field.strip()]
    numbers = sum(map(is_number, filled))
    return numbers > 0 and numbers >= share * len(filled)
