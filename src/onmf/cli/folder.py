"""Folders that commands write several files to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onmf.cli.terminal import fail


@contextmanager
def folder_to_be(out: Path) -> Iterator[Path]:
    """The folder, made if it is not there; gone again if it was and nothing has come of it."""
    if out.exists() and not out.is_dir():
        fail(f"{out} is a file; give --out the name of a folder.")
    if not out.absolute().parent.is_dir():
        fail(f"cannot write {out}: {out.parent} does not exist.")
    made = not out.exists()
    try:
        out.mkdir(exist_ok=True)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}.")
    try:
        yield out
    finally:
        if made:
            with suppress(OSError):  # which it is, if there is something in it
                out.rmdir()
