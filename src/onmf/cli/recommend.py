"""The command ``onmf recommend``: list the items that suit users best, with the ratings to expect."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

import onmf
from onmf.cli import command
from onmf.cli.options import DATA_HELP, AsJson, Model, Module, SafeCsv
from onmf.cli.output import opened_for
from onmf.cli.terminal import console, fail, print_json
from onmf.cli.topics import is_text
from onmf.data.tables import not_computed

SIZE = 1024  # users at a time
COLUMNS = ("user", "rank", "item", "score", "rating")


@command(
    "Apply a model",
    "onmf recommend tastes.safetensors ratings.csv --user 17",
    "onmf recommend tastes.safetensors newcomers.csv -n 5 --csv > lists.csv",
    "onmf recommend tastes.safetensors ratings.csv --user 17 --user 42 --json | jq '.users[].items[].item'",
)
def recommend(
    model: Model,
    data: Annotated[str, typer.Argument(help=f"The users' ratings. {DATA_HELP}")],
    user: Annotated[
        list[str] | None, typer.Option(help="Only this user, by name or row number; repeat it for more.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--number", min=1, help="Items per user.")] = 10,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also list items that the user has rated.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table in CSV to standard output.")] = False,
    safe_csv: SafeCsv = False,
    module: Module = None,
    as_json: AsJson = False,
) -> None:
    """Rank the items that suit each user best, with the rating to expect where the model knows it.

    The model need not have seen these users. It finds items by name, skips ratings of unknown items and reports how
    many.
    """
    if as_csv and as_json:
        fail("--csv and --json both print to standard output; give one of them.")
    nmf = onmf.load(model)
    if is_text(nmf.source_) or nmf.source_.scheme in ("audio", "images"):
        fail(f"{model} was not learnt from ratings; learn a model from 'ratings.csv?user=NAME&item=NAME&value=NAME'.")
    found = _lists(nmf, data, set(user or ()), n, not include_seen)
    if as_json:
        print_json({"users": [{"user": name, "items": [each._asdict() for each in items]} for name, items in found]})
        return
    rows = ((name, rank, *each) for name, items in found for rank, each in enumerate(items, 1))
    if as_csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows([not_computed(str(cell)) if safe_csv else cell for cell in row] for row in rows)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("user", "item") else "right", overflow="fold")
    for name, rank, item, score, rating in rows:
        table.add_row(str(name), str(rank), item, f"{score:.3g}", "" if rating != rating else f"{rating:.2f}")
    console.print(table)


def _lists(nmf: Any, data: str, users: set[str], n: int, exclude_seen: bool) -> Iterator[tuple[str, Any]]:
    missing = users.copy()
    for rows, X in opened_for(nmf, data, "the model").batches(SIZE):
        names = list(map(str, rows))
        kept = [place for place, name in enumerate(names) if not users or name in users]
        missing.difference_update(names)
        if kept:
            lists = onmf.recommend(nmf, getattr(X, "matrix", X)[kept], n, exclude_seen=exclude_seen)
            yield from zip([names[place] for place in kept], lists, strict=True)
    if missing:
        fail(f"{data} has no user {min(missing)}.")
