"""Ctrl-C and SIGTERM, held back while something is written that must not end in the middle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals wait until the block is done; then the first of them has its effect."""
    waiting: list[tuple[int, Any]] = []
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in found.items() if callable(handler)}  # others are the system's

    def wait(number: int, frame: Any) -> None:
        waiting.append((number, frame))

    try:
        for number in handlers:
            signal.signal(number, wait)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if waiting:
        first, frame = waiting[0]
        handlers[signal.Signals(first)](first, frame)
