"""How long it takes until something happens: imports, the command line, and what a first fit compiles.

    python -m benchmarks.start_up [--repeats 7] [--against /path/to/another/src]

Prints the tables of docs/decisions/0011-start-up.md: processor time of fresh processes, the least of several that are
interleaved, Python's bytecode being written before; and, with an empty cache, the functions that each fit compiles and
the seconds that it takes, the least of two.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "src"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

LEARN = "import sys, numpy as np, onmf; X = np.random.default_rng(0).random((100, 20)) + 0.1; "
SAVE = LEARN + "onmf.save(onmf.OnlineNMF(4, random_state=0).fit(X), sys.argv[1])"

FITS = """
import json, logging, time, warnings
import numba.core.event as events
import numpy as np, scipy.sparse
from onmf import BatchNMF, OnlineNMF

logging.disable()
warnings.simplefilter("ignore")


class Compiled(events.Listener):
    def __init__(self):
        self.running, self.ours, self.seconds = 0, [], 0.0

    def on_start(self, event):
        self.began = self.began if self.running else time.process_time()
        self.running += 1

    def on_end(self, event):
        self.running -= 1
        if not self.running:
            self.seconds += time.process_time() - self.began
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("onmf."):
            self.ours.append(function.__name__)


rng = np.random.default_rng(0)
X = rng.random((300, 50)) + 0.1
S = scipy.sparse.csr_matrix(rng.poisson(0.1, (300, 400)) + np.eye(300, 400))


def fit(X, divergence, method="auto"):
    return OnlineNMF(5, divergence=divergence, method=method, random_state=0).fit(X)


jobs = {}
for dtype in (np.float64, np.float32):
    x, s = X.astype(dtype), S.astype(dtype)
    jobs |= {
        f"{name}, {dtype.__name__}": job
        for name, job in {
            "kl": lambda x=x: fit(x, "kl"),
            "transform": lambda x=x: fit(x, "kl").transform(x),
            "is": lambda x=x: fit(x, "is").transform(x),
            "huber": lambda x=x: fit(x, "huber").transform(x),
            "squared_l2": lambda x=x: fit(x, "squared_l2").transform(x),
            "l1": lambda x=x: fit(x, "l1").transform(x),
            "kl, sparse": lambda s=s: fit(s, "kl"),
            "transform, sparse": lambda s=s: fit(s, "kl").transform(s),
            "BatchNMF, kl, sparse": lambda s=s: BatchNMF(5, divergence="kl", max_iter=3).fit(s),
            "kl, method paper": lambda x=x: fit(x, "kl", "paper"),
        }.items()
    }
table = []
for name, job in jobs.items():
    listener = Compiled()
    with events.install_listener("numba:compile", listener):
        job()
    table.append((name, listener.ours, listener.seconds))
print(json.dumps(table))
"""


def processor_time(arguments: list[str], environment: dict[str, str]) -> float:
    """User and system seconds of a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def environment_of(source: Path) -> dict[str, str]:
    """One thread, this version of onmf, and bytecode that is kept."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | THREADS | {"PYTHONPATH": str(source)}


def starts(sources: dict[str, Path], repeats: int, folder: Path) -> None:
    """Seconds of imports and commands, and their ratios to importing scikit-learn."""
    model = folder / "model.safetensors"
    processor_time(["-c", SAVE, str(model)], environment_of(HERE))
    ours = {
        "import onmf": ["-c", "import onmf"],
        "from onmf import OnlineNMF": ["-c", "from onmf import OnlineNMF"],
        "onmf --help": ["-m", "onmf", "--help"],
        "onmf info MODEL": ["-m", "onmf", "info", str(model)],
    }
    theirs = {f"import {name}": ["-c", f"import {name}"] for name in ("sklearn.base", "sklearn.decomposition")}
    seconds: dict[tuple[str, str], list[float]] = {}
    for _ in range(repeats + 1):  # the first round writes the bytecode
        for label, source in sources.items():
            for name, arguments in (theirs | ours).items():
                seconds.setdefault((name, label), []).append(processor_time(arguments, environment_of(source)))
    best = {key: min(times[1:]) for key, times in seconds.items()}
    print("| processor time of | source | seconds | of import sklearn.base | of import sklearn.decomposition |")
    print("|---|---|---|---|---|")
    for (name, label), time_taken in sorted(best.items(), key=lambda pair: list(theirs | ours).index(pair[0][0])):
        ratios = (time_taken / best[other, label] for other in theirs)
        print(f"| `{name}` | {label} | {time_taken:.3f} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")


def compilations(sources: dict[str, Path]) -> None:
    """Functions and seconds that each fit compiles, in this order, from an empty cache."""
    tables = {label: _compiled(source) for label, source in sources.items()}
    for label, source in sources.items():
        again = [seconds for _, _, seconds in _compiled(source)]
        tables[label] = [(*row[:2], min(row[2], more)) for row, more in zip(tables[label], again, strict=True)]
    print("\n| fit | source | seconds | functions compiled |")
    print("|---|---|---|---|")
    for rows in zip(*tables.values(), strict=True):
        for label, (name, functions, seconds) in zip(tables, rows, strict=True):
            if functions:
                print(f"| {name} | {label} | {seconds:.2f} | {len(functions)}: {', '.join(sorted(functions))} |")
    for label, table in tables.items():
        number, seconds = sum(len(functions) for _, functions, _ in table), sum(row[2] for row in table)
        print(f"| all | {label} | {seconds:.1f} | {number} |")


def _compiled(source: Path) -> list[tuple[str, list[str], float]]:
    """For every fit its name, the functions that it compiles, and the seconds."""
    with tempfile.TemporaryDirectory() as cache:
        environment = environment_of(source) | {"NUMBA_CACHE_DIR": cache}
        command = [sys.executable, "-c", FITS]
        done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    """Both tables, for this tree and another one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="src folder of another version of onmf")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    sources = {"before": arguments.against.resolve()} if arguments.against else {}
    sources |= {"now": HERE}
    with tempfile.TemporaryDirectory() as folder:
        starts(sources, arguments.repeats, Path(folder))
    compilations(sources)


if __name__ == "__main__":
    main()
