"""Warnings about a model and its fit, in plain words, each with its cure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from onmf._support.arrays import Array
from onmf._support.wording import counted, is_or_are, listed
from onmf.insight.convergence import LossCurve
from onmf.insight.features import similarity, source_of
from onmf.insight.report import charts
from onmf.insight.report.assessment import Assessment
from onmf.learner.learned import Learned

EQUAL = 0.98  # the cosine from which on two components are nearly equal
FEW_UPDATES = 10  # fewer in one pass left the loss 1 to 60 % above that of 20 passes: counts, spectra, texts, cells
SETTLED = 0.01  # of the loss: if the last pass took off no more, few updates were enough
PASSES = 20  # after which little was left to gain from 40 samples
PER_COMPONENT = 2  # samples: with fewer, three true components were fitted as well as noise lets any be
CUBES = ("envi", "mat")  # formats of hyperspectral scenes
UNUSED = 1e-3  # the share below which a component is not used
OTHER_UNITS = 100.0  # times larger or smaller: data in other units
FAR = 5.0  # times the median relative loss: samples that are fitted badly
MANY_FAR = 0.1  # of all samples: too many to be exceptions
FAR_SHARE = 0.25  # of the whole loss, from which on they matter
IMPRECISE = 0.01  # of the samples
LITTLE = 0.02  # of the loss of a single component: a model that saves no more has found next to nothing
FEW_SAMPLES = 50  # that tell how components share entries


@dataclass(frozen=True)
class Advice:
    """A finding and its cure. A note does not point to a fault."""

    code: str
    text: str
    cure: str
    note: bool = False


def advice(model: Any, found: Assessment | None = None) -> list[Advice]:
    """Return all findings about a model, and about its fit to data, the notes last."""
    said = [*_of_the_run(model), *_of_components(model, found)]
    if found is not None:
        said += _of_data(model, found)
    return sorted(said, key=lambda each: each.note)


def _of_components(model: Any, found: Assessment | None) -> Iterator[Advice]:
    K, F = model.components_.shape
    if K > F:
        yield Advice(
            "many",
            f"There are more components ({K}) than features ({F}): they can fit anything.",
            "Try fewer; onmf rank finds how many.",
        )
    fixed = model._fitted.state.C.fixed
    if PER_COMPONENT * (K - fixed) > (samples := int(model.history_["samples"][-1]) // max(model.n_iter_, 1)):
        yield Advice(
            "few samples",
            f"{counted(K - fixed, 'component')} for only {counted(samples, 'sample')} can fit almost anything: that "
            "the model fits these well says little.",
            "Try fewer components (onmf rank finds how many), or learn from more samples.",
        )
    cosines = similarity(model.components_)
    cosines[:fixed, :fixed] = 0  # fixed components are as they were given
    _, groups = connected_components(cosines > EQUAL, directed=False)
    if alike := [np.flatnonzero(groups == g).tolist() for g in np.flatnonzero(np.bincount(groups) > 1)]:
        others = ", and ".join(listed(each, "component") for each in alike[1:])
        first = "If more passes leave them so, try" if made_few_updates(model) else "Try"
        yield Advice(
            "equal",
            f"{listed(alike[0], 'Component')} are nearly equal{f'; so are {others}' if others else ''}.",
            f"{first} fewer components; onmf rank finds how many.",
        )
    shares = model.usage_ if found is None else found.shares
    if model.divergence_.sees_ratios:
        shares = np.ones(K) if found is None else _shares_of_ratios(found)
    if unused := np.flatnonzero(shares < UNUSED).tolist():
        where = "these data" if found is not None else "what was learnt from"
        yield Advice(
            "unused",
            f"{listed(unused, 'Component')} {is_or_are(len(unused))} hardly used: each makes up less than 0.1 % of a "
            f"sample's fit, on average over {where}.",
            "Try fewer components, unless they stand for something rare that you expect.",
        )


def _shares_of_ratios(found: Assessment) -> Array:
    """Return shares in which loud and quiet count alike: the mean over all entries of a component's part of the fit."""
    H, W = found.H[:FEW_SAMPLES], found.W
    Y = np.maximum(H @ W, np.finfo(np.float64).tiny)
    return np.array([(H[:, [k]] * W[k] / Y).mean() for k in range(len(W))])


def made_few_updates(model: Any) -> bool:
    """Tell whether a run changed W so few times that more passes would change it further."""
    fitted = model._fitted
    if not isinstance(fitted, Learned) or fitted.state.C.fixed == len(fitted.W) or fitted.state.steps >= FEW_UPDATES:
        return False
    if not fitted.pass_began:
        return True
    samples, loss = (np.asarray(model.history_[name], dtype=np.float64) for name in ("samples", "loss"))
    last = samples > fitted.pass_began
    before = ~last & (samples > 2 * fitted.pass_began - samples[-1])
    now, then = (np.average(loss[each], weights=np.diff(samples, prepend=0)[each]) for each in (last, before))
    return bool(now < (1 - SETTLED) * then)


def _of_the_run(model: Any) -> Iterator[Advice]:
    fitted = model._fitted
    if not isinstance(fitted, Learned):
        if not model.converged_:
            yield Advice("falling", "The loss was still falling when the iterations ended.", "Raise max_iter.")
        return
    if too_long := fitted.advice():
        yield Advice("diverged", "The loss went up instead of down while learning.", too_long)
    elif made_few_updates(model):
        steps = fitted.state.steps
        yield Advice(
            "few updates",
            f"The model was updated only {'once' if steps == 1 else f'{steps} times'}, too little to judge.",
            f"Make more passes: --passes {PASSES} (max_passes={PASSES}); or learn from more samples.",
        )
    elif fall := LossCurve.of(model.history_).still_falls(fitted.pass_began if fitted.passes > 1 else 0):
        passes = 2 * max(fitted.passes, 1)
        yield Advice(
            "falling",
            f"The loss was still falling at the end, by {100 * fall:.0f} % over the last part of the run.",
            f"More passes (max_passes={passes}, --passes {passes}) or more data fit better"
            + (", but do not always find truer spectra." if source_of(model).scheme in CUBES else "."),
        )
    if skipped := fitted.skipped.count:
        what = "1 sample or batch was" if skipped == 1 else f"{skipped} samples or batches were"
        yield Advice(
            "skipped",
            f"{what} left out while learning. The last reason: {fitted.skipped.reasons[-1]}",
            "Look at these rows; on_error='raise' stops at the first.",
        )
    if fitted.drift.changes:
        yield Advice(
            "drift",
            f"The data changed {counted(fitted.drift.changes, 'time')} while the model was learning.",
            "Shuffle them if their order means nothing (--shuffle-buffer, --reservoir), or follow the change with "
            "method='auto:forgetting=0.5'.",
        )
    if fitted.coverage is not None:
        for code, text in fitted.coverage.findings(fitted.features.names).items():
            yield Advice(code, text, "Leave them out, or add samples that have what is missing.")
    verdict, _, reason = model.guarantee_.partition(": ")
    if not verdict.startswith("Covered"):
        yield Advice(
            "no theorem",
            "No theorem guarantees that this run converges, which says nothing about the quality of the model.",
            reason[0].upper() + reason[1:],
            note=True,
        )


def _of_data(model: Any, found: Assessment) -> Iterator[Advice]:
    if found.bad:
        yield Advice(
            "bad samples",
            f"{counted(found.bad, 'sample')} of {found.name} could not be used. The first reason: {found.first_bad}",
            "Mend or drop these rows; the rest of this page is about the others.",
        )
    if found.gain < LITTLE and len(found.W) > 1:
        better = f"hardly better than a single component, by {100 * found.gain:.1f} % of the loss."
        yield Advice(
            "poor",
            f"The model fits {found.name} {better if found.gain > 0 else 'no better than a single component would.'}",
            "Learn for longer, from more samples or from samples that are more like these.",
        )
    ratio = found.mean / model._fitted.units.mean
    if not 1 / OTHER_UNITS < ratio < OTHER_UNITS:
        times = max(ratio, 1 / ratio) if ratio else np.inf
        larger = f"{times:,.0f} times {'larger' if ratio > 1 else 'smaller'}"
        yield Advice(
            "units",
            f"The numbers of {found.name} are on average {larger} than those the model started with.",
            "They seem to be in other units: scale them like the data that the model learnt from.",
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
        yield Advice(
            "outliers",
            f"{100 * far.mean():.2g} % of the samples are fitted badly and make up {100 * share:.0f} % of the loss.",
            "Look at the worst reconstructions below. "
            + (
                "They may need components of their own."
                if model.divergence_.robust
                else "If they are outliers, try divergence='huber'."
            ),
        )
    if law := charts.law_missed(found):
        yield Advice("noise", *law, note=True)
