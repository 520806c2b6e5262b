"""Files that are replaced as a whole: a reader finds the old one or the new one, never half of either."""

import contextlib
import errno
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
KINDS = {  # of files that are never replaced
    stat.S_ISDIR: "a directory",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISSOCK: "a socket",
}


class WriteError(ValueError):
    """Raised for a file that cannot be written; the message names the file and the reason."""


def require_replaceable(path: str | Path) -> Path:
    """Return where a file of that name lies, links followed, or raise an error if that is no ordinary file.

    A device or a pipe would be replaced by a file, for every other program as well.
    """
    try:
        place = Path(path).resolve()
        mode = place.stat().st_mode
    except FileNotFoundError:
        return place
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links that lead in a circle
        raise WriteError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}.") from None
    if not stat.S_ISREG(mode):
        what = next((name for is_one, name in KINDS.items() if is_one(mode)), "not an ordinary file")
        raise WriteError(f"cannot write {path}: it is {what}; give the name of a file.")
    return place


@contextlib.contextmanager
def replacing(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """Give a temporary path beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    A link is followed, and a file that is replaced keeps its permissions; the old file moves to ``previous``, if given.
    A disk that is full raises an error that names the file.
    """
    named, path = path, require_replaceable(path)
    temporary = _new_file_beside(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if previous is not None and path.exists():
            path.replace(previous)
        temporary.replace(path)
        _sync(path.parent)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise WriteError(f"cannot write {named}: {os.strerror(error.errno)}.") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _new_file_beside(path: Path) -> Path:
    """Make an empty file with the permissions of ``path``, or those that the umask gives any new file."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    while True:
        temporary = path.with_name(_prefix(path) + secrets.token_hex(4))
        with contextlib.suppress(FileExistsError):
            # Never more open than the file that it replaces, not even before chmod.
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode))
            break
    if mode is not None:
        try:
            temporary.chmod(mode)  # the umask may have taken some of it
        except OSError:
            temporary.unlink()
            raise
    return temporary


def reserve(file: int, begin: int, size: int) -> None:
    """Take space on the disk for a part of an open file, where the system can; a full disk raises its error."""
    try:
        os.posix_fallocate(file, begin, size)
    except AttributeError:  # not every system has it
        return
    except OSError as error:  # not every file system has it
        if error.errno in NO_ROOM:
            raise


def _prefix(path: Path) -> str:
    return f".onmf-{path.name[:100]}-"  # names have a limit


def clear_away(path: Path) -> None:
    """Remove the files that writers of ``path`` left beside it when they were killed; none may be at work."""
    path = path.resolve()
    random = "?" * 8  # any more characters belong to a longer name, whose writer may well be at work
    for left in path.parent.glob(glob.escape(_prefix(path)) + random):
        left.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make the new name survive a loss of power too, on systems that can synchronise folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
