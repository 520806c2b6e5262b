"""The cases: a covering array in which every pair of values occurs, what raises an error, and some picked by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache
from itertools import combinations, product
from typing import Any

BATCH = "batch"  # BatchNMF, among the methods of OnlineNMF
METHODS = ("auto", "surrogate", "sparse_surrogate", "em", "paper", "lefevre", "guan", "wang", BATCH)
DIVERGENCES = (
    *("kl", "is", "squared_l2", "huber", "l1", "l2", "hellinger", "mahalanobis"),
    *("alpha:-1", "alpha:0", "alpha:0.3", "alpha:2", "beta:-0.5", "beta:0.5", "beta:1.5", "beta:3"),
)
KINDS = (
    *("dense", "sparse", "sample weights", "entry weights", "missing"),
    *("penalties", "fixed", "simplex", "float32"),
)
WAYS = ("fit", "partial_fit", "resume", "transform", "dask", "torch")
FACTORS = (METHODS, DIVERGENCES, KINDS, WAYS)

ORIGINAL = {"lefevre": "is", "guan": "squared_l2", "wang": "huber"}  # earlier methods, each for one divergence
COUNTS = ("kl", "hellinger", "alpha:0.3", "alpha:2")  # what em and sparse_surrogate are for

# Settings beyond those of the factors.
EXTRAS: dict[str, dict[str, Any]] = {
    "reservoir": {"reservoir": 40},
    "clip": {"clip": (0.5, 8.0)},
    "scale none": {"scale": "none"},
    "in order": {"shuffle": False},
    "uniform": {"init": "uniform"},
    "samples": {"init": "samples"},
    "nndsvda": {"init": "nndsvda"},
    "many components": {"n_components": 9},
    "own batches": {"batch_size": None},
    "precise": {"transform_tol": 1e-8},
}


@dataclass(frozen=True, order=True)
class Case:
    """One run: what learns under which divergence, from which data, in which way, with which further settings."""

    method: str = "auto"
    divergence: str = "kl"
    kind: str = "dense"  # or several, with a plus between them
    way: str = "fit"
    extra: str = ""  # a key of EXTRAS

    @property
    def name(self) -> str:
        """The case in words, as in the record."""
        return " | ".join(each for each in astuple(self) if each)

    @property
    def values(self) -> tuple[str, ...]:
        """Its value of every factor."""
        return astuple(self)[: len(FACTORS)]


def named(name: str) -> Case:
    """The case of that name."""
    return Case(*name.split(" | "))


def raises(case: Case) -> bool:
    """Does the library raise an error for this case? ``record`` says where that is not so."""
    method, divergence, kind, way = case.values
    method, kinds = method.partition(":")[0], set(kind.split("+"))
    earlier, in_part = method in ORIGINAL, bool(kinds & {"entry weights", "missing"})
    return (
        (earlier and divergence != ORIGINAL[method])
        or (method in ("em", "sparse_surrogate") and divergence not in COUNTS)
        or (earlier and (in_part or bool(kinds & {"sample weights", "penalties"})))
        or (method == "sparse_surrogate" and in_part and "penalties" in kinds)
        or ("simplex" in kinds and (method not in ("auto", "surrogate", "paper") or way == "torch"))
        or (divergence == "mahalanobis" and in_part)
        or (way == "torch" and (method not in ("auto", "surrogate", "em") or divergence in ("l2", "mahalanobis")))
        or (way == "torch" and method == "em" and in_part)
        or (way == "dask" and method not in ("auto", "surrogate", "sparse_surrogate", "em"))
        or (way in ("partial_fit", "resume") and method == BATCH)
    )


def subsets(case: Case, size: int) -> Iterator[tuple[tuple[int, str], ...]]:
    """All sets of that many of its values, each with the number of its factor."""
    return combinations(enumerate(case.values), size)


@cache
def possible() -> tuple[Case, ...]:
    """All combinations that raise no error."""
    return tuple(case for case in (Case(*values) for values in product(*FACTORS)) if not raises(case))


@cache
def covering() -> tuple[Case, ...]:
    """A covering array: every pair of values that any possible case has is in one of these; found greedily."""
    left = {pair for case in possible() for pair in subsets(case, 2)}
    rows: dict[Any, list[Case]] = {}
    for case in possible():
        for pair in subsets(case, 2):
            rows.setdefault(pair, []).append(case)
    order = sorted(left, key=lambda pair: (len(rows[pair]), pair))  # the rarest first
    chosen: list[Case] = []
    uses: dict[tuple[int, str], int] = {}
    for pair in order:
        if pair not in left:
            continue
        # The most new pairs; then values that have been used least, so that none has all of the work.
        best = max(
            rows[pair],
            key=lambda case: (
                sum(each in left for each in subsets(case, 2)),
                -sum(uses.get(each, 0) for each in enumerate(case.values)),
            ),
        )
        chosen.append(best)
        left.difference_update(subsets(best, 2))
        for each in enumerate(best.values):
            uses[each] = uses.get(each, 0) + 1
    return tuple(sorted(chosen))


@cache
def raising() -> tuple[Case, ...]:
    """One case for every pair of values that raises an error, and for every three of which no two do."""
    found: list[Case] = []
    pairs = {pair for case in possible() for pair in subsets(case, 2)}
    threes = {three for case in possible() for three in subsets(case, 3)}
    usual = Case().values
    rejected = [case for case in (Case(*values) for values in product(*FACTORS)) if raises(case)]
    rejected.sort(key=lambda case: sum(one != other for one, other in zip(case.values, usual, strict=True)))
    seen: set[Any] = set()
    for case in rejected:
        new = {pair for pair in subsets(case, 2) if pair not in pairs} or {
            three for three in subsets(case, 3) if three not in threes
        }
        if new - seen:
            seen |= new
            found.append(case)
    return tuple(sorted(found))


@cache
def picked() -> tuple[Case, ...]:
    """Cases beyond pairs: data of two kinds at once, further settings, and constants of methods."""
    found = []
    learners = [("surrogate", "kl"), ("auto", "squared_l2"), ("paper", "huber"), ("auto", "is"), ("em", "kl")]
    learners += [(BATCH, "kl"), ("auto", "l1"), ("sparse_surrogate", "hellinger"), ("surrogate", "beta:1.5")]
    for number, (one, other) in enumerate(combinations(KINDS[1:], 2)):
        turns = ((*learners[(number + turn) % len(learners)], WAYS[(number + turn) % len(WAYS)]) for turn in range(18))
        can = [turn for turn in turns if not any(raises(Case(*turn[:2], kind, turn[2])) for kind in (one, other))]
        found += [Case(method, divergence, f"{one}+{other}", way) for method, divergence, way in can[:2]]
    found += [Case(extra=extra) for extra in EXTRAS]
    found += [Case(divergence=divergence, extra="precise") for divergence in ("is", "huber", "l1", "squared_l2")]
    found += [Case("paper", divergence, extra="reservoir") for divergence in ("is", "l1")]
    found += [Case("auto", "huber:0.1"), Case("auto", "huber:2"), Case("auto:forgetting=0.5"), Case("surrogate:tau=50")]
    found += [Case("surrogate:max_memory=0", way=way) for way in ("fit", "dask")]
    found += [Case("surrogate:tau=50", way="torch"), Case("surrogate:tau=50", "is", "float32", "torch")]
    found += [Case("paper:step=canonical,a=0.1", divergence) for divergence in ("kl", "squared_l2")]
    found += [Case("paper:solver=paper", divergence) for divergence in ("kl", "l1", "l2", "huber", "mahalanobis")]
    found += [Case("surrogate:sparse=true", "squared_l2", "sparse")]
    return tuple(found)


def every() -> tuple[Case, ...]:
    """All cases, each once."""
    return tuple(dict.fromkeys((*covering(), *raising(), *picked())))
