"""The command ``onmf report``: write a page about a model, and about how it fits data."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf._support.wording import counted
from onmf.cli import command
from onmf.cli.options import DATA_HELP, AsJson, Model, Module
from onmf.cli.output import require_writable
from onmf.cli.progress import Show, done_so_far, progress_line
from onmf.cli.terminal import console, print_json
from onmf.data import open_source, path_of


@command(
    "Look at a model",
    "onmf report topics.safetensors --out topics.html",
    "onmf report topics.safetensors counts.npz --out topics.html",
    "onmf report song.safetensors song.flac --out song.html --json | jq '.warnings[].text'",
)
def report(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(help=f"Report how the model fits these. {DATA_HELP}", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Write a web page about a model: the run, the components, warnings, and how it fits DATA.

    The page works without a network and without onmf. Data that the model has not seen are the most informative.
    """
    from onmf.estimators.description import write_report  # not needed for --help
    from onmf.insight.report.page import require_libraries

    require_libraries()
    require_writable(out, model, None if data is None else path_of(data))
    nmf = onmf.load(model)
    source = None if data is None else open_source(data, like=nmf.source_)
    watch: AbstractContextManager[Show] = nullcontext(lambda _: None) if source is None else progress_line("reading")
    with watch as show:
        started = time.perf_counter()

        def show_samples(samples: int, total: int | None) -> None:
            show(done_so_far(samples, total, started))

        written = write_report(nmf, source, out, f"Report on {model.name}", data or "", show_samples)
    if as_json:
        print_json(_facts(written, out))
        return
    warnings = [each for each in written.advice if not each.note]
    for each in warnings:
        console.print(f"{each.text} {each.cure}", soft_wrap=True)
    console.print(f"{out}: {counted(len(warnings), 'warning') if warnings else 'no warnings'}.", soft_wrap=True)


def _facts(written: Any, out: Path) -> dict[str, Any]:
    """Return the warnings, notes and figures of the page."""
    notes = [{"code": each.code, "text": each.text, "cure": each.cure} for each in written.advice if each.note]
    warnings = [{"code": each.code, "text": each.text, "cure": each.cure} for each in written.advice if not each.note]
    said: dict[str, Any] = {"report": out, "warnings": warnings, "notes": notes}
    if (found := written.found) is not None:
        said |= {"samples": found.samples, "loss": found.loss, "gain_over_one_component": found.gain}
        said["shares"] = found.shares
    return said
