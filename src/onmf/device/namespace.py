"""PyTorch as the array namespace ``xp`` of the divergences' formulas."""

from __future__ import annotations

from typing import Any

import torch


class _Namespace:
    """PyTorch's functions; those whose arguments may be plain numbers in formulas take them here.

    Numbers are never sent to the device, where one would wait for them.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def maximum(x: Any, y: Any) -> Any:
        return torch.clamp(x, min=y) if isinstance(x, torch.Tensor) else torch.clamp(y, min=x)

    @staticmethod
    def minimum(x: Any, y: Any) -> Any:
        return torch.clamp(x, max=y) if isinstance(x, torch.Tensor) else torch.clamp(y, max=x)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        if not isinstance(y, torch.Tensor):
            return torch.masked_fill(x, ~condition, y)
        return torch.where(condition, x, y) if isinstance(x, torch.Tensor) else torch.masked_fill(y, condition, x)


xp = _Namespace()
