"""Claims and their verdicts.

A claim is judged case by case (data set, initial dictionary), by what was measured. A run of fewer samples than the
paper's may fail a claim only because it ended too early, so there a failing case is *unsettled* while the training loss
of the run it is about was still falling: by more than FALLING over the last doubling of the samples. What this means
for each kind of claim:

- the time to Batch's final loss, and likeness to Batch's topics: unsettled if that loss was not reached, and the run
  was still falling or ended less than NEAR above it: whether the rest is reached, and when, takes a long run to tell.
  If it was reached, late or not, the time is known.
- OL against an earlier method: unsettled if OL was still falling. The level at which they are compared is where the
  runs end, and would be another one in longer runs.
- topics, noise, shadows: unsettled if the method that the claim names was still falling. That
  *OL-Wang fails* at something is unsettled the other way round: if it failed and was still falling.
- insensitivity: unsettled if all runs that ended too far above the best one were still falling. Not so for K: fewer
  atoms fit less well however long they learn.
- which of two methods takes longer for the same samples does not depend on how many there are, and is never unsettled.

At the paper's number of samples nothing is unsettled: the claims are about runs of that length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HOLDS, IN_PART, NOT, UNKNOWN = "holds", "holds in part", "does not hold", "not examined"
TOO_SHORT = "too short to tell"
FALLING = 0.01
NEAR = 0.05
THE_RULE = (
    "This run has fewer samples than the paper's, so where a claim fails while the training loss was still falling at "
    f"the end (by more than {FALLING:.0%} over the last doubling of the samples), or ended less than {NEAR:.0%} above "
    f"Batch's where the claim compares with Batch, the verdict is: {TOO_SHORT}."
)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what was measured here, and whether that bears it out, case by case."""

    claim: str
    measured: str
    successes: Sequence[bool]
    unsettled: Sequence[bool] = ()  # which cases might turn out differently in a longer run; empty: none

    @property
    def verdict(self) -> str:
        """Holds if it does in every case, in part if in some; does not hold if every settled case fails."""
        if not self.successes:
            return UNKNOWN
        unsettled = self.unsettled or [False] * len(self.successes)
        settled = [success for success, open_ in zip(self.successes, unsettled, strict=True) if not open_]
        if not settled:
            return TOO_SHORT
        return NOT if not any(settled) else HOLDS if all(settled) and not any(unsettled) else IN_PART

    def row(self) -> dict[str, str]:
        return {"the paper's claim": self.claim, "measured here": self.measured, "verdict": self.verdict}


def still_falling(*runs: Mapping[str, Any]) -> bool:
    """Did the training losses of all these runs end more than FALLING below their lowest before the last doubling of
    the samples? A run with no mark before it counts as falling.
    """
    for facts in runs:
        last = facts["points"][-1]
        earlier = [point["train"] for point in facts["points"] if point["samples"] <= last["samples"] / 2]
        if earlier and not last["train"] < (1 - FALLING) * min(earlier):
            return False
    return True


def undecided(facts: Mapping[str, Any], batch: Mapping[str, Any]) -> bool:
    """Was the training loss still falling, or not far from Batch's final one?"""
    return still_falling(facts) or facts["points"][-1]["train"] <= (1 + NEAR) * batch["points"][-1]["train"]


def failing_early(successes: Sequence[bool], runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[bool]:
    """Which cases fail while all the runs that they are about were still falling."""
    return [not success and still_falling(*about) for success, about in zip(successes, runs, strict=True)]
