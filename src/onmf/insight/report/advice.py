"""What to be careful about, in plain words, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onmf._support.arrays import Array
from onmf._support.wording import counted, plural
from onmf.insight.convergence import Course
from onmf.insight.report.assessment import Assessment
from onmf.insight.report.subject import Subject

EQUAL = 0.98  # the cosine from which on two components are nearly equal
UNUSED = 1e-3  # the share below which a component is not used
OTHER_UNITS = 100.0  # times larger or smaller: data in other units
FAR = 5.0  # times the median relative loss: samples that are fitted badly
MANY_FAR = 0.1  # of all samples: too many to be exceptions
FAR_SHARE = 0.25  # of the whole loss, from which on they matter
IMPRECISE = 0.01  # of the samples
FEW_SAMPLES = 50  # that tell how components share entries
NAMED = 6  # components or features that are named


@dataclass(frozen=True)
class Advice:
    """A finding and its cure. A note is no fault of the model."""

    code: str
    text: str
    cure: str
    note: bool = False


def advice(subject: Subject, found: Assessment | None = None) -> list[Advice]:
    """Return all findings about a model, and about its fit to data, the notes last."""
    said = [*_of_components(subject, found), *_of_the_run(subject)]
    if found is not None:
        said += _of_data(subject, found)
    return sorted(said, key=lambda each: each.note)


def shares_of(subject: Subject, found: Assessment | None) -> Array | None:
    """Return each component's share of all fits: of the data if there are any, else of what was learnt from."""
    return found.shares if found is not None else subject.usage


def _of_components(subject: Subject, found: Assessment | None) -> Iterator[Advice]:
    if subject.K > subject.F:
        yield Advice(
            "many",
            f"There are more components ({subject.K}) than features ({subject.F}): together they fit whatever comes.",
            "Try fewer; onmf rank finds how many.",
        )
    cosines = np.triu(subject.similarity())
    cosines[: subject.fixed, : subject.fixed] = 0  # fixed components are as they were given
    pairs = sorted(zip(*np.nonzero(cosines > EQUAL), strict=True), key=lambda pair: -cosines[pair])
    if pairs:
        named = "; ".join(f"components {i} and {j}" for i, j in pairs[:NAMED])
        more = f", and {counted(len(pairs) - NAMED, 'more pair')}" if len(pairs) > NAMED else ""
        yield Advice(
            "equal", f"{_capital(named)} are nearly equal{more}.", "Try fewer components; onmf rank finds how many."
        )
    shares = _felt(subject, found) if subject.divergence.sees_ratios else shares_of(subject, found)
    unused = [] if shares is None else np.flatnonzero(shares < UNUSED).tolist()
    if unused:
        where = "these data" if found is not None else "what was learnt from"
        yield Advice(
            "unused",
            f"{_listed(unused, 'component')} {'is' if len(unused) == 1 else 'are'} hardly used: each makes up less "
            f"than 0.1 % of the fits of {where}.",
            "Try fewer components, or look whether they stand for something rare that you expect.",
        )


def _felt(subject: Subject, found: Assessment | None) -> Array | None:
    """Return shares in which loud and quiet count alike: the mean over all entries of a component's part of the fit."""
    if found is None:
        return None
    H, W = found.H[:FEW_SAMPLES], subject.W
    Y = np.maximum(H @ W, np.finfo(np.float64).tiny)
    return np.array([(H[:, [k]] * W[k] / Y).mean() for k in range(subject.K)])


def _of_the_run(subject: Subject) -> Iterator[Advice]:
    if subject.too_long_steps:
        yield Advice("diverged", "The loss went up instead of down while learning.", subject.too_long_steps)
    elif subject.converged is False:
        yield Advice("falling", "The loss was still falling when the iterations ended.", "Raise max_iter.")
    elif subject.converged is None and (fall := Course.of(subject.history).still_falls):
        yield Advice(
            "falling",
            f"The loss was still falling at the end, by {100 * fall:.0f} % lately.",
            f"Learn for longer: more passes (max_passes={2 * max(subject.passes, 1)}, "
            f"--passes {2 * max(subject.passes, 1)}), or more data.",
        )
    if subject.skipped:
        reason = f" The last reason: {subject.reasons[-1]}" if subject.reasons else ""
        what = "1 sample or batch was" if subject.skipped == 1 else f"{subject.skipped} samples or batches were"
        yield Advice(
            "skipped",
            f"{what} left out while learning.{reason}",
            "Look at these rows; on_error='raise' stops at the first.",
        )
    if subject.changes:
        yield Advice(
            "drift",
            f"The data changed {counted(subject.changes, 'time')} while the model was learning.",
            "Shuffle them if their order means nothing (--shuffle-buffer, --reservoir), or follow the change with "
            "method='auto:forgetting=0.5'.",
        )
    if subject.unknown:
        names = [f if subject.names is None else subject.names[f] for f in subject.unknown]
        one = len(names) == 1
        yield Advice(
            "missing features",
            f"{_listed(names, 'feature')} {'was' if one else 'were'} missing in every sample, so nothing was learnt of "
            f"{'it' if one else 'them'}.",
            f"Leave {'it' if one else 'them'} out, or add samples that have {'it' if one else 'them'}.",
        )
    if subject.blank:
        yield Advice(
            "blank samples",
            f"Every entry of {counted(subject.blank, 'sample')} was missing.",
            "Such samples teach nothing; drop them.",
        )
    if subject.guarantee is not None and not subject.guarantee.startswith("Covered"):
        yield Advice(
            "no theorem",
            "No theorem promises that this run converges; that says nothing of how good the model is.",
            "If you need the promise, learn with method='paper' and l2_coefficients=1e-3.",
            note=True,
        )


def _of_data(subject: Subject, found: Assessment) -> Iterator[Advice]:
    if found.bad:
        yield Advice(
            "bad samples",
            f"{counted(found.bad, 'sample')} of {found.name} could not be used. The first reason: {found.first_bad}",
            "Mend or drop these rows; the rest of this page is about the others.",
        )
    if found.gain <= 0 and subject.K > 1:
        yield Advice(
            "poor",
            f"The model fits {found.name} no better than a single component would.",
            "Learn for longer, from more samples or from samples that are more like these.",
        )
    ratio = found.mean / subject.units.mean
    if not 1 / OTHER_UNITS < ratio < OTHER_UNITS:
        times = max(ratio, 1 / ratio) if ratio else np.inf
        larger = f"{times:,.0f} times {'larger' if ratio > 1 else 'smaller'}"
        yield Advice(
            "units",
            f"The numbers of {found.name} are on average {larger} than those that the model was begun with.",
            "They seem to be in other units: rescale them as the model's data were.",
        )
    if found.unsolved > IMPRECISE * found.samples:
        yield Advice(
            "imprecise",
            f"The coefficients of {found.unsolved} of {counted(found.samples, 'sample')} were not found precisely.",
            "Raise transform_max_iter, or transform_tol if less precision will do.",
        )
    far = found.relative > FAR * np.median(found.relative)
    share = float(found.losses[far].sum() / max(found.losses.sum(), np.finfo(float).tiny))
    if far.any() and far.mean() < MANY_FAR and share > FAR_SHARE:
        robust = subject.divergence.robust
        yield Advice(
            "outliers",
            f"{100 * far.mean():.2g} % of the samples are fitted badly and make up {100 * share:.0f} % of the loss.",
            "Look at the worst reconstructions below. "
            + ("They may need components of their own." if robust else "If they are outliers, try divergence='huber'."),
        )


def _listed(items: Sequence[object], noun: str) -> str:
    """Write ``Components 3, 7 and 9``; of many, the first."""
    names = [str(item) for item in items[:NAMED]]
    rest = len(items) - len(names)
    if rest:
        names.append(f"{rest} more")
    text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{_capital(plural(len(items), noun))} {text}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
