"""Classes that are looked up by the names they register under: divergences, methods, coefficient solvers."""

from __future__ import annotations

import difflib
from abc import ABC
from typing import Any, ClassVar, Self


class UnknownNameError(ValueError):
    """A name that no class of the family has registered under."""

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
            known = cls._classes.get(spelling(key), cls)
            # The same class again is a notebook cell run twice or a module reloaded: the newer one counts.
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                owner = f"{known.__module__}.{known.__qualname__}"
                raise ValueError(f"the {cls._kind} name {key!r} is taken by {owner}; choose another.")
        cls.name, cls.aliases = name, aliases
        cls._classes.update({spelling(key): cls for key in (name, *aliases)})

    @classmethod
    def names(cls) -> list[str]:
        """All names in alphabetical order, without aliases."""
        return sorted({each.name for each in cls._classes.values()})

    @classmethod
    def find(cls, name: str) -> type[Self]:
        """The class registered under a name or an alias."""
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
        """The instance meant by an object, a name or ``"name:parameters"``."""
        if isinstance(meant, cls):
            return meant
        if isinstance(meant, type) and issubclass(meant, cls):
            raise TypeError(
                f"{cls._kind} is the class {meant.__name__}; write {meant.__name__}(), with its parameters."
            )
        if not isinstance(meant, str):
            kinds, known = f"a name or a {cls.__name__}", ", ".join(cls.names())
            raise TypeError(f"{cls._kind} must be {kinds}, not {type(meant).__name__}; the names are {known}.")
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
        """The instance that ``"name:text"`` stands for."""
        raise ValueError(f"{cls.name} takes no parameter, got {text!r}.")

    @classmethod
    def usage(cls) -> str:
        """How an instance is written as text, e.g. ``beta:1.5``."""
        return cls.name


def spelling(name: str) -> str:
    """A name without what does not count in it."""
    return name.lower().translate(str.maketrans("", "", "-_ "))
