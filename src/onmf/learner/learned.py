"""A learnt model as one immutable value, and what a theorem promises for it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from onmf._support.arrays import Array, Mask, times
from onmf._support.checks import MOST, is_number, require_whole
from onmf._support.wording import counted, listed
from onmf.data import Spec
from onmf.data.columns import Features
from onmf.divergences import Divergence
from onmf.learner.drift import Drift
from onmf.learner.resume import Position, RoundPosition
from onmf.methods import Method
from onmf.model.sets import DictionaryBox
from onmf.model.state import State
from onmf.model.units import Units
from onmf.samples import Samples

log = logging.getLogger("onmf")


def proportions(H: Array, W: Array) -> Array:
    """Return the share of every component in the fit of each sample (n, K): rows sum to one, all alike where h is zero.

    Components have maximum 1, not sum 1, so that H alone does not tell: h_k sum_f W_kf is what component k contributes.
    A row of NaN stays one.
    """
    largest = H.max(axis=1, keepdims=True)  # sums of large numbers may be beyond the range of numbers
    parts = H / np.where(largest == 0, 1, largest) * W.sum(axis=1, dtype=H.dtype)
    total = parts.sum(axis=1, keepdims=True)
    return np.divide(parts, total, out=np.full_like(parts, 1 / parts.shape[1]), where=total != 0)


@dataclass(frozen=True)
class Usage:
    """The share of each component in the fits of the samples, as sums over these.

    The coefficients are those found while learning. Later samples count more, in proportion to their number in the
    stream, since early ones were fitted with a dictionary that no longer exists; where the method forgets, early ones
    count even less. Sums of several machines at the same clock add up.
    """

    sums: Array = field(default_factory=lambda: np.zeros(0))  # (K,), double precision

    @classmethod
    def of(cls, H: Array, W: Array, weights: Array | None = None) -> Usage:
        """Return the usage by samples that count by their weights alone; one without a fit does not count."""
        H, mass = H.astype(np.float64, copy=False), W.sum(axis=1, dtype=np.float64)
        total = H @ mass
        return cls(times(1 / (total + (total == 0)), weights) @ H * mass)

    def and_then(self, batch: Usage, before: int, n: int, horizon: float = np.inf) -> Usage:
        """Return the usage with a batch of n samples after others; after ``horizon`` samples the past weighs 1/e."""
        kept = before / (before + n) * math.exp(-n / horizon)
        return Usage(self.sums * kept + batch.sums)

    @property
    def shares(self) -> Array:
        """The shares of the components, which sum to one; all are alike if nothing was ever fitted."""
        total = float(self.sums.sum())
        return self.sums / total if total > 0 else np.full(len(self.sums), 1 / len(self.sums))

    def require_sound(self, n_components: int) -> None:
        """Raise an error for sums that no run could have, as a damaged file may hold."""
        if self.sums.shape != (n_components,) or self.sums.dtype != np.float64:
            raise ValueError("it does not say how much each component carries")
        if not np.isfinite(self.sums.sum()) or (self.sums < 0).any():
            raise ValueError("its components carry shares that are not numbers, or negative")


LONG_HISTORY, RECENT = 8192, 64  # entries: of all batches, and of the last ones
KEPT_REASONS = 100  # why something was skipped
MOST_NAMED = 20  # samples and batches that are skipped: a log has an end
COLUMNS = ("samples", "seconds", "loss")


@dataclass(frozen=True)
class History:
    """Samples, seconds and mean loss after every batch, thinned in a long run.

    The last few lie apart: a batch adds its own to these, and seldom copies all.
    """

    earlier: tuple[tuple[int, float, float], ...] = ()
    recent: tuple[tuple[int, float, float], ...] = ()

    def after(self, n: int, seconds: float, loss: float) -> History:
        """Return the history with one more batch of n samples, which took this many seconds."""
        earlier, recent = self.earlier, self.recent
        if len(recent) == RECENT or len(earlier) + len(recent) >= LONG_HISTORY:
            earlier, recent = self.entries, ()
        if len(earlier) >= LONG_HISTORY:
            earlier = earlier[:1] + earlier[2:-2:2] + earlier[-2:]  # the first and the last two stay
        return History(earlier, (*recent, (self.samples + n, self.seconds + seconds, loss)))

    @property
    def entries(self) -> tuple[tuple[int, float, float], ...]:
        """Samples, seconds and loss of every batch that is still kept."""
        return self.earlier + self.recent

    @property
    def last(self) -> tuple[int, float, float]:
        """Samples, seconds and loss after the last batch; zeros before the first."""
        return (self.recent or self.earlier or ((0, 0.0, 0.0),))[-1]

    @property
    def samples(self) -> int:
        """The number of samples learnt from so far, repetitions included."""
        return self.last[0]

    @property
    def seconds(self) -> float:
        """The seconds spent learning so far."""
        return self.last[1]

    def columns(self) -> dict[str, Array]:
        """Return equally long arrays "samples", "seconds" and "loss"."""
        return {name: np.asarray(column) for name, column in zip(COLUMNS, zip(*self.entries, strict=True), strict=True)}

    @classmethod
    def of_columns(cls, columns: Mapping[str, Array]) -> History:
        """Return the history that ``columns`` came from, checked."""
        samples, seconds, losses = (columns[name] for name in COLUMNS)
        alike = samples.shape == seconds.shape == losses.shape and samples.ndim == 1 and len(samples)
        if not alike or "".join(column.dtype.kind for column in (samples, seconds, losses)) != "iff":
            raise ValueError("the columns of its history are not equally long rows of numbers")
        forwards = (samples[1:] > samples[:-1]).all() and (seconds[1:] >= seconds[:-1]).all()
        if not (forwards and samples[0] > 0 and samples[-1] < MOST and seconds[0] >= 0 and np.isfinite(seconds).all()):
            raise ValueError("its history does not run forwards")
        if not np.isfinite(losses).all():
            raise ValueError("its history has losses that are not finite numbers")
        return cls(tuple(zip(*(column.tolist() for column in (samples, seconds, losses)), strict=True)))


@dataclass(frozen=True)
class Skipped:
    """Samples and batches that were skipped: how many, and why the last hundred."""

    count: int = 0
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_whole(0, skipped=self.count)
        if len(self.reasons) != min(self.count, KEPT_REASONS):
            raise ValueError(f"there are {len(self.reasons)} reasons why {self.count} samples or batches were skipped")

    def and_also(self, error: Exception) -> Skipped:
        """Return these and one more."""
        return self + Skipped(1, (str(error),))

    def __add__(self, other: Skipped) -> Skipped:
        return Skipped(self.count + other.count, (*self.reasons, *other.reasons)[-KEPT_REASONS:])


class SkippedLog:
    """A callable that logs the first errors one by one, and says once that later ones are only counted."""

    def __init__(self) -> None:
        self.named = 0

    def __call__(self, error: Exception) -> None:
        self.named += 1
        if self.named <= MOST_NAMED:
            log.warning("Skipped: %s", error)
        if self.named == MOST_NAMED:
            log.warning("Further samples that are skipped will be counted, not named.")


@dataclass(frozen=True)
class Coverage:
    """Which features at least one sample of masked data has had, and how many samples had no entry at all."""

    features: Mask
    blank: int = 0

    @classmethod
    def of(cls, X: Samples) -> Coverage:
        """Return the coverage of one batch."""
        return cls(X.weight_sums(axis=0) > 0, int(np.count_nonzero(X.weight_sums(axis=1) == 0)))

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.features | other.features, self.blank + other.blank)

    def findings(self, names: Sequence[str] | None) -> dict[str, str]:
        """Return sentences for the user, keyed by their subject; ``names`` are those of the features."""
        found, missing = dict[str, str](), np.flatnonzero(~self.features).tolist()
        if missing:
            which = listed([f if names is None else names[f] for f in missing], "Feature")
            was, it = ("was", "it") if len(missing) == 1 else ("were", "them")
            found["missing features"] = f"{which} {was} missing in every sample, so that nothing was learnt of {it}."
        if self.blank:
            found["blank samples"] = f"Every entry of {counted(self.blank, 'sample')} was missing."
        return found


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A dictionary and all that it takes to use it."""

    state: State
    divergence: Divergence  # in the data's units, as adapted to the data
    units: Units
    features: Features
    history: History = History()
    raised: bool = False  # has the user been warned of entries outside the domain?
    usage: Usage = Usage()  # how much of what was fitted each component carries

    @property
    def shares(self) -> bool:
        """Do the coefficients of a sample sum to one?"""
        return math.isinf(self.state.C.high)

    @property
    def W(self) -> Array:
        """The dictionary as users see it: where coefficients are shares, in the data's units."""
        if not self.shares:
            return self.state.W
        with np.errstate(over="ignore"):
            return self.state.W * self.state.W.dtype.type(self.units.scale)

    @property
    def coefficient_unit(self) -> float:
        """The factor that turns internal coefficients into the user's: the scale, unless W takes it up."""
        return 1.0 if self.shares else self.units.scale

    @property
    def inside(self) -> Divergence:
        """The divergence in internal units."""
        return self.divergence.in_units(self.units.scale)


@dataclass(frozen=True, kw_only=True)
class Learned(Fitted):
    """Everything that learning from a stream has produced, in one value.

    A batch is learnt or it is not: the value after it takes the place of the value before.
    """

    method: Method
    coverage: Coverage | None = None  # of masked data
    adaptive: bool = False  # was a parameter of the divergence left to the data?
    passes: int = 1  # begun over the data; the last may be unfinished. 0: over data that it has only been given
    pass_began: int = 0  # samples learnt from before the last of them
    loss_to_beat: float = np.inf  # that of a single component, or of the start: a run that ends far above has diverged
    position: Position | RoundPosition | None = None  # where the fit that it comes from stands in its data
    skipped: Skipped = Skipped()
    source: Spec | None = None  # how the features were made, where the data were opened by their name
    drift: Drift = Drift()

    @property
    def masked(self) -> bool:
        """Can entries of the data be missing, or weigh differently?"""
        return self.coverage is not None

    @property
    def samples_in_words(self) -> str:
        """``120 samples``, or ``2 passes over 60 samples`` where each pass was over as many."""
        seen, passes = self.history.samples, self.passes
        if passes > 1 and self.pass_began * passes == seen * (passes - 1):
            return f"{passes} passes over {counted(seen // passes, 'sample')}"
        return counted(seen, "sample")

    @property
    def reconstruction_error(self) -> float:
        """sqrt(2 sum of d(x || hW)) over the last pass, from the losses before each sample was learnt from."""
        samples, losses = (self.history.columns()[name] for name in ("samples", "loss"))
        n, last = samples[-1] - self.pass_began, samples > self.pass_began
        largest = losses[last].max() or 1.0  # the sum may be beyond the range of numbers
        mean = np.average(losses[last] / largest, weights=np.diff(samples, prepend=0)[last])
        return float(np.sqrt(2 * n * mean) * np.sqrt(largest))

    def advice(self) -> str | None:
        """Return what to try if the loss has gone up instead of down; None if it has not."""
        step = self.method.shorter_step()
        late = float(np.median([loss for _, _, loss in self.history.entries[-10:]]))
        if step is None or late <= 2 * self.loss_to_beat or self.state.penalties.on_dictionary:  # which costs loss
            return None
        return (
            f"The loss ({late:.4g}) is far above that of the start or a single component ({self.loss_to_beat:.4g}): "
            f"the steps are too long for these data. Try method={step!r}."
        )

    def require_sound(self) -> None:
        """Raise an error for numbers that no run could have, as a damaged file may hold."""
        require_whole(0, passes=self.passes, pass_began=self.pass_began)
        if self.history.samples and self.pass_began >= self.history.samples:
            raise ValueError("its last pass begins after its last sample")
        if not is_number(self.loss_to_beat) or self.loss_to_beat < 0:
            raise ValueError(f"the loss to beat is {self.loss_to_beat!r}")
        self.usage.require_sound(len(self.state.W))
        self.drift.require_sound()
        if self.source is not None:
            self.source.require_sound(self.features.number)


def guarantee(learned: Learned) -> str:
    """Say in one sentence whether a theorem of theory.md covers a model, or what to change, or why none does."""
    method, divergence, state = learned.method, learned.divergence, learned.state
    if not (divergence.convex and divergence.slopes_known):
        parameters = ",".join(f"{value:g}" for value in divergence.parameters().values() if isinstance(value, float))
        name = divergence.name or type(divergence).__name__
        name = f"{name}:{parameters}" if parameters else name
        what = "convex in the fit (class D2) and, but for l1 and l2, differentiable in it"
        return f"None: the theorems are about divergences that are {what}; {name!r} is not."
    doubts = method.doubts(divergence, state)
    if doubts is None:
        methods = "method 'paper'"
        if divergence.smooth_curvature:
            methods += ", and about 'auto', 'surrogate' and 'em' with certified (such as 'auto:certified=20000')"
        why = f"for this divergence the theorems are about {methods}, and this model was learnt by {method.text()!r}"
        return f"None: {'; '.join([why, *_of_the_run(learned)])}."
    doubts = [*doubts, *_of_the_run(learned)]
    if doubts:
        return f"Not covered by theorem {method.theorem} yet: {'; '.join(doubts)}."
    box = isinstance(method.feasible(learned.inside, state), DictionaryBox)
    where = "the box low <= W <= 1 within C" if box else "the set C"
    penalised = " with its penalties" if state.penalties.on_dictionary else ""
    values = (
        ", and that the critical values of that loss fill no interval, as they never do for draws from a finite set"
    )
    raised = "" if divergence.domain.x.includes_zero else " of samples whose zeros are raised as in this fit"
    return (
        f"Covered by theorem {method.theorem}: as the number of samples grows, W converges almost surely to the "
        f"critical points of the expected loss{raised}{penalised} on {where}, provided that the samples are "
        f"independent draws from one distribution with compact support{values if method.theorem == 'B' else ''}."
    )


def _of_the_run(learned: Learned) -> list[str]:
    doubts = []
    if learned.shares:
        doubts.append("the dictionary must lie in a bounded set, and with coefficients='simplex' it has no upper bound")
    if not learned.state.penalties.l2_coefficients:
        doubts.append("the loss must be strongly convex in h, and l2_coefficients was 0 (l2_coefficients=1e-3)")
    if learned.passes > 1:
        doubts.append(f"samples must be independent, and there were {learned.passes} passes over the same")
    if "kept" in learned.state.memory:
        doubts.append("samples must be independent, and a reservoir shows some of them again")
    if learned.masked:
        doubts.append(
            "coefficients must have bounds that do not depend on W, and where entries are missing or weighted they have"
        )
    return doubts
