"""Hours of bad luck in minutes: random batches, divergences, errors, kills and resumptions, under watch.

    python -m benchmarks.soak --minutes 5 [--seed 0]

Rounds of two kinds follow each other until the time is up. *Streams*: one model of any method, batches of random sizes,
some of them bad; it must stay feasible and finite, errors must leave it as it was, and memory must stay flat. *Kills*:
a process that learns with checkpoints, from an array, a table with bad lines through a shuffle buffer, Parquet or
AnnData, is killed at random moments and resumed until it is done, now and then on a disk that is full; the model must
have the bits of an undisturbed run, and must have skipped the same lines. Prints one line per round and a summary; exit
status 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import datetime
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import onmf
import reproduction.earlier_methods  # registers lefevre, guan and wang
from onmf import OnlineNMF

DIVERGENCES = ("kl", "is", "squared_l2", "huber", "l1", "l2", "hellinger", "alpha:2", "beta:0.5", "beta:1.5")
EARLIER = {"is": "lefevre", "squared_l2": "guan", "huber": "wang"}  # methods for one divergence
F = 30


def resident() -> int:
    """KiB."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0])


def good_batch(rng: np.random.Generator, n: int, sparse: bool) -> object:
    """Samples of a few planted components, some of them all zero."""
    X = rng.poisson(rng.gamma(1.0, 1.0, (n, 4)) @ rng.gamma(1.0, 2.0, (4, F))).astype(float)
    X[rng.random(n) < 0.02] = 0
    return scipy.sparse.csr_matrix(X) if sparse else X


def bad_batch(rng: np.random.Generator) -> object:
    """Return a batch that must be rejected."""
    X = rng.random((5, F))
    kind = rng.integers(5)
    if kind == 3:
        return X[:, :7]
    if kind == 4:
        return np.full((3, F), "x")
    X[2, 3] = (np.nan, np.inf, -1.0)[kind]
    return X


def method_for(divergence: str, rng: np.random.Generator) -> str:
    """The usual one mostly, with constants; steps short enough not to run away."""
    name = str(rng.choice(["auto", "auto", "auto", "paper", EARLIER.get(divergence, "paper")]))
    constants = {"paper": ":b=1000,trial_samples=300", "lefevre": ":N=10000", "wang": ":eta=0.01"}
    return name + (str(rng.choice(["", ":forgetting=0.5"])) if name == "auto" else constants.get(name, ""))


def stream_round(rng: np.random.Generator, seconds: float) -> tuple[str, list[str]]:
    """One model for a while."""
    divergence = str(rng.choice(DIVERGENCES))
    sparse = bool(rng.random() < 0.3)
    method = method_for(divergence, rng)
    settings: dict[str, Any] = {"divergence": divergence, "method": method, "reservoir": int(rng.choice([0, 0, 50]))}
    model = OnlineNMF(int(rng.integers(1, 9)), random_state=0, **settings)
    model.partial_fit(good_batch(rng, 50, sparse))
    faults, batches, rejected = [], 0, 0
    end, early, sizes = time.monotonic() + seconds, None, []
    while time.monotonic() < end:
        if rng.random() < 0.1:
            before = pickle.dumps(model)
            try:
                model.partial_fit(bad_batch(rng))
                faults.append(f"{settings}: a bad batch was learnt from")
            except (ValueError, TypeError):
                rejected += 1
            if pickle.dumps(model) != before:
                faults.append(f"{settings}: a rejected batch has changed the model")
        else:
            model.partial_fit(good_batch(rng, int(rng.integers(1, 400)), sparse))
        batches += 1
        if not np.isfinite(model.components_).all() or not onmf.Sets().dictionaries.contains(model.components_):
            faults.append(f"{settings}: the dictionary has left the set C")
            break
        sizes.append(resident())
        early = early or (sizes[-1] if batches >= 200 else None)
    if early and max(sizes[200:]) > 1.05 * early:
        faults.append(f"{settings}: memory grew from {early} to {max(sizes[200:])} KiB")
    if not np.isfinite(model.transform(good_batch(rng, 20, sparse))).all():
        faults.append(f"{settings}: coefficients are not finite")
    return f"{divergence}, {method}{', sparse' if sparse else ''}: {batches} batches, {rejected} rejected", faults


def stored(rng: np.random.Generator, folder: Path) -> Path:
    """The samples of a run, in a file of some kind."""
    X = rng.gamma(1.0, 1.0, (3000, 4)) @ rng.gamma(1.0, 2.0, (4, F)) + 0.01
    path = folder / f"x{rng.choice(['.npy', '.csv', '.csv', '.parquet', '.h5ad'])}"
    if path.suffix == ".npy":
        np.save(path, X)
    elif path.suffix == ".csv":
        lines = [",".join(f"{value:.6g}" for value in row) for row in X]
        for place in rng.integers(len(lines), size=3):
            lines[place] = "no,numbers"
        path.write_text("\n".join(lines))
    elif path.suffix == ".parquet":
        import pandas

        frame = pandas.DataFrame(X, columns=[f"f{k}" for k in range(F)])
        frame.to_parquet(path, row_group_size=int(rng.integers(50, 1000)))
    else:
        import anndata

        anndata.AnnData(scipy.sparse.csr_matrix(np.round(X))).write_h5ad(path)
    return path


def full_disk() -> None:
    """For a child: no file may grow beyond 2 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))


def kill_round(rng: np.random.Generator, folder: Path) -> tuple[str, list[str]]:
    """One run, killed until it is done."""
    divergence, number = str(rng.choice(DIVERGENCES)), int(rng.integers(10**6))
    method = method_for(divergence, rng)
    data = stored(rng, folder)
    base = [sys.executable, "-m", "onmf", "fit", str(data), "-k", "4", "-d", divergence, "--passes", "20"]
    base += ["--module", str(reproduction.earlier_methods.__file__)]
    base += ["--seed", str(number), "--method", method, "--reservoir", str(int(rng.choice([0, 40])))]
    if data.suffix == ".csv":
        base += ["--on-error", "skip", "--shuffle-buffer", str(int(rng.choice([0, 500])))]
    subprocess.run([*base, "--out", str(folder / "whole")], check=True, capture_output=True)
    run = [*base, "--out", str(folder / "out"), "--checkpoint", str(folder / "run"), "--every", "0s", "--resume"]
    kills = full = 0
    faults: list[str] = []
    what = f"{divergence}, {method}, {data.suffix}, seed {number}"
    while True:
        no_room = kills + full < 20 and bool(rng.random() < 0.2)
        process = subprocess.Popen(
            run,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=full_disk if no_room else None,
        )
        try:
            _, said = process.communicate(timeout=float(rng.uniform(1.0, 4.0)) if kills < 20 else None)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            kills += 1
        full += no_room
        if "Traceback" in said:
            faults.append(f"{what}: {said.strip()[-300:]}")
        if process.returncode not in (-9, 2 if no_room else -9):
            break
    if process.returncode:
        return f"{what}: FAILED", [*faults, f"{what}, after {kills} kills: {said.strip()}"]
    whole, out = (onmf.load(folder / name) for name in ("whole", "out"))
    pairs = {"W": (whole.components_, out.components_), "loss": (whole.history_["loss"], out.history_["loss"])}
    kept = out._learned.state.memory
    pairs |= {name: (value, kept[name]) for name, value in whole._learned.state.memory.items()}
    pairs |= {"lines skipped": (whole.skipped_, out.skipped_)}
    other = [name for name, (one, another) in pairs.items() if not np.array_equal(one, another)]
    for path in folder.iterdir():
        path.unlink()
    faults += [f"{what}: {kills} kills changed {', '.join(other)}"] if other else []
    told = f"killed {kills} times, {full} times without room on the disk"
    return f"{what}: {told}, {'OTHER BITS' if other else 'the same bits'}", faults


def main() -> None:
    """Rounds until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rng, end = np.random.default_rng(arguments.seed), time.monotonic() + 60 * arguments.minutes
    rounds, faults = 0, []
    with tempfile.TemporaryDirectory() as name, np.errstate(all="ignore"):
        while time.monotonic() < end:
            seconds = min(15.0, 15 * arguments.minutes)
            for line, found in (stream_round(rng, seconds), kill_round(rng, Path(name))):
                rounds, faults = rounds + 1, faults + found
                print(line, *found, sep="\n  ", flush=True)
    print(f"{datetime.date.today()}: {arguments.minutes:g} minutes, {rounds} rounds, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
