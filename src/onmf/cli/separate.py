"""The command ``onmf separate``: write a recording as files of its parts, whose sum is the recording."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.table import Table

import onmf
from onmf._support.wording import counted
from onmf.cli import command
from onmf.cli.options import AsJson, Module
from onmf.cli.output import folder, require_writable, uninterrupted
from onmf.cli.progress import Every, announce, done_so_far, watched
from onmf.cli.terminal import console, fail, first_warnings, print_json

if TYPE_CHECKING:
    from onmf.insight.recordings import PartFiles
    from onmf.insight.separation import Groups


@command(
    "Apply a model",
    "onmf separate song.safetensors song.ogg --out parts",
    "onmf separate song.safetensors song.ogg --group 0,2 --group 1,5 --out instruments --format flac",
    "onmf separate both.safetensors mixture.flac --group fixed --out apart --json",
    "onmf separate both.safetensors mixture.flac --group piano.safetensors --group voice.safetensors --out apart",
)
def separate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model file that `onmf fit` learnt from sound.", show_default=False)],
    sound: Annotated[
        Path,
        typer.Argument(
            help="The recording: .wav, .flac, .ogg, .mp3, .opus, .aiff. Window and hop are taken from the model."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the parts.", show_default=False)],
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="Components to put in one file, counted from 0: --group 0,2 --group 1; the others go to a file called "
            "rest. With fixed, the components of `onmf fit --fixed` go to one file and the others to another. A model "
            "file stands for the components that `onmf fit --fixed` took from it.",
            metavar="GROUP",
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        Literal["wav", "flac"],
        typer.Option(
            "--format",
            help="wav has 32-bit floats, whose sum is the recording to seven digits; flac has 24 bits, whose sum is "
            "exactly the recording rounded to 24 bits.",
        ),
    ] = "wav",
    module: Module = None,
    log_every: Every = "30s",
    as_json: AsJson = False,
) -> None:
    """Split a recording into one file of sound per component, or per group; their sum is the recording.

    At each frame and frequency, a component gets its share of the model's fit (Wiener's masks), alike in all channels.
    """
    from onmf.data import schemes
    from onmf.insight.recordings import FORMATS, PartFiles, Recording
    from onmf.insight.separation import Separation, n_fixed

    next(scheme for scheme in schemes() if scheme.name == "audio").require_library()
    if not sound.is_file():
        fail(f"no such file: {sound}. Name a recording, without options.")
    nmf = onmf.load(model)
    groups = _groups(group, nmf)
    if nmf.source_.scheme != "audio":
        fail(
            f"{model} was not learnt from sound; learn a model from the recording (onmf fit {sound} --divergence is "
            "--out song.safetensors), or say in Python what its spectra were: onmf.separate(..., window=...)."
        )
    if groups == "fixed" and not n_fixed(nmf):
        fail(f"{model} has no fixed components to be set against the others; name components: --group 0,2 --group 1.")
    recording = Recording(sound)
    separation = Separation(nmf, recording.rate, groups)
    names = _names(len(separation.groups), groups, form)
    announce(context, f"Separating {sound} into {counted(len(names), 'part')} by {model}.", log_every)
    with folder(out):
        paths = [out / name for name in names]
        for path in paths:
            require_writable(path, sound, model)
        _require_no_others(out, names, FORMATS)
        with first_warnings(), watched(log_every, None, None, sound, model) as show:
            started = time.perf_counter()
            files = PartFiles(paths, FORMATS[form], recording)
            with files:
                files.open()
                for block in separation.parts(recording.blocks()):
                    files.write(block)
                    show(done_so_far(files.written, recording.samples, started))
                with uninterrupted():
                    files.close()
    _tell(separation.groups, files, as_json)


def _groups(given: list[str] | None, model: onmf.OnlineNMF) -> Groups | str | None:
    """Return the groups as ``groups=`` takes them."""
    if not given:
        return None
    if given == ["fixed"]:
        return "fixed"
    found = []
    for text in given:
        if re.fullmatch(r"\d+(,\d+)*", text, re.ASCII):
            found.append([int(number) for number in text.split(",")])
        elif Path(text).is_file():
            found.append(_taken_from(text, model))
        else:
            fail(f"--group {text}: write components between commas, as in 0,2, a model file, or fixed alone.")
    return found


def _taken_from(origin: str, model: onmf.OnlineNMF) -> list[int]:
    """Return which of the fixed components are those of another model."""
    from onmf.insight.separation import n_fixed

    W, theirs = model.components_[: n_fixed(model)], onmf.load(origin).components_
    same: Any = np.zeros((len(W), len(theirs)), dtype=bool)
    if W.shape[1] == theirs.shape[1]:  # in the model they have the precision of its data
        same = np.isclose(W[:, None], theirs, rtol=1e-6, atol=0).all(axis=2)
    if not same.any(axis=0).all():
        fail(f"--group {origin}: the model does not have its components; learn it with --fixed {origin}.")
    found: list[int] = np.flatnonzero(same.any(axis=1)).tolist()
    return found


def _names(parts: int, groups: Groups | str | None, form: str) -> list[str]:
    """Return part-00.wav, ... for components; group-0.wav, ..., rest.wav for groups; or fixed.wav and others.wav."""
    if groups == "fixed":
        names = ["fixed", "others"][:parts]
    elif groups is None:
        names = [f"part-{number:0{max(2, len(str(parts - 1)))}}" for number in range(parts)]
    else:
        names = [f"group-{number}" for number in range(len(groups))] + ["rest"] * (parts - len(groups))
    return [f"{name}.{form}" for name in names]


def _require_no_others(folder: Path, names: list[str], forms: Collection[str]) -> None:
    """Fail on a folder with parts of another separation, which would change the sum."""
    part = re.compile(rf"(part-\d+|group-\d+|rest|fixed|others)\.({'|'.join(forms)})", re.ASCII)
    stale = sorted(path.name for path in folder.iterdir() if part.fullmatch(path.name) and path.name not in names)
    if stale:
        more = f" and {len(stale) - 1} more" if len(stale) > 1 else ""
        cure = f"remove {'them' if more else 'it'}"
        fail(f"{folder} holds {stale[0]}{more} of another separation; give --out another folder, or {cure}.")


def _tell(groups: Groups, files: PartFiles, as_json: bool) -> None:
    """Print the parts, as JSON or in a table."""
    total = max(float(files.energy.sum()), np.finfo(float).tiny)
    parts: list[dict[str, Any]] = [
        {"file": str(path), "components": list(group), "share_of_energy": float(energy) / total}
        for path, group, energy in zip(files.paths, groups, files.energy, strict=True)
    ]
    recording = files.recording
    if as_json:
        facts = {"sound": str(recording.path), "samples": recording.samples, "rate": recording.rate}
        facts |= {"channels": recording.channels, "written_as": files.kind.precision, "parts": parts}
        print_json(facts)
        return
    table = Table("file", "components", "share of the energy")
    for part in parts:
        numbers = ", ".join(map(str, part["components"]))
        table.add_row(part["file"], numbers, f"{100 * part['share_of_energy']:.1f} %")
    console.print(table)
    seconds = recording.samples / recording.rate
    console.print(f"{counted(len(parts), 'part')} of {seconds:.1f} seconds as {files.kind.precision}.", soft_wrap=True)
