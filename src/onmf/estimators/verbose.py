"""What ``verbose`` prints: a line of progress now and then, for terminals, notebooks and logs alike."""

from __future__ import annotations

import time
from collections.abc import Callable

from onmf._support.wording import plural
from onmf.learner import Progress

EVERY = 1.0  # seconds between two lines, at least


def printer(verbose: int) -> Callable[[Progress], None]:
    """A callback that prints a line: with ``verbose=1`` once a second at most, with more after every batch."""
    last = -EVERY

    def show(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        ended = progress.samples == progress.total
        if verbose == 1 and now - last < EVERY and not ended:
            return
        last = now
        of = f" of {progress.total:,}" if progress.total else ""
        rate = progress.samples / max(progress.seconds, 1e-9)
        samples = f"{progress.samples:,}{of} {plural(progress.total or progress.samples, 'sample')}"
        print(f"[onmf] {samples}, {rate:,.0f} per second, loss {progress.loss:.5g}", flush=True)

    return show
