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


@app.command(epilog="Example:\n\n`onmf info topics.safetensors`")
def info(model: Annotated[Path, typer.Argument(help="A model file.", show_default=False)]) -> None:
    """Say what a model file holds."""
    nmf = onmf.load(model)
    history = nmf.history_
    parameters = nmf.divergence_.parameters()
    facts = {
        "divergence": " ".join([nmf.divergence_.name, *(f"{k}={_short(v)}" for k, v in parameters.items())]),
        "method": nmf.method_,
        "atoms": len(nmf.components_),
        "features": nmf.n_features_in_,
        "type": nmf.components_.dtype,
        "samples seen": nmf.n_samples_seen_,
        "dictionary updates": nmf.n_steps_,
        "scale (mean of the first batch)": f"{nmf.scale_:.6g}",
        "loss of the first batch": f"{history['loss'][0]:.6g}",
        "loss of the last batch": f"{history['loss'][-1]:.6g}",
        "seconds": f"{history['seconds'][-1]:.1f}",
    }
    table = Table(title=Text(str(model)), show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    console.print(table)


def _short(value: Any) -> str:
    return f"matrix {value.shape}" if isinstance(value, np.ndarray) else f"{value:.6g}"
