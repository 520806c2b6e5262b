"""Data that fit on the device and stay there, over all passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from onmf._support.device_rows import Resident
from onmf.data import Rows
from onmf.device.samples import Rows as There


class RowsOnDevice(Rows):
    """The rows of a matrix on a device: batches of it are their numbers."""

    resident = True

    def __init__(self, there: There, dtype: Any) -> None:
        self.X, self.dtype = there, np.dtype(dtype)
        self.n_samples, self.n_features = there.shape

    def _read(self, rows: Any) -> Resident:
        numbers = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        return Resident(self.X, numbers, self.dtype)
