"""The log of samples that are skipped, and the names of rows that could not be read."""

import logging
from typing import Self

log = logging.getLogger("onmf")

MOST_NAMED = 20  # samples and batches that are skipped: a log has an end


class SkippedLog:
    """A log that is called with each error, and names the first of them."""

    def __init__(self) -> None:
        self.named = 0

    def __call__(self, error: Exception) -> None:
        self.named += 1
        if self.named <= MOST_NAMED:
            log.warning("Skipped: %s", error)
        if self.named == MOST_NAMED:
            log.warning("Further samples that are skipped will be counted, not named.")


class Unread(str):
    """The name of a row that comes as NaN because it could not be read, with the reason.

    The row keeps its place among the others, and the error that its NaN raises can say what is really wrong.
    """

    __slots__ = ("reason",)
    reason: ValueError

    def __new__(cls, name: str, reason: ValueError) -> Self:
        made = super().__new__(cls, name)
        made.reason = reason
        return made
