"""Checkpoints: a running fit on disk, so that it can go on after a crash as if nothing had happened."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from onmf import divergences, methods
from onmf._support.checks import require_at_least
from onmf.divergences import Divergence
from onmf.learner import Learned
from onmf.learner.step import same
from onmf.persistence import file, model
from onmf.persistence.file import ModelFileError

log = logging.getLogger("onmf")

MAY_DIFFER = ("callbacks", "verbose", "transform_tol", "transform_max_iter")  # settings that do not change a run


@dataclass
class Checkpoint:
    """A file that holds all of a model that learns: ``model.fit(X, checkpoint=Checkpoint("run.safetensors"))``.

    It is written atomically after a batch when ``every`` seconds have passed since the last time, and at the end; what
    was there before is kept beside it as ``.previous``. A disk that is full or a folder that cannot be written is
    logged, and learning goes on; the last good file stays. It is a model file too: ``onmf.load`` reads it.
    """

    path: str | Path
    every: float = 30.0
    failures: int = 0  # in a row
    _last: float = field(default_factory=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        require_at_least(0, every=self.every)

    @property
    def previous(self) -> Path:
        """The file before the last."""
        path = Path(self.path).resolve()  # beside the file itself, not beside a link to it
        return path.with_name(f"{path.name}.previous")

    def exists(self) -> bool:
        """Is there anything to go on from?"""
        return Path(self.path).exists() or self.previous.exists()

    def require_new(self) -> None:
        """Refuse to begin anew over a run that was begun before."""
        if self.exists():
            raise ModelFileError(
                f"{self.path} holds an earlier run; go on with it by resume=True (--resume), or choose another file."
            )

    def write_if_due(self, settings: Mapping[str, Any], learned: Learned) -> None:
        """After a batch: write if it is time."""
        if time.monotonic() - self._last >= self.every:
            self.write(settings, learned)

    def write(self, settings: Mapping[str, Any], learned: Learned) -> bool:
        """Write now; False, and a line in the log, if that cannot be done."""
        self._last = time.monotonic()
        try:
            file.write(self.path, *model.contents(settings, learned), previous=self.previous)
        except (ModelFileError, MemoryError) as error:
            self.failures += 1
            log.warning("No checkpoint could be written, learning goes on: %s", str(error) or "not enough memory.")
            return False
        self.failures = 0
        return True

    def read(self, own: Divergence | None = None) -> tuple[dict[str, Any], Learned]:
        """The settings and what was learnt; from the file before the last, if the last one is lost or damaged."""
        if not self.exists():
            raise ModelFileError(f"there is no checkpoint {self.path} to go on from.")
        file.clear_away(Path(self.path))
        try:
            return model.read(self.path, own)
        except ModelFileError as error:
            if not self.previous.exists():
                raise
            log.warning("%s Going on from the one before it, %s.", error, self.previous)
            return model.read(self.previous, own)

    def require_same(self, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Refuse to go on by other settings than the run was begun with."""
        other = [name for name in now if name not in MAY_DIFFER and not _equal(name, then[name], now[name])]
        if other:
            listed = ", ".join(f"{name} {then[name]!r}, not {now[name]!r}" for name in other)
            raise ValueError(
                f"{self.path} was begun with other settings ({listed}); give the same ones, or another checkpoint."
            )


def _equal(name: str, then: Any, now: Any) -> bool:
    if name == "divergence":
        return same(divergences.get(then), divergences.get(now))
    if name == "method":
        return methods.get(then) == methods.get(now)
    if name == "random_state" and not isinstance(now, (int, np.integer)):
        return then is None  # generators are not stored
    if isinstance(then, np.ndarray) or isinstance(now, np.ndarray):
        return np.array_equal(then, now)
    return bool(then == now)
