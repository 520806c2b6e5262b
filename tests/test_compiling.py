"""The kernels are compiled once on a machine, with one line in the log, and found on disk ever after."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from tests import processes

compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

SENTENCE = "Compiling for this machine, which takes a few seconds; later runs reuse the result.\n"

KERNELS = """
import sys
import numba

def kernels():
    modules = [module for name, module in sys.modules.items() if name.startswith("onmf.coefficients.kernels.")]
    values = [getattr(v, "compiled", v) for module in modules for v in list(vars(module).values())]
    return {v for v in values if isinstance(v, numba.core.dispatcher.Dispatcher)}
"""

FIT = f"""
{KERNELS}
import json
import numpy as np
from onmf import OnlineNMF

X = np.random.default_rng(0).random((60, 8)) + 0.1
model = OnlineNMF(3, divergence="kl", method="em", random_state=0).fit(X)  # two kernels, soon compiled
hits, misses = (
    sum(sum(getattr(kernel.stats, kind).values()) for kernel in kernels()) for kind in ("cache_hits", "cache_misses")
)
signatures = {{kernel.__name__: len(kernel.signatures) for kernel in kernels() if kernel.signatures}}
print(json.dumps({{"hits": hits, "misses": misses, "signatures": signatures, "W": model.components_.tolist()}}))
"""

# All that reaches a kernel from data of every order, type and index, and from a model that lies on disk.
LAYOUTS = f"""
{KERNELS}
import json, warnings
import joblib, numpy as np, scipy.sparse
from onmf import BatchNMF, OnlineNMF

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
dense, counts = rng.random((20, 8)) + 0.1, scipy.sparse.csr_matrix(rng.poisson(0.1, (20, 40)) + np.eye(20, 40))

def read_only(X):
    X = X.copy()
    for array in (X.data, X.indices, X.indptr) if scipy.sparse.issparse(X) else (X,):
        array.flags.writeable = False
    return X

def wide(X):
    X = X.copy()
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X

def learn(X, divergence, **settings):
    model = OnlineNMF(3, divergence=divergence, random_state=0, transform_max_iter=20, **settings).fit(X)
    model.transform(X)
    joblib.dump(model, sys.argv[1])
    mapped = joblib.load(sys.argv[1], mmap_mode="r")
    mapped.transform(X)
    mapped.partial_fit(X)

for dtype in (np.float64, np.float32):
    X, S = dense.astype(dtype), counts.astype(dtype)
    forms = np.ascontiguousarray, np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2], read_only
    for d, divergence in enumerate(("kl", "squared_l2", "huber", "l1")):
        for form in forms[d % 2 :: 2]:
            learn(form(X), divergence, scale="none", init=read_only(rng.random((3, 8))))
    for divergence in ("kl", "squared_l2"):
        for form in (scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.csc_matrix, read_only, wide):
            learn(form(S), divergence, shuffle=False)
            BatchNMF(3, divergence=divergence, max_iter=2).fit(form(S))
    learn(X, "kl", method="em")
    learn(X, "squared_l2", method="paper:solver=constant")
print(json.dumps({{kernel.__name__: [str(types) for types in kernel.signatures] for kernel in kernels()}}))
"""

COMMAND = """
from onmf.cli.main import main
main()
"""


def python(code: str, *arguments: str | Path, cache: Path | None = None) -> tuple[str, str]:
    """What a process of its own prints and says, with this folder for compiled code."""
    environment = os.environ | ({} if cache is None else {"NUMBA_CACHE_DIR": str(cache)})
    done = processes.run("-c", code, *arguments, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def fit(cache: Path) -> tuple[dict[str, Any], str]:
    printed, said = python(FIT, cache=cache)
    return json.loads(printed), said


@compiled
def test_the_first_runs_say_once_that_they_compile_and_later_ones_find_it_done(tmp_path: Path) -> None:
    first, said = fit(tmp_path)
    assert said == SENTENCE
    assert first["misses"] > 1
    assert set(first["signatures"].values()) == {1}  # nothing is compiled twice
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((60, 8)) + 0.1)
    method = ["-d", "squared_l2", "--method", "paper:solver=constant"]  # another kernel
    command = ["fit", tmp_path / "x.npy", "-k", "2", *method, "--out", tmp_path / "m"]
    _, said = python(COMMAND, *command, cache=tmp_path)
    assert said.count(SENTENCE) == 1
    printed, said = python(FIT + COMMAND, *command, cache=tmp_path)
    assert "ompil" not in said
    second = json.loads(printed.splitlines()[0])
    assert second["misses"] == 0
    assert second["hits"] > 0
    assert second["W"] == first["W"]


@compiled
def test_a_kernel_is_compiled_once_per_precision_whatever_the_layout_of_the_data(tmp_path: Path) -> None:
    printed, _ = python(LAYOUTS, tmp_path / "model.joblib")
    found: dict[str, list[str]] = json.loads(printed)
    used = {name: types for name, types in found.items() if types}
    assert len(used) > 15
    for name, types in used.items():
        assert max(sum(word in each for each in types) for word in ("float64", "float32")) == 1, (name, types)


@compiled
def test_a_users_own_kernels_are_compiled_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    import onmf.coefficients.kernels.compiled  # noqa: F401

    @numba.njit
    def double(x: float) -> float:
        return 2 * x

    with caplog.at_level(logging.DEBUG, logger="onmf"):
        assert double(2.0) == 4.0
    assert not caplog.records


def test_functions_of_others_without_a_module_are_compiled_as_ever() -> None:
    """Numba tells all listeners of every compilation; one made by exec has no module."""
    import onmf.coefficients.kernels.compiled  # noqa: F401 - registers the listener

    made: dict[str, Any] = {}
    exec("def twice(x):\n    return 2 * x", made)  # noqa: S102
    made["twice"].__module__ = None
    assert numba.njit(made["twice"])(3) == 6
