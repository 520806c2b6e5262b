"""Attributes of estimators: the constants among their parameters (``method__tau``), and learnt values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

from onmf import divergences, methods
from onmf._support.registry import Constants
from onmf.learner import Fitted
from onmf.model.sets import Sets

FittedT = TypeVar("FittedT", bound=Fitted)
Value = TypeVar("Value")


class FittedAttribute(Generic[FittedT, Value]):
    """A read-only attribute that exists once a model is fitted: ``FittedAttribute(lambda learned: learned.state.W)``.

    ``get`` gives None where this model does not have it; ``needs`` says what it would take.
    """

    def __init__(self, get: Callable[[FittedT], Value | None], needs: str = "fit or partial_fit") -> None:
        self.get, self.needs = get, needs

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, model: None, owner: type) -> FittedAttribute[FittedT, Value]: ...
    @overload
    def __get__(self, model: Any, owner: type) -> Value: ...
    def __get__(self, model: Any, owner: type) -> Any:
        if model is None:
            return self
        value = None if model._learned is None else self.get(model._learned)
        if value is None:
            raise AttributeError(f"{self.name} is available only after {self.needs}.")
        return value

    def __set__(self, model: Any, value: Any) -> None:
        raise AttributeError(f"{self.name} was learnt and cannot be set.")


def constants_in(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constants of the method, the divergence and the sets, as in ``method__tau``."""
    return {
        f"{name}__{field.name}": getattr(part, field.name)
        for name, part in _parts(params)
        if dataclasses.is_dataclass(part)
        for field in dataclasses.fields(part)
    }


def with_constants(params: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters to set with their constants put in: ``method__tau=5`` becomes a method with that constant.

    ``current`` are the parameters as they are.
    """
    changed, nested = dict(params), dict[str, dict[str, Any]]()
    for key in params:
        name, separator, constant = key.partition("__")
        if separator and name in current:
            nested.setdefault(name, {})[constant] = changed.pop(key)
    parts = dict(_parts({**current, **changed}))
    for name, constants in nested.items():  # all of a part at once: one may be allowed by another only
        part = parts.get(name)
        if not dataclasses.is_dataclass(part):
            raise ValueError(f"{name} has no constants to set.")
        if isinstance(part, Constants):
            changed[name] = part.with_constants(**constants)
            continue
        fields = [field.name for field in dataclasses.fields(part)]
        for constant in constants:
            if constant not in fields:
                has = f"it has {', '.join(fields)}" if fields else "it has none"
                raise ValueError(f"{name} {part!r} has no constant {constant!r}; {has}.")
        changed[name] = dataclasses.replace(part, **constants)  # type: ignore[type-var]
    return changed


def _parts(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the parameters that have constants of their own, as objects."""
    meanings: dict[str, Callable[[Any], Any]] = {
        "method": methods.get,
        "divergence": divergences.get,
        "sets": lambda given: Sets() if given is None else given,
    }
    for name, meaning in meanings.items():
        if name in params:
            try:
                meant = meaning(params[name])
            except (ValueError, TypeError):  # a wrong name raises an error when it is used
                continue
            yield name, meant
