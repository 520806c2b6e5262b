"""The parameters of estimators by scikit-learn's conventions, and the constants of their parts: ``method__tau``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Self

from sklearn.base import BaseEstimator

from onmf import divergences
from onmf._support.constants import Constants
from onmf.model.sets import Sets


class Parametrised(BaseEstimator):
    """An estimator among whose parameters are the constants of its method, divergence and sets."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters; with ``deep``, also the constants of method, divergence and sets: ``method__tau``."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name, meant in self._parts(params):
                fields = dataclasses.fields(meant) if dataclasses.is_dataclass(meant) else ()
                params |= {f"{name}__{field.name}": getattr(meant, field.name) for field in fields}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``method__tau=5`` replaces the method by one with that constant, and alike for the others."""
        known = self.get_params(deep=False)
        nested: dict[str, dict[str, Any]] = {}
        for key in [key for key in params if key.partition("__")[0] in known and "__" in key]:
            name, _, constant = key.partition("__")
            nested.setdefault(name, {})[constant] = params.pop(key)
        parts = dict(self._parts(known | params))
        for name, constants in nested.items():  # all of a part at once: one may be allowed by another only
            if not dataclasses.is_dataclass(parts.get(name)):
                raise ValueError(f"{name} has no constants to set.")
            if isinstance(parts[name], Constants):
                params[name] = parts[name].with_constants(**constants)
                continue
            fields = [field.name for field in dataclasses.fields(parts[name])]
            for constant in constants:
                if constant not in fields:
                    has = f"it has {', '.join(fields)}" if fields else "it has none"
                    raise ValueError(f"{name} {parts[name]!r} has no constant {constant!r}; {has}.")
            params[name] = dataclasses.replace(parts[name], **constants)
        return super().set_params(**params)

    @staticmethod
    def _parts(params: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """The parameters that have constants of their own, as objects."""
        from onmf import methods

        meanings: dict[str, Callable[[Any], Any]] = {
            "method": methods.get,
            "divergence": divergences.get,
            "sets": lambda given: Sets() if given is None else given,
        }
        for name, meaning in meanings.items():
            if name in params:
                try:
                    meant = meaning(params[name])
                except (ValueError, TypeError):  # a wrong name is refused when it is used
                    continue
                yield name, meant
