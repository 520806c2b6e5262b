"""``onmf fit --from``: the settings of a model that goes on, and those that the command line may change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

import onmf
from onmf import data as streams
from onmf.cli.terminal import fail

OPTIONS = {"n_components": "components", "max_passes": "passes", "random_state": "seed"}  # where names differ


def going_on(
    context: typer.Context, known: onmf.OnlineNMF, settings: Mapping[str, Any], source: streams.Source
) -> onmf.OnlineNMF:
    """The model, with those settings that were given on the command line; ``fit`` refuses what it cannot change."""

    def given(name: str) -> bool:
        where = context.get_parameter_source(OPTIONS.get(name, name))
        return where is not None and where.name == "COMMANDLINE"

    if given("init"):
        fail("--init begins a dictionary, and the model of --from has one; leave out one of them.")
    once = {} if source.rewinds else {"max_passes": 1}  # whatever the data were that the model was begun with
    return known.set_params(**once | {name: value for name, value in settings.items() if given(name)})
