"""The source of ``onmf fit``: with the features of a model or run that goes on, shuffled, and read ahead."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import onmf
from onmf import data as streams
from onmf.cli.terminal import errors, fail
from onmf.cli.topics import is_text
from onmf.data.jsonl import USUAL_FIELD

TEXTS_SHUFFLED = 10_000  # some ten megabytes


def source_in(checkpoint: Path) -> streams.Spec | None:
    """How the features of a run that goes on were made: a vocabulary, for one, stays when the texts become more."""
    from onmf.persistence.file import ModelFileError

    with suppress(ModelFileError):  # which the run itself meets, and says
        return onmf.Checkpoint(checkpoint).read()[1].source
    return None


def opened(data: str, buffer: int | None, shuffle: bool, seed: int | None, like: streams.Spec | None) -> streams.Source:
    """The source, shuffled through a buffer if asked, and read ahead where reading takes time.

    A model or run that goes on decides what the features are. Texts come by author, subject or date, and topics
    learnt in that order are poor ones, so that they are shuffled as far as a little memory goes.
    """
    # Counting the words of many texts takes a while, before there are samples for a bar to count.
    with errors.status(f"Opening {data}") if errors.is_terminal else nullcontext():
        source = streams.open_source(data, like)
    field = None if like is not None or source.spec is None else source.spec.options.get("field")
    if field is not None and "field=" not in data and field != USUAL_FIELD:
        errors.print(f"The texts are those of the field {field!r}.")
    if buffer is None:
        buffer = TEXTS_SHUFFLED if shuffle and source.rewinds and is_text(source.spec) else 0
    if buffer and not source.any_order:
        source = streams.shuffle(source, buffer, seed or 0)
    # A thread that waits for a silent pipe could not be stopped.
    return source if isinstance(source, streams.Rows) or not source.rewinds else streams.prefetch(source)


def parted(data: str, buffer: int | None, like: streams.Spec | None) -> Any:
    """The data in partitions, for workers to read."""
    from onmf.distributed import partitioned  # not needed for --help

    if buffer:
        fail("--shuffle-buffer is for data that are read in order; with --dask, rows are mixed by partition already.")
    with errors.status(f"Opening {data}") if errors.is_terminal else nullcontext():
        return partitioned(data, like=like)
