"""Damaged files for every reader: each must be rejected in one sentence, or give samples that can be learnt from.

    python -m benchmarks.fuzz_readers --files 10000 [--readers csv,h5ad] [--seed 0]

A file of every kind is cut, doubled, made up, or has some of its bytes changed; tables, texts and stores are also
damaged where a careful attacker would do it: numbers, sizes, indices, codecs, links to pipes and endless devices, and
one file in twenty is a bomb, which stands for up to 100 MB where ``ONMF_MEMORY`` allows 32. Whatever can be opened is
learnt from, with ``on_error`` raise and skip in turns; an .h5ad is also written, with the coefficients of its cells.
What counts as a fault: a process that dies, an error that is not told in one sentence, a model that is not finite, a
file that is left behind, more than ten seconds of computing, or more than 256 MiB of memory beyond before. Files are
tried in child processes, so that one that dies is found and named. Exit status 1 if there is any fault.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import logging
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import onmf
from onmf import OnlineNMF
from onmf.cli.main import app
from onmf.data import open_source

N, F = 40, 6
X = np.random.default_rng(0).integers(0, 9, (N, F)) + 0.5
S = scipy.sparse.csr_matrix(np.round(X) * (np.random.default_rng(1).random((N, F)) < 0.4))
WORDS = np.array(["river", "stone", "cloud", "bread", "night", "piano", "garden", "winter", "yellow", "engine"])
ODD_NUMBERS = [b"nan", b"inf", b"-1", b"1e400", b"", b"x", b'"', b"1e-320", b"0x10", "\u0663".encode(), b"1_0", b"\xff"]
LONG = 10.0  # seconds
ROOM = 2**28  # bytes
MEMORY = "32MB"  # for reading
BOMB = 8.0  # the digits of its bytes
BOMBS = 0.05  # their share
ROUND = 250  # files a child tries
REJECTIONS = (ValueError, OSError, MemoryError, ModuleNotFoundError)  # what the command line tells in one sentence

Write = Callable[[Path], None]  # writes a good file
Damage = Callable[[Path, np.random.Generator], None]  # and spoils it


def table(delimiter: str, path: Path) -> None:
    """Names, then numbers."""
    lines = [delimiter.join(f"f{k}" for k in range(F)), *(delimiter.join(f"{x:g}" for x in row) for row in X)]
    path.write_text("\n".join(lines) + "\n")


def texts() -> list[str]:
    """Some documents."""
    rng = np.random.default_rng(2)
    return [" ".join(rng.choice(WORDS, 8)) for _ in range(N)]


def documents(path: Path) -> None:
    """One per line."""
    path.write_text("\n".join(texts()))


def parquet(path: Path) -> None:
    """As pandas writes it."""
    import pandas

    pandas.DataFrame(X, columns=[f"f{k}" for k in range(F)]).to_parquet(path, row_group_size=15)


def arrow(path: Path) -> None:
    """Arrow's file format."""
    import pyarrow.ipc

    data = pyarrow.table({f"f{k}": X[:, k] for k in range(F)})
    with pyarrow.ipc.new_file(path, data.schema) as writer:
        writer.write_table(data, max_chunksize=15)


def arrow_stream(path: Path) -> None:
    """Arrow's format for pipes."""
    import pyarrow.ipc

    data = pyarrow.table({f"f{k}": X[:, k] for k in range(F)})
    with pyarrow.ipc.new_stream(path, data.schema) as writer:
        writer.write_table(data, max_chunksize=15)


def hdf5(path: Path) -> None:
    """One data set, in chunks."""
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, chunks=(10, F), compression="gzip")


def h5ad(layout: str, path: Path) -> None:
    """Cells by genes."""
    import anndata

    cells = anndata.AnnData(S if layout == "csr" else S.tocsc() if layout == "csc" else X)
    cells.var_names = [f"gene{k}" for k in range(F)]
    cells.write_h5ad(path)


def zarr(path: Path) -> None:
    """A folder of chunks."""
    import zarr as library

    library.save_array(str(path), X)


def picture(kind: str, path: Path) -> None:
    """Grey pixels."""
    from PIL import Image

    Image.fromarray(np.kron(X, np.ones((3, 5))).astype(np.uint8) * 20).save(path, format=kind)


def sound(kind: str, path: Path) -> None:
    """A few chords."""
    import soundfile

    wave = np.sin(np.outer(np.arange(3000), [0.05, 0.11, 0.3])).sum(axis=1) / 4
    soundfile.write(path, wave, 8000, format=kind)


def bytes_changed(path: Path, rng: np.random.Generator) -> None:
    """Cut, doubled, made up, or some bytes other than they were."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        path = files[rng.integers(len(files))]
        if rng.random() < 0.1:
            path.unlink()
            return
    data = bytearray(path.read_bytes())
    kind = rng.integers(8)
    if kind == 0:
        data = data[: rng.integers(len(data))]
    elif kind == 1:
        start, stop = sorted(rng.integers(len(data), size=2))
        data = data[:stop] + data[start:]
    elif kind == 2:
        data = bytearray(rng.bytes(int(rng.integers(200))))
    elif kind == 3:
        place = int(rng.integers(len(data)))
        data[place] ^= 1 << int(rng.integers(8))
    else:
        near_start = rng.random() < 0.5  # where most formats keep what they promise
        for place in rng.integers(min(len(data), 200) if near_start else len(data), size=rng.integers(1, 9)):
            data[place] = int(rng.choice([0, 1, 127, 128, 255, rng.integers(256)]))
    path.write_bytes(bytes(data))


def cells_changed(delimiter: bytes, path: Path, rng: np.random.Generator) -> None:
    """A table with some other fields."""
    lines = path.read_bytes().split(b"\n")
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(lines)))
        fields = lines[place].split(delimiter)
        fields[int(rng.integers(len(fields)))] = ODD_NUMBERS[int(rng.integers(len(ODD_NUMBERS)))]
        lines[place] = delimiter.join(fields) if rng.random() < 0.8 else delimiter.join(fields[:-1])
    path.write_bytes(b"\n".join(lines))


def stored_numbers_changed(path: Path, rng: np.random.Generator) -> None:
    """An HDF5 file in good order whose arrays or attributes have other values: indices, pointers, shapes."""
    import h5py

    odd = [-1, 0, F, F + 1, N, 2**31 - 1, -(2**31), 10**9]
    with h5py.File(path, "r+") as file:
        sets: list[Any] = []
        file.visititems(lambda _, item: sets.append(item) if isinstance(item, h5py.Dataset) else None)
        holders: list[Any] = [file]
        file.visititems(lambda _, item: holders.append(item))
        if rng.random() < 0.7:
            found = sets[rng.integers(len(sets))]
            if found.size and found.dtype.kind in "if":
                values = found[...].ravel()
                with np.errstate(all="ignore"):
                    values[rng.integers(len(values))] = np.array(odd[rng.integers(len(odd))]).astype(values.dtype)
                found[...] = values.reshape(found.shape)
            elif rng.random() < 0.5:
                del file[found.name]
        else:
            holder = holders[rng.integers(len(holders))]
            names = list(holder.attrs)
            if names:
                name = names[rng.integers(len(names))]
                choices: list[Any] = [None, "", "x", "csr_matrix", np.array(odd[rng.integers(len(odd))]), np.arange(3)]
                value = choices[rng.integers(len(choices))]
                del holder.attrs[name]
                if value is not None:
                    holder.attrs[name] = value


def facts_changed(path: Path, rng: np.random.Generator) -> None:
    """A Zarr array with other facts in its own description."""
    place = path / "zarr.json"
    facts = json.loads(place.read_text())
    name = list(facts)[rng.integers(len(facts))]
    odd: list[Any] = [None, -1, 0, 10**9, [10**9, 10**9], [N], "float64", "x", {}, [], True, 1e300]
    facts[name] = odd[rng.integers(len(odd))]
    place.write_text(json.dumps(facts))


def led_elsewhere(path: Path, rng: np.random.Generator) -> None:
    """A folder with a pipe, or a link to an endless device or to another folder, in the place of a file."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    place = files[rng.integers(len(files))]
    place.unlink()
    target = [None, "/dev/zero", path.parent][rng.integers(3)]
    os.mkfifo(place) if target is None else place.symlink_to(target)


def hdf5_led_elsewhere(path: Path, rng: np.random.Generator) -> None:
    """An HDF5 file with a link to a pipe, to an endless device or within the file in the place of a part."""
    import h5py

    pipe = path.with_suffix(".pipe")
    if not pipe.exists():
        os.mkfifo(pipe)
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        name, other = (names[place] for place in rng.integers(len(names), size=2))
        del file[name]
        file[name] = [
            h5py.ExternalLink(pipe.name, "/"),
            h5py.ExternalLink("/dev/zero", "/"),
            h5py.SoftLink(f"/{other}"),
        ][rng.integers(3)]


def codecs_changed(path: Path, rng: np.random.Generator) -> None:
    """A Zarr array with another codec."""
    place = path / "zarr.json"
    facts = json.loads(place.read_text())
    name = ["pickle", "numcodecs.pickle", "json2", "numcodecs.astype", "sharding_indexed", ""][rng.integers(6)]
    facts["codecs"].insert(rng.integers(len(facts["codecs"]) + 1), {"name": name, "configuration": {}})
    place.write_text(json.dumps(facts))


def zeros(rng: np.random.Generator, columns: int = 1) -> Any:
    """An array of up to 100 MB."""
    return np.zeros((int(10 ** rng.uniform(4, BOMB)) // (8 * columns), columns))


def line_lengthened(path: Path, rng: np.random.Generator) -> None:
    """Some bytes of a text again and again, up to 10 MB of them."""
    data, place = path.read_bytes(), int(rng.integers(path.stat().st_size))
    again = data[place : place + rng.integers(1, 9)].replace(b"\n", b",")
    path.write_bytes(data[:place] + again * (int(10 ** rng.uniform(3, BOMB - 1)) // len(again)) + data[place:])


def columns_inflated(kind: str, path: Path, rng: np.random.Generator) -> None:
    """Record batches or a row group of zeros, some of them in one page."""
    import pyarrow.ipc
    import pyarrow.parquet

    data = pyarrow.table({f"f{k}": column for k, column in enumerate(zeros(rng, F).T)})
    many = len(data) + 1
    if kind == "parquet":
        large = {"row_group_size": many, "data_page_size": 2**30, "write_batch_size": many, "max_rows_per_page": many}
        pyarrow.parquet.write_table(data, path, compression="zstd", use_dictionary=rng.random() < 0.5, **large)
        return
    new = pyarrow.ipc.new_file if kind == "file" else pyarrow.ipc.new_stream
    with new(path, data.schema, options=pyarrow.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(data)


def archive_inflated(path: Path, rng: np.random.Generator) -> None:
    """A sparse matrix with one entry again and again."""
    data = zeros(rng).ravel()
    indices, indptr = np.zeros(len(data), np.int32), np.array([0, len(data)])
    np.savez_compressed(path, format=b"csr", shape=(1, F), data=data, indices=indices, indptr=indptr)


def chunk_inflated(path: Path, rng: np.random.Generator) -> None:
    """A Zarr array with a chunk that becomes larger than it says."""
    import numcodecs

    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    files[rng.integers(len(files))].write_bytes(bytes(numcodecs.Zstd().encode(zeros(rng))))


def hdf5_chunk_inflated(path: Path, rng: np.random.Generator) -> None:
    """An HDF5 file with a large chunk, or with one that becomes larger than it says."""
    import h5py

    with h5py.File(path, "r+") as file:
        sets: list[Any] = []
        file.visititems(lambda _, item: sets.append(item) if isinstance(item, h5py.Dataset) else None)
        found = sets[rng.integers(len(sets))]
        if not (found.shape and found.dtype.kind in "if"):
            return
        name, shape, dtype = found.name, found.shape, found.dtype
        del file[name]
        data = zeros(rng, shape[1] if len(shape) == 2 else 1).reshape(-1, *shape[1:])
        if rng.random() < 0.5:
            file.create_dataset(name, data=data.astype(dtype), chunks=data.shape, compression=1)
        else:
            new = file.create_dataset(name, shape, dtype, chunks=shape, compression=1)
            new.id.write_direct_chunk((0,) * len(shape), zlib.compress(data, 1))


def picture_inflated(path: Path, rng: np.random.Generator) -> None:
    """A picture of 16 bits, all black."""
    from PIL import Image

    side = int((10 ** rng.uniform(3, BOMB)) ** 0.5 / 2)
    Image.fromarray(np.zeros((side, 2 * side), np.uint16)).save(path, format="PNG", compress_level=1)


def folder(name: str, write: Write, path: Path) -> None:
    """Three files of one kind."""
    path.mkdir()
    for number in range(3):
        write(path / name.format(number))


COMMAS: list[Damage] = [bytes_changed, functools.partial(cells_changed, b",")]
TABS: list[Damage] = [bytes_changed, functools.partial(cells_changed, b"\t")]
HDF5_DAMAGES: list[Damage] = [bytes_changed, stored_numbers_changed, hdf5_led_elsewhere]
# What is opened, with the place of the file; how it is made; damages; a bomb.
READERS: dict[str, tuple[str, Write, list[Damage], Damage | None]] = {
    "csv": ("{}.csv", functools.partial(table, ","), COMMAS, line_lengthened),
    "tsv": ("{}.tsv", functools.partial(table, "\t"), TABS, line_lengthened),
    "npy": ("{}.npy", lambda path: np.save(path, X), [bytes_changed], None),
    "npz": ("{}.npz", lambda path: scipy.sparse.save_npz(path, S), [bytes_changed], archive_inflated),
    "parquet": ("{}.parquet", parquet, [bytes_changed], functools.partial(columns_inflated, "parquet")),
    "arrow": ("{}.arrow", arrow, [bytes_changed], functools.partial(columns_inflated, "file")),
    "arrow stream": ("{}.arrow", arrow_stream, [bytes_changed], functools.partial(columns_inflated, "stream")),
    "hdf5": ("{}.h5", hdf5, HDF5_DAMAGES, hdf5_chunk_inflated),
    "h5ad, CSR": ("{}.h5ad", functools.partial(h5ad, "csr"), HDF5_DAMAGES, hdf5_chunk_inflated),
    "h5ad, CSC": ("{}.h5ad", functools.partial(h5ad, "csc"), HDF5_DAMAGES, hdf5_chunk_inflated),
    "h5ad, dense": ("{}.h5ad", functools.partial(h5ad, "dense"), HDF5_DAMAGES, hdf5_chunk_inflated),
    "zarr": ("{}.zarr", zarr, [bytes_changed, facts_changed, codecs_changed, led_elsewhere], chunk_inflated),
    "images, PNG": ("{}.png", functools.partial(picture, "PNG"), [bytes_changed], picture_inflated),
    "images, JPEG": ("{}.jpg", functools.partial(picture, "JPEG"), [bytes_changed], None),
    "images, TIFF": ("{}.tiff", functools.partial(picture, "TIFF"), [bytes_changed], None),
    "sound, WAV": ("{}.wav?window=64", functools.partial(sound, "WAV"), [bytes_changed], None),
    "sound, FLAC": ("{}.flac?window=64", functools.partial(sound, "FLAC"), [bytes_changed], None),
    "text": ("{}.txt?words=8", documents, [bytes_changed], line_lengthened),
    "JSON Lines, numbers": (
        "{}.jsonl?features=" + ",".join(f"f{k}" for k in range(F)),
        lambda path: (
            path.write_text("\n".join(json.dumps({f"f{k}": x for k, x in enumerate(row)}) for row in X)) and None
        ),
        [bytes_changed],
        line_lengthened,
    ),
    "JSON Lines, texts": (
        "{}.jsonl?field=text&words=8",
        lambda path: path.write_text("\n".join(json.dumps({"text": text}) for text in texts())) and None,
        [bytes_changed],
        line_lengthened,
    ),
    "folder, texts": (
        "text:{}.d?links=follow",
        functools.partial(folder, "{}.txt", documents),
        [bytes_changed, led_elsewhere],
        None,
    ),
    "folder, Parquet": (
        "parquet:{}.d",
        functools.partial(folder, "{}.parquet", parquet),
        [bytes_changed, led_elsewhere],
        None,
    ),
}


def learn(text: str, skip: bool) -> str:
    """Whether it was learnt or rejected, or else what is wrong."""
    try:
        source = open_source(text)
        model = OnlineNMF(2, on_error="skip" if skip else "raise", random_state=0).fit(source)
    except REJECTIONS as error:
        sentence = str(error)
        return "rejected" if sentence and "\n" not in sentence else f"says {sentence!r}"
    except BaseException as error:  # that is what is looked for
        return f"{type(error).__name__}: {error}"
    if not np.isfinite(model.components_).all():
        return "learns a dictionary that is not finite"
    return written(model, Path(text)) if text.endswith(".h5ad") else "learnt"


def written(model: OnlineNMF, path: Path) -> str:
    """Whether coefficients were written to a copy of the file, or what is wrong."""
    import h5py

    saved, copy = path.with_name("model"), path.with_name("copy.h5ad")
    onmf.save(model, saved)
    words = ["transform", str(saved), str(path), "--out", str(copy)]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            app(words, standalone_mode=False)
    except REJECTIONS as error:
        sentence = str(error)
        if copy.exists():
            return f"leaves a file behind, and says {sentence!r}"
        return "rejected" if sentence and "\n" not in sentence else f"says {sentence!r}"
    except BaseException as error:  # that is what is looked for
        return f"{type(error).__name__}: {error}"
    with h5py.File(copy) as file:
        shape = getattr(file.get("obsm/X_onmf"), "shape", None)
        if shape != (N, model.n_components):
            return f"writes coefficients of the shape {shape}"
    copy.unlink()
    return "learnt"


def memory(name: str) -> int:
    """A number of bytes that the system tells of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def tried(reader: str, numbers: range, seed: int, folder: Path, pipe: Any) -> None:
    """In a child: tell the number of each file before it is read, and what came of it."""
    warnings.simplefilter("ignore")
    logging.disable()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 16 * ROOM, used + 16 * ROOM))  # beyond, allocations fail
    os.environ["ONMF_MEMORY"] = MEMORY
    text, write, damages, bomb = READERS[reader]
    path = Path(text.partition("?")[0].rpartition(":")[2].format(folder / "x"))
    for number in numbers:
        rng = np.random.default_rng([seed, number])
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        write(path)
        damage = bomb if bomb and rng.random() < BOMBS else damages[rng.integers(len(damages))]
        damage(path, rng)
        pipe.send((number, None))
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now on, without what was written
        started, before = time.process_time(), memory("VmRSS")
        found = learn(text.format(folder / "x"), skip=number % 2 == 0)
        if (took := time.process_time() - started) > LONG:
            found = f"took {took:.0f} s"
        if (more := memory("VmHWM") - before) > ROOM:
            found = f"took {more // 2**20} MiB of memory"
        pipe.send((number, found))
    pipe.send(None)


def fuzz(reader: str, files: int, seed: int) -> tuple[dict[str, int], list[str]]:
    """How many were learnt from and rejected, and the faults."""
    counts, faults, start = {"learnt": 0, "rejected": 0}, [], 0
    while start < files:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:  # noqa: S108
            ours, theirs = multiprocessing.Pipe(duplex=False)
            numbers = range(start, min(start + ROUND, files))
            child = multiprocessing.Process(target=tried, args=(reader, numbers, seed, Path(name), theirs))
            child.start()
            theirs.close()
            last, death = start, ""
            while True:
                try:
                    if not ours.poll(6 * LONG):
                        child.kill()
                        death = "hangs"
                        break
                    said = ours.recv()
                except EOFError:
                    child.join()
                    death = f"dies: {child.exitcode}"
                    break
                if said is None:
                    break
                last, found = said
                if found in counts:
                    counts[found] += 1
                elif found is not None:
                    faults.append(f"{reader}, file {last}: {found}")
            child.join()
            if death:
                faults.append(f"{reader}, file {last}: {death}")
            start = last + 1
    return counts, faults


def main() -> None:
    """Every reader in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--readers", help="some of them, with commas", default=None)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chosen = [name for name in READERS if not arguments.readers or name.split(",")[0] in arguments.readers.split(",")]
    OnlineNMF(2, random_state=0).fit(X)  # kernels are compiled before any clock runs
    broken = False
    for reader in chosen:
        counts, faults = fuzz(reader, arguments.files, arguments.seed)
        print(f"{reader}: {counts['learnt']} learnt, {counts['rejected']} rejected, {len(faults)} faults", flush=True)
        print(*(f"  {fault[:300]}" for fault in faults[:10]), sep="\n" if faults else "", end="\n" if faults else "")
        broken = broken or bool(faults)
    sys.exit(broken)


if __name__ == "__main__":
    main()
