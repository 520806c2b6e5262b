"""How an experiment tells its progress; this one is silent, the command line draws bars."""

from __future__ import annotations


class Watch:
    """Told of every part of an experiment: how many there are, which one runs, and how far it is."""

    def begin(self, parts: int) -> None:
        """So many parts, finished ones included."""

    def part(self, title: str) -> None:
        """The next part."""

    def step(self, share: float) -> None:
        """The share of the part that is done."""

    def say(self, text: str) -> None:
        """Something worth knowing on the way."""
