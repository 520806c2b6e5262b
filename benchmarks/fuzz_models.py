"""Model files with bytes changed, cut, doubled or made up: each must be rejected, or give a model that works.

    python -m benchmarks.fuzz_models --files 200000 [--seed 0]

A model that is loaded is used: it reconstructs, learns from one more batch and is saved; it may reject the batch in a
``DataError``. One command, drawn at random from all that take a model, is run on it with data of the kind it was learnt
from. What counts as a fault: any other error, a command that would end in a traceback, answers that are not finite, a
file that takes more than ten seconds, a peak of memory of more than 200 MiB beyond that at the start, or ``pickle``
being used. Exit status 1 if there is any.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import pickle
import re
import shutil
import signal
import sys
import tempfile
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import scipy.sparse
import soundfile
import typer
from PIL import Image

import onmf
import reproduction.earlier_methods  # noqa: F401 (registers lefevre, guan and wang)
from onmf import OnlineNMF
from onmf.cli.main import app
from onmf.data import open_source
from onmf.divergences import Mahalanobis
from onmf.persistence.file import ModelFileError, sealed

F = 5
VALUES: list[Any] = [0, 1, -1, 2, 7, 0.5, 1e-300, 1e300, 1e-8, 2**63, 10**30, "inf", "", "kl", "auto", "paper", "skip"]
VALUES += [None, True, False, [], {}, [1, 2], {"a": 1}, float("inf"), float("nan"), -0.0, "é", "x" * 1000]
LIKELY = b'0123456789eE+-.,:[]{}" nulltruefalsinf'
COMMANDS = (
    "info {model}",
    "info {model} --json",
    "topics {model}",
    "topics {model} {data} --by lift",
    "convert {model} {out}/W.csv",
    "report {model} {data} --out {out}/report.html",
    "transform {model} {data} --out {out}/H.csv",
    "inverse {model} {data} --out {out}/X.csv",
    "inverse {model} --components --out {out}/pictures",
    "separate {model} {folder}/sound.wav --out {out}/parts",
    "fit {data} --from {model} --out {out}/next",
    "fit {data} -k 5 --fixed {model} --out {out}/next",
    "fit {data} --checkpoint {model} --resume --out {out}/next",
    "rank {data} --ranks 4,5 --seeds 2 --passes 1 --fixed {model}",
)


def examples(folder: Path) -> list[tuple[bytes, str]]:
    """Files of models of every kind, and data like those that they were learnt from."""
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, 1.0, (60, F)) + 0.1
    models = [
        OnlineNMF(3, random_state=0).fit(X),
        OnlineNMF(3, random_state=0).fit(scipy.sparse.csr_matrix(np.round(X * (X > 2)))),
        OnlineNMF(3, divergence="huber", reservoir=5, random_state=0).fit(X),
        OnlineNMF(3, divergence=Mahalanobis(np.eye(F)), random_state=0).fit(X),
        OnlineNMF(3, method="paper:step=canonical,a=1,max_iter=5", random_state=0).fit(X),
        OnlineNMF(3, method="paper", random_state=0).fit(X),
        OnlineNMF(3, method="paper:trial_samples=30", random_state=0).fit(X),
        OnlineNMF(3, method="paper:b=50", random_state=0).fit(X),
        OnlineNMF(3, divergence="is", method="lefevre", random_state=0).fit(X),
        OnlineNMF(3, divergence="squared_l2", method="guan:buffer=5", random_state=0).fit(X),
        OnlineNMF(3, divergence="huber:0.5", method="wang:eta=0.01", on_error="skip", random_state=0).fit(X),
    ]
    np.save(folder / "x.npy", X)
    np.savetxt(folder / "x.csv", X, delimiter=",", header="a,b,c,d,e", comments="")
    (folder / "x.txt").write_text("apples and pears\nplums, apples\nmore pears and plums\nolives\n" * 5)
    soundfile.write(folder / "sound.wav", rng.uniform(-0.5, 0.5, 400), 800)
    (folder / "pictures").mkdir()
    for number in range(9):
        Image.fromarray(rng.integers(1, 255, (2, 3), dtype=np.uint8)).save(folder / f"pictures/{number}.png")
    data = [str(folder / "x.npy")] * len(models)
    for text in ("x.csv?drop=b", "x.txt?tfidf=yes", "sound.wav?window=8&hop=4", "images:pictures"):
        scheme, colon, place = text.rpartition(":")
        data.append(f"{scheme}{colon}{folder / place}")
        models.append(OnlineNMF(3, shuffle=False, random_state=0).fit(open_source(data[-1])))
    found = []
    for model in models:
        onmf.save(model, folder / "x")
        found.append((folder / "x").read_bytes())
    return list(zip(found, data, strict=True))


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """One of several kinds of damage."""
    data = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    kind = rng.integers(12)  # other damage is noticed by the checksum alone
    if kind >= 6:
        return with_another_fact(content, rng)
    if kind == 0:
        return bytes(data[: rng.integers(len(data))])
    if kind == 1:
        start, stop = sorted(rng.integers(len(data), size=2))
        return bytes(data[:stop] + data[start:])
    if kind == 2:
        return rng.bytes(int(rng.integers(200)))
    if kind == 3:  # the length of the header, and numbers in it
        data[int(rng.integers(8))] = int(rng.integers(256))
        return bytes(data)
    end = header if kind == 4 else len(data)
    for place in rng.integers(end, size=rng.integers(1, 6)):
        data[place] = int(rng.integers(256)) if rng.random() < 0.3 else int(rng.choice(list(LIKELY)))
    return bytes(data)


def with_another_fact(content: bytes, rng: np.random.Generator) -> bytes:
    """A file in good order, its checksum too, in which a fact or two, or a number of an array, have other values."""
    arrays, metadata = safetensors.numpy.load(content), metadata_of(content)
    facts = json.loads(metadata["facts"])
    source = facts["source"]
    if rng.random() < 0.3:
        changed = arrays[list(arrays)[rng.integers(len(arrays))]].reshape(-1).view(np.uint8)
        changed[rng.integers(len(changed))] = rng.integers(256)
    for _ in range(rng.integers(1, 3)):
        # What commands do depends most on where the data came from.
        place: Any = source if source and rng.random() < 0.3 else facts
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = keys[rng.integers(len(keys))]
            if isinstance(place[key], dict | list) and rng.random() < 0.9:
                place = place[key]
                continue
            place[key] = deepcopy(VALUES[rng.integers(len(VALUES))])
            break
    return sealed(arrays, metadata | {"facts": json.dumps(facts)})


def metadata_of(content: bytes) -> dict[str, str]:
    """The texts in the header of a file in good order."""
    metadata: dict[str, str] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    return metadata


def use(model: OnlineNMF, path: Path) -> None:
    """What one does with a model; anything but finite answers is an error."""
    X = np.random.default_rng(1).gamma(1.0, 1.0, (8, model.n_features_in_)) * model.scale_
    try:
        answers = [model.inverse_transform(model.transform(X)), model.partial_fit(X).components_]
    except onmf.DataError:  # data far from what it knows
        return
    if not all(np.isfinite(answer).all() for answer in answers):
        raise AssertionError("the model's answers are not finite")
    if len(model.history_["loss"]) < 1:
        raise AssertionError("the model has no history")
    onmf.save(model, path)


def command(words: str) -> None:
    """Run a command line; it may end with a sentence, as its ``main`` makes one of these errors."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            app(words.split(), standalone_mode=False)
        except (ValueError, OSError, MemoryError, typer.Exit) as error:
            if isinstance(error, TimeoutError):
                raise


def peak() -> int:
    """KiB."""
    return int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def main() -> None:
    """Mutate and load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    faults: list[str] = []

    def forbidden(*_: object, **__: object) -> None:
        faults.append("pickle was used")

    def too_long(*_: object) -> None:
        raise TimeoutError("more than ten seconds")

    rng, loaded = np.random.default_rng(arguments.seed), 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:  # noqa: S108
        path, out = Path(name) / "x", Path(name) / "out"

        def run(words: str, data: str) -> None:
            out.mkdir()
            try:
                command(words.format(model=path, data=data, folder=name, out=out))
            finally:
                shutil.rmtree(out)

        contents = examples(Path(name))
        for content, data in contents:  # all code that is compiled and cached, which pickle is used for, is found now
            path.write_bytes(content)
            use(onmf.load(path), path)
            for words in COMMANDS:
                run(words, data)
        pickle.load = pickle.loads = pickle.Unpickler = forbidden  # type: ignore[assignment,misc]
        signal.signal(signal.SIGALRM, too_long)
        before = peak()
        for number in range(arguments.files):
            content, data = contents[number % len(contents)]
            content, words = mutated(content, rng), COMMANDS[rng.integers(len(COMMANDS))]
            path.write_bytes(content)
            signal.alarm(10)
            try:
                model = onmf.load(path)
                loaded += 1
                run(words, data)
                use(model, path)
            except ModelFileError:
                pass
            except BaseException as error:  # that is what is looked for
                faults.append(f"file {number}, {words}: {type(error).__name__}: {error}")
            signal.alarm(0)
            if peak() > before + 200 * 1024:
                faults.append(f"file {number}: the peak of memory rose to {peak()} KiB")
                before = peak()
    print(*faults[:20], sep="\n")
    print(f"{arguments.files} files: {loaded} loaded, others rejected, {len(faults)} faults; peak {peak() // 1024} MiB")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
