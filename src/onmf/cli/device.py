"""``--device``: what a command computes on."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Device: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="Compute with PyTorch: cuda, cuda:1, ... is a GPU, auto is one if there is any, cpu is to try it out.",
        show_default="the processor, by compiled code",
    ),
]
