"""Checkpoints: a running fit on disk, so that it can go on after a crash as if nothing had happened."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from onmf._support.checks import require_at_least
from onmf.divergences import Divergence
from onmf.estimators.online import OnlineNMF
from onmf.persistence import file as model_file
from onmf.persistence.file import ModelFileError
from onmf.persistence.model import contents, load

log = logging.getLogger("onmf")


@dataclass
class Checkpoint:
    """A file that holds all of a model that learns: ``model.fit(X, checkpoint=Checkpoint("run.safetensors"))``.

    It is written after a batch when ``every`` seconds have passed since the last time, in one stroke, and what was
    there before is kept beside it as ``.previous``. A disk that is full or a folder that cannot be written is logged,
    and learning goes on; the last good file stays.
    """

    path: str | Path
    every: float = 30.0
    failures: int = 0  # in a row
    _last: float = field(default_factory=lambda: time.monotonic(), repr=False)

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
                f"{self.path} holds a run that was begun before: go on with it, checkpoint.read().fit(X, "
                "checkpoint=checkpoint, resume=True), or take another name."
            )

    def __call__(self, model: OnlineNMF) -> None:
        """After a batch: write, if it is time."""
        if time.monotonic() - self._last >= self.every:
            self.write(model)

    def write(self, model: OnlineNMF) -> bool:
        """Write now; False, and a line in the log, if that cannot be done."""
        self._last = time.monotonic()
        try:
            model_file.write(self.path, *contents(model), previous=self.previous)
        except (ModelFileError, MemoryError) as error:
            self.failures += 1
            log.warning("No checkpoint could be written, learning goes on: %s", str(error) or "not enough memory.")
            return False
        self.failures = 0
        return True

    def read(self, divergence: Divergence | None = None) -> OnlineNMF:
        """The model as it stood; the file before the last, if the last one is lost or damaged.

        ``checkpoint.read().fit(X, resume=True, checkpoint=checkpoint)`` goes on.
        """
        if not self.exists():
            raise ModelFileError(f"there is no checkpoint {self.path} to go on from.")
        model_file.clear_away(Path(self.path))
        try:
            return load(self.path, divergence)
        except ModelFileError as error:
            if not self.previous.exists():
                raise
            log.warning("%s The one before it, %s, is taken.", error, self.previous)
            return load(self.previous, divergence)
