"""``onmf report``: a page about a model, and about how it fits data."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf import data as streams
from onmf.cli.app import app
from onmf.cli.as_json import AsJson, print_json
from onmf.cli.module import Module
from onmf.cli.options import Model
from onmf.cli.terminal import DATA_HELP, console, progress_line, require_writable

EXAMPLES = (
    "Examples:\n\n"
    "`onmf report topics.safetensors --out topics.html`\n\n"
    "`onmf report topics.safetensors counts.npz --out topics.html`\n\n"
    "`onmf report song.safetensors song.flac --out song.html --json | jq '.warnings[].text'`"
)


@app.command(epilog=EXAMPLES)
def report(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(help=f"How well does it fit these? Read once. {DATA_HELP}", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Write one page about a model: the run, the components, the warnings; with DATA, how it fits them.

    The page needs no network, nor this program. Data that the model has not seen tell most.
    """
    from onmf.estimators.description import write_report  # not needed for --help
    from onmf.insight.report.page import require_libraries

    require_libraries()
    require_writable(out, model, *([] if data is None else [streams.path_of(data)]))
    nmf = onmf.load(model)
    source = None if data is None else streams.open_source(data, like=nmf.source_)
    with nullcontext(_silent) if source is None else progress_line("reading") as show:
        started = time.perf_counter()

        def told(samples: int, total: int | None) -> None:
            show(onmf.Progress(samples, total, 0, time.perf_counter() - started, math.nan, nmf.components_))

        written = write_report(nmf, source, out, f"Report on {model.name}", data or "", told)
    warnings = [each for each in written.advice if not each.note]
    if as_json:
        print_json(_facts(written, out))
        return
    for each in warnings:
        console.print(f"{each.text} {each.cure}", soft_wrap=True)
    told_of = f"{len(warnings)} warning{'s' * (len(warnings) != 1)}" if warnings else "no warnings"
    console.print(f"{out}: {told_of}.", soft_wrap=True)


def _silent(_: onmf.Progress) -> None:
    """Nothing is read."""


def _facts(written: Any, out: Path) -> dict[str, Any]:
    """What the page says."""
    found = written.found
    said: dict[str, Any] = {
        "report": out,
        "warnings": [
            {"code": each.code, "text": each.text, "cure": each.cure} for each in written.advice if not each.note
        ],
        "notes": [{"code": each.code, "text": each.text, "cure": each.cure} for each in written.advice if each.note],
    }
    if found is not None:
        said |= {"samples": found.samples, "loss": found.loss, "gain_over_one_component": found.gain}
        said["shares"] = found.shares
    return said
