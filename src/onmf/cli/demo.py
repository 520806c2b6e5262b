"""``onmf demo``: a picture from nothing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from onmf.cli.app import app
from onmf.cli.terminal import console, progress_line, require_writable


@app.command(epilog="Example:\n\n`onmf demo --out demo.png`")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture to write (.png, .pdf, .svg, ...).")] = Path(
        "demo.png"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the noise and the initial dictionaries.")] = 0,
) -> None:
    """Denoise a photograph with 30 % of its pixels replaced by noise, under Huber's loss and squared l2."""
    from sklearn.exceptions import ConvergenceWarning

    from onmf.experiments import demo as steps
    from onmf.plots import gallery, require_writable_format, tiles

    require_writable(out)
    require_writable_format(out)
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
        for divergence in steps.DIVERGENCES:
            with progress_line(divergence) as show:
                results.append(steps.denoise(noisy, divergence, seed, show))
    results.append(steps.median(noisy))

    table = Table("", "PSNR, dB", "seconds", "patches/s")
    titled = [("clean", clean)]
    for result in results:
        quality = f"{steps.psnr(result.picture, clean):.1f}"
        rate = f"{n / result.seconds:,.0f}" if result.atoms is not None else ""
        table.add_row(result.name, quality, f"{result.seconds:.1f}" if result.seconds else "", rate)
        titled.append((f"{result.name}, {quality} dB", result.picture))
    console.print(table)
    if (atoms := results[1].atoms) is not None:
        titled.append((f"the {len(atoms)} parts learnt with huber", tiles(atoms, steps.SIDE)))
    gallery(titled).savefig(out, dpi=70)
    console.print(f"Wrote {out}.", soft_wrap=True)
