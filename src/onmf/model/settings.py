"""The settings of the estimators, one table each, which the command line, model files and checkpoints read.

A new setting is a row here, a documented parameter of the estimator, and a field of ``Recipe`` or ``Reading``. This
module imports nothing heavy, so that ``onmf --help`` can read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Stored = Literal["value", "array", "seed", "method", "sets", "divergence", "never"]


@dataclass(frozen=True)
class Setting:
    """One parameter of an estimator; with a ``help`` text, it is an option of the command line, too."""

    name: str
    default: Any
    help: str = ""  # {names} stands for the names that are registered: those of divergences, or of methods
    type: Any = None  # of the option; None: that of the default
    stored: Stored = "value"  # how a model file holds it
    learnt: bool = False  # it belongs to what was learnt: ``learner.initialise.continued`` raises where it is changed
    may_differ: bool = False  # a run is the same under another value, so that it can be resumed with one
    flags: tuple[str, ...] = ()  # of the option, unless that is the name
    low: float | None = None  # the least number that is allowed
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    show_default: str | bool = True  # False: no default is shown; a text: it stands for the default

    def __post_init__(self) -> None:
        object.__setattr__(self, "flags", self.flags or (f"--{self.name.replace('_', '-')}",))
        object.__setattr__(self, "type", self.type or type(self.default))


ONLINE = (
    Setting(
        "n_components",
        40,
        "K, the number of components in the dictionary.",
        learnt=True,
        flags=("--components", "-k"),
        low=1,
    ),
    Setting(
        "divergence",
        "kl",
        "One of {names}; parameters follow a colon: beta:1.5, huber:0.1. For one of your own, see --module.",
        stored="divergence",
        learnt=True,
        flags=("--divergence", "-d"),
    ),
    Setting(
        "method",
        "auto",
        "One of {names}; constants follow a colon: auto:forgetting=0.5, paper:step=canonical,a=200. The "
        "convergence theorem is about paper; auto is faster.",
        stored="method",
    ),
    Setting("batch_size", None, "Samples per batch.", int | None, low=1, show_default="max(5 K, 200), later more"),
    Setting("max_passes", 1, "Number of passes over the data.", flags=("--passes",), low=1),
    Setting("shuffle", True, "Shuffle the rows in each pass, if they can be read in any order."),
    Setting(
        "init",
        "kmeans++",
        "Initial dictionary: kmeans++, uniform, samples, nndsvda.",
        stored="array",
        choices=("kmeans++", "uniform", "samples", "nndsvda"),
    ),
    Setting("n_init", 1, "Fits from this many starts, of which the one with the lowest loss is kept.", low=1),
    Setting(
        "fixed",
        None,
        "Keep the components of this model file as the first of the K, and learn the others beside them; those of "
        "several add up: --fixed a --fixed b.",
        list[Path] | None,
        stored="array",
        learnt=True,
        show_default=False,
    ),
    Setting("scale", "mean", learnt=True),
    Setting(
        "clip", None, "Clip the data to LOW HIGH first.", tuple[float, float] | None, learnt=True, show_default=False
    ),
    Setting(
        "missing",
        None,
        "nan: treat NaN and empty cells as missing.",
        str | None,
        choices=("nan",),
        show_default="an error",
    ),
    Setting(
        "implicit",
        "zero",
        "Entries that sparse data do not store: zero, or missing, as in ratings.",
        choices=("zero", "missing"),
    ),
    Setting(
        "coefficients",
        "nonnegative",
        "nonnegative, or simplex: those of a sample sum to one, as abundances do in spectral unmixing.",
        learnt=True,
        choices=("nonnegative", "simplex"),
    ),
    Setting(
        "l1_coefficients",
        0.0,
        "Penalty on ||h||_1 per sample, for sparse coefficients, in units of the mean of X.",
        learnt=True,
        low=0,
    ),
    Setting(
        "l2_coefficients",
        0.0,
        "Penalty on ||h||^2 / 2 per sample; the convergence theorem needs one above 0.",
        learnt=True,
        low=0,
    ),
    Setting(
        "l1_dictionary",
        0.0,
        "Penalty on ||W||_1, for sparse components; needs one on the coefficients, or the simplex.",
        learnt=True,
        low=0,
    ),
    Setting(
        "l2_dictionary",
        0.0,
        "Penalty on ||W||^2 / 2; needs one on the coefficients, or the simplex.",
        learnt=True,
        low=0,
    ),
    Setting("sets", None, stored="sets", learnt=True),
    Setting(
        "reservoir",
        0,
        "For data in temporal order: keep this many old samples and mix them with new ones.",
        learnt=True,
        low=0,
    ),
    Setting(
        "features",
        "auto",
        "With --from: grow adds words or columns that the model does not have, fixed does not; auto adds words.",
        choices=("auto", "fixed", "grow"),
    ),
    Setting("max_features", 20_000, "The most features that a model grows to.", low=1),
    Setting("transform_tol", 0.0001, may_differ=True),
    Setting("transform_max_iter", 5000, may_differ=True),
    Setting(
        "on_error",
        "raise",
        "What to do with a bad sample or batch: raise (stop with an error) or skip; of each that is skipped, "
        "`onmf transform` and `onmf inverse` write a row of NaN, or no picture.",
        choices=("raise", "skip"),
    ),
    Setting(
        "shards",
        None,
        "With --dask: how many pieces of the data are learnt from at the same time at most, whatever the number "
        "of workers.",
        int | None,
        low=1,
        show_default="one per partition, up to 64",
    ),
    Setting(
        "device",
        None,
        "Compute with PyTorch: cuda or cuda:1 uses that GPU, auto uses one if available, cpu is for testing.",
        str | None,
        stored="never",
        metavar="DEVICE",
        show_default="the processor, by compiled code",
    ),
    Setting(
        "random_state",
        None,
        "Random seed; makes the run repeatable bit for bit.",
        int | None,
        stored="seed",
        flags=("--seed",),
        low=0,
    ),
    Setting("callbacks", None, stored="never"),
    Setting("verbose", 0, stored="never"),
)


def _of_online(*names: str) -> tuple[Setting, ...]:
    return tuple(setting(name) for name in names)


def setting(name: str) -> Setting:
    """Return the setting of OnlineNMF that has this name."""
    return next(each for each in ONLINE if each.name == name)


def defaults(table: Iterable[Setting]) -> dict[str, Any]:
    """Return the default values of a table by name."""
    return {each.name: each.default for each in table}


BATCH = (
    *_of_online("n_components", "divergence", "init", "n_init", "fixed"),
    Setting("solver", "auto", choices=("auto", "multiplicative", "coordinate", "surrogate")),
    Setting("pseudo_counts", None),
    Setting("max_iter", 1000),
    Setting("tol", None),
    *_of_online("coefficients", "clip", "missing", "implicit"),
    *_of_online("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary", "sets"),
    *_of_online("transform_tol", "transform_max_iter", "random_state", "callbacks", "verbose"),
)
