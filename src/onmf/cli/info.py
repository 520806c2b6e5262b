"""``onmf info``: what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

import onmf
from onmf.cli.app import app
from onmf.cli.terminal import console

SHOWN_ANYWAY = ("n_components", "divergence", "method")


@app.command(epilog="Example:\n\n`onmf info topics.safetensors`")
def info(
    model: Annotated[Path, typer.Argument(help="A model file or a checkpoint.", show_default=False)],
) -> None:
    """Show what a model file holds."""
    nmf = onmf.load(model)
    history = nmf.history_
    facts = {
        "divergence": " ".join([nmf.divergence_.name, *_pairs(nmf.divergence_.parameters())]),
        "method": repr(nmf.method_),
        "other settings": ", ".join(_pairs(_changed(nmf))) or "defaults",
        "atoms": nmf.n_components_,
        "features": nmf.n_features_in_,
        "type": nmf.components_.dtype,
        "samples seen": nmf.n_samples_seen_,
        "passes": nmf.n_iter_,
        "batches skipped": nmf.n_skipped_,
        "dictionary updates": nmf.n_steps_,
        "scale (mean of the first batch)": f"{nmf.scale_:.6g}",
        "loss of the first batch": f"{history['loss'][0]:.6g}",
        "loss of the last batch": f"{history['loss'][-1]:.6g}",
        "seconds": f"{history['seconds'][-1]:.1f}",
        "guarantee": nmf.guarantee_,
    }
    table = Table(title=Text(str(model)), show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    console.print(table)


def _changed(nmf: onmf.OnlineNMF) -> dict[str, Any]:
    """The settings that differ from their defaults."""
    usual = onmf.OnlineNMF().get_params(deep=False)
    given = {name: value for name, value in nmf.get_params(deep=False).items() if name not in SHOWN_ANYWAY}
    return {name: value for name, value in given.items() if isinstance(value, np.ndarray) or value != usual[name]}


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name}={_short(value)}" for name, value in values.items()]


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"matrix {value.shape}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
