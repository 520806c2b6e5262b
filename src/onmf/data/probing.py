"""A first look at a file in a process of its own.

On damaged metadata a library written in C may go round in circles or crash, and nothing in Python can stop it: only
that process is lost then.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from onmf.data.base import SourceError

PATIENCE = 60.0  # seconds, for a slow disk


def require_harmless(path: Path, look: str, *arguments: str) -> None:
    """Refuse a file that ``look``, a short script, crashes on or does not come to an end with.

    Errors of Python in the script do not count: whoever reads the file meets them too, and can say what they mean.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return  # there is no Python to start
    command = [sys.executable, "-P", "-c", look, str(path), *arguments]  # -P: no modules from the current folder
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise SourceError(f"{path} is damaged: reading it did not finish within {PATIENCE:g} seconds.") from None
    if done.returncode < 0:
        raise SourceError(f"{path} is damaged: the library that reads it crashes.")
