"""The page of a report, rendered from templates and written as one file that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onmf._support.arrays import Array
from onmf._support.atomic import replacing
from onmf._support.version import __version__
from onmf.data import Source
from onmf.insight.report import charts
from onmf.insight.report.advice import Advice, advice, shares_of
from onmf.insight.report.assessment import Assessment, Example, assess
from onmf.insight.report.subject import Subject
from onmf.insight.report.views import Terms, View

SHOWN = {"bars": 12, "lines": 12, "pictures": 32}  # components that are shown at once; the others on demand
PARTS, SLIGHT = 3, 0.01  # components that are named under a sample, if they make up that much of its fit


@dataclass(frozen=True)
class Component:
    """A component as the page shows it."""

    number: int
    share: float | None
    fixed: bool
    view: View
    words: str
    like: int | None  # the most similar other one
    cosine: float


@dataclass(frozen=True)
class Shown:
    """A sample, its fit and its largest components."""

    name: str
    times: float  # its loss, for its size, in units of that of a typical sample
    view: View
    parts: str


@dataclass(frozen=True)
class Report:
    """The contents of the page, for programs too."""

    subject: Subject
    found: Assessment | None
    advice: list[Advice]


def require_libraries() -> None:
    """Raise an error, before any work is done, if the libraries of a report are not installed."""
    try:
        import jinja2  # noqa: F401
        import plotly  # noqa: F401
    except ImportError:
        raise ModuleNotFoundError("a report needs Jinja2 and Plotly; install onmf[report].") from None


def write(
    subject: Subject,
    path: str | Path,
    title: str,
    data: tuple[Source, str] | None = None,
    show: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Write the page; ``data`` are a source and its name, and ``show`` is told how far it was read."""
    require_libraries()
    found = None if data is None else assess(subject, *data, show)
    report = Report(subject, found, advice(subject, found))
    with replacing(Path(path)) as place:
        place.write_text(rendered(report, title), encoding="utf-8")
    return report


def rendered(report: Report, title: str) -> str:
    """Return the page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    subject, found = report.subject, report.found
    terms, shares = Terms(subject), shares_of(subject, found)
    order = np.argsort(-shares, kind="stable") if shares is not None else np.arange(subject.K)
    drawn = [charts.convergence(subject)]
    if found is not None:
        drawn += [charts.activations(subject, found, order.tolist()), charts.losses(found)]
        if (residuals := charts.residuals(subject, found)) is not None:
            drawn.append(residuals)
    environment = Environment(
        loader=PackageLoader("onmf.insight.report"),
        autoescape=True,  # names of features and files may hold anything
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": _percent, "number": _number}
    return environment.get_template("report.html.j2").render(
        title=title,
        made=time.strftime("%Y-%m-%d %H:%M"),
        version=__version__,
        facts=facts(subject),
        promise=promise(subject.guarantee),
        guarantee=subject.guarantee,
        found=found,
        components=(components := _components(subject, terms, shares, order.tolist())),
        first=components[: SHOWN[terms.kind]],
        others=components[SHOWN[terms.kind] :],
        kind=terms.kind,
        sound=terms.sound,
        best=[] if found is None else _shown(subject, terms, found, found.best),
        worst=[] if found is None else _shown(subject, terms, found, found.worst),
        charts={chart.name: chart for chart in drawn},
        figures={chart.name: {"data": chart.data, "layout": chart.layout} for chart in drawn},
        warnings=[each for each in report.advice if not each.note],
        notes=[each for each in report.advice if each.note],
        plotly=get_plotlyjs(),
    )


def facts(subject: Subject) -> dict[str, str]:
    """Return what was run, by name."""
    history = subject.history
    source = "arrays in memory" if subject.source.scheme is None else str(subject.source)
    said = {
        "learnt from": source,
        "samples seen": f"{int(history['samples'][-1]):,}",
        "features": f"{subject.F:,}",
        "components": f"{subject.K}" + (f", {subject.fixed} of them fixed" if subject.fixed else ""),
        "divergence": subject.divergence_text,
        "method": subject.method,
        "passes" if subject.converged is None else "iterations": f"{subject.passes}",
        "seconds": f"{float(history['seconds'][-1]):.3g}",
        "estimator": subject.estimator,
    }
    settings = ", ".join(f"{name}={value}" for name, value in subject.settings.items())
    return said | {"other settings": settings or "defaults"}


def promise(guarantee: str | None) -> str:
    """Return the guarantee in plain words."""
    if guarantee is None:
        return (
            "The loss cannot rise from one iteration to the next. That it ends at the best of all models is not "
            "promised: another random start may end elsewhere."
        )
    if guarantee.startswith("Covered"):
        return (
            "A theorem covers this run: with ever more samples of the same kind, the components settle where no small "
            "change of them would fit the data better."
        )
    if guarantee.startswith("Not covered"):
        return "No theorem covers this run yet, but one could: it takes a few settings more."
    return "No theorem covers this run. That is no verdict on the model: judge it by its loss and by its components."


def _components(subject: Subject, terms: Terms, shares: Array | None, order: Sequence[int]) -> list[Component]:
    cosines = subject.similarity()
    return [
        Component(
            number=k,
            share=None if shares is None else float(shares[k]),
            fixed=k < subject.fixed,
            view=terms.view(subject.W[k], f"component {k}"),
            words=terms.words(subject.W[k]),
            like=int(cosines[k].argmax()) if subject.K > 1 else None,
            cosine=float(cosines[k].max()) if subject.K > 1 else 0.0,
        )
        for k in order
    ]


def _shown(subject: Subject, terms: Terms, found: Assessment, examples: Sequence[Example]) -> list[Shown]:
    typical = float(np.median(found.relative)) or 1.0
    shown = []
    for each in examples:
        x = each.x if each.known is None else np.where(each.known, each.x, np.nan)
        row = np.where(np.isnan(x), -1.0, x) if terms.kind == "bars" else x  # what is missing leads nothing
        parts = each.h * subject.mass
        shares = parts / (float(parts.sum()) or 1.0)
        largest = [k for k in np.argsort(-parts, kind="stable")[:PARTS] if shares[k] > SLIGHT]
        made = ", ".join(f"component {k} ({_percent(shares[k])})" for k in largest)
        shown.append(Shown(each.name, each.relative / typical, terms.view(row, each.name, each.fit), made))
    return shown


def _percent(share: Any) -> str:
    """Write ``12 %``, ``0.3 %``, ``< 0.1 %``, ``> 99 %``."""
    percent = 100 * float(share)
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.5 <= percent < 100:
        return "> 99 %"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.1f} %"


def _number(value: Any, digits: int = 3) -> str:
    """Write ``0.0123``, ``12.3``, ``1,234``: all digits before the point, unless they are very many."""
    value = float(value)
    return f"{value:,.0f}" if 10**digits <= abs(value) < 1e7 else f"{value:.{digits}g}"
