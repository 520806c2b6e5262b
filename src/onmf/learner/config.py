"""The settings of a model as the learner needs them, and the checks of those that cannot be combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from onmf import divergences
from onmf._support.checks import require_whole
from onmf._support.threads import cached_property
from onmf.device.choose_device import checked_name
from onmf.divergences import Divergence
from onmf.learner.reservoir import Reservoir
from onmf.methods import Choice, Method
from onmf.model.penalty import NO_PENALTIES, Penalties
from onmf.model.sets import USUAL_SETS, Box, DictionarySet, Sets, Simplex, count, require_fixed, require_init
from onmf.model.units import checked_clip


@dataclass(frozen=True)
class Recipe:
    """The settings that a model is learnt with, apart from how the data are read."""

    n_components: int
    divergence: Divergence  # as the user gave it
    method: Choice
    init: Any = "kmeans++"
    rescale: bool = True  # divide data by the mean of the first batch, if the divergence allows it?
    clip: tuple[float, float] | None = None
    penalties: Penalties = NO_PENALTIES
    sets: Sets = USUAL_SETS
    reservoir_size: int = 0
    fixed: Any = None  # the first components (J, F), which stay, as the user gave them
    coefficients: str = "nonnegative"
    device: str | None = None  # of PyTorch's; None: the compiled code of this package

    def __post_init__(self) -> None:
        require_whole(1, n_components=self.n_components)
        require_whole(0, reservoir=self.reservoir_size)
        self.penalties.require_effect(coefficients_bounded=self.shares)
        require_init(self.init)
        require_fixed(self.fixed, self.n_components)
        if isinstance(self.coefficient_set, Simplex):
            self.coefficient_set.free(self.n_components)  # raises an error for lower bounds that leave nothing
        if self.device is not None:
            self._require_device()

    def _require_device(self) -> None:
        """Raise an error for a name of no device, and for what only the processor does."""
        checked_name(self.device)
        self.method.for_device()
        cure = "leave device out"
        if not self.divergence.separable:
            raise ValueError(
                f"{self.divergence.name} is not a sum over entries and runs on the processor only; {cure}."
            )
        if self.shares:
            raise ValueError(f"coefficients on the simplex are found by the processor only; {cure}.")
        if self.reservoir_size:
            raise ValueError(f"a reservoir is kept on the processor only; {cure}, or the reservoir.")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Recipe:
        """Return the parameters of an estimator as the learner takes them, checked."""
        if not isinstance(settings["scale"], str) or settings["scale"] not in ("mean", "none"):
            raise ValueError(f"scale must be 'mean' or 'none', got {settings['scale']!r}.")
        return cls(
            settings["n_components"],
            divergences.get(settings["divergence"]),
            Choice.get(settings["method"]),
            settings["init"],
            settings["scale"] == "mean",
            checked_clip(settings["clip"]),
            Penalties.of(settings),
            USUAL_SETS if settings["sets"] is None else settings["sets"],
            settings["reservoir"],
            settings["fixed"],
            settings["coefficients"],
            settings.get("device"),
        )

    @property
    def choice(self) -> Choice:
        """The method or the rule that picks one, as the coefficients and the device have it."""
        if self.device is not None:
            return self.method.for_device()
        return self.method.for_shares() if self.shares else self.method

    @property
    def rescales(self) -> bool:
        """Are data divided by the mean of the first batch?"""
        return self.rescale and self.divergence.degree is not None

    @property
    def dictionary_set(self) -> DictionarySet:
        """The set of the dictionaries, with the fixed components."""
        return replace(self.sets.where(self.coefficients)[0], fixed=count(self.fixed))

    @cached_property
    def coefficient_set(self) -> Box | Simplex:
        """The set of the coefficients."""
        return self.sets.where(self.coefficients)[1]

    @cached_property
    def shares(self) -> bool:
        """Do the coefficients of a sample sum to one?"""
        return isinstance(self.coefficient_set, Simplex)

    @property
    def reservoir(self) -> Reservoir | None:
        """Old samples to mix with the new ones."""
        return Reservoir(self.reservoir_size) if self.reservoir_size else None


def require_served(
    method: Method, divergence: Divergence, recipe: Recipe, *, masked: bool = False, weighted: bool = False
) -> None:
    """Raise an error for a divergence, weights, coefficients or sets that the method cannot learn with."""
    if (weighted or masked) and not method.weighs:
        raise ValueError(f"method {method.name!r} needs complete samples of equal weight; use 'auto'.")
    if recipe.device is not None and masked and not method.masked_on_device:
        raise ValueError(
            f"method {method.name!r} learns from samples with missing entries on the processor only; use method "
            "'auto', or leave device out."
        )
    if recipe.reservoir_size and method.certified is not None:
        raise ValueError("certified needs independent samples, and a reservoir shows some again; leave out one.")
    reason = method.why_not(divergence, recipe.penalties, masked)
    if reason is None and recipe.shares:
        reason = method.why_not_shares(divergence, masked)
    if reason is not None:
        raise ValueError(reason)
    recipe.sets.require_positive_fit(divergence)
