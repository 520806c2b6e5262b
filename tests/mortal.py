"""Tasks that die or dawdle, for tests of clusters. Workers are copies of a process that has imported this file."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import distributed  # noqa: F401

from onmf.coefficients.kernels import gram, simplex  # noqa: F401
from onmf.distributed import worker
from tests import processes

processes.prepare()


class Deadly:
    """A task that kills its process the first so many times that it is called, wherever that is."""

    def __init__(self, name: str, folder: Path, times: int = 1) -> None:
        self.__name__, self.folder, self.times, self.real = name, folder, times, getattr(worker, name)

    def __call__(self, *arguments: Any) -> Any:
        for number in range(self.times):
            try:
                os.close(os.open(self.folder / f"{self.__name__}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return self.real(*arguments)


class Slow:
    """A task that takes its time on one of two workers."""

    def __init__(self, name: str) -> None:
        self.__name__, self.real = name, getattr(worker, name)

    def __call__(self, *arguments: Any) -> Any:
        time.sleep(0.05 * (os.getpid() % 2) + 0.01)
        return self.real(*arguments)
