"""The files that data are read from: what the user names, and regular files that lie within it.

A path that the user names may be a symbolic link or a pipe. What lies inside a folder, a store or an HDF5 file was
perhaps put there by somebody else: links that lead out of it raise an error unless the user gives ``links=follow``, an
option of every scheme, and pipes, devices and sockets always do, since reading them may never end.
"""

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from onmf.data.base import SourceError
from onmf.data.pipes import not_utf8

LINKS = "links"  # the option
CURE = f"give ?{LINKS}=follow to read what such links lead to"
SPECIAL = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}

_follow: ContextVar[bool] = ContextVar("_follow", default=False)


@contextmanager
def opening(links: str | None) -> Iterator[None]:
    """Apply the option ``links`` to all that is opened within the block, so that no opener has to know of it."""
    if links not in (None, "follow"):
        raise SourceError(f"{LINKS} must be follow, or be left out; got {links!r}.")
    token = _follow.set(links is not None)
    try:
        yield
    finally:
        _follow.reset(token)


def matching(path: Path, suffixes: Sequence[str], deep: bool = False) -> list[Path]:
    """Return the file itself, the files that match a pattern, or those in a folder that have one of the suffixes.

    ``deep`` also looks in the folder's own folders, except hidden ones, logs such as _delta_log, and links.
    """
    if path.is_dir():
        missing = f"has no files that end in {', '.join(suffixes)}"
        found = [each for each in path.glob("**/*" if deep else "*") if each.suffix.lower() in suffixes]
        if deep:
            found = [each for each in found if not any(part[0] in "._" for part in each.relative_to(path).parts)]
    elif path.exists():
        return [path]
    else:
        missing = "matches no files"
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]
    files = sorted(each for each in found if not each.is_dir())
    if not files:
        raise SourceError(f"{path} {missing}; give a folder, or a pattern such as 'folder/*{suffixes[0]}'.")
    if odd := [each.name for each in files if not_utf8(each.name)]:
        raise SourceError(f"the name {odd[0]!a} in {_folder(path)} is not UTF-8; rename the file.")
    require_own(_folder(path), files)
    return files


def named(path: Path, files: Sequence[Path]) -> dict[str, Path]:
    """Return files by names that stay the same when the folder moves: relative to it, or to where a pattern begins."""
    folder = _folder(path)
    return {file.relative_to(folder).as_posix(): file for file in files}


def _folder(path: Path) -> Path:
    """Return the folder itself, or the one where a pattern begins."""
    while glob.has_magic(str(path)) or not path.is_dir():
        path = path.parent
    return path


def require_own(folder: Path, files: Iterable[Path]) -> None:
    """Raise an error if one of a folder's files is special, or lies elsewhere and links are not followed.

    A file that is not there passes: its reader says so, or leaves it out.
    """
    home, real = os.path.realpath(folder), cache(os.path.realpath)
    for file in files:
        target = os.path.realpath(file) if file.is_symlink() else os.path.join(real(file.parent), file.name)
        if not _follow.get() and os.path.commonpath([home, target]) != home:
            raise SourceError(f"{file} leads out of {folder}, to {target}; {CURE}.")
        try:
            kind = SPECIAL.get(stat.S_IFMT(file.stat().st_mode))
        except OSError:
            continue
        if kind is not None:
            raise SourceError(f"{file} is {kind}, which holds no samples; remove it from {folder}.")


def names_below(folder: Path, store: Path) -> Iterator[str]:
    """Yield the names of all files in a folder of a store and in the folders within, in any order and checked."""
    waiting, entered = [str(folder)], set[str]()
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    yield entry.name
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    require_own(store, [Path(entry.path)])
                    target = os.path.realpath(entry.path)
                    if not entry.is_dir():
                        yield entry.name
                    elif target not in entered:  # links may lead in circles
                        entered.add(target)
                        waiting.append(entry.path)


def require_own_content(path: Path, file: Any) -> None:
    """Raise an error if an HDF5 file leads to other files and links are not followed; soft links stay within it."""
    import h5py

    def leads_out(name: str, item: Any) -> str | None:
        virtual = isinstance(item, h5py.Dataset) and item.is_virtual
        elsewhere = virtual and any(each.file_name != "." for each in item.virtual_sources())
        return name if elsewhere or (isinstance(item, h5py.Dataset) and item.external) else None

    def is_external(name: bytes, link: Any) -> str | None:
        return None if link.type in (h5py.h5l.TYPE_HARD, h5py.h5l.TYPE_SOFT) else name.decode(errors="replace")

    if not _follow.get():
        found = file.id.links.visit(is_external, info=True) or file.visititems(leads_out)
        if found is not None:
            raise SourceError(f"{path} leads to another file at {found!r}; {CURE}.")
