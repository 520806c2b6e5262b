"""The processor's side: one thread, one pass, time and held-out loss, for the benchmark on a GPU to read.

python -m benchmarks.gpu.reference [--data FOLDER] [--samples 100000]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.gpu import judge
from benchmarks.gpu.sets import DIVERGENCES, REAL, K, Synthetic, name_of, real
from onmf import OnlineNMF, __version__

HERE = Path(__file__).with_name("reference.json")


def run(X: Any, held_out: Any, divergence: str, components: int) -> dict[str, float]:
    """One pass with one thread, after one over a few samples that has compiled all there is to compile."""
    OnlineNMF(components, divergence=divergence, random_state=1).fit(X[:2000])
    started = time.perf_counter()
    model = OnlineNMF(components, divergence=divergence, random_state=0).fit(X)
    seconds = time.perf_counter() - started
    W = model.components_
    return {"samples": len(X), "seconds": seconds, "loss": judge.loss(W, divergence, held_out, "cpu")}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    found: dict[str, Any] = {
        "onmf": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "processor": _processor(),
        "synthetic": {},
        "real": {},
    }
    import torch

    torch.set_num_threads(1)
    with threadpool_limits(1):
        for divergence in DIVERGENCES:
            drawn = Synthetic(divergence)
            held_out, name = drawn.held_out(), name_of(divergence)
            figures = run(drawn.on_host(arguments.samples), held_out, name, K)
            figures["true_loss"] = judge.loss(drawn.planted.W, name, held_out, "cpu")
            found["synthetic"][divergence] = figures
            print(divergence, figures, flush=True)
        for name, (divergence, components) in REAL.items():
            found["real"][name] = run(*real(name, arguments.data), divergence, components)
            print(name, found["real"][name], flush=True)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
