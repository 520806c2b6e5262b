"""The kernels are compiled once on a machine, with one line in the log, and found on disk ever after."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest

compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

FIT = """
import json, sys
import numba, numpy as np
from onmf import OnlineNMF

X = np.random.default_rng(0).random((60, 8)) + 0.1
model = OnlineNMF(3, divergence="squared_l2", random_state=0).fit(X)
modules = [module for name, module in sys.modules.items() if name.startswith("onmf.kernels.")]
values = [getattr(v, "compiled", v) for module in modules for v in list(vars(module).values())]
kernels = {v for v in values if isinstance(v, numba.core.dispatcher.Dispatcher)}
hits, misses = (
    sum(sum(getattr(kernel.stats, kind).values()) for kernel in kernels) for kind in ("cache_hits", "cache_misses")
)
print(json.dumps({"hits": hits, "misses": misses, "W": model.components_.tolist()}))
"""


def fit(cache: Path) -> tuple[dict[str, Any], str]:
    """What a fit in a process of its own found in the cache, and what it said on stderr."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", FIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@compiled
def test_the_first_fit_says_once_that_it_compiles_and_the_second_finds_it_done(tmp_path: Path) -> None:
    first, said = fit(tmp_path)
    assert said == "Compiling, which takes a few seconds; later runs reuse the result.\n"
    assert first["misses"] > 1
    second, said = fit(tmp_path)
    assert said == ""
    assert second["misses"] == 0
    assert second["hits"] > 1
    assert second["W"] == first["W"]


@compiled
def test_a_users_own_kernels_are_compiled_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    import onmf.kernels  # noqa: F401

    @numba.njit
    def double(x: float) -> float:
        return 2 * x

    with caplog.at_level(logging.DEBUG, logger="onmf"):
        assert double(2.0) == 4.0
    assert not caplog.records
