"""One run at a time: a lock beside the file that a run writes again and again."""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from onmf.persistence.file import ModelFileError

if sys.platform != "win32":
    import fcntl


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Refuse ``path``, naming the other process, while another run is at work on it.

    The lock is the system's: it goes with its process, however that ends, and a file ``.lock`` that a killed process
    has left behind blocks nobody. Where there are no such locks, or no file can be made, nothing is locked.
    """
    place = path.with_name(
        f".onmf-{path.name[:100]}-{zlib.crc32(os.fsencode(path.name)):08x}.lock"
    )  # names have a limit
    handle = _locked(path, place)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                place.unlink()  # while it is locked: nobody else has it now
            os.close(handle)


def _locked(path: Path, place: Path) -> int | None:
    """The open lock file; None where the system cannot lock."""
    while sys.platform != "win32":
        try:
            handle = os.open(place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        except OSError:  # the run itself finds out whether it can write there
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
            os.close(handle)
            who = f"process {other}" if other.isdecimal() else "another process"
            raise ModelFileError(
                f"{path} is being written by {who}; wait until it has ended, or give another file."
            ) from None
        except OSError:  # a file system without locks
            os.close(handle)
            return None
        if _is_still(place, handle):
            os.truncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            return handle
        os.close(handle)  # its last owner has removed it in the meantime: try again
    return None


def _is_still(place: Path, handle: int) -> bool:
    try:
        return os.path.samestat(place.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
