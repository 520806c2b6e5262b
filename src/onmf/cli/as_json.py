"""``--json``: what a command has found as one JSON object on standard output, for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np
import typer

from onmf.cli.terminal import console, fail

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for programs.")]


def print_json(facts: Mapping[str, Any]) -> None:
    """One line; a number that is not finite is null, and what JSON does not have is text."""
    console.print(json.dumps(_plain(facts), allow_nan=False), soft_wrap=True)


def require_free(as_json: bool, standard: bool, option: str = "--out") -> None:
    """Refuse to write the result and the object that tells of it to the same place."""
    if as_json and standard:
        fail(f"--json prints to standard output, where {option} - writes the result; give {option} the name of a file.")


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, (str, int, type(None))) else str(value)
