"""Where ``fit`` begins: afresh, where the run in a checkpoint stopped, or with what another model has learnt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onmf import learner
from onmf.data import Source
from onmf.data.columns import Features
from onmf.data.inputs import likeness
from onmf.distributed import Partitions
from onmf.divergences import Divergence
from onmf.learner import Learned, Recipe
from onmf.persistence import model
from onmf.persistence.checkpoint import Checkpoint


def kept_in(checkpoint: Checkpoint | str | Path | None, resume: bool) -> Checkpoint | None:
    """The checkpoint that was asked for."""
    keep = Checkpoint(checkpoint) if isinstance(checkpoint, (str, Path)) else checkpoint
    if keep is not None and not isinstance(keep, Checkpoint):
        raise TypeError(f"checkpoint takes a file name or an onmf.Checkpoint, got {type(checkpoint).__name__}.")
    if keep is None and resume:
        raise ValueError(
            "resume=True continues the run in a checkpoint; pass checkpoint= as well. "
            "To go on from a finished model with new data, use resume_from=."
        )
    return keep


@dataclass(frozen=True)
class Beginning:
    """What had been learnt before, if anything; found before the data are touched."""

    learned: Learned | None
    same_data: bool  # or others, which it goes on to

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], keep: Checkpoint | None, resume: bool, resume_from: Any, own: Divergence
    ) -> Beginning:
        """A run in the checkpoint comes before the model that it once began with."""
        found = None if keep is None else keep.opened(settings, resume)
        if found is not None or resume_from is None:
            return cls(found, True)
        return cls(_of_model(resume_from, own), False)

    def ready(self, recipe: Recipe, source: Source | Partitions, features: Features) -> Learned | None:
        """What was learnt, ready to go on with these settings in these data; what does not fit is refused."""
        if self.learned is None:
            return None
        if self.same_data:
            if isinstance(source, Source):
                learner.require_position(self.learned, source, features)
            else:
                learner.require_standing(self.learned, len(source), features)
            return learner.continued(recipe, self.learned)
        learner.require_features(self.learned, features, "the model", likeness(source, self.learned.source))
        return replace(learner.continued(recipe, self.learned), position=None, passes=0)


def _of_model(resume_from: Any, own: Divergence) -> Learned:
    if isinstance(resume_from, (str, Path)):
        return model.read(resume_from, own)[1]
    learned = getattr(resume_from, "_learned", None)
    if not isinstance(learned, Learned):
        what = "a model that has learnt nothing" if hasattr(resume_from, "fit") else type(resume_from).__name__
        raise TypeError(f"resume_from takes the file of a model, or a fitted OnlineNMF; got {what}.")
    return learned
