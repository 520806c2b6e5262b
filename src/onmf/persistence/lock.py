"""One run at a time: a lock beside the file that a run writes again and again."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from onmf.persistence.file import ModelFileError

if sys.platform != "win32":
    import fcntl

LONGEST = 20  # digits of the number of a process


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Refuse ``path``, naming the other process, while another run is at work on it.

    The lock is the system's: it goes with its process, however that ends, and a file ``.lock`` that a killed process
    has left behind blocks nobody. Where there are no such locks, or no file can be made, nothing is locked. What has
    its name and is no file of its kind is refused untouched: in a shared folder anybody may have put it there.
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
            # Neither through a link, nor waiting for who reads a pipe.
            handle = os.open(place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        except OSError:  # the run itself finds out whether it can write there
            _require_ordinary(place)
            return None
        if not _is_ours(os.fstat(handle)):
            os.close(handle)
            raise _not_ours(place)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = os.pread(handle, LONGEST, 0).decode("ascii", "replace").strip()
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
        return os.path.samestat(place.lstat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _is_ours(found: os.stat_result) -> bool:
    """Could a run have made it? An ordinary file of no other name, and of no more than the number of a process."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1 and found.st_size <= LONGEST


def _require_ordinary(place: Path) -> None:
    """Refuse what could not be opened because it is no file."""
    with contextlib.suppress(OSError):
        found = place.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise _not_ours(place)


def _not_ours(place: Path) -> ModelFileError:
    return ModelFileError(
        f"{place} is in the way: the lock of a run has this name, but it is a link or something else that no run has "
        "made; remove it."
    )
