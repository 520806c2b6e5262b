"""How an experiment reports its progress; this one is silent, the command line draws bars."""

from __future__ import annotations


class Watch:
    """Hears how many parts an experiment has, which one is running, and how far it is."""

    def begin(self, parts: int) -> None:
        """The number of parts, finished ones included."""

    def part(self, title: str) -> None:
        """The next part begins."""

    def step(self, share: float) -> None:
        """How much of the part is done, from 0 to 1."""

    def say(self, text: str) -> None:
        """A message worth showing."""
