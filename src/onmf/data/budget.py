"""The memory that reading a batch may take: ``memory``, an option of every scheme, or the variable ONMF_MEMORY.

Readers cut batches to fit. What cannot be cut (a format that is read whole, one chunk, one line, one picture) asks for
its room by ``no_room`` before it is allocated, since a small file may stand for any number of bytes.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

MEMORY, VARIABLE = "memory", "ONMF_MEMORY"
USUAL = "2GB"
UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LITTLE = 2**24  # bytes that are there whatever else runs
PARSED = 64  # bytes that a character of text may take when it is parsed: a short word is an object of its own
CGROUP = Path("/sys/fs/cgroup")  # where a container's own limit is told

given: ContextVar[int | None] = ContextVar("given", default=None)


@contextmanager
def within(text: str | None) -> Iterator[None]:
    """Apply the option ``memory`` to all that is opened within the block."""
    token = given.set(allowed() if text is None else parsed(text))
    try:
        yield
    finally:
        given.reset(token)


def allowed() -> int:
    """Return how many bytes reading may take, for what is opened now."""
    now = given.get()
    return parsed(os.environ.get(VARIABLE) or USUAL) if now is None else now


def parsed(text: str) -> int:
    """Return the bytes that a text such as ``500MB`` stands for, or raise ``ValueError``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)", text, re.ASCII)
    if found is None or found[2] not in UNITS or not (number := int(float(found[1]) * UNITS[found[2]])):
        raise ValueError(f"{MEMORY}, or the variable {VARIABLE}, must be a size such as 500MB or 4GB; got {text!r}.")
    return number


def spelt_bytes(number: int) -> str:
    """Return a size with at least two digits, rounded up."""
    unit = next((unit for unit in ("GB", "MB", "kB") if number >= UNITS[unit]), "")
    tenths = -(-10 * number // UNITS[unit])
    return f"{tenths / 10:g}{unit}" if tenths < 100 else f"{-(-tenths // 10)}{unit}"


def characters(memory: int) -> int:
    """Return how many characters of text can be parsed at a time."""
    return max(1, memory // PARSED)


def no_room(what: object, needed: int | None, memory: int) -> str | None:
    """Return why this many bytes must not be taken for something that cannot be cut; None if they may be.

    If it is not known how many they are, only that they are more than ``memory``, ``needed`` is None.
    """
    if needed is None or needed > memory:
        much = "more memory" if needed is None else f"{spelt_bytes(needed)} of memory, more"
        enough = f"a larger ?{MEMORY}=" if needed is None else f"?{MEMORY}={spelt_bytes(needed)}"
        return (
            f"{what} takes {much} than {MEMORY}={spelt_bytes(memory)} allows; if you trust the data, give {enough}, or "
            f"set {VARIABLE}."
        )
    free = free_memory() if needed > LITTLE else None
    if free is not None and needed > free / 2:
        return f"{what} takes {spelt_bytes(needed)} of memory, more than half of the {spelt_bytes(free)} that are free."
    return None


def free_memory() -> int | None:
    """Return the bytes that are free for programs, within the limit of a container; None if the system is silent."""
    try:
        free = _number("MemAvailable", Path("/proc/meminfo")) * 1024
    except (OSError, LookupError):
        return None
    with suppress(OSError, LookupError, ValueError):  # no container, or one without a limit ("max")
        free = min(free, int((CGROUP / "memory.max").read_text()) - _number("anon", CGROUP / "memory.stat"))
    return max(0, free)


def _number(name: str, file: Path) -> int:
    """Return a number of a file of lines ``NAME: NUMBER ...``."""
    return int(dict(line.split()[:2] for line in file.read_text().replace(":", "").splitlines())[name])
