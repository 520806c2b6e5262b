"""The command ``onmf info``: show what a model file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from onmf.cli import command
from onmf.cli.options import AsJson, Model, Module
from onmf.cli.terminal import console, errors, print_json

if TYPE_CHECKING:
    from onmf.learner import Learned

SHOWN_ANYWAY = ("n_components", "method")


@command("Look at a model", "onmf info topics.safetensors", "onmf info topics.safetensors --json")
def info(model: Model, module: Module = None, as_json: AsJson = False) -> None:
    """Show what a model file holds: settings, sizes, data seen, losses, and which guarantee covers it."""
    # Not needed for --help, and read without the estimators: scikit-learn takes longer to import than all of this.
    from onmf.insight.features import changed, method_text
    from onmf.learner import guarantee
    from onmf.persistence.model import USUAL

    settings, learned = _read(model)
    divergence, history, W = learned.divergence, learned.history.columns(), learned.state.W
    facts: dict[str, Any] = {
        "divergence": " ".join([divergence.name, *_pairs(divergence.parameters())]),
        "method": learned.method.text(),
        "other settings": {
            name: _short(value) if isinstance(value, np.ndarray) else value
            for name, value in changed(settings, USUAL).items()
            if name not in SHOWN_ANYWAY
        },
        "components": len(W),
        "fixed components": learned.state.C.fixed,
        "features": learned.features.number,
        "source": "arrays" if learned.source is None else str(learned.source),
        "type": str(W.dtype),
        "samples seen (in all passes)": learned.history.samples,
        **_lines_consumed(learned.position),
        "passes": learned.passes,
        "samples or batches skipped": learned.skipped.count,
        "dictionary updates": learned.state.steps,
        **_missing_entries(learned.coverage),
        "scale (mean of the first batch)": learned.units.scale,
        "loss of the first batch": float(history["loss"][0]),
        "loss of the last batch": float(history["loss"][-1]),
        "drift": learned.drift.statistic,
        "changes of the stream": learned.drift.changes,
        "seconds": float(history["seconds"][-1]),
        "guarantee": guarantee(learned),
    }
    if as_json:
        print_json({_key(name): value for name, value in facts.items()})
        return
    facts["method"] = method_text(settings["method"], learned.method)
    table = Table(title=str(model), show_header=False)
    for name, value in facts.items():
        table.add_row(name, (", ".join(_pairs(value)) or "defaults") if isinstance(value, dict) else _short(value))
    console.print(table)


def _read(path: Path) -> tuple[dict[str, Any], Learned]:
    """Return what a model file holds; where a checkpoint is lost or damaged, the one that --resume continues from."""
    from onmf.persistence.checkpoint import Checkpoint
    from onmf.persistence.file import ModelFileError, UnreadableFileError
    from onmf.persistence.model import read

    keep = Checkpoint(path)
    try:
        return read(path)
    except ModelFileError as error:
        if isinstance(error, UnreadableFileError) or not keep.previous.exists():
            raise
        found = keep.read()
        errors.print(f"{error} Showing the previous one, {keep.previous}, from which --resume continues.")
        return found


def _lines_consumed(position: Any) -> dict[str, int]:
    """Return how many lines a producer need not send again, if a pipe was learnt from."""
    lines = getattr(position, "lines", None)
    return {} if lines is None else {"lines consumed (rows of arrays)": lines}


def _missing_entries(coverage: Any) -> dict[str, int]:
    """Return how many features and samples had no entries, if data with missing entries were learnt from."""
    if coverage is None:
        return {}
    never = int(np.count_nonzero(~coverage.features))
    return {"features always missing": never, "samples with nothing but missing entries": coverage.blank}


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name}={_short(value)}" for name, value in values.items()]


def _key(name: str) -> str:
    """Return the key of a fact in JSON, as in ``samples_seen`` for "samples seen"."""
    return name.partition(" (")[0].replace(" ", "_")


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"matrix {value.shape}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
