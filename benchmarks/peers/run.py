"""Run the benchmarks and write one line of JSON per run to a folder; runs already there are not repeated.

    python -m benchmarks.peers.run --out FOLDER [--size small] [--data synthetic,bbc] [--contestants onmf,spams]

Every (data, divergence, start, threads, contestant, seed) has a process of its own; see ``programme.py``. ``--jobs 2``
halves the time on two cores, at the price of some noise.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import joblib
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.data import SOURCES, STARTS
from benchmarks.peers.programme import Run, plan
from benchmarks.peers.results import OURS

ROOT = Path(__file__).resolve().parents[2]
THREAD_VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON"))
# The library's defaults were chosen while looking at seeds 0 to 5; a benchmark proper runs on others.
DEFAULTS = {
    "small": {"seeds": "0", "starts": "uniform", "threads": "1"},
    "full": {"seeds": "6,7,8", "starts": ",".join(STARTS), "threads": "1,all"},
}


def source_digest() -> str:
    """Return a digest of the library's code: our own runs are repeated when it has changed."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "src" / "onmf").rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def specification_of(run: Run, size: str, passes: list[int]) -> dict[str, Any]:
    """Everything that identifies a run."""
    counts = sorted({min(count, run.passes) for count in passes})
    source = source_digest() if run.contestant.startswith("onmf") else ""
    return dataclasses.asdict(run) | {"size": size, "passes": counts, "source": source}


def finished(file: Path, specification: dict[str, Any]) -> bool:
    """Whether this very run was made to its end; runs that failed are tried again."""
    record = json.loads(file.read_text()) if file.exists() else {"error": "not run"}
    return "error" not in record and all(record.get(key) == value for key, value in specification.items())


def prepared(run: Run, out: Path, size: str) -> Path:
    """The samples of a run in a file, so that no process spends time and memory on making them."""
    file = out.resolve() / "data" / f"{run.data}-{run.divergence}-{size}-{run.seed}.joblib"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        joblib.dump(SOURCES[run.data].samples(run.divergence, size, run.seed), file)
    return file


def execute(run: Run, out: Path, size: str, passes: list[int], limit: float) -> dict[str, Any]:
    """Make one run in a fresh process, write its record and return it."""
    cores = 1 if run.threads == "1" else os.cpu_count() or 1
    specification = specification_of(run, size, passes) | {"cores": cores, "limit": limit}
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(cores))
    with tempfile.TemporaryDirectory() as folder:
        path, result = Path(folder) / "run.json", Path(folder) / "result.json"
        path.write_text(json.dumps(specification | {"file": str(prepared(run, out, size)), "result": str(result)}))
        command = [sys.executable, "-m", "benchmarks.peers.worker", str(path)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if result.exists():
            record = json.loads(result.read_text())
        else:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            record = specification | {"error": f"the process ended with {done.returncode}: {last}"}
    (out / "runs" / f"{run.name}.json").write_text(json.dumps(record) + "\n")
    return record


def execute_all(runs: list[Run], arguments: argparse.Namespace, passes: list[int], console: Console) -> None:
    """Behind a progress bar, ``--jobs`` at a time; those on all cores one by one, at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("runs", total=len(runs))

        def one(run: Run) -> None:
            progress.update(bar, description=run.name)
            record = execute(run, arguments.out, arguments.size, passes, arguments.limit)
            if "error" in record:
                console.print(f"{run.name}: {record['error']}", markup=False)
            progress.advance(bar)

        for threads, jobs in (("1", arguments.jobs), ("all", 1)):
            with ThreadPoolExecutor(jobs) as pool:
                for run in runs:
                    if run.threads == threads:
                        prepared(run, arguments.out, arguments.size)
                        pool.submit(one, run)


def stream(out: Path, size: str) -> None:
    """The memory of a long stream, once."""
    file = out.resolve() / "memory.json"
    if not file.exists():
        samples = "1000" if size == "small" else "5000"
        command = [sys.executable, "-m", "benchmarks.peers.memory", str(file), "--samples", samples]
        subprocess.run(command, cwd=ROOT, env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"), check=True)


def main() -> None:
    """Parse, report what is skipped, and run what has not been run yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=tuple(DEFAULTS), default="full")
    parser.add_argument("--data", default=",".join(SOURCES))
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--seeds", help="default: 6,7,8; small: 0")
    parser.add_argument("--starts", help="default: uniform,nndsvda,own; small: uniform")
    parser.add_argument("--threads", help="default: 1,all; small: 1")
    parser.add_argument("--passes", default="1,5")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which a contestant is stopped")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    arguments = parser.parse_args()
    settings = DEFAULTS[arguments.size] | {name: value for name, value in vars(arguments).items() if value is not None}
    names = {name: settings[name].split(",") for name in ("data", "contestants", "starts", "threads")}
    seeds, passes = ([int(each) for each in settings[name].split(",")] for name in ("seeds", "passes"))

    console = Console()
    skipped = {}
    for kind, known in (("data", SOURCES), ("contestants", CONTESTANTS)):
        reasons = {name: known[name].missing() for name in names[kind]}
        names[kind] = [name for name, reason in reasons.items() if reason is None]
        skipped |= {name: reason for name, reason in reasons.items() if reason is not None}
    for name, reason in skipped.items():
        console.print(f"{name}: {reason}", markup=False)
    (arguments.out / "runs").mkdir(parents=True, exist_ok=True)
    (arguments.out / ".gitignore").write_text("*\n")
    (arguments.out / "skipped.json").write_text(json.dumps(skipped))
    runs = list(plan(**names, seeds=seeds))
    folder, size = arguments.out / "runs", arguments.size
    todo = [run for run in runs if not finished(folder / f"{run.name}.json", specification_of(run, size, passes))]
    console.print(f"{len(runs)} runs, {len(runs) - len(todo)} of them already done")
    execute_all(todo, arguments, passes, console)
    if OURS in names["contestants"]:
        stream(arguments.out, arguments.size)


if __name__ == "__main__":
    main()
