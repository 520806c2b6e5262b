"""The settings of the estimators, one table each, which the command line, model files and checkpoints read.

A new setting is a row here, and a parameter with its documentation in the estimator. This module imports nothing heavy,
so that ``onmf --help`` can read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Stored = Literal["value", "array", "seed", "method", "sets", "divergence", "never"]


@dataclass(frozen=True, kw_only=True)
class Option:
    """How the command line offers a setting."""

    flags: tuple[str, ...]
    help: str  # {names} stands for the names that are registered: those of divergences, or of methods
    type: Any
    low: float | None = None  # the least number that is allowed
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    show_default: str | bool = True  # False: no default is shown; a text: it stands for the default

    @property
    def parameter(self) -> str:
        """The parameter of a command's function that holds the value: ``max_passes`` has ``--passes``."""
        return self.flags[0].lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class Setting:
    """One parameter of an estimator."""

    name: str
    default: Any
    stored: Stored = "value"  # how a model file holds it
    learnt: bool = False  # it belongs to what was learnt, and cannot be changed while a model learns
    may_differ: bool = False  # a run is the same under another value, so that it can be resumed with one
    option: Option | None = None


ONLINE = (
    Setting(
        "n_components",
        40,
        learnt=True,
        option=Option(
            flags=("--components", "-k"), help="K, the number of components in the dictionary.", type=int, low=1
        ),
    ),
    Setting(
        "divergence",
        "kl",
        stored="divergence",
        learnt=True,
        option=Option(
            flags=("--divergence", "-d"),
            help="One of {names}; parameters follow a colon: beta:1.5, huber:0.1. For one of your own, see --module.",
            type=str,
        ),
    ),
    Setting(
        "method",
        "auto",
        stored="method",
        option=Option(
            flags=("--method",),
            help="One of {names}; constants follow a colon: auto:forgetting=0.5, paper:step=canonical,a=200. The "
            "convergence theorem is about paper; auto is faster.",
            type=str,
        ),
    ),
    Setting(
        "batch_size",
        None,
        option=Option(
            flags=("--batch-size",),
            help="Samples per batch.",
            type=int | None,
            low=1,
            show_default="max(5 K, 200), later more",
        ),
    ),
    Setting(
        "max_passes",
        1,
        option=Option(flags=("--passes",), help="Number of passes over the data.", type=int, low=1),
    ),
    Setting(
        "shuffle",
        True,
        option=Option(
            flags=("--shuffle",), help="Shuffle the rows in each pass, if they can be read in any order.", type=bool
        ),
    ),
    Setting(
        "init",
        "kmeans++",
        stored="array",
        option=Option(
            flags=("--init",),
            help="Initial dictionary: kmeans++, uniform, samples, nndsvda.",
            type=str,
            choices=("kmeans++", "uniform", "samples", "nndsvda"),
        ),
    ),
    Setting(
        "fixed",
        None,
        stored="array",
        learnt=True,
        option=Option(
            flags=("--fixed",),
            help="Keep the components of this model file as the first of the K, and learn the others beside them.",
            type=Path | None,
            show_default=False,
        ),
    ),
    Setting("scale", "mean", learnt=True),
    Setting(
        "clip",
        None,
        learnt=True,
        option=Option(
            flags=("--clip",),
            help="Clip the data to LOW HIGH first.",
            type=tuple[float, float] | None,
            show_default=False,
        ),
    ),
    Setting(
        "missing",
        None,
        option=Option(
            flags=("--missing",),
            help="nan: NaN and empty cells are missing, and everything is learnt from the rest.",
            type=str | None,
            choices=("nan",),
            show_default="an error",
        ),
    ),
    Setting(
        "implicit",
        "zero",
        option=Option(
            flags=("--implicit",),
            help="Entries that sparse data do not store: zero, or missing, as in ratings.",
            type=str,
            choices=("zero", "missing"),
        ),
    ),
    Setting(
        "coefficients",
        "nonnegative",
        learnt=True,
        option=Option(
            flags=("--coefficients",),
            help="nonnegative, or simplex: those of a sample sum to one, as the abundances of unmixing.",
            type=str,
            choices=("nonnegative", "simplex"),
        ),
    ),
    Setting(
        "l1_coefficients",
        0.0,
        learnt=True,
        option=Option(
            flags=("--l1-coefficients",),
            help="Penalty on ||h||_1 per sample, for sparse coefficients; X divided by its mean.",
            type=float,
            low=0,
        ),
    ),
    Setting(
        "l2_coefficients",
        0.0,
        learnt=True,
        option=Option(
            flags=("--l2-coefficients",),
            help="Penalty on ||h||^2 / 2 per sample; the convergence theorem needs one above 0.",
            type=float,
            low=0,
        ),
    ),
    Setting(
        "l1_dictionary",
        0.0,
        learnt=True,
        option=Option(
            flags=("--l1-dictionary",),
            help="Penalty on ||W||_1, for sparse components; needs one on the coefficients, or the simplex.",
            type=float,
            low=0,
        ),
    ),
    Setting(
        "l2_dictionary",
        0.0,
        learnt=True,
        option=Option(
            flags=("--l2-dictionary",),
            help="Penalty on ||W||^2 / 2; needs one on the coefficients, or the simplex.",
            type=float,
            low=0,
        ),
    ),
    Setting("sets", None, stored="sets", learnt=True),
    Setting(
        "reservoir",
        0,
        learnt=True,
        option=Option(
            flags=("--reservoir",),
            help="For data in temporal order: keep this many old samples and mix them with new ones.",
            type=int,
            low=0,
        ),
    ),
    Setting("transform_tol", 1e-4, may_differ=True),
    Setting("transform_max_iter", 5000, may_differ=True),
    Setting(
        "on_error",
        "raise",
        option=Option(
            flags=("--on-error",),
            help="What to do with a bad sample or batch: raise (stop with an error) or skip; of each that is skipped, "
            "`onmf transform` and `onmf inverse` write a row of NaN, or no picture.",
            type=str,
            choices=("raise", "skip"),
        ),
    ),
    Setting(
        "shards",
        None,
        option=Option(
            flags=("--shards",),
            help="With --dask: how many pieces of the data are learnt from at the same time at most, whatever the "
            "number of workers.",
            type=int | None,
            low=1,
            show_default="one per partition, up to 64",
        ),
    ),
    Setting(
        "device",
        None,
        stored="never",
        option=Option(
            flags=("--device",),
            help="Compute with PyTorch: cuda, cuda:1, ... is a GPU, auto is one if there is any, cpu is to try it out.",
            type=str | None,
            metavar="DEVICE",
            show_default="the processor, by compiled code",
        ),
    ),
    Setting(
        "random_state",
        None,
        stored="seed",
        option=Option(
            flags=("--seed",), help="Random seed; makes the run repeatable bit for bit.", type=int | None, low=0
        ),
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
    *_of_online("n_components", "divergence", "init", "fixed"),
    Setting("max_iter", 1000),
    Setting("tol", 1e-5),
    *_of_online("coefficients", "clip", "missing", "implicit"),
    *_of_online("l1_coefficients", "l2_coefficients", "l1_dictionary", "l2_dictionary", "sets"),
    *_of_online("transform_tol", "transform_max_iter", "random_state", "callbacks", "verbose"),
)
