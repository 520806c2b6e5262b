"""``onmf fit --fixed``: the atoms of a model file, as those of a new model that are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

import onmf
from onmf import data as streams
from onmf._support.arrays import Array
from onmf.cli.terminal import fail
from onmf.model.fixed import aligned

Fixed: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--fixed",
        help="Keep the atoms of this model file as the first of the K, and learn the others beside them.",
        show_default=False,
    ),
]


def atoms_for(source: streams.Source, model: onmf.OnlineNMF) -> Array:
    """The atoms of the model, their features in the order of the data's where both have names."""
    W = model.components_
    if W.shape[1] != source.n_features:
        fail(
            f"the atoms of --fixed have {W.shape[1]} features, the data {source.n_features}; "
            "read the data as that model's were read, or learn its atoms from data like these."
        )
    return aligned(W, getattr(model, "feature_names_in_", None), source.feature_names)
