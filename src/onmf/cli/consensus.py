"""The command ``onmf consensus``: a model of the components that several runs agree on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf.cli import command
from onmf.cli.options import AsJson, Data, Jobs, Module, Resume, RunsCheckpoint, with_settings
from onmf.cli.output import OutputTarget, require_drawable, require_writable, save_plot
from onmf.cli.progress import fits_watched, mixed
from onmf.cli.terminal import console, errors, print_json
from onmf.data import open_source, path_of

SETTINGS = (
    *("n_components", "divergence", "method", "max_passes", "missing", "implicit", "random_state"),
    *("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary"),
)


@command(
    "Learn",
    "onmf consensus cells.h5ad -k 10 --out programmes.safetensors",
    "onmf consensus 'cells.h5ad?layer=counts' -k 10 --runs 100 --jobs 8 --checkpoint runs --plot runs.png --out m",
    "onmf consensus 'cells.h5ad?layer=counts' -k 10 --runs 100 --checkpoint runs --resume --out m",
)
@with_settings(*SETTINGS, max_passes=50, n_components=10)
def consensus(
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.", show_default=False)],
    runs: Annotated[int, typer.Option(min=2, help="Number of runs, each with its own start.")] = 10,
    threshold: Annotated[
        float,
        typer.Option(help="Drop components at a larger mean distance from their neighbours; 2 keeps all."),
    ] = 0.5,
    jobs: Jobs = 1,
    checkpoint: RunsCheckpoint = None,
    resume: Resume = False,
    module: Module = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write cNMF's clustergram (.png, .pdf, .svg, ...).", show_default=False)
    ] = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Learn several times and keep the components that the runs agree on.

    Reads DATA once per run and pass.
    """
    place, path = OutputTarget(out, as_json), path_of(data)
    place.require_writable(path, checkpoint)
    require_drawable(plot, path)
    if checkpoint is not None:
        require_writable(checkpoint, path, option="--checkpoint")
    with fits_watched() as show:
        found = onmf.consensus(
            mixed(open_source(data), settings["random_state"]),
            settings.pop("n_components"),
            runs,
            threshold=threshold,
            n_jobs=jobs,
            checkpoint=checkpoint,
            resume=resume,
            callback=show,
            **settings,
        )
    onmf.save(found.model, out)
    if plot is not None:
        save_plot(found.plot(), plot)
    if as_json:
        sizes = {"stabilities": found.stabilities.tolist(), "sizes": found.sizes.tolist()}
        print_json({"model": out, "stability": found.stability, "kept": found.kept, **sizes})
        return
    console.print(str(found))
    errors.print(f"Wrote {out}{'' if plot is None else f' and {plot}'}.", soft_wrap=True)
