"""Checkpoints: a fit on disk, so that after a crash it continues as if nothing had happened."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onmf import divergences, methods
from onmf._support.atomic import WriteError, clear_away, require_replaceable
from onmf._support.checks import require_at_least
from onmf.divergences import Divergence
from onmf.learner import Learned
from onmf.model.settings import ONLINE
from onmf.persistence import file, model
from onmf.persistence.file import ModelFileError, UnreadableFileError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("onmf")

MAY_DIFFER = [each.name for each in ONLINE if each.may_differ]
LONGEST = 20  # digits of the number of a process, which a lock holds


@dataclass
class Checkpoint:
    """A file that holds the whole state of a fit: ``model.fit(X, checkpoint=Checkpoint("run.safetensors"))``.

    It is written atomically once ``every`` seconds have passed since the last time and something was learnt in them,
    also while a silent stream is waited for, and at the end; the file before it is kept as ``.previous``. If the disk
    is full or the folder cannot be written, that is logged, learning continues, and the last good file stays. A
    checkpoint is a model file too: ``onmf.load`` reads it.

    A run that is resumed reads its last batch again and compares it, where the source can begin there (arrays, .npy,
    Parquet, Zarr, HDF5, .h5ad, pictures); elsewhere it reads the pass again.

    Parameters
    ----------
    path : str or Path
        The file.
    every : float, default 30
        Seconds from one writing to the next.
    verify : bool
        Whether a run that is resumed always reads the pass again, and compares all that it has learnt from in it.
    forget_removed : bool
        Whether files that were learnt from may be gone.

    Examples
    --------
    >>> run = onmf.Checkpoint("run.safetensors", every=10)
    >>> _ = OnlineNMF(3, random_state=0).fit(X, checkpoint=run)
    >>> onmf.load("run.safetensors").n_samples_seen_
    60
    """

    path: str | Path
    every: float = 30.0
    verify: bool = False
    forget_removed: bool = False
    failures: int = field(default=0, init=False)  # in a row
    _last: float = field(default=0.0, repr=False, init=False)  # when it was written, or the fit began

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        require_at_least(0, every=self.every)

    @classmethod
    def of(cls, given: Checkpoint | str | Path) -> Checkpoint:
        """Return the checkpoint that ``fit`` was asked for."""
        keep = cls(given) if isinstance(given, (str, Path)) else given
        if not isinstance(keep, Checkpoint):
            raise TypeError(f"checkpoint takes a file name or an onmf.Checkpoint, got {type(given).__name__}.")
        return keep

    @property
    def previous(self) -> Path:
        """The file before the last."""
        return self._beside("previous")

    @property
    def _damaged(self) -> Path:
        """The place for a damaged file, so that it is not lost."""
        return self._beside("damaged")

    @property
    def age(self) -> float | None:
        """The seconds since it was written; None if there is no file."""
        with contextlib.suppress(OSError):
            return max(0.0, time.time() - Path(self.path).stat().st_mtime)
        return None

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Keep other runs from writing to the same file meanwhile, or raise an error if one does already."""
        return lock_file(_replaceable(self.path))

    def exists(self) -> bool:
        """Tell whether there is a run to resume."""
        return Path(self.path).exists() or self.previous.exists()

    def opened(self, settings: Mapping[str, Any], resume: bool) -> Learned | None:
        """Return what the run in this file had learnt with the same settings, to resume it; None to begin.

        These are errors, before anything is learnt: another run's file unless ``resume``, other settings than that run
        had, and what could not be written.
        """
        path, self._last = Path(self.path), time.monotonic()
        model.require_storable(settings)
        for place in (path, self.previous, self._damaged):
            _replaceable(place)
        if not self.exists():
            if not path.resolve().parent.is_dir():
                raise ModelFileError(f"cannot write {path}: there is no folder {path.parent}.")
            return None
        if not resume:
            raise ModelFileError(
                f"{path} holds an earlier run; continue it with resume=True (--resume), or choose another file."
            )
        clear_away(path)
        found, fault, then, learned = self._last_good(divergences.get(settings["divergence"]))
        if fault is not None:
            log.warning("%s Continuing from the previous one, %s.", fault, found)
        _require_same(path, then, settings)
        if found == self.previous:  # it takes the place of the damaged file: the next one must not push it out
            if path.exists():
                path.replace(self._damaged)
            found.replace(path.resolve())
        return learned

    def seconds_left(self) -> float:
        """Return how long it is until the next time to write."""
        return self.every - (time.monotonic() - self._last)

    def write(self, settings: Mapping[str, Any], learned: Learned) -> bool:
        """Write now, and return whether that was done; if not, the log says why.

        A file that has been damaged since it was written does not take the place of the good one before it.
        """
        self._last, path = time.monotonic(), Path(self.path)
        try:
            damaged = path.is_file() and not file.is_intact(path)
            if damaged:
                log.warning("%s is damaged, or not a model of onmf; it is kept as %s.", path, self._damaged)
            file.write(path, *model.contents(settings, learned), previous=self._damaged if damaged else self.previous)
        except (ModelFileError, MemoryError) as error:
            self.failures += 1
            log.warning("No checkpoint could be written; learning continues: %s", str(error) or "not enough memory.")
            return False
        self.failures = 0
        return True

    def read(self, own: Divergence | None = None) -> tuple[dict[str, Any], Learned]:
        """Return the settings and what was learnt; from the file before the last if the last one is lost or damaged."""
        return self._last_good(own)[2:]

    def _last_good(self, own: Divergence | None) -> tuple[Path, ModelFileError | None, dict[str, Any], Learned]:
        """Return the newest good file, the error of a newer one if there is any, and what the file holds."""
        if not self.exists():
            raise ModelFileError(f"there is no checkpoint {self.path} to resume.")
        try:
            return Path(self.path), None, *model.read(self.path, own)
        except UnreadableFileError:  # the file may be sound: the one before it must not take its place
            raise
        except ModelFileError as error:
            with contextlib.suppress(ModelFileError):
                return self.previous, error, *model.read(self.previous, own)
            raise

    def _beside(self, suffix: str) -> Path:
        path = Path(os.path.realpath(self.path))  # beside the file itself, not beside a link to it
        return path.with_name(f"{path.name}.{suffix}")


class Keeper:
    """What a run has learnt, written to its checkpoint when it is time, be it after a batch or while none comes.

    A thread of its own waits for that time. What was learnt is a value that no later batch changes, so that it can be
    written while the next one is learnt from.
    """

    def __init__(self, checkpoint: Checkpoint, settings: Mapping[str, Any], learned: Learned | None) -> None:
        self.checkpoint, self.settings, self.learned, self.kept = checkpoint, settings, learned, learned
        self.lock, self.waiting, self.over = threading.Lock(), threading.Event(), threading.Event()
        self.clock = threading.Thread(target=self._write_in_time, name="onmf-checkpoint", daemon=True)

    def __enter__(self) -> Keeper:
        self.clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is not kept yet: at the end, and before an error or Ctrl-C gets away."""
        self.over.set()
        self.waiting.set()
        self.clock.join()
        self._write()

    def write_if_due(self) -> None:
        """Write what was learnt up to now if it is time; else that is done in time."""
        with self.lock:
            if self.checkpoint.seconds_left() <= 0:
                self._write()
            else:
                self.waiting.set()

    def _write(self) -> None:
        self.waiting.clear()
        learned = self.learned
        if learned is not None and learned is not self.kept and self.checkpoint.write(self.settings, learned):
            self.kept = learned

    def _write_in_time(self) -> None:
        while self.waiting.wait() and not self.over.wait(max(0.0, self.checkpoint.seconds_left())):
            with self.lock:
                if self.checkpoint.seconds_left() <= 0:  # else a batch has come in between
                    self._write()


def _replaceable(path: str | Path) -> Path:
    try:
        return require_replaceable(path)
    except WriteError as error:
        raise ModelFileError(str(error)) from None


def _require_same(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise an error for other settings than the run was begun with."""
    kept, given = model.stored(then), model.stored(now)
    other = [name for name in kept if name not in MAY_DIFFER and kept[name] != given[name]]
    for name in model.ARRAYS:
        if name not in other and not np.array_equal(then[name], now[name]):
            other.append(name)
    if not divergences.same(*(divergences.get(settings["divergence"]) for settings in (then, now))):
        other.append("divergence")
    if other:
        listed = ", ".join(_difference(name, then[name], now[name]) for name in other)
        raise ValueError(f"{path} was begun with other settings ({listed}); give the same ones, or another checkpoint.")


def _difference(name: str, then: Any, now: Any) -> str:
    """Return the setting's name and, where that helps, its two values."""
    words = {"method": methods.get, "divergence": divergences.get}.get(name, lambda value: value)
    before, after = repr(words(then)), repr(words(now))
    arrays = isinstance(then, np.ndarray) or isinstance(now, np.ndarray)
    return name if arrays or before == after else f"{name} {before}, not {after}"


# The lock beside the file, since a run writes it again and again


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Raise an error that names the other process if another run is at work on ``path``, and lock it otherwise.

    The lock is the system's: it goes with its process, however that ends, and a file ``.lock`` that a killed process
    has left behind blocks nobody. Where there are no such locks, or no file can be made, nothing is locked. Anything
    else of that name raises an error and is left alone: in a shared folder anybody may have put it there.
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
    """Return the open lock file; None where the system cannot lock."""
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
    """Tell whether a run could have made it: an ordinary file with one name, no longer than a process number."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1 and found.st_size <= LONGEST


def _require_ordinary(place: Path) -> None:
    """Raise an error for what could not be opened because it is no file."""
    with contextlib.suppress(OSError):
        found = place.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise _not_ours(place)


def _not_ours(place: Path) -> ModelFileError:
    return ModelFileError(
        f"{place} is in the way: the lock of a run has this name, but it is a link or something else that no run has "
        "made; remove it."
    )
