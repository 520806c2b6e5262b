"""Rows that stay on a device while batches of them are drawn: only their numbers move."""

from typing import Any

import numpy as np

from onmf._support.arrays import Counts


class Resident:
    """Some rows of ``data``, an object with a shape and a way back to the host."""

    def __init__(self, data: Any, rows: Counts, dtype: np.dtype[Any]) -> None:
        self.data, self.rows, self.dtype = data, rows, dtype

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), int(self.data.shape[1])

    @property
    def sparse(self) -> bool:
        """Return whether its rows are compressed."""
        return self.data.starts is not None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> "Resident":
        return Resident(self.data, self.rows[rows], self.dtype)

    def host(self) -> Any:
        """Return the rows as an array or a sparse matrix."""
        return self.data.host(self.rows)


def joined(parts: list[Resident]) -> Resident:
    """Join rows of the same data, one part after the other."""
    return Resident(parts[0].data, np.concatenate([part.rows for part in parts]), parts[0].dtype)


def on_host(batch: Any) -> Any:
    """Return a batch as an array or a sparse matrix."""
    return batch.host() if isinstance(batch, Resident) else batch
