"""Compiled code on disk, in a folder that is the user's alone, since loading it executes it.

Numba's own cache lies where ``.numba_config.yaml`` in the working directory says, and it ends a fit where no folder can
be written, a file is damaged or there is no room. Here every function has a file per signature, machine and
installation. A file begins with a digest of the source code and of the rest, so that old and damaged ones are noticed
before anything in them is used, and it is replaced as a whole, so that processes share it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.misc.appdirs import user_cache_dir

from onmf._support.atomic import WriteError, replacing

Function = TypeVar("Function", bound=Callable[..., Any])

PRIVATE = 0o700  # a folder that its owner alone can enter
CURE = "set NUMBA_CACHE_DIR to a folder that you can write"


def cached_njit(**options: Any) -> Callable[[Function], Function]:
    """Return ``numba.njit`` that lets other threads run and keeps what it has compiled."""

    def decorated(function: Function) -> Function:
        compiled: Any = numba.njit(nogil=True, **options)(function)
        compiled._cache = KernelCache(function)  # what ``cache=True`` would set
        return compiled

    return decorated


@cache
def folder() -> Path | None:
    """Return the first folder for compiled code that is the user's alone and can be written; None: there is none."""
    for place in _places():
        try:
            place.mkdir(PRIVATE, parents=True, exist_ok=True)
            if _is_private(place.lstat()) and os.access(place, os.W_OK):
                return place
        except OSError:  # a read-only disk, a home that is not there
            continue
    return None


def _places() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")  # not numba.config's, which a file in the working directory may set
    usual = Path(given, "onmf").absolute() if given else Path(user_cache_dir("onmf", False))  # type: ignore[no-untyped-call]
    if usual.is_absolute():  # else there is no home
        yield usual
    try:
        yield Path(tempfile.gettempdir(), f"onmf-{os.geteuid() if hasattr(os, 'geteuid') else 'cache'}")
    except FileNotFoundError:
        return


def _is_private(found: os.stat_result) -> bool:
    """Tell whether this is a folder, not a link to one, that the user owns and nobody else can enter."""
    return stat.S_ISDIR(found.st_mode) and _is_own(found) and (os.name == "nt" or not found.st_mode & ~PRIVATE & 0o777)


def _is_own(found: os.stat_result) -> bool:
    return os.name == "nt" or found.st_uid == os.geteuid()  # Windows keeps a user's folders from others


class KernelCache(NullCache):
    """The cache that Numba asks for a function's compiled code before it compiles, and gives the code to afterwards."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.source = function, _digest_of_sources(Path(function.__code__.co_filename).parent)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, or None if it is not there."""
        target_context.refresh()
        try:
            with self._path(sig, target_context.codegen()).open("rb") as file:
                content = file.read() if _is_own(os.fstat(file.fileno())) else b""
        except OSError:
            return None
        digest, code = content[:32], content[32:]
        if digest != self._digest(code):
            return None
        reduced = pickle.loads(code)  # noqa: S301 - the user's own
        return CompileResult._rebuild(target_context, *reduced)  # type: ignore[no-untyped-call]

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the compiled function; where that fails it is compiled again another time."""
        if folder() is None or data.library.has_dynamic_globals:
            return
        code = dumps(data._reduce())  # type: ignore[no-untyped-call]
        try:
            with replacing(self._path(sig, data.codegen)) as temporary:
                temporary.write_bytes(self._digest(code) + code)
        except (OSError, WriteError) as error:
            reason = error.__cause__ or error  # which does not name the file: one warning for all
            _warn(getattr(reason, "strerror", None) or str(reason))

    def _path(self, sig: Any, codegen: Any) -> Path:
        function = self.function
        versions = numba.__version__, sys.version, codegen.magic_tuple()  # of the compiler, and of the processor
        key = repr((function.__code__.co_filename, function.__qualname__, sig, versions))
        return Path(folder() or os.devnull, f"{function.__name__}-{hashlib.sha256(key.encode()).hexdigest()}.bin")

    def _digest(self, code: bytes) -> bytes:
        return hashlib.sha256(self.source + code).digest()


@cache
def _digest_of_sources(folder: Path) -> bytes:
    """Return a digest of all source code in a folder: functions use those of the files beside their own."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).digest()


@cache
def _warn(reason: str) -> None:
    """Log, once, that compiled code cannot be kept."""
    text = "Compiled code cannot be kept in %s (%s), and every run compiles for a few seconds; make room there, or %s."
    logging.getLogger("onmf").warning(text, folder(), reason, CURE)
