"""Peaks of memory, and whether memory grows with the stream.

    python -m benchmarks.peers.memory OUT.json [--samples 5000]

Writes the peak after n and after 10 n samples have gone through ``partial_fit``, and the slope of the resident memory
in between.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
from pathlib import Path

import numpy as np

from onmf import OnlineNMF
from onmf.data.examples import Planted

BATCH = 200


def reset_peak() -> float:
    """MiB of the peak of resident memory, brought down to what is resident now where the system can do that."""
    refs = Path("/proc/self/clear_refs")
    if refs.exists():
        refs.write_text("5")
    return peak()


def peak() -> float:
    """MiB of the peak of resident memory."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+)", status.read_text())[0]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    """Stream and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--samples", type=int, default=5000)
    arguments = parser.parse_args()
    n, rng = arguments.samples, np.random.default_rng(0)
    planted = Planted.draw(200, 40, "poisson", rng)
    model = OnlineNMF(40, divergence="kl", method="auto", random_state=0)
    first, resident, samples = 0.0, [], []
    reset_peak()
    for number, batch in enumerate(planted.stream(10 * n, BATCH, rng), 1):
        model.partial_fit(batch)
        if number * BATCH == n:
            first = peak()
        if number * BATCH >= n:
            resident.append(_resident())
            samples.append(number * BATCH)
    (slope, _), covariance = np.polyfit(samples, resident, 1, cov=True)
    record = {
        "samples": [n, 10 * n],
        "peak_mib": [first, peak()],
        "bytes_per_sample": slope * 2**20,
        "standard_error": float(np.sqrt(covariance[0, 0])) * 2**20,
    }
    arguments.out.write_text(json.dumps(record) + "\n")


def _resident() -> float:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


if __name__ == "__main__":
    main()
