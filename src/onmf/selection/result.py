"""What was found about ranks, and which of them to take."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onmf._support.arrays import Array

FAR = 1.5  # times a rank is another one, not its neighbour
ALIKE = 0.9  # cosines of matched atoms from which on dictionaries count as the same


@dataclass(frozen=True)
class RankSelection:
    """Ranks, how well each predicts held-out entries, and how much its atoms depend on the start.

    ``print`` shows a table with the recommendation and its reason, ``plot`` a picture; ``table`` is for data frames:
    ``pandas.DataFrame(selection.table)``.
    """

    ranks: tuple[int, ...]  # those that were tried, ascending
    losses: Array  # (ranks, seeds): the mean loss per held-out entry, in the data's units
    stability: Array  # (ranks,): the mean similarity of matched atoms over pairs of seeds, 1 if all are the same
    not_tried: tuple[int, ...] = ()  # larger ones, once the loss had clearly turned

    @cached_property
    def loss(self) -> Array:
        """The mean over the seeds, per rank."""
        return self.losses.mean(axis=1)

    @cached_property
    def spread(self) -> Array:
        """The standard deviation over the seeds, per rank; most of it is common to all ranks."""
        return self.losses.std(axis=1, ddof=1)

    @cached_property
    def excess(self) -> Array:
        """How much the loss is above that of the best rank, per rank."""
        return self.loss - self.loss.min()

    @cached_property
    def error(self) -> Array:
        """The standard error of the excess, per rank: a seed holds out the same entries at every rank."""
        apart = self.losses - self.losses[self._best]
        return np.asarray(apart.std(axis=1, ddof=1) / np.sqrt(apart.shape[1]))

    @property
    def best(self) -> int:
        """The rank of the lowest loss."""
        return self.ranks[self._best]

    @property
    def recommended(self) -> int:
        """The smallest rank whose loss is within one standard error of the lowest."""
        return self.ranks[self._place]

    @property
    def table(self) -> dict[str, list[Any]]:
        """The columns, one entry per rank."""
        columns = {name: getattr(self, name).tolist() for name in ("loss", "spread", "excess", "error", "stability")}
        return {"rank": list(self.ranks), **columns}

    @property
    def reason(self) -> str:
        """Why the recommended rank, in words, and what speaks against it."""
        K, place = self.recommended, self._place
        if self.best == K:
            said = [f"Rank {K} predicts held-out entries best."]
        else:
            said = [f"Rank {K} is the smallest within one standard error of the lowest held-out loss, at {self.best}."]
        if self._best == len(self.ranks) - 1:
            said.append("It is still falling at the largest rank that was tried: try larger ones.")
        elif place == 0 and K > 1:
            said.append("No smaller rank was tried: the right one may be below.")
        close = [rank for rank, near in zip(self.ranks, self.excess <= 2 * self.error, strict=True) if near]
        if close[-1] > FAR * close[0]:
            said.append(f"Ranks {close[0]} to {close[-1]} can hardly be told apart: noise may hide the right one.")
        alike = f"Atoms of different seeds match with a similarity of {self.stability[place]:.2f}"
        if self.stability[place] >= ALIKE:
            said.append(f"{alike}: they hardly depend on the start.")
        else:
            said.append(f"{alike}: they depend on the start, so do not read much into single atoms.")
            similarities = zip(self.stability.round(2), self.ranks, strict=True)
            most, steadiest = max(each for each in similarities if each[1] > 1)  # one atom is always found again
            if steadiest != K:
                said.append(f"They depend on it least at rank {steadiest} ({most:.2f}).")
        if self.not_tried:
            first, last = self.not_tried[0], self.not_tried[-1]
            which = f"Rank {first} was" if first == last else f"Ranks {first} to {last} were"
            said.append(f"{which} not tried: those just before were worse for every seed.")
        return " ".join(said)

    def __str__(self) -> str:
        lines = ["rank  held-out loss     spread  above the best            stability"]
        for place, rank in enumerate(self.ranks):
            above = f"{self.excess[place]:.4g} ± {self.error[place]:.2g}" if place != self._best else "-"
            mark = "  <- recommended" if place == self._place else ""
            lines.append(
                f"{rank:4d}  {self.loss[place]:13.6g}  {self.spread[place]:9.2g}  {above:24s}  "
                f"{self.stability[place]:9.3f}{mark}"
            )
        return "\n".join([*lines, "", self.reason])

    def plot(self) -> Any:
        """``onmf.plots.rank`` on a figure of its own, which it gives; ``plot().savefig("ranks.png")`` writes it."""
        from onmf.insight.plots import new_figure, rank

        return rank(self, new_figure(6.4, 5.0).add_subplot()).figure

    @property
    def _best(self) -> int:
        return int(self.loss.argmin())

    @property
    def _place(self) -> int:
        return int(np.flatnonzero(self.excess <= self.error)[0])
