"""Registered classes that are frozen dataclasses, their fields being constants: as text, as keywords, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from onmf._support.registry import Registered


class Constants(Registered):
    """A registered frozen dataclass, written ``"name:constant=value,..."`` or as an object."""

    def __repr__(self) -> str:
        """The constants that differ from their defaults."""
        changed = self.changed().items()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed)})"

    def constants(self) -> dict[str, Any]:
        """The constants by name."""
        return {name: getattr(self, name) for name in self.constant_names()}

    def changed(self) -> dict[str, Any]:
        """Those that differ from their defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in self.constants().items() if value != defaults[name]}

    def text(self) -> str:
        """What ``get`` makes the same object of; constants of a constant stand beside it, as in ``step=NAME,a=1``."""
        constants = ",".join(f"{name}={_text(value)}" for name, value in self.changed().items())
        return f"{self.name}:{constants}" if constants else self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        """The instance that ``"name:text"`` means: constants as NAME=VALUE with commas between."""
        values = {}
        for part in text.split(","):
            key, equals, value = part.partition("=")
            if not equals or not value.strip():
                raise ValueError(f"{cls.name}:{text}: write constants as NAME=VALUE with commas between; got {part!r}.")
            if key.strip() in values:
                raise ValueError(f"{cls.name}:{text}: {key.strip()} is given twice.")
            values[key.strip()] = _value(value.strip())
        return cls.make(values)

    @classmethod
    def make(cls, constants: Mapping[str, Any]) -> Self:
        """The instance with these constants; one that the class does not have is refused by name."""
        cls.require_known(constants, cls.constant_names())
        return cls(**constants)

    def with_constants(self, **constants: Any) -> Self:
        """The same with some constants replaced."""
        return type(self).make(self.constants() | constants)

    @classmethod
    def constant_names(cls) -> list[str]:
        """All of them, in their order."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def require_known(cls, given: Mapping[str, Any], known: list[str]) -> None:
        """Refuse a constant that is not among the known ones."""
        for key in given:
            if key not in known:
                has = f"its constants are {', '.join(known)}" if known else "it has none"
                raise ValueError(f"{cls._kind} {cls.name!r} has no constant {key!r}; {has}.")


def _text(value: Any) -> str:
    """What ``_value`` reads."""
    if isinstance(value, Constants):
        return value.text().replace(":", ",", 1)
    return str(value.item() if isinstance(value, np.generic) else value).removesuffix(".0")


def _value(text: str) -> Any:
    """A constant on the command line: a number (whole ones stay whole), true, false, none, or a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
