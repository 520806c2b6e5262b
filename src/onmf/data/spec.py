"""How a source makes features of its data: what a model remembers of it, so that other data are read alike."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from onmf.data.base import SourceError


@dataclass(frozen=True)
class Spec:
    """The scheme of a source, those of its options that shape the features, and the names of the features.

    ``open_source(text, like=spec)`` applies it. Options are plain: texts, numbers, yes or no (``bool``), and lists of
    texts or of numbers.
    """

    scheme: str | None = None  # None: not opened by a name
    options: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not (self.scheme is None or isinstance(self.scheme, str)) or not isinstance(self.options, Mapping):
            raise ValueError(f"its source has the scheme {self.scheme!r} and the options {self.options!r}")
        for name, value in self.options.items():
            parts = value if isinstance(value, list) else [value]
            if not isinstance(name, str) or not all(map(_is_plain, parts)):
                raise ValueError(f"the option {name!r} of its source is neither texts nor numbers")

    def applied(self, where: str, scheme: str, shapes: Collection[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """The options ``given`` for data of a scheme, and of those that ``shapes`` names the rest as they are here.

        Refused: what is given and differs. Of another scheme only the options that both have are compared and applied.
        """
        for name, value in given.items():
            if name not in self.options and not (scheme == self.scheme and name in shapes):
                continue
            if self.options.get(name) != value:
                kept = f"{name}={spelt(self.options[name])}" if name in self.options else f"no {name}="
                raise SourceError(
                    f"{where}: {name}={spelt(value)} contradicts the model, which was learnt with {kept}; leave it "
                    "out, since the model applies its own, or learn another model."
                )
        return {name: value for name, value in self.options.items() if name in shapes} | dict(given)

    @property
    def picture(self) -> tuple[int, ...] | None:
        """(height, width) or (height, width, 3), if a sample is one; ``row.reshape`` brings it back."""
        size = self.options.get("size")
        if self.scheme != "images" or not isinstance(size, str):
            return None
        width, _, height = size.partition("x")
        return int(height), int(width), *((3,) if self.options.get("colour") == "rgb" else ())

    def __str__(self) -> str:
        """As in ``audio, window=1024, hop=512``; lists of numbers and long ones are left out."""
        short = [name for name, value in self.options.items() if not isinstance(value, list) or _is_short(value)]
        return ", ".join([str(self.scheme), *(f"{name}={spelt(self.options[name])}" for name in sorted(short))])


def spelt(value: Any) -> str:
    """An option's value as it is written after the question mark."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(f'"{part}"' if "," in str(part) else str(part) for part in value)
    return str(value)


def _is_short(values: list[Any]) -> bool:
    return len(values) < 10 and all(isinstance(value, str) for value in values)


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
