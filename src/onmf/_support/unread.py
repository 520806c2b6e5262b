"""Names of rows that could not be read."""

from __future__ import annotations

from typing import Self


class Unread(str):
    """The name of a row that comes as NaN because it could not be read, and why.

    So the row keeps its place among the others, whatever happens to them on the way, and whoever refuses its NaN can
    say what is really wrong.
    """

    __slots__ = ("reason",)
    reason: ValueError

    def __new__(cls, name: str, reason: ValueError) -> Self:
        made = super().__new__(cls, name)
        made.reason = reason
        return made
