"""Singular and plural in messages, and lists of names."""

from collections.abc import Sequence

NAMED = 6  # of a list


def counted(number: int, noun: str, form: str = "") -> str:
    """Return ``1 sample`` or ``2 samples``; the number is formatted by ``form``."""
    return f"{number:{form}} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return the noun for 1, and its plural for any other number."""
    return noun if number == 1 else f"{noun}s"


def is_or_are(number: int) -> str:
    """Return the verb that goes with that number of things."""
    return "is" if number == 1 else "are"


def listed(items: Sequence[object], noun: str) -> str:
    """Return ``Components 3, 7 and 9``; only the first of many are named."""
    names = [str(item) for item in items[:NAMED]]
    if len(items) > NAMED:
        names.append(f"{len(items) - NAMED} more")
    text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{plural(len(items), noun)} {text}"
