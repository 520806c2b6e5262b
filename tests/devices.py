"""What the tests of PyTorch's devices share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onmf import OnlineNMF, divergences
from onmf.device import choose_device
from onmf.divergences import Divergence

DEVICES = ["cpu", *(["cuda:0"] if choose_device.why_no_gpu() is None else [])]
GPU = pytest.mark.skipif(len(DEVICES) == 1, reason="there is no GPU")
F, K = 12, 3


def data(divergence: Divergence | str = "kl", n: int = 400, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(5)
    Y = rng.gamma(0.7, 1.0, (n, K)) @ rng.gamma(0.7, 1.0, (K, F)) + 0.05
    found = divergences.get(divergence)
    if not found.domain.x.includes_zero:
        return (Y * rng.gamma(8.0, 1 / 8.0, Y.shape)).astype(dtype)
    return rng.poisson(6 * Y).astype(dtype)


def quick(device: str | None, **settings: Any) -> OnlineNMF:
    usual = {"n_components": K, "random_state": 0, "device": device, "method": "surrogate:tau=50"}
    return OnlineNMF(**(usual | settings))
