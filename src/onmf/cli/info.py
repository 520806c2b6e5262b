"""``onmf info``: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from onmf.cli.app import app
from onmf.cli.terminal import console

SHOWN_ANYWAY = ("n_components", "method")


@app.command(epilog="Example:\n\n`onmf info topics.safetensors`")
def info(
    model: Annotated[Path, typer.Argument(help="A model file or a checkpoint.", show_default=False)],
) -> None:
    """Show what a model file holds."""
    # Not needed for --help, and read without the estimators: scikit-learn takes longer to import than all of this.
    from onmf.learner import guarantee
    from onmf.persistence.model import USUAL, read

    settings, learned = read(model)
    divergence, history, W = learned.divergence, learned.history.columns(), learned.state.W
    facts = {
        "divergence": " ".join([divergence.name, *_pairs(divergence.parameters())]),
        "method": repr(learned.method),
        "other settings": ", ".join(_pairs(_changed(settings, USUAL))) or "defaults",
        "atoms": len(W),
        "features": learned.features.number,
        "source": learned.source or "arrays",
        "type": W.dtype,
        "samples seen": learned.history.samples,
        "passes": learned.passes,
        "batches skipped": learned.skipped.count,
        "dictionary updates": learned.state.steps,
        "scale (mean of the first batch)": f"{learned.units.scale:.6g}",
        "loss of the first batch": f"{history['loss'][0]:.6g}",
        "loss of the last batch": f"{history['loss'][-1]:.6g}",
        "seconds": f"{history['seconds'][-1]:.1f}",
        "guarantee": guarantee(learned),
    }
    table = Table(title=Text(str(model)), show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    console.print(table)


def _changed(settings: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    """The settings that differ from their defaults, without those that are shown anyway."""
    given = {name: value for name, value in settings.items() if name in usual and name not in SHOWN_ANYWAY}
    return {name: value for name, value in given.items() if isinstance(value, np.ndarray) or value != usual[name]}


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name}={_short(value)}" for name, value in values.items()]


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"matrix {value.shape}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
