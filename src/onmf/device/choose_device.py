"""Resolve the setting ``device`` to the name of a PyTorch device, or None for compiled code on the processor."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

INSTALL = "install it with pip install 'onmf[gpu]'"
WITHOUT = "leave device out to compute on the processor"


def checked_name(given: Any) -> str | None:
    """Return the setting, or raise an error if it can name no device."""
    if given is None or (isinstance(given, str) and re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", given)):
        return given
    raise ValueError(f"device must be None, 'auto', 'cpu', 'cuda' or 'cuda:NUMBER', got {given!r}.")


def device_of(given: Any) -> str | None:
    """Return the device that a setting names, if it can be used; "auto" is a GPU, or None."""
    name = checked_name(given)
    if name is None:
        return None
    if name == "auto":
        return "cuda:0" if why_no_gpu() is None else None
    if importlib.util.find_spec("torch") is None:
        raise ImportError(f"device={name!r} needs PyTorch; {INSTALL}, or {WITHOUT}.")
    if name == "cpu":
        return name
    if reason := why_no_gpu():
        raise ValueError(f"device={name!r} cannot be used: {reason}; or {WITHOUT}.")
    import torch

    number, count = int(name.partition(":")[2] or 0), torch.cuda.device_count()
    if number >= count:
        raise ValueError(f"there is no device {name!r}: this machine has {count} of them, counted from 0.")
    return f"cuda:{number}"


def why_no_gpu() -> str | None:
    """Return why no GPU can be used, with the cure; None if one can."""
    if importlib.util.find_spec("torch") is None:
        return f"PyTorch is missing; {INSTALL}"
    import torch

    if torch.version.cuda is None:
        return "this PyTorch was built without CUDA; install a build for NVIDIA's GPUs"
    try:
        torch.cuda.init()
        if not torch.cuda.device_count():
            return "there is no CUDA device; check with nvidia-smi that the machine has one"
    except (RuntimeError, AssertionError) as error:
        return _plainly(str(error))
    if importlib.util.find_spec("triton") is None:
        return "Triton, which PyTorch's builds for Linux bring along, is missing; install it with pip install triton"
    return None


def _plainly(error: str) -> str:
    """Return what PyTorch says about the driver, in plain words where we know what it means."""
    if "driver" in error and "too old" in error:
        return "NVIDIA's driver is too old for this PyTorch; update the driver, or install an earlier PyTorch"
    if "Found no NVIDIA driver" in error or "no CUDA-capable device" in error:
        return "there is no NVIDIA driver or no GPU; check with nvidia-smi that the machine has both"
    first = " ".join(error.split()).split(". ")[0].rstrip(".")
    return f"CUDA does not start ({first}); check with nvidia-smi that the GPU works"
