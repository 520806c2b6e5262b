"""Classes that are looked up by their names: divergences, methods, coefficient solvers."""

import dataclasses
import difflib
from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np


class UnknownNameError(ValueError):
    """Raised for a name that no class of the family has registered under."""

    kind = name = ""  # of the family, and what was asked of it


class Registered(ABC):
    """A family of classes; ``class KullbackLeibler(Divergence, name="kl")`` registers one with its family.

    The head of a family says what it is: ``class Divergence(Registered, kind="divergence")``. In a name, upper and
    lower case are the same, and ``-``, ``_`` and spaces do not count.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    _kind: ClassVar[str]
    _classes: ClassVar[dict[str, Any]]  # by ``spelling`` of the name and of the aliases

    def __init_subclass__(cls, name: str = "", aliases: tuple[str, ...] = (), kind: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind:
            cls._kind, cls._classes = kind, {}
        if not name:
            return
        for key in (name, *aliases):
            other = cls._classes.get(spelling(key), cls)
            # The same class again is a notebook cell run twice or a module reloaded: the newer one counts.
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                owner = f"{other.__module__}.{other.__qualname__}"
                raise ValueError(f"the {cls._kind} name {key!r} is taken by {owner}; choose another.")
        cls.name, cls.aliases = name, aliases
        cls._classes.update({spelling(key): cls for key in (name, *aliases)})

    @classmethod
    def names(cls) -> list[str]:
        """Return all names in alphabetical order, without aliases."""
        return sorted({each.name for each in cls._classes.values()})

    @classmethod
    def find(cls, name: str) -> type[Self]:
        """Return the class registered under a name or an alias."""
        found = cls._classes.get(spelling(name))
        if found is None:
            written = {spelling(key): key for each in cls._classes.values() for key in (each.name, *each.aliases)}
            close = difflib.get_close_matches(spelling(name), written, n=1)
            hint = f" (did you mean {written[close[0]]!r}?)" if close else ""
            error = UnknownNameError(f"unknown {cls._kind} {name!r}{hint}; choose one of {', '.join(cls.names())}.")
            error.kind, error.name = cls._kind, name
            raise error
        return found

    @classmethod
    def get(cls, meant: Self | str) -> Self:
        """Return the instance meant by an object, a name or ``"name:parameters"``."""
        if isinstance(meant, cls):
            return meant
        if isinstance(meant, type) and issubclass(meant, cls):
            raise TypeError(
                f"{cls._kind} is the class {meant.__name__}; write {meant.__name__}(), with its parameters."
            )
        if not isinstance(meant, str):
            kinds, names = f"a name or a {cls.__name__}", ", ".join(cls.names())
            raise TypeError(f"{cls._kind} must be {kinds}, not {type(meant).__name__}; the names are {names}.")
        name, colon, text = meant.partition(":")
        found = cls.find(name)
        if colon:
            return found.parse(text)
        try:
            return found()
        except TypeError:
            raise ValueError(f"{name!r} needs a parameter; write {found.usage()}.") from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the instance that ``"name:text"`` stands for."""
        raise ValueError(f"{cls.name} takes no parameter, got {text!r}.")

    @classmethod
    def usage(cls) -> str:
        """Return how an instance is written as text, e.g. ``beta:1.5``."""
        return cls.name


def spelling(name: str) -> str:
    """Return a name in lower case, without the characters that do not count."""
    return name.lower().translate(str.maketrans("", "", "-_ "))


class Constants(Registered):
    """A registered frozen dataclass, written ``"name:constant=value,..."`` or as an object."""

    def __repr__(self) -> str:
        """Return the class with the constants that differ from their defaults."""
        changed = self.changed().items()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed)})"

    def constants(self) -> dict[str, Any]:
        """Return the constants by name."""
        return {name: getattr(self, name) for name in self.constant_names()}

    def changed(self) -> dict[str, Any]:
        """Return the constants that differ from their defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in self.constants().items() if value != defaults[name]}

    def text(self) -> str:
        """Return a text that ``get`` reads back; constants of a constant stand beside it, as in ``step=NAME,a=1``."""
        constants = ",".join(f"{name}={_text(value)}" for name, value in self.changed().items())
        return f"{self.name}:{constants}" if constants else self.name

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the instance that ``"name:text"`` means: constants as NAME=VALUE with commas between."""
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
        """Return the instance with these constants; one that the class does not have raises an error."""
        cls.require_known(constants, cls.constant_names())
        return cls(**constants)

    def with_constants(self, **constants: Any) -> Self:
        """Return an instance with some constants replaced."""
        return type(self).make(self.constants() | constants)

    @classmethod
    def constant_names(cls) -> list[str]:
        """Return the names of all constants, in their order."""
        return [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]

    @classmethod
    def require_known(cls, given: Mapping[str, Any], known: list[str]) -> None:
        """Raise an error if a constant is given that is not among the known ones."""
        for key in given:
            if key not in known:
                has = f"its constants are {', '.join(known)}" if known else "it has none"
                raise ValueError(f"{cls._kind} {cls.name!r} has no constant {key!r}; {has}.")


def _text(value: Any) -> str:
    """Return a text that ``_value`` reads back."""
    if isinstance(value, Constants):
        return value.text().replace(":", ",", 1)
    return str(value.item() if isinstance(value, np.generic) else value).removesuffix(".0")


def _value(text: str) -> Any:
    """Return a constant from its text: a number (whole ones stay whole), true, false, none, or a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
