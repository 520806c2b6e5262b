"""``onmf demo``: pictures from nothing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from onmf.cli.app import app
from onmf.cli.terminal import console, progress_line, require_writable

PAGES = ("", "-topics", "-sound")  # what is added to the name of --out
DPI = 80


@app.command(epilog="Example:\n\n`onmf demo --out demo.png` writes demo.png, demo-topics.png and demo-sound.png.")
def demo(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="The picture to write (.png, .pdf, .svg, ...); two more have -topics and -sound in their names.",
        ),
    ] = Path("demo.png"),
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the noise and the initial dictionaries.")] = 0,
) -> None:
    """Learn from data that everyone has: a noisy photograph, the docstrings of Python, a tune; write three pictures."""
    from onmf.insight.plots import require_writable_format

    require_writable_format(out)
    pages = [out.with_stem(out.stem + page) for page in PAGES]
    for page in pages:
        require_writable(page)
    for draw, page in zip((_photograph, _topics, _sound), pages, strict=True):
        draw(seed).savefig(page, dpi=DPI)
        console.print(f"Wrote {page}.\n", soft_wrap=True)


def _photograph(seed: int) -> Any:
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning

    from onmf.cli.demo import photograph as steps

    clean = steps.photograph()
    noisy = steps.add_noise(clean, np.random.default_rng(seed))
    n = len(steps.patches(noisy))
    console.print(
        f"A photograph of {clean.shape[1]} x {clean.shape[0]} pixels, 30 % of them replaced by noise: "
        f"{n} patches of {steps.SIDE} x {steps.SIDE} pixels, streamed once through {steps.COMPONENTS} atoms."
    )
    results = [steps.Denoised("noisy", noisy)]
    with warnings.catch_warnings():
        # The reconstruction needs no more than the demo asks of the solver; `transform` says so of every sample.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in steps.DIVERGENCES:
            with progress_line(name) as show:
                results.append(steps.denoise(noisy, name, seed, show))
    results.append(steps.median(noisy))
    table = Table("", "PSNR, dB", "seconds", "patches/s")
    for result in results:
        rate = f"{n / result.seconds:,.0f}" if result.atoms is not None else ""
        seconds = f"{result.seconds:.1f}" if result.seconds else ""
        table.add_row(result.name, f"{steps.psnr(result.picture, clean):.1f}", seconds, rate)
    console.print(table)
    return steps.figure(clean, results)


def _topics(seed: int) -> Any:
    from onmf.cli.demo import topics as steps

    learnt = steps.learn(seed)
    n, words = learnt.texts.counts.shape
    console.print(f"{n} docstrings of Python's standard library, {words} words: {steps.COMPONENTS} topics.")
    return steps.figure(learnt)


def _sound(seed: int) -> Any:
    from onmf.cli.demo import sound as steps

    learnt = steps.learn(seed)
    console.print(
        f"A tune of {len(steps.score())} notes, {len(learnt.powers)} frames: {len(steps.NOTES)} pitches found; whether "
        f"one sounds is right in {learnt.right:.0%} of all cases."
    )
    return steps.figure(learnt)
