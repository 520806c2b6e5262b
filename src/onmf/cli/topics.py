"""The command ``onmf topics``: list the leading words, or other features, of the components of a model."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

import onmf
from onmf._support.wording import counted
from onmf.cli import command
from onmf.cli.options import DATA_HELP, AsJson, Model, Module
from onmf.cli.output import opened_for
from onmf.cli.progress import done_so_far, watched
from onmf.cli.terminal import console, errors, fail, print_json
from onmf.data import Spec

if TYPE_CHECKING:
    from onmf.estimators.streaming import Measured

Leading = list[list[tuple[str, float]]]  # of each component: features and their values

VALUES = {"weight": "% of the topic", "lift": "times their share in all"}  # others go by their names
FORMATS = {"relevance": "{:.2g}", "weight": "{:.2%}", "lift": "{:.1f}", "specificity": "{:.2g}"}
BEGINNING = 100  # characters of a document
SHOWN_AFTER_FIT = 10  # topics
NARROWEST = 10  # column of words
NOTICED = 1000  # a feature whose value is smaller by this factor than the leading one is not listed
GLUE = "\N{NO-BREAK SPACE}"  # keeps a feature and its value on one line


@command(
    "Look at a model",
    "onmf topics news.safetensors",
    "onmf topics news.safetensors news.jsonl --top 8 --by lift",
    "onmf topics cells.safetensors --by specificity --json | jq '.topics[0].features'",
)
def topics(
    model: Model,
    data: Annotated[
        str | None,
        typer.Argument(
            help=f"Measure shares, and coherence for counts, on these. {DATA_HELP}",
            show_default=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Features per topic.")] = 10,
    by: Annotated[
        Literal["relevance", "weight", "lift", "specificity"] | None,
        typer.Option(
            metavar="ORDER",
            help="weight is the share of the topic; lift is that share relative to all topics; relevance is a blend of "
            "both; specificity is how much larger it is than in the next topic. Default: lift for texts with their "
            "stop words, specificity for genes, else relevance.",
            show_default=False,
        ),
    ] = None,
    documents: Annotated[
        int, typer.Option(min=0, help="Show this many samples of DATA per topic, those where its share is largest.")
    ] = 0,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """List the leading words, or other features, of every component; the largest components come first.

    Topic 3 is the column component_3 that `onmf transform` writes.
    """
    from onmf.insight.features import source_of  # not needed for --help, and slow to import
    from onmf.topics import suited_ranking

    if data is None and documents:
        fail("--documents shows samples; give DATA, too.")
    nmf = onmf.load(model)
    order_by = by or suited_ranking(source_of(nmf))
    leading = nmf.top_features(top, order_by)
    source = None if data is None else opened_for(nmf, data, "the model")
    if documents and source is not None and not source.rewinds:
        fail(f"{data} can be read only once, and --documents reads it again; write it to a file first.")
    found = None if source is None else _measured(nmf, source, top, order_by)
    shown = _shown(nmf, source, documents) if documents else []
    shares = nmf.usage_ if found is None else found.usage
    coherence = None if found is None else found.coherence
    order = np.argsort(-shares, kind="stable").tolist()
    if as_json:
        topics_found = [_as_json(k, leading[k], shares[k], None if coherence is None else coherence[k]) for k in order]
        for topic, k in zip(topics_found, order if shown else [], strict=False):
            topic["documents"] = shown[k]
        mean = {} if coherence is None else {"coherence": coherence.mean()}
        print_json({"by": order_by, **mean, "topics": topics_found})
        return
    words = is_text(nmf.source_)
    console.print(_table(leading, shares, coherence, order, order_by, words))
    if coherence is not None and found is not None:
        number = counted(found.samples, "text" if words else "sample")
        console.print(f"Coherence is the mean NPMI of pairs over {number}: {coherence.mean():.2f} on average.")
    for k in order if shown else []:
        for each in shown[k]:
            console.print(f"topic {k}, {each['share']:.0%} of row {each['row']}: {each['text']}", soft_wrap=True)
    if cure := _nameless(nmf) or (_everywhere(leading) if words and order_by in ("weight", "relevance") else None):
        errors.print(f"onmf: {cure}")


def is_text(spec: Spec | None) -> bool:
    """Return whether the features are words."""
    return spec is not None and "ngrams" in spec.options


def leading_lines(nmf: onmf.OnlineNMF, model: Path) -> list[str]:
    """Return a few lines about the topics of a model that was just learnt from texts; none, if it has no words."""
    if not is_text(nmf.source_) or not hasattr(nmf, "feature_names_in_"):
        return []
    order, leading = np.argsort(-nmf.usage_, kind="stable").tolist(), nmf.top_features(8)
    lines = [
        f"topic {k} ({nmf.usage_[k]:.0%}): {' '.join(word for word, _ in leading[k])}" for k in order[:SHOWN_AFTER_FIT]
    ]
    rest = "more of them" if len(order) <= SHOWN_AFTER_FIT else f"all {len(order)}"
    return [*lines, f"onmf topics {model} shows {rest}, with their values."]


def _shown(nmf: onmf.OnlineNMF, source: Any, n: int) -> list[list[dict[str, Any]]]:
    """Return the samples that show each topic best, with the beginnings of texts."""
    found = nmf.representative_samples(source, n)
    rows = {row for best in found for row, _ in best}
    texts = source.beginnings(rows, BEGINNING) if hasattr(source, "beginnings") else {}
    return [[{"row": row, "share": share, "text": texts.get(row, "")} for row, share in best] for best in found]


def _measured(nmf: onmf.OnlineNMF, source: Any, top: int, by: str) -> Measured:
    from onmf.estimators.streaming import measured
    from onmf.topics import leading, ranked

    started = time.perf_counter()
    with watched("30s", None, None) as show:

        def report(samples: int) -> None:
            show(done_so_far(samples, source.n_samples, started))

        return measured(nmf, source, leading(ranked(nmf.components_, nmf.usage_, by), top), report)


def _table(leading: Leading, shares: Any, coherence: Any, order: list[int], by: str, words: bool) -> Table:
    """Return one row per topic; the words are wrapped here, so that none is parted from its value."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    heads = ["topic", "share", *(["coherence"] if coherence is not None else [])]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    values = VALUES.get(by, by) if words else VALUES.get(by, by).replace("topic", "component")
    table.add_column(f"{'words' if words else 'features'} ({values})", overflow="fold")
    width = max(NARROWEST, console.width - sum(len(head) + 3 for head in heads))  # padded by 2, and a line of the box
    for k in order:
        felt = [(name, value) for name, value in leading[k] if value > leading[k][0][1] / NOTICED]
        parts = (f"{name} {FORMATS[by].format(value).removesuffix('%')}" for name, value in felt)
        listed = textwrap.fill(", ".join(part.replace(" ", GLUE) for part in parts), width).replace(GLUE, " ")
        measured = [] if coherence is None else ["" if np.isnan(coherence[k]) else f"{coherence[k]:.2f}"]
        table.add_row(str(k), f"{shares[k]:.1%}", *measured, listed)
    return table


def _nameless(nmf: onmf.OnlineNMF) -> str | None:
    """Return why features have no names, and how to get some."""
    if hasattr(nmf, "feature_names_in_"):
        return None
    if is_text(nmf.source_):
        return (
            "the words of this model were hashed, so that it does not know them; learn it again from a file without "
            "hashed=, which keeps them."
        )
    return (
        "the features of this model have no names; learn it from data that have some, such as a table with a header, "
        "a data frame or an .h5ad file."
    )


def _everywhere(leading: Leading) -> str | None:
    """Return the cure for words that lead most topics, and therefore describe none."""
    heavy = ([name for name, value in features[:5] if value > features[0][1] / 10] for features in leading)
    topics_of = Counter(name for names in heavy for name in names)
    common = [name for name, number in topics_of.most_common(5) if number > max(2, 2 / 3 * len(leading))]
    if not common:
        return None
    named = ", ".join(repr(name) for name in common)
    return (
        f"most topics have {named} among their leading words; --by lift looks past such words, and stop=english or "
        "max_df=0.5 after the data's question mark leaves them out when a model is learnt."
    )


def _as_json(k: int, leading: list[tuple[str, float]], share: float, coherence: float | None) -> dict[str, Any]:
    measured = {} if coherence is None else {"coherence": coherence}
    features = [{"name": name, "value": value} for name, value in leading]
    return {"topic": k, "share": share, **measured, "features": features}
