"""``onmf fit``: learn a dictionary from a source of samples, with checkpoints to resume from."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

import onmf
from onmf import data as streams
from onmf._support.wording import counted
from onmf.cli.app import app
from onmf.cli.as_json import AsJson, print_json, require_free
from onmf.cli.cluster import Dask, Shards, running_on
from onmf.cli.device import Device
from onmf.cli.fit_input import opened, parted, source_in
from onmf.cli.fit_output import checkpoint_of, save, tell_of_interrupt
from onmf.cli.fixed import Fixed, atoms_for
from onmf.cli.module import Module
from onmf.cli.options import (
    Coefficients,
    Data,
    Divergence,
    Implicit,
    L1Coefficients,
    L1Dictionary,
    L2Coefficients,
    L2Dictionary,
    Method,
    Missing,
    OnError,
    Seed,
    among,
)
from onmf.cli.progress import LogEvery, LogJson, Metrics, announce, watched
from onmf.cli.resume import going_on
from onmf.cli.terminal import console, errors, fail, is_standard_output, require_writable
from onmf.cli.topics import say_leading
from onmf.learner.initial_dictionary import INITS

EXAMPLES = (
    "Examples:\n\n"
    "`onmf fit counts.npz -k 20 --out topics.safetensors`\n\n"
    "`onmf fit spectra.npy -k 12 --divergence is --no-shuffle --reservoir 500 --out music.safetensors`\n\n"
    "`onmf fit pixels.csv --divergence huber --passes 5 --seed 0 --out parts.safetensors`\n\n"
    "`onmf fit pixels.npy -k 3 --coefficients simplex --out materials.safetensors`\n\n"
    "`onmf fit huge.parquet --checkpoint run.safetensors --every 5m --resume --out model.safetensors`\n\n"
    "`sensors | onmf fit 'csv:-?index=time' -k 8 --on-error skip --out plant.safetensors`\n\n"
    "`onmf fit days.parquet --log-every 5m --log-json run.jsonl --metrics 9100 --out model.safetensors`\n\n"
    "`onmf fit 'news.jsonl?field=body&stop=english&max_df=0.5' -k 20 --out news.safetensors`\n\n"
    "`onmf fit survey.csv --missing nan -k 5 --divergence squared_l2 --out answers.safetensors`\n\n"
    "`onmf fit ratings.npz --implicit missing -k 10 --out tastes.safetensors`\n\n"
    "`onmf fit 'households.parquet?weight=count' -k 8 --out households.safetensors`\n\n"
    "`onmf fit 'audio:song.flac?window=2048&hop=512' -k 12 --divergence is --out song.safetensors`\n\n"
    "`onmf fit november.parquet --from october.safetensors --out november.safetensors`\n\n"
    "`onmf fit mixture.flac -k 40 --divergence is --fixed piano.safetensors --out both.safetensors`\n\n"
    "`onmf fit spectra.npy --method paper:tol=1e-9 --l2-coefficients 0.001 --out theorem.safetensors`\n\n"
    "`onmf fit pixels.npy --module my_losses.py --divergence my_loss:2 --out mine.safetensors`\n\n"
    "`onmf fit parquet:counts --dask tcp://10.0.0.1:8786 --checkpoint run.safetensors --out model.safetensors`\n\n"
    "`onmf fit cells.h5ad -k 30 --device cuda --out programmes.safetensors`\n\n"
    "`onmf fit counts.npz --seed 0 --out topics.safetensors --json | jq .loss`"
)


@app.command(epilog=EXAMPLES)
def fit(
    context: typer.Context,
    data: Data,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The model file to write; - is standard output.", show_default=False)
    ],
    components: Annotated[
        int, typer.Option("--components", "-k", min=1, help="K, the number of atoms in the dictionary.")
    ] = 40,
    divergence: Divergence = "kl",
    method: Method = "auto",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Samples per batch.", show_default="max(5 K, 200), later more")
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="Number of passes over the data.")] = 1,
    init: Annotated[
        str, typer.Option(help=f"Initial dictionary: {', '.join(INITS)}.", autocompletion=among(lambda: list(INITS)))
    ] = "kmeans++",
    fixed: Fixed = None,
    coefficients: Coefficients = "nonnegative",
    l1_coefficients: L1Coefficients = 0.0,
    l2_coefficients: L2Coefficients = 0.0,
    l1_dictionary: L1Dictionary = 0.0,
    l2_dictionary: L2Dictionary = 0.0,
    clip: Annotated[
        tuple[float, float] | None, typer.Option(help="Clip the data to LOW HIGH first.", show_default=False)
    ] = None,
    missing: Missing = None,
    implicit: Implicit = "zero",
    shuffle: Annotated[
        bool, typer.Option(help="Shuffle the rows in each pass, if they can be read in any order.")
    ] = True,
    shuffle_buffer: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="If they cannot: draw each batch at random from a buffer of this many samples.",
            show_default="10000 of texts in files, else 0",
        ),
    ] = None,
    reservoir: Annotated[
        int,
        typer.Option(min=0, help="For data in temporal order: keep this many old samples and mix them with new ones."),
    ] = 0,
    on_error: OnError = "raise",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Save the state of the run to this file, for --resume after a crash.")
    ] = None,
    every: Annotated[str | None, typer.Option(help="How often to save it: 30s, 5m, 1h.", show_default="30s")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint if there is one.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="With --resume: compare all that was read of the pass, not only its last batch.",
        ),
    ] = False,
    start: Annotated[
        Path | None,
        typer.Option("--from", help="Go on learning this model, with its settings, from DATA that are new to it."),
    ] = None,
    seed: Seed = None,
    dask: Dask = None,
    shards: Shards = None,
    device: Device = None,
    module: Module = None,
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
) -> None:
    """Learn a dictionary from DATA and write it to a model file.

    Of texts the 10,000 most frequent words are counted, if 100 texts or more are given those in at least two. After the
    question mark, words=5000 keeps as many, stop=english leaves out the commonest English words, min_df=5 those in
    fewer than five texts and max_df=0.5 those in more than half of them.
    """
    place, standard = streams.path_of(data), is_standard_output(out)
    require_free(as_json, standard)
    if not standard:
        require_writable(out, *(each for each in (place, fixed) if each is not None))
    settings: dict[str, Any] = {
        "n_components": components,
        "divergence": divergence,
        "method": method,
        "batch_size": batch_size,
        "max_passes": passes,
        "shuffle": shuffle,
        "init": init,
        "coefficients": coefficients,
        "l1_coefficients": l1_coefficients,
        "l2_coefficients": l2_coefficients,
        "l1_dictionary": l1_dictionary,
        "l2_dictionary": l2_dictionary,
        "clip": clip,
        "missing": missing,
        "implicit": implicit,
        "reservoir": reservoir,
        "on_error": on_error,
        "shards": shards,
        "device": device,
        "random_state": seed,
    }
    if shards is not None and dask is None:
        fail("--shards says how data are learnt from on many machines; name them with --dask.")
    known = None if start is None else onmf.load(start)
    announce(context, _beginning(settings if known is None else known.get_params(deep=False), data), log_every)
    begun = known.source_ if known is not None else source_in(checkpoint) if resume and checkpoint else None
    fixed_in = None if fixed is None else onmf.load(fixed)
    like = begun or (fixed_in and fixed_in.source_)
    if dask is None:
        source: Any = opened(data, shuffle_buffer, shuffle, seed, like)
    else:
        source = parted(data, shuffle_buffer, like)
    settings["fixed"] = fixed_in and atoms_for(source, fixed_in)
    keep = checkpoint_of(checkpoint, every, resume, verify, source.rewinds, place, out)
    model = onmf.OnlineNMF(**settings) if known is None else going_on(context, known, settings, source)
    if resume and keep is not None and keep.exists():
        errors.print(f"Resuming from {keep.path}.")
    elif known is not None:
        errors.print(f"Going on from {start}, which has learnt from {counted(known.n_samples_seen_, 'sample')}.")
    learnt = False

    def note(_: onmf.Progress) -> None:
        nonlocal learnt
        learnt = True

    files = [place, out, *(each for each in (checkpoint, start, fixed) if each is not None)]
    with ExitStack() as stack:
        if dask is not None:
            stack.enter_context(running_on(dask))
        show = stack.enter_context(watched(log_every, log_json, metrics, *files))
        model.set_params(callbacks=[show, note])
        try:
            model.fit(source, checkpoint=keep, resume=resume, resume_from=known)
            save(model, out)
        except KeyboardInterrupt:
            tell_of_interrupt(model, out, keep if source.rewinds else None)
        except (ValueError, OSError):
            if learnt and keep is not None and keep.exists():
                how = "--resume continues" if source.rewinds else f"--from {keep.path} goes on"
                errors.print(f"onmf: what was learnt before the error is in {keep.path}; {how} from it.")
            raise
    if model.n_skipped_:
        skipped = "1 sample or batch was" if model.n_skipped_ == 1 else f"{model.n_skipped_} samples or batches were"
        errors.print(f"onmf: {skipped} skipped; the last: {model.skipped_[-1]}")
    history = model.history_
    if as_json:
        print_json(_facts(model, out))
        return
    where = "standard output" if standard else out
    said = errors if standard else console
    said.print(
        f"{where}: {counted(len(model.components_), 'atom')} of {counted(model.n_features_in_, 'feature')} from "
        f"{counted(model.n_samples_seen_, 'sample')} in {history['seconds'][-1]:.1f} s; last batch's loss "
        f"{history['loss'][-1]:.6g}.",
        soft_wrap=True,
    )
    for line in say_leading(model, out):
        said.print(line, soft_wrap=True)


def _facts(model: onmf.OnlineNMF, out: Path) -> dict[str, Any]:
    """What a program may want to know of a run that has ended well."""
    return {
        "model": out,
        "components": len(model.components_),
        "features": model.n_features_in_,
        "samples": model.n_samples_seen_,
        "passes": model.n_iter_,
        "loss": model.history_["loss"][-1],
        "seconds": model.history_["seconds"][-1],
        "skipped": model.n_skipped_,
        "guarantee": model.guarantee_,
    }


def _beginning(settings: dict[str, Any], data: str) -> str:
    """What is about to be learnt."""
    divergence = settings["divergence"]
    name = divergence if isinstance(divergence, str) else divergence.name
    return f"Learning K = {counted(settings['n_components'], 'atom')} under {name} from {data}."
