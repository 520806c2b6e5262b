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
    panel: str | None = None  # of the help; None: that of the options which most runs need
    show_default: str | bool = True  # False: no default is shown; a text: it stands for the default

    def __post_init__(self) -> None:
        object.__setattr__(self, "flags", self.flags or (f"--{self.name.replace('_', '-')}",))
        object.__setattr__(self, "type", self.type or type(self.default))


ONLINE = (
    Setting(
        "n_components",
        40,
        "K, how many components to learn.",
        learnt=True,
        flags=("--components", "-k"),
        low=1,
    ),
    Setting(
        "divergence",
        "kl",
        "The loss: {names}. Parameters follow a colon: beta:1.5, huber:0.1.",
        stored="divergence",
        learnt=True,
        flags=("--divergence", "-d"),
    ),
    Setting(
        "method",
        "auto",
        "{names}. Constants follow a colon: auto:forgetting=0.5. auto is fast; paper has the convergence theorem.",
        stored="method",
        panel="Model",
    ),
    Setting(
        "batch_size",
        None,
        "Samples per step of learning.",
        int | None,
        low=1,
        show_default="max(5 K, 200), later more",
        panel="Data",
    ),
    Setting("max_passes", 1, "How often to read the data.", flags=("--passes",), low=1),
    Setting(
        "shuffle",
        True,
        "Read the rows in random order. Texts, CSV and JSON Lines are mixed as far as --shuffle-buffer allows; "
        "Parquet, Arrow, Zarr, HDF5, .h5ad and sound are read in their order.",
        panel="Data",
    ),
    Setting(
        "init",
        "kmeans++",
        "How components start: kmeans++, uniform, samples, nndsvda.",
        stored="array",
        choices=("kmeans++", "uniform", "samples", "nndsvda"),
        metavar="START",
        panel="Model",
    ),
    Setting("n_init", 1, "Fit from this many starts, and keep the fit with the lowest loss.", low=1, panel="Model"),
    Setting(
        "fixed",
        None,
        "Keep the components of this model file as the first of the K, and learn the others. Repeat it for the "
        "components of several models.",
        list[Path] | None,
        stored="array",
        learnt=True,
        show_default=False,
        panel="Model",
    ),
    Setting("scale", "mean", learnt=True),
    Setting(
        "clip",
        None,
        "Clip the data to this range first.",
        tuple[float, float] | None,
        learnt=True,
        metavar="LOW HIGH",
        show_default=False,
        panel="Data",
    ),
    Setting(
        "missing",
        None,
        "With nan, NaN and empty cells are missing; without it they raise an error.",
        str | None,
        choices=("nan",),
        panel="Data",
        show_default=False,
    ),
    Setting(
        "implicit",
        "zero",
        "How to read entries that sparse data do not store: as zero or, for ratings, as missing.",
        choices=("zero", "missing"),
        panel="Data",
    ),
    Setting(
        "coefficients",
        "nonnegative",
        "With simplex, the coefficients of each sample sum to one, as abundances do in unmixing.",
        learnt=True,
        choices=("nonnegative", "simplex"),
        panel="Model",
    ),
    Setting(
        "l1_coefficients",
        0.0,
        "Penalty on the sum of coefficients, which makes them sparse; in units of the mean of X.",
        learnt=True,
        low=0,
        panel="Model",
    ),
    Setting(
        "l2_coefficients",
        0.0,
        "Penalty on half the squares of coefficients. The convergence theorem needs one above 0.",
        learnt=True,
        low=0,
        panel="Model",
    ),
    Setting(
        "l1_dictionary",
        0.0,
        "Penalty that makes components sparse; needs one on the coefficients, or the simplex.",
        learnt=True,
        low=0,
        panel="Model",
    ),
    Setting(
        "l2_dictionary",
        0.0,
        "Penalty on half the squares of W; needs one on the coefficients, or the simplex.",
        learnt=True,
        low=0,
        panel="Model",
    ),
    Setting("sets", None, stored="sets", learnt=True),
    Setting(
        "reservoir",
        0,
        "For data in temporal order, keep this many old samples and mix them with new ones.",
        learnt=True,
        low=0,
        panel="Data",
    ),
    Setting(
        "features",
        "auto",
        "With --from, grow adds new words and columns to the model, auto adds words only, fixed adds none.",
        choices=("auto", "fixed", "grow"),
        panel="Data",
    ),
    Setting("max_features", 20_000, "Grow to this many features at most.", low=1, panel="Data"),
    Setting("transform_tol", 0.0001, may_differ=True),
    Setting("transform_max_iter", 5000, may_differ=True),
    Setting(
        "on_error",
        "raise",
        "At a bad sample or batch, stop with an error (raise) or continue without it (skip).",
        choices=("raise", "skip"),
        panel="Data",
    ),
    Setting(
        "shards",
        None,
        "With --dask, learn from this many pieces of the data at the same time, whatever the number of workers.",
        int | None,
        low=1,
        show_default="one per partition, up to 64",
        panel="Machines",
    ),
    Setting(
        "device",
        None,
        "Compute with PyTorch: on a GPU (cuda, cuda:1), on one if there is one (auto), or, for tests, on the cpu.",
        str | None,
        stored="never",
        metavar="DEVICE",
        show_default="the processor, by compiled code",
        panel="Machines",
    ),
    Setting(
        "random_state",
        None,
        "Random seed; with it a run can be repeated bit for bit.",
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
