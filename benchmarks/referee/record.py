"""The record of all cases, and how a tree is compared with it."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.referee import library
from benchmarks.referee.cases import DIVERGENCES, METHODS, Case, every, named, raises
from benchmarks.referee.ways import Result, cluster, outcome

PLACE = Path(__file__).with_name("record.json")
SAME_MACHINE, ELSEWHERE, SINGLE = 1e-9, 1e-6, 1e-4  # how far losses may be apart, relative; of float32
EQUAL, ROUNDING, DIFFERS = "bits equal", "rounding differs", "differs"


def machine() -> dict[str, str]:
    """What the bits of a result depend on besides the library."""
    found = {name: importlib.metadata.version(name) for name in ("numpy", "scipy", "numba", "dask")}
    try:
        found["torch"] = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        found["torch"] = "none"
    return found | {"python": platform.python_version(), "processor": _processor()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


@dataclass(frozen=True)
class Verdict:
    """How a result differs from the recorded one."""

    word: str
    detail: str = ""


def judged(now: Result, then: Result, tolerance: float = SAME_MACHINE) -> Verdict:
    """The verdict on a result, with losses equal up to that tolerance."""
    if "raises" in now or "raises" in then:
        before, after = (result.get("raises", "a result") for result in (then, now))
        detail = f"{before} became {after} {now.get('message', '')}"
        return Verdict(EQUAL) if before == after else Verdict(DIFFERS, detail.strip())
    for name in ("dtype", "shape", "counts"):
        if now[name] != then[name]:
            return Verdict(DIFFERS, f"{name}: {then[name]} became {now[name]}")
    if now == then:
        return Verdict(EQUAL)
    losses = _apart(np.array(now["losses"]), np.array(then["losses"]))
    detail = f"losses by {losses.max():.1e}, W by {_relative(_W(now), _W(then)):.1e}, " + (
        f"sums of H by {_relative(np.array(now['sums']), np.array(then['sums'])):.1e}"
    )
    fine = losses.max() <= (max(tolerance, SINGLE) if now["dtype"] == "float32" else tolerance)
    return Verdict(ROUNDING if fine else DIFFERS, detail)


def _W(result: Result) -> Any:
    return np.frombuffer(base64.b64decode(result["W"]), result["dtype"]).reshape(result["shape"])


def _apart(one: Any, other: Any) -> Any:
    gap = np.abs(one - other) / np.maximum(np.abs(other), np.finfo(float).tiny)
    return np.where((one == other) | (np.isnan(one) & np.isnan(other)), 0.0, np.nan_to_num(gap, nan=np.inf))


def _relative(one: Any, other: Any) -> float:
    return float(np.abs(one - other).max() / max(np.abs(other).max(), np.finfo(float).tiny))


def chosen(only: str | None, cases: Iterable[Case]) -> list[Case]:
    """The cases whose names contain one of the texts, which have commas between them; all without any."""
    texts = [text.strip() for text in only.split(",")] if only else [""]
    return [case for case in cases if any(text in case.name for text in texts)]


def results(cases: Iterable[Case], each: Callable[[Case, Result], Any]) -> None:
    """Run the cases, those that need it on one cluster, and give each result to the function."""
    cases = list(cases)
    _one_thread()
    with cluster() if any(case.way == "dask" for case in cases) else nullcontext():
        for case in cases:
            each(case, outcome(case))


def _one_thread() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


def record(place: Path = PLACE, only: str | None = None) -> int:
    """Write the results of all cases, or of some into a record that is there; say where errors are not as expected."""
    methods, divergences = library.names()
    known = {each.partition(":")[0] for each in (*METHODS, *DIVERGENCES)}
    for name in sorted((methods | divergences) - known):
        print(f"warning: no case has {name}")
    found: dict[str, Any] = {"machine": machine(), "cases": {}}
    if only:
        found["cases"] = json.loads(place.read_text(encoding="utf-8"))["cases"]
    unexpected = 0
    began = time.perf_counter()

    def kept(case: Case, result: Result) -> None:
        nonlocal unexpected
        found["cases"][case.name] = {name: value for name, value in result.items() if name != "message"}
        if ("raises" in result) != raises(case):
            unexpected += 1
            print(f"unexpected: {case.name}: {result.get('message', 'no error')}")

    results(chosen(only, every()), kept)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(result)}" for name, result in found["cases"].items())
    place.write_text(f'{{"machine": {json.dumps(found["machine"])},\n"cases": {{\n{lines}\n}}}}\n', encoding="utf-8")
    print(f"{len(found['cases'])} cases in {place.name}, {time.perf_counter() - began:.0f} s")
    return int(unexpected > 0)


def compare(place: Path = PLACE, only: str | None = None, verbose: bool = False) -> int:
    """Run the recorded cases and print how they differ from the record; 1 if any differs by more than rounding."""
    then = json.loads(place.read_text(encoding="utf-8"))
    here = machine()
    other = [
        f"{name} {then['machine'].get(name)} -> {value}"
        for name, value in here.items()
        if then["machine"].get(name) != value
    ]
    tolerance = ELSEWHERE if other else SAME_MACHINE
    if other:
        print(f"Recorded elsewhere ({'; '.join(other)}): bits may differ, and losses are compared to {tolerance:g}.")
    count: Counter[str] = Counter()
    began, spent = time.perf_counter(), time.process_time()

    def shown(case: Case, result: Result) -> None:
        verdict = judged(result, then["cases"][case.name], tolerance)
        count[verdict.word] += 1
        if verbose or verdict.word != EQUAL:
            print(f"{verdict.word:<17} {case.name}{': ' if verdict.detail else ''}{verdict.detail}", flush=True)

    results(chosen(only, map(named, then["cases"])), shown)
    told = ", ".join(f"{count[word]} {word}" for word in (EQUAL, ROUNDING, DIFFERS))
    seconds = f"{time.perf_counter() - began:.0f} s, {time.process_time() - spent:.0f} s of CPU"
    print(f"{sum(count.values())} cases: {told} ({seconds}).")
    return int(count[DIFFERS] > 0)
