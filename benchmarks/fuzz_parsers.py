"""Bytes that atheris makes up for the parsers written here, guided by the branches they take.

    pip install atheris
    python -m benchmarks.fuzz_parsers csv --seconds 600 [--corpus FOLDER]

Parsers: csv, jsonl, npy (arrays that follow each other in a pipe), matlab, model (the header of a model file and all
that stands in it). Each starts from a good example. A parser may raise the errors that the command line turns into one
sentence; anything else, more than ten seconds, or more than 2 GiB is a fault, at which atheris stops and keeps the
bytes. Exit status 0 if there was none.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PACKAGES = ["onmf.data", "onmf.persistence", "onmf.model", "reproduction.datasets"]
TABLE = "a,b,c\n1,2,3\n4,,6\n"
WORDS = ("divergence", "method", "settings", "history", "source", "options", "null", "true", "1e308")
LINES = '{"a": 1, "b": 2.5}\n{"a": 3, "b": null}\n'

Parser = Callable[[Path], object]


def read_rows(text: str) -> object:
    """Read a source to its end, bad rows left out."""
    from onmf.data import open_source

    return [batch for _, batch in open_source(text).batches(7, on_bad=lambda error: None)]


def read_pipe(path: Path) -> object:
    """Read arrays through a pipe of the system, as far as it holds them."""
    from onmf.data.npy import ArraysFromPipe

    ours, theirs = os.pipe()
    os.write(theirs, path.read_bytes()[:60_000])  # what a pipe holds without a reader
    os.close(theirs)
    try:
        return [batch for _, batch in ArraysFromPipe(Path(f"/dev/fd/{ours}")).batches(7)]
    finally:
        os.close(ours)


def read_matlab(path: Path) -> object:
    """Read one matrix of a MATLAB file."""
    from reproduction.datasets.matlab import read_matrices

    return read_matrices(path, "X")


def read_model(path: Path) -> object:
    """Load a model whose seal is made good, so that what stands behind it is reached."""
    import safetensors.numpy

    import onmf
    from benchmarks.fuzz_models import metadata_of
    from onmf.persistence.file import sealed

    with suppress(Exception):  # bytes that are no safetensors at all go to the loader as they are
        content = path.read_bytes()
        path.write_bytes(sealed(safetensors.numpy.load(content), metadata_of(content)))
    return onmf.load(path)


PARSERS: dict[str, tuple[str, Parser]] = {  # the suffix of its files, and what reads one
    "csv": ("csv", lambda path: read_rows(f"csv:{path}")),
    "jsonl": ("jsonl", lambda path: read_rows(f"jsonl:{path}?features=a,b")),
    "npy": ("npy", read_pipe),
    "matlab": ("mat", read_matlab),
    "model": ("onmf", read_model),
}


def example(parser: str, path: Path) -> None:
    """Write a good file."""
    import numpy as np
    import scipy.io

    import onmf

    X = np.arange(1.0, 13.0).reshape(4, 3)
    if parser in ("csv", "jsonl"):
        path.write_text(TABLE if parser == "csv" else LINES)
    elif parser == "npy":
        np.save(path, X)
    elif parser == "matlab":
        scipy.io.savemat(path, {"X": X}, do_compression=False)
    else:
        onmf.save(onmf.OnlineNMF(2, random_state=0).fit(X), path)


def main() -> None:
    """Fuzz one parser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parser", choices=sorted(PARSERS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="a folder that keeps inputs which reach new branches")
    given = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=PACKAGES):
        for module in ("onmf.data", "onmf.persistence.model", "reproduction.datasets.matlab"):
            importlib.import_module(module)
    warnings.simplefilter("ignore")
    suffix, parse = PARSERS[given.parser]
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
    corpus, path = given.corpus or folder / "corpus", folder / f"x.{suffix}"
    corpus.mkdir(parents=True, exist_ok=True)
    example(given.parser, corpus / f"example.{suffix}")
    if given.parser == "model":  # its facts are JSON within JSON: words that belong there help
        (folder / "words").write_text("".join(f'"{word}"\n' for word in WORDS))

    def once(data: bytes) -> None:
        path.write_bytes(data)
        with suppress(ValueError, OSError, MemoryError, ModuleNotFoundError):  # one sentence on the command line
            parse(path)

    options = [f"-max_total_time={given.seconds}", "-timeout=10", "-rss_limit_mb=2048", "-max_len=20000"]
    options += [f"-dict={folder / 'words'}"] if given.parser == "model" else []
    atheris.Setup([sys.argv[0], *options, str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
