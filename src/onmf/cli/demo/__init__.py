"""The command ``onmf demo``: draw pictures of three built-in examples."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from onmf.cli import command
from onmf.cli.output import require_drawable, save_plot
from onmf.cli.terminal import console

FIGURES = {"photograph": "", "topics": "-topics", "sound": "-sound"}  # modules, and what is added to the name of --out
DPI = 80


@command("Learn", "onmf demo --out demo.png")
def demo(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="The picture of the photograph (.png, .pdf, .svg, ...); the others add -topics and -sound.",
        ),
    ] = Path("demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the noise and the initial dictionaries.")] = 0,
) -> None:
    """Learn from three built-in examples, a noisy photograph, texts and a tune, and write a picture of each."""
    places = {name: out.with_stem(out.stem + added) for name, added in FIGURES.items()}
    for place in places.values():
        require_drawable(place, option="--out")
    for name, place in places.items():
        page = importlib.import_module(f"onmf.cli.demo.{name}")  # not needed for --help
        save_plot(page.draw(seed), place, DPI)
        console.print(f"Wrote {place}.\n", soft_wrap=True)
