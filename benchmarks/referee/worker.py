"""A process that measures tasks for ``times`` with the library of one tree: a line in, a line out."""

from __future__ import annotations

import gc
import os
import sys
import time
import warnings
from functools import cache
from typing import Any


@cache
def task(name: str) -> Any:
    """The task of that name, made once and run once, so that all is imported, compiled and in the caches."""
    from benchmarks.referee.tasks import TASKS

    if name.startswith("torch"):
        import torch

        torch.set_num_threads(1)
    made = TASKS[name]()
    made.run(made.prepare())
    gc.collect()
    gc.freeze()  # what libraries hold is not looked at again
    return made


def measured(name: str, times: int) -> float:
    """CPU seconds of one run, the mean of several."""
    run, prepared = task(name).run, task(name).prepare()
    gc.collect()
    began = time.process_time()
    for _ in range(times):
        run(prepared)
    return (time.process_time() - began) / times


def main() -> None:
    """Answer "name;times" with seconds until there is no more to read."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed must not get among the answers
    sys.path.insert(0, os.path.join(sys.argv[1], "src"))
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        name, times = line.strip().split(";")
        print(measured(name, int(times)), file=answers, flush=True)


if __name__ == "__main__":
    main()
