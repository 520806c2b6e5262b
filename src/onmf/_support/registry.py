"""Classes that are found by the names they give themselves: divergences, methods."""

from __future__ import annotations

import difflib
from abc import ABC
from typing import Any, ClassVar, Self


class Registered(ABC):
    """A family of classes; ``class KullbackLeibler(Divergence, name="kl")`` puts one on its family's list.

    The head of a family says what it is: ``class Divergence(Registered, kind="divergence")``. Names are read without
    regard to case, and ``-``, ``_`` and spaces are the same.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    _kind: ClassVar[str]
    _classes: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, name: str = "", aliases: tuple[str, ...] = (), kind: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if kind:
            cls._kind, cls._classes = kind, {}
        if not name:
            return
        for key in (name, *aliases):
            known = cls._classes.get(_plain(key), cls)
            # The same class once more is a notebook cell run again or a module reloaded: the newer one counts.
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                owner = f"{known.__module__}.{known.__qualname__}"
                raise ValueError(f"the {cls._kind} name {key!r} is taken by {owner}; choose another.")
        cls.name, cls.aliases = name, aliases
        cls._classes.update(dict.fromkeys(map(_plain, (name, *aliases)), cls))

    @classmethod
    def names(cls) -> list[str]:
        """All names in alphabetical order, without aliases."""
        return sorted({each.name for each in cls._classes.values()})

    @classmethod
    def find(cls, name: str) -> type[Self]:
        """The class registered under a name or an alias."""
        found = cls._classes.get(_plain(name))
        if found is None:
            near = difflib.get_close_matches(_plain(name), cls._classes, n=1, cutoff=0.7)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"unknown {cls._kind} {name!r}; choose one of {', '.join(cls.names())}.{meant}")
        return found

    @classmethod
    def get(cls, meant: Self | str) -> Self:
        """The instance meant by an object, a name or ``"name:parameters"``."""
        if isinstance(meant, cls):
            return meant
        if isinstance(meant, type) and issubclass(meant, cls):
            raise TypeError(f"{cls._kind} is the class {meant.__name__}; write {meant.__name__}().")
        if not isinstance(meant, str):
            kinds = f"a name or a {cls.__name__}"
            raise TypeError(
                f"{cls._kind} must be {kinds}, not {type(meant).__name__}; names are {', '.join(cls.names())}."
            )
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
        """The instance that ``"name:text"`` means."""
        raise NotImplementedError

    @classmethod
    def usage(cls) -> str:
        """How an instance is written as text, e.g. ``beta:1.5``."""
        return cls.name


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")
