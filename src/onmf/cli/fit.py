"""The command ``onmf fit``: learn a dictionary from samples, with checkpoints to resume from."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import deque
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast

import numpy as np
import typer

import onmf
from onmf._support.wording import counted
from onmf.cli import command
from onmf.cli.cluster import Dask, running_on
from onmf.cli.options import CHECKPOINTS, AsJson, Data, Module, aligned_fixed_components, given_settings, with_settings
from onmf.cli.output import OutputTarget, require_writable
from onmf.cli.progress import LogEvery, LogJson, Metrics, announce, mixed, opened, seconds_of, watched
from onmf.cli.terminal import errors, fail, print_json
from onmf.cli.topics import leading_lines
from onmf.data import Rows, Spec, open_source, path_of, prefetch, shuffle
from onmf.data.jsonl import USUAL_FIELD
from onmf.data.pipes import is_pipe
from onmf.model.settings import ONLINE

if TYPE_CHECKING:
    from onmf.learner.learned import Learned


@command(
    "Learn",
    "onmf fit counts.npz -k 20 --out topics.safetensors",
    "onmf fit 'news.jsonl?field=body&stop=english' -k 20 --out news.safetensors",
    "onmf fit song.flac -k 12 --divergence is --passes 5 --out song.safetensors",
    "onmf fit survey.csv --missing nan -k 5 --divergence squared_l2 --out answers.safetensors",
    "sensors | onmf fit 'csv:-?index=time' -k 8 --checkpoint run --resume --out plant.safetensors",
)
@with_settings(*(each.name for each in ONLINE if each.help))
def fit(
    context: typer.Context,
    data: Data,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The model file to write; - is standard output.", show_default=False)
    ],
    shuffle_buffer: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="For data that come in order: draw each batch at random from a buffer of this many samples.",
            rich_help_panel="Data",
            show_default="10000 of texts, CSV and JSON Lines in files, else 0",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Save the state of the run to this file, for --resume after a crash.", rich_help_panel=CHECKPOINTS
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            help="How often to save the checkpoint: 300ms, 30s, 5m, 1h.",
            metavar="TIME",
            show_default="30s",
            rich_help_panel=CHECKPOINTS,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume from the checkpoint if there is one.", rich_help_panel=CHECKPOINTS),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="With --resume, check all data of the pass so far, not only its last batch.",
            rich_help_panel=CHECKPOINTS,
        ),
    ] = False,
    forget_removed: Annotated[
        bool,
        typer.Option(
            "--forget-removed",
            help="With --resume, allow that files the run has learnt from are gone.",
            rich_help_panel=CHECKPOINTS,
        ),
    ] = False,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Continue training this model, with its settings, on new DATA.", rich_help_panel="Model"
        ),
    ] = None,
    dask: Dask = None,
    module: Module = None,
    log_every: LogEvery = "30s",
    log_json: LogJson = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
    **settings: Any,
) -> None:
    """Learn components from DATA and write them to a model file."""
    place, path = OutputTarget(out, as_json), path_of(data)
    rewinds, fixed = not is_pipe(path), settings.pop("fixed") or []
    place.require_writable(path, *fixed)
    if settings["shards"] is not None and dask is None:
        fail("--shards says how data are learnt from on many machines; name them with --dask.")
    if shuffle_buffer and resume and not rewinds:
        fail("--shuffle-buffer mixes the lines of a pipe, so --resume cannot tell which come next; leave out one.")
    if dask is not None and shuffle_buffer:
        fail("--shuffle-buffer is for data that are read in order; with --dask, rows are mixed by partition already.")
    keep = _checkpoint(checkpoint, every, resume, verify, forget_removed, path, out)
    previous = None if start is None else onmf.load(start)
    fixed_models = [onmf.load(each) for each in fixed]
    model = onmf.OnlineNMF(**settings) if previous is None else _continued(context, previous, settings, rewinds)
    _require_valid(model, previous, fixed_models)
    loss = model.divergence if isinstance(model.divergence, str) else onmf.divergences.get(model.divergence).name
    doing = f"Learning K = {counted(model.n_components, 'component')} under {loss} from {data}."
    if sum(len(each.components_) for each in fixed_models) == model.n_components:
        doing = f"Scaling {counted(model.n_components, 'fixed component')} under {loss} to {data}."
    announce(context, doing, log_every)
    found = _learned_in(keep) if resume and keep is not None and keep.exists() else None
    begun = found and found.source
    grow = begun is None and previous is not None and dask is None and _grows(model, previous)
    begun = begun or (previous and previous.source_)
    like = begun or next((each.source_ for each in fixed_models), None)
    order = shuffle_buffer, model.shuffle, settings["random_state"]
    if dask is None:
        source = _opened(data, like, grow, *order)
    else:
        from onmf.distributed import partitioned  # not needed for --help

        source = opened(data, like, partitioned)
    if reason := place.no_room(4 * model.n_components * source.n_features):  # no file is smaller
        fail(reason)
    if fixed_models:
        model.set_params(fixed=aligned_fixed_components(fixed_models, source))
    if resume and keep is not None and keep.exists():
        n = None if found is None else getattr(found.position, "lines", None)
        where = "" if n is None else f", which has consumed {counted(n, 'line', ',')}; what comes now follows them"
        errors.print(f"Resuming from {keep.path}{where}.")
    elif previous is not None:
        learnt = cast("Learned", previous._fitted).samples_in_words
        errors.print(f"Continuing {start}, which has learnt from {learnt}.")
    last: deque[onmf.Progress] = deque(maxlen=1)

    def note(progress: onmf.Progress) -> None:
        if not last:
            _warn_without_room(model, place)
        last.append(progress)

    with ExitStack() as stack:
        if dask is not None:
            stack.enter_context(running_on(dask))
        files = path, out, checkpoint, start, *fixed
        show = stack.enter_context(watched(log_every, log_json, metrics, *files, keep=keep))
        model.set_params(callbacks=[show, note])
        try:
            model.fit(source, checkpoint=keep, resume=resume, resume_from=previous)
            _save(model, place, keep)
        except KeyboardInterrupt:
            _save_interrupted(model, place, keep, rewinds)
        except (ValueError, OSError):
            if last and keep is not None and keep.exists():
                errors.print(f"onmf: what was learnt before the error is in {keep.path}; --resume continues from it.")
            raise
    if model.n_skipped_:
        skipped = "1 sample or batch was" if model.n_skipped_ == 1 else f"{model.n_skipped_} samples or batches were"
        errors.print(f"onmf: {skipped} skipped; the last: {model.skipped_[-1]}")
    _tell(model, place, as_json)


def _checkpoint(
    path: Path | None, every: str | None, resume: bool, verify: bool, forget_removed: bool, data: Path, out: Path
) -> onmf.Checkpoint | None:
    """Return the checkpoint that the options ask for."""
    if verify and not resume:
        fail("--verify compares the data with those of the run that --resume continues; give both.")
    if forget_removed and not resume:
        fail("--forget-removed is about the files of the run that --resume continues; give both.")
    if path is None:
        if resume:
            fail("--resume continues from a checkpoint; name it with --checkpoint FILE.")
        if every is not None:
            fail("--every says how often to save a checkpoint; name it with --checkpoint FILE.")
        return None
    seconds = seconds_of("30s" if every is None else every, "--every")
    require_writable(path, data, option="--checkpoint")
    keep = onmf.Checkpoint(path, seconds, verify, forget_removed)
    if out.resolve() in (path.resolve(), keep.previous.resolve()):
        fail(f"--checkpoint {path} writes {out} too, which --out names; give them different names.")
    if keep.exists() and not resume:
        fail(f"{path} holds an earlier run; resume it with --resume, or give --checkpoint another name.")
    return keep


def _continued(
    context: typer.Context, previous: onmf.OnlineNMF, settings: dict[str, Any], rewinds: bool
) -> onmf.OnlineNMF:
    """Return the model of ``--from`` with the settings that stand on the command line."""
    given = given_settings(context, settings)
    if "init" in given:
        fail("--init begins a dictionary, and the model of --from has one; leave out one of them.")
    once = {} if rewinds else {"max_passes": 1}  # whatever data the model was begun with
    return previous.set_params(**once | given)


def _require_valid(model: onmf.OnlineNMF, previous: onmf.OnlineNMF | None, fixed: list[onmf.OnlineNMF]) -> None:
    """Raise the error that ``fit`` would raise about the settings, before data are opened and anything is announced."""
    if fixed:  # the data may have their features in another order
        if len(widths := {each.n_features_in_ for each in fixed}) > 1:
            both = " and ".join(map(str, sorted(widths)))
            fail(f"the models of --fixed have {both} features; learn all from like data.")
        model.set_params(fixed=np.concatenate([each.components_ for each in fixed]))
    recipe = model._configured().recipe
    if previous is not None and not fixed and previous._learned is not None:
        from onmf.learner import continued

        continued(recipe, previous._learned)


# The data


def _grows(model: onmf.OnlineNMF, previous: onmf.OnlineNMF) -> bool:
    from onmf.learner.growth import may_grow  # not needed for --help

    return previous._learned is not None and may_grow(model._configured().recipe, previous._learned, model.features)


def _learned_in(checkpoint: onmf.Checkpoint) -> Any:
    """Return what a run has learnt: how its features were made, since a vocabulary stays, and how far it has come."""
    from onmf.persistence.file import ModelFileError

    with suppress(ModelFileError):  # which the run itself meets and reports
        return checkpoint.read()[1]
    return None


def _opened(data: str, like: Spec | None, grow: bool, buffer: int | None, shuffled: bool, seed: int | None) -> Any:
    """Return the source, shuffled through a buffer if asked, and read ahead where reading takes time.

    A model or run that is continued decides what the features are.
    """
    source = opened(data, like, partial(open_source, grow=grow))
    field = None if like is not None or source.spec is None else source.spec.options.get("field")
    if field is not None and "field=" not in data and field != USUAL_FIELD:
        errors.print(f"The texts are those of the field {field!r}.")
    if buffer is None:
        source = mixed(source, seed) if shuffled else source
    elif buffer and not source.any_order:
        source = shuffle(source, buffer, seed or 0)
    # A thread that waits for a silent pipe could not be stopped.
    return source if isinstance(source, Rows) or not source.rewinds else prefetch(source)


# The result


def _warn_without_room(model: onmf.OnlineNMF, place: OutputTarget) -> None:
    """Say after the first batch, when the size of the file is known, if there is no room for it now."""
    from onmf.estimators.files import contents

    size = sum(array.nbytes for array in contents(model)[0].values())
    if reason := place.no_room(size):
        errors.print(f"onmf: {reason} The model takes {size / 2**20:,.1f} MiB; make room for it before the run ends.")


def _save(model: onmf.OnlineNMF, place: OutputTarget, keep: onmf.Checkpoint | None) -> None:
    """Write the model to a file or to standard output; if that fails and no checkpoint holds it, write it elsewhere."""
    from onmf.estimators.files import contents
    from onmf.persistence import file

    arrays, facts = contents(model)
    try:
        if place.standard:
            sys.stdout.buffer.write(file.as_bytes(arrays, facts))
            sys.stdout.flush()
        else:
            file.write(place.out, arrays, facts)
        return
    except file.ModelFileError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot write {place}: {error.strerror}."
    if keep is not None and not keep.failures:
        fail(f"{reason} What was learnt is in the checkpoint {keep.path}, which is a model file.")
    for folder in (None, os.path.expanduser("~"), "/dev/shm"):  # noqa: S108 (no name there can be guessed)
        with suppress(OSError, file.ModelFileError):
            handle, kept = tempfile.mkstemp(".safetensors", "onmf-", folder)  # None: the temporary folder
            os.close(handle)
            try:
                file.write(kept, arrays, facts)
            except file.ModelFileError:
                os.unlink(kept)
                raise
            fail(f"{reason} What was learnt is in {kept}; move it where there is room.")
    fail(f"{reason} It could be kept in no other folder either.")


def _save_interrupted(
    model: onmf.OnlineNMF, place: OutputTarget, keep: onmf.Checkpoint | None, rewinds: bool
) -> NoReturn:
    """Save the model as it was at Ctrl-C or SIGTERM, unless data that can be read again will complete it, and exit."""
    if not model.__sklearn_is_fitted__():
        errors.print("Interrupted before anything was learnt.")
        raise typer.Exit(130)
    if keep is None or keep.failures or not rewinds:
        _save(model, place, None)
    if keep is not None and not keep.failures:
        how = f"the same command with --resume continues from {keep.path}"
    else:
        how = f"what was learnt is in {place.out}; --from {place.out} continues it with other data"
    errors.print(f"Interrupted after {counted(model.n_samples_seen_, 'sample')}; {how}.")
    raise typer.Exit(130)


def _tell(model: onmf.OnlineNMF, place: OutputTarget, as_json: bool) -> None:
    """Print the size, the samples and the loss of the model."""
    K, history = len(model.components_), model.history_
    if as_json:
        facts = {"model": place.out, "components": K, "features": model.n_features_in_}
        facts |= {"samples": model.n_samples_seen_, "passes": model.n_iter_, "loss": history["loss"][-1]}
        facts |= {"seconds": history["seconds"][-1], "skipped": model.n_skipped_, "guarantee": model.guarantee_}
        print_json(facts)
        return
    place.say(
        f"{place}: {counted(K, 'component')} of {counted(model.n_features_in_, 'feature')} from "
        f"{cast('Learned', model._fitted).samples_in_words} in {history['seconds'][-1]:.1f} s; last batch's loss "
        f"{history['loss'][-1]:.6g}."
    )
    for line in leading_lines(model, place.out):
        place.say(line)
