"""Tensors as users pass them, checked as scikit-learn checks arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.wording import counted


def as_array(X: Any) -> Any:
    """Return the tensor as an array on the host, in the type that it is computed with."""
    import torch

    return X.detach().to("cpu", torch.float64 if X.dtype == torch.float64 else torch.float32).numpy()


def dtype_of(X: Any) -> np.dtype[Any]:
    """Return the type that its samples are computed with: single precision, unless they are in double."""
    import torch

    return np.dtype(np.float64 if X.dtype == torch.float64 else np.float32)


def require_samples(X: Any, device: str | None, n_features: int | None = None) -> None:
    """Raise an error for a tensor that is not a matrix of real numbers, or not where the model computes."""
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, samples by features; got a tensor of shape {tuple(X.shape)}.")
    if X.is_complex() or X.is_sparse or X.layout.__str__() != "torch.strided":
        raise ValueError("X must be a dense tensor of real numbers; pass sparse data as a scipy.sparse matrix.")
    if not X.shape[0] or not X.shape[1]:
        raise ValueError(f"X is empty: a tensor of shape {tuple(X.shape)}.")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(f"X has {counted(X.shape[1], 'feature')}, but the model was learnt from {n_features}.")
    if device is None and X.is_cuda:
        raise ValueError(f"X is a tensor on {X.device}; say device='cuda' to compute there, or pass X.cpu().")
