"""Attributes of a fitted model: read from what was learnt, and absent before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from onmf.learner import Fitted

FittedT = TypeVar("FittedT", bound=Fitted)
Value = TypeVar("Value")


class Shown(Generic[FittedT, Value]):
    """``components_ = Shown(lambda learned: learned.state.W)``: a read-only attribute with a sentence for the unfitted.

    ``get`` gives None for what this model does not have; ``needs`` says what it would take.
    """

    def __init__(self, get: Callable[[FittedT], Value | None], needs: str = "fit or partial_fit") -> None:
        self.get, self.needs = get, needs

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, model: None, owner: type) -> Shown[FittedT, Value]: ...
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
        raise AttributeError(f"{self.name} is what was learnt; it cannot be set.")
