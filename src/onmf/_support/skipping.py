"""A log of what is skipped."""

from __future__ import annotations

import logging

log = logging.getLogger("onmf")

MOST_NAMED = 20  # samples and batches that are skipped: a log has an end


class SkippedLog:
    """Called with each error; the first are named."""

    def __init__(self) -> None:
        self.named = 0

    def __call__(self, error: Exception) -> None:
        self.named += 1
        if self.named <= MOST_NAMED:
            log.warning("Skipped: %s", error)
        if self.named == MOST_NAMED:
            log.warning("What else is skipped will be counted, not named.")
