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
from onmf.insight.features import changed_settings, divergence_text, method_text, similarity, source_of
from onmf.insight.report import charts
from onmf.insight.report.advice import Advice, advice
from onmf.insight.report.assessment import Assessment, Example, assess
from onmf.insight.report.views import Terms
from onmf.topics import ranked

SHOWN = {"bars": 12, "lines": 12, "pictures": 32}  # components that are shown at once; the others on demand
PARTS, SLIGHT = 3, 0.01  # components that are named under a sample, if they make up that much of its fit


@dataclass(frozen=True)
class Report:
    """The contents of the page, for programs too."""

    model: Any
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
    model: Any,
    path: str | Path,
    title: str,
    data: tuple[Source, str] | None = None,
    show: Callable[[int, int | None], None] | None = None,
) -> Report:
    """Write the page; ``data`` are a source and its name, and ``show`` is called with how far it was read."""
    require_libraries()
    found = None if data is None else assess(model, *data, show)
    report = Report(model, found, advice(model, found))
    with replacing(Path(path)) as place:
        place.write_text(rendered(report, title), encoding="utf-8")
    return report


def rendered(report: Report, title: str) -> str:
    """Return the page as text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    model, found, terms = report.model, report.found, Terms(report.model)
    shares = model.usage_ if found is None else found.shares
    order = np.argsort(-shares, kind="stable").tolist()
    drawn = [charts.convergence(model)]
    if found is not None:
        drawn += [charts.activations(found, order), charts.losses(found)]
        if (residuals := charts.residuals(found)) is not None:
            drawn.append(residuals)
    guarantee = getattr(model, "guarantee_", None)
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
        facts=facts(model),
        promise=promise(guarantee),
        guarantee=guarantee,
        found=found,
        components=(components := _components(model, terms, shares, order)),
        first=components[: SHOWN[terms.kind]],
        others=components[SHOWN[terms.kind] :],
        kind=terms.kind,
        sound=terms.sound,
        ranking=terms.ranking,
        best=[] if found is None else _samples(terms, found, found.best),
        worst=[] if found is None else _samples(terms, found, found.worst),
        charts={chart.name: chart for chart in drawn},
        figures={chart.name: {"data": chart.data, "layout": chart.layout} for chart in drawn},
        warnings=[each for each in report.advice if not each.note],
        remarks=[each for each in report.advice if each.note and each.code == "noise"],
        notes=[each for each in report.advice if each.note and each.code != "noise"],
        plotly=get_plotlyjs(),
    )


def facts(model: Any) -> dict[str, str]:
    """Return the facts of the run, by name."""
    history, fixed, online = model.history_, model._fitted.state.C.fixed, hasattr(model, "method_")
    settings = [
        f"{name}={f'matrix {np.shape(value)}' if np.ndim(value) > 1 else value}"
        for name, value in changed_settings(model).items()
    ]
    return {
        "learnt from": "arrays in memory" if source_of(model).scheme is None else str(source_of(model)),
        "samples seen in all passes": f"{int(history['samples'][-1]):,}",
        "features": f"{model.n_features_in_:,}",
        "components": f"{model.n_components_}" + (f", {fixed} of them fixed" if fixed else ""),
        "divergence": divergence_text(model),
        "method": method_text(model.method, model.method_) if online else "multiplicative updates",
        "passes" if online else "iterations": f"{model.n_iter_}",
        "seconds": f"{float(history['seconds'][-1]):.3g}",
        "estimator": type(model).__name__,
        "other settings": ", ".join(settings) or "defaults",
    }


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
        return "No theorem covers this run yet: the guarantee in full says what is missing."
    return "No theorem covers this run. That is no verdict on the model: judge it by its loss and by its components."


def _components(model: Any, terms: Terms, shares: Array, order: Sequence[int]) -> list[dict[str, Any]]:
    """Return the components as the page shows them, each with the most similar other one."""
    W, cosines, several = model.components_, similarity(model.components_), len(order) > 1
    shown = ranked(W, model.usage_, terms.ranking) if terms.kind == "bars" else W
    return [
        {
            "number": k,
            "share": float(shares[k]),
            "fixed": k < model._fitted.state.C.fixed,
            "view": terms.view(shown[k], f"component {k}"),
            "words": terms.words(shown[k]),
            "like": int(cosines[k].argmax()) if several else None,
            "cosine": float(cosines[k].max()) if several else 0.0,
        }
        for k in order
    ]


def _samples(terms: Terms, found: Assessment, examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Return samples as the page shows them, each with its fit, its largest components and its relative loss."""
    typical = float(np.median(found.relative)) or 1.0
    mass = found.W.sum(axis=1, dtype=np.float64)
    shown = []
    for each in examples:
        # An entry that is missing is no leading feature.
        row = np.where(np.isnan(each.x), -1.0, each.x) if terms.kind == "bars" else each.x
        parts = each.h * mass
        shares = parts / (float(parts.sum()) or 1.0)
        largest = [k for k in np.argsort(-parts, kind="stable")[:PARTS] if shares[k] > SLIGHT]
        made = ", ".join(f"component {k} ({_percent(shares[k])})" for k in largest)
        view = terms.view(row, each.name, each.fit)
        shown.append({"name": each.name, "times": each.relative / typical, "view": view, "parts": made})
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
    """Write ``0.0123``, ``12.3``, ``1,234``: all digits before the point, unless there are very many."""
    value = float(value)
    return f"{value:,.0f}" if 10**digits <= abs(value) < 1e7 else f"{value:.{digits}g}"
