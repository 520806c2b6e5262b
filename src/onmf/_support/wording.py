"""Singular and plural in messages."""


def counted(number: int, noun: str, form: str = "") -> str:
    """Return ``1 sample`` or ``2 samples``; the number is formatted by ``form``."""
    return f"{number:{form}} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return the noun for 1, and its plural for any other number."""
    return noun if number == 1 else f"{noun}s"


def is_or_are(number: int) -> str:
    """Return the verb that goes with that number of things."""
    return "is" if number == 1 else "are"
