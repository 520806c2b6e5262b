"""The names of rows that could not be read."""

from typing import Self


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
