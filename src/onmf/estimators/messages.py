"""Messages to the user: warnings about data and coefficients, and the lines of progress that ``verbose`` asks for."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from onmf._support.wording import is_or_are, plural
from onmf.divergences import Divergence
from onmf.learner import Progress
from onmf.model.penalty import NO_PENALTIES
from onmf.model.units import FLOOR, DomainWarning

EVERY = 1.0  # seconds between two lines of progress, at least

NOTHING_IMPLICIT = (
    'implicit="missing" is about entries that a sparse matrix does not store, but X is dense, so that none is missing; '
    'set missing="nan" and write NaN where a value is missing, or pass a sparse matrix'
)


NOTHING_IN_THEM = "have no entry above zero, so that their proportions are NaN; texts: no word that the model knows"


class UnsolvedWarning(ConvergenceWarning):
    """Coefficients of ``unsolved`` samples are not precise."""

    def __init__(self, message: str, unsolved: int) -> None:
        super().__init__(message)
        self.unsolved = unsolved


def warn_of_too_many(K: int, F: int, settings: Mapping[str, Any]) -> None:
    """Warn of more components than features, unless a penalty or a bound keeps them small, or some are given."""
    bound = settings.get("coefficients", "nonnegative") != "nonnegative" or settings.get("fixed") is not None
    if K > F and not bound and not any(settings.get(penalty) for penalty in vars(NO_PENALTIES)):
        warnings.warn(
            f"Rank {K} is more than the data have features ({F}), and one component for each fits anything; try "
            f"ranks up to {F} (n_components).",
            UserWarning,
            stacklevel=4,
        )


def warn_raised(divergence: Divergence, count: int, entries: int) -> None:
    """Warn, once per fit, that entries were raised into the domain; the counts are those of all batches, once each.

    ``entries`` are all of the data, or 0 where some are missing.
    """
    share = count / entries if entries else 0.0
    of_all = (f" ({100 * share:.3g} %)" if share >= 0.001 else " (< 0.1 %)") if entries else ""
    warnings.warn(
        f"{count} {'entry' if count == 1 else 'entries'}{of_all} {is_or_are(count)} zero or nearly zero, where "
        f"{divergence.name!r} is not defined, and {is_or_are(count)} raised to {FLOOR:g} of the mean of the sample, "
        "or of the data if that is larger. This warning is shown once per fit.",
        DomainWarning,
        stacklevel=5,
    )


def warn_not_whole() -> None:
    """Warn that a model of counts is given what cannot be counts."""
    warnings.warn(
        "The model was learnt from whole numbers, such as counts, but most entries here are not whole: perhaps they "
        "are logarithms, or normalised. Give it the counts, as in layer='counts' or x.h5ad?layer=counts.",
        UserWarning,
        stacklevel=5,
    )


def warn_unsolved(unsolved: int, n: int, tol: float, max_iter: int) -> None:
    """Warn how many samples have coefficients that are not precise."""
    said = (
        f"The coefficients of {unsolved} of {n} samples did not reach transform_tol={tol:g}; raise transform_max_iter "
        f"({max_iter}) or transform_tol."
    )
    warnings.warn(UnsolvedWarning(said, unsolved), stacklevel=5)


def printer(verbose: int) -> Callable[[Progress], None]:
    """Return a callback that prints progress: at most once a second with ``verbose=1``, else after every batch."""
    last = -EVERY

    def show(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        ended = progress.samples == progress.total
        if verbose == 1 and now - last < EVERY and not ended:
            return
        last = now
        of = f" of {progress.total:,}" if progress.total else ""
        rate = progress.samples / max(progress.seconds, 1e-9)
        samples = f"{progress.samples:,}{of} {plural(progress.total or progress.samples, 'sample')}"
        print(f"[onmf] {samples}, {rate:,.0f} per second, loss {progress.loss:.5g}", flush=True)

    return show
