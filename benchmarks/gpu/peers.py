"""Other libraries that factorise on a GPU, where they can be imported; else their update in plain PyTorch."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.judge import Course

BETA = {"kl": 1.0, "is": 0.0, "squared_l2": 2.0}
MORE = (5, 5, 10, 20, 40, 80, 120, 120)  # iterations between looks


def torchnmf(X: Any, divergence: str, components: int) -> tuple[str, Course] | None:
    """Batch multiplicative updates of the beta family: H and W are kept on, a few iterations at a time."""
    if divergence not in BETA:
        return None
    try:
        from torchnmf.nmf import NMF
    except ImportError:
        return "torchnmf (its update, in plain PyTorch)", _multiplicative(X, BETA[divergence], components)
    torch.manual_seed(0)
    model = NMF(X.shape, rank=components).cuda()
    NMF(X[:1000].shape, rank=components).cuda().fit(X[:1000], beta=BETA[divergence], max_iter=2)  # all is loaded
    torch.cuda.synchronize()
    course = Course()
    for count in MORE:
        model.fit(X, beta=BETA[divergence], tol=0, max_iter=count)
        torch.cuda.synchronize()
        course.note(model.W.detach().T.cpu().numpy())
    return "torchnmf", course


def _multiplicative(X: Any, beta: float, K: int) -> Course:
    draw = torch.Generator("cuda").manual_seed(0)
    W = torch.rand((K, X.shape[1]), generator=draw, device="cuda") * X.mean() / K
    H = torch.rand((X.shape[0], K), generator=draw, device="cuda")
    power = 1.0 if 1 <= beta <= 2 else 0.5
    torch.cuda.synchronize()
    course = Course()
    for count in MORE:
        for _ in range(count):
            Y = H @ W + 1e-9
            W = W * ((H.T @ (X * Y ** (beta - 2))) / (H.T @ Y ** (beta - 1))) ** power
            Y = H @ W + 1e-9
            H = H * (((X * Y ** (beta - 2)) @ W.T) / (Y ** (beta - 1) @ W.T)) ** power
        torch.cuda.synchronize()
        course.note(W.cpu().numpy())
    return course


def nmf_torch(X: Any, divergence: str, components: int) -> list[tuple[str, Course]]:
    """Its batch and online modes, each run from the start with more and more iterations."""
    if divergence not in ("kl", "squared_l2"):
        return []
    try:
        from nmf import run_nmf
    except ImportError:
        return []
    loss = {"kl": "kullback-leibler", "squared_l2": "frobenius"}[divergence]
    algorithm = "mu" if divergence == "kl" else "halsvar"
    host = X.cpu().numpy()
    common: dict[str, Any] = {
        "beta_loss": loss,
        "algo": algorithm,
        "use_gpu": True,
        "init": "random",
        "random_state": 0,
    }

    def rounds(name: str, settings: Callable[[int], dict[str, Any]], counts: tuple[int, ...]) -> tuple[str, Course]:
        seconds = Course()
        for count in counts:
            course = Course()
            with contextlib.redirect_stdout(io.StringIO()):
                _, W, _ = run_nmf(host, components, tol=0, **common, **settings(count))
            torch.cuda.synchronize()
            course.note(W)
            seconds.seconds += course.seconds
            seconds.samples += [0]
            seconds.dictionaries += course.dictionaries
        return name, seconds

    run_nmf(host[:2000], components, **common, batch_max_iter=20)
    batch = rounds("nmf-torch, batch", lambda count: {"mode": "batch", "batch_max_iter": count}, (10, 50, 200))
    online = rounds("nmf-torch, online", lambda count: {"mode": "online", "online_max_pass": count}, (1, 3, 10))
    return [batch, online]
