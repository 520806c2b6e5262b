"""Options and arguments that several commands have: one wording, one check, one completion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from onmf import divergences, methods
from onmf.cli.terminal import DATA_HELP


def among(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Completes one of these names in a shell."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


Data: TypeAlias = Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)]
Model: TypeAlias = Annotated[
    Path, typer.Argument(help="A model file written by `onmf fit`, or a checkpoint.", show_default=False)
]
Divergence: TypeAlias = Annotated[
    str,
    typer.Option(
        "--divergence",
        "-d",
        help=f"One of {', '.join(divergences.names())}; parameters follow a colon: beta:1.5, huber:0.1. "
        "For one of your own, see --module.",
        autocompletion=among(divergences.names),
    ),
]
Method: TypeAlias = Annotated[
    str,
    typer.Option(
        help=f"One of {', '.join(methods.names())}; constants follow a colon: auto:forgetting=0.5, "
        "paper:step=canonical,a=200. The convergence theorem is about paper; auto is faster.",
        autocompletion=among(methods.names),
    ),
]
Coefficients: TypeAlias = Annotated[
    str,
    typer.Option(
        help="nonnegative, or simplex: those of a sample sum to one, as the abundances of unmixing.",
        autocompletion=among(lambda: ["nonnegative", "simplex"]),
    ),
]
L1Coefficients: TypeAlias = Annotated[
    float, typer.Option(min=0, help="Price of ||h||_1 per sample, for sparse coefficients; X divided by its mean.")
]
L2Coefficients: TypeAlias = Annotated[
    float, typer.Option(min=0, help="Price of ||h||^2 / 2 per sample; the convergence theorem needs one above 0.")
]
L1Dictionary: TypeAlias = Annotated[
    float,
    typer.Option(min=0, help="Price of ||W||_1, for sparse atoms; needs one on the coefficients, or the simplex."),
]
L2Dictionary: TypeAlias = Annotated[
    float, typer.Option(min=0, help="Price of ||W||^2 / 2; needs one on the coefficients, or the simplex.")
]
Missing: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="nan: NaN and empty cells are unknown, and all is learnt from the rest.",
        show_default="an error",
        autocompletion=among(lambda: ["nan"]),
    ),
]
Implicit: TypeAlias = Annotated[
    str,
    typer.Option(
        help="What sparse data do not store: zero, or missing (unknown, as in ratings).",
        autocompletion=among(lambda: ["zero", "missing"]),
    ),
]
OnError: TypeAlias = Annotated[
    str,
    typer.Option(
        help="What to do with a bad sample or batch: raise (stop with an error) or skip; of each that is skipped, "
        "`onmf transform` and `onmf inverse` write a row of NaN, or no picture.",
        autocompletion=among(lambda: ["raise", "skip"]),
    ),
]
Seed: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Random seed; makes the run repeatable bit for bit.")]
