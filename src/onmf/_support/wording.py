"""How numbers of things are written in messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 sample``, ``2 samples``."""
    return f"{number} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """The noun as it stands after that number."""
    return noun if number == 1 else f"{noun}s"


def is_or_are(number: int) -> str:
    """The verb after that number of things."""
    return "is" if number == 1 else "are"
