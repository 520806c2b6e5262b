"""What ``onmf fit`` keeps: a model file, a checkpoint, and what was learnt before an interrupt."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import typer

import onmf
from onmf._support.wording import counted
from onmf.cli.terminal import errors, fail, is_standard_output, require_writable, seconds_of


def save(model: onmf.OnlineNMF, out: Path) -> None:
    """To a file, or to standard output once all of it is known to be there."""
    if not is_standard_output(out):
        onmf.save(model, out)
        return
    with tempfile.TemporaryDirectory() as folder:
        onmf.save(model, Path(folder) / "model")
        sys.stdout.buffer.write((Path(folder) / "model").read_bytes())
    sys.stdout.flush()


def checkpoint_of(
    path: Path | None, every: str | None, resume: bool, verify: bool, rewinds: bool, place: Path, out: Path
) -> onmf.Checkpoint | None:
    """The checkpoint that the options ask for; ``rewinds``: can the data be read again?"""
    if verify and not resume:
        fail("--verify compares the data with those of the run that --resume continues; give both.")
    if path is None:
        if resume:
            fail("--resume continues from a checkpoint; name it with --checkpoint FILE.")
        if every is not None:
            fail("--every says how often to save a checkpoint; name it with --checkpoint FILE.")
        return None
    if resume and not rewinds:
        fail(
            "standard input cannot be read again from the beginning, as --resume has to do; "
            f"to go on with what comes next, use --from {path} instead of --resume, and another --checkpoint."
        )
    seconds = seconds_of("30s" if every is None else every, "--every")
    require_writable(path, place, option="--checkpoint")
    keep = onmf.Checkpoint(path, seconds, verify)
    if out.resolve() in (path.resolve(), keep.previous.resolve()):
        fail(f"--checkpoint {path} writes {out} too, which --out names; give them different names.")
    if keep.exists() and not resume:
        how = "continue it with --resume, or" if rewinds else f"go on from it with --from {path}, and"
        fail(f"{path} holds a run that was begun before; {how} give --checkpoint another name.")
    return keep


def tell_of_interrupt(model: onmf.OnlineNMF, out: Path, keep: onmf.Checkpoint | None) -> NoReturn:
    """What was learnt before Ctrl-C or SIGTERM is in the checkpoint, or else goes to ``out``."""
    if not model.__sklearn_is_fitted__():
        errors.print("Interrupted before anything was learnt.")
    elif keep is not None and not keep.failures:
        how = f"the same command with --resume continues from {keep.path}"
        errors.print(f"Interrupted after {counted(model.n_samples_seen_, 'sample')}; {how}.")
    else:
        save(model, out)
        how = f"what was learnt is in {out}; --from {out} goes on from it with other data"
        errors.print(f"Interrupted after {counted(model.n_samples_seen_, 'sample')}; {how}.")
    raise typer.Exit(130)
