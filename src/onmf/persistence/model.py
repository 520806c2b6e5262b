"""A fitted model as arrays and facts, and back: settings and ``Learned``, each part checked by its own class."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onmf import divergences, methods
from onmf.divergences import Divergence
from onmf.initial import INITS
from onmf.learner import Features, History, Learned, Position, Recipe, Skipped, continued
from onmf.methods import Choice, Method, State
from onmf.methods.reservoir import Reservoir
from onmf.persistence import file
from onmf.persistence.file import ModelFileError
from onmf.sets import Sets
from onmf.units import Units

NOT_STORED = ("callbacks", "divergence", "init", "method", "random_state", "sets", "verbose")


def contents(settings: Mapping[str, Any], learned: Learned) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the facts that are the model; ``settings`` are the parameters of its estimator."""
    divergence, state = learned.divergence, learned.state
    parameters = divergence.parameters()
    init, seed, position = settings["init"], settings["random_state"], learned.position
    arrays = {f"divergence.{key}": value for key, value in parameters.items() if isinstance(value, np.ndarray)}
    arrays |= {f"history.{key}": value for key, value in learned.history.columns().items()}
    arrays |= {f"memory.{key}": value for key, value in state.memory.items()}
    arrays["components"] = state.W
    if not isinstance(init, str):
        arrays["init"] = np.asarray(init, dtype=np.float64)
    facts = {
        "settings": {key: _plain(value) for key, value in settings.items() if key not in NOT_STORED}
        | {
            "init": init if isinstance(init, str) else None,
            "random_state": int(seed) if isinstance(seed, (int, np.integer)) else None,
            "method": _method_facts(methods.get(settings["method"])),
            "sets": dataclasses.asdict(settings["sets"]),
        },
        "divergence": {
            "name": None if _own(divergence) else divergence.name,
            "class": type(divergence).__name__,
            "given": {} if _own(divergence) else _given(settings["divergence"]),
            "parameters": _scalars(parameters),
        },
        "method": _method_facts(learned.method),
        "units": {"scale": learned.units.scale, "mean": learned.units.mean},
        "state": {"samples": state.samples, "clock": state.clock, "steps": state.steps},
        "loss_to_beat": _plain(learned.loss_to_beat),
        "raised": learned.raised,
        "skipped": [learned.skipped.count, learned.skipped.reasons],
        "position": None if position is None else dataclasses.asdict(position),
        "feature_names": learned.features.names,
    }
    return arrays, facts


def read(path: str | Path, own: Divergence | None = None) -> tuple[dict[str, Any], Learned]:
    """The settings and what was learnt, from a file. Everything read is checked; nothing is executed.

    A model that was learnt with a divergence of the user's own needs it again.
    """
    arrays, facts = file.read(path)
    kept = facts.get("divergence")
    name, kind = (kept.get("name", ""), kept.get("class")) if isinstance(kept, dict) else ("", None)
    if isinstance(name, str) and name and name not in divergences.names():
        raise ModelFileError(
            f"{path} was learnt with the divergence {name!r}, unknown here; import the module that defines it first."
        )
    if name is None and (own is None or type(own).__name__ != kind):
        given = "" if own is None else f", not with {type(own).__name__}"
        raise ModelFileError(
            f"{path} was learnt with a divergence of your own, {kind}{given}; give it: load(path, divergence={kind}())."
        )
    try:
        return _restored(arrays, facts, own if name is None else None)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{path} is damaged or not a model of this onmf: {str(error).rstrip('.')}.") from None


def named(path: str | Path) -> bool:
    """Was the model learnt with a divergence that is found by its name?"""
    _, facts = file.read(path)
    kept = facts.get("divergence")
    return isinstance(kept, dict) and kept.get("name") is not None


def _restored(
    arrays: Mapping[str, Any], facts: Mapping[str, Any], own: Divergence | None
) -> tuple[dict[str, Any], Learned]:
    given, divergence = (own, own) if own is not None else _divergences(arrays, facts["divergence"])
    if own is not None and _scalars(own.parameters()) != facts["divergence"]["parameters"]:
        raise ValueError(
            f"it was learnt with the parameters {facts['divergence']['parameters']}, not {own.parameters()}"
        )
    settings = _settings(arrays, facts["settings"]) | {"divergence": given, "callbacks": None, "verbose": 0}
    W, units = arrays["components"], facts["units"]
    if W.ndim != 2 or 0 in W.shape or W.dtype not in (np.float32, np.float64):
        raise ValueError(f"the dictionary has shape {W.shape} and type {W.dtype}")
    recipe = Recipe.of(settings)
    units = Units(float(units["scale"]), float(units["mean"]), recipe.clip)
    names, (skipped, reasons) = facts["feature_names"], facts["skipped"]
    learned = Learned(
        state=_state(arrays, facts["state"], recipe),
        divergence=divergence.for_data(units.mean, W.shape[1]),
        units=units,
        method=_method(facts["method"], Method),
        features=Features(W.shape[1], None if names is None else tuple(str(name) for name in names)),
        history=History.of_columns({key: arrays[f"history.{key}"] for key in ("samples", "seconds", "loss")}),
        raised=bool(facts["raised"]),
        loss_to_beat=float(_number(facts["loss_to_beat"])),
        position=None if facts["position"] is None else Position(**facts["position"]),
        skipped=Skipped(skipped, tuple(str(reason) for reason in reasons)),
    )
    if not learned.loss_to_beat >= 0:
        raise ValueError(f"its first loss is {learned.loss_to_beat!r}")
    if learned.position is not None:
        learned.position.shuffling()  # refuses what is not the state of a generator
    learned = continued(recipe, learned)  # refuses settings that do not fit what was learnt
    _require_statistics(learned, recipe)
    return settings, learned


def _settings(arrays: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    settings = {key: _number(value) for key, value in facts.items()}
    if settings["init"] is None:
        settings["init"] = arrays["init"]
    elif settings["init"] not in INITS:
        raise ValueError(f"its initial dictionary is {settings['init']!r}")
    if isinstance(settings["clip"], list):
        settings["clip"] = tuple(_number(bound) for bound in settings["clip"])
    settings["method"] = _method(facts["method"], Choice)
    settings["sets"] = Sets(**facts["sets"])
    return settings


def _state(arrays: Mapping[str, Any], facts: Mapping[str, Any], recipe: Recipe) -> State:
    C, W = recipe.sets.dictionaries, arrays["components"]
    if not C.contains(W):
        raise ValueError("the dictionary does not lie in the set C of its settings")
    memory = {key.removeprefix("memory."): value for key, value in arrays.items() if key.startswith("memory.")}
    state = State(W, C, facts["samples"], facts["clock"], facts["steps"], memory)
    state.require_counts()
    return state


def _require_statistics(learned: Learned, recipe: Recipe) -> None:
    """Refuse statistics that are not such as the method keeps."""
    method, state = learned.method, learned.state
    start = method.start(learned.inside, state.W, state.C)
    if not np.allclose(start.W, state.W, rtol=1e-4, atol=1e-7):  # a start in the method's own set stays where it is
        raise ValueError(f"the dictionary does not lie in the set of the method {method.name}")
    expected = start.memory | (Reservoir(recipe.reservoir).start(state.W) if recipe.reservoir else {})
    shapes = ({key: (a.shape, a.dtype) for key, a in memory.items()} for memory in (state.memory, expected))
    if next(shapes) != next(shapes):
        raise ValueError("its statistics do not fit its method")
    if not all(np.isfinite(array).all() for array in state.memory.values()):
        raise ValueError("its statistics are not finite")
    if any((state.memory[name] < 0).any() for name in (*method.nonnegative, "kept") if name in state.memory):
        raise ValueError("its statistics have negative entries")
    if "kept_of" in state.memory and not 0 <= state.memory["kept_of"][0] <= learned.history.samples:
        raise ValueError("its reservoir does not fit its samples")


def _method_facts(method: Choice) -> dict[str, Any]:
    constants = {key: _plain(value) for key, value in method.constants().items()}
    return {"name": method.name, "constants": constants}


def _method(facts: Mapping[str, Any], kind: type) -> Any:
    constants = {key: _number(value) for key, value in facts["constants"].items()}
    method = methods.find(facts["name"]).make(constants)
    if not isinstance(method, kind):
        raise ValueError(f"it was learnt by {method.name!r}, which does not learn")
    return method


def _divergences(arrays: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[Any, Divergence]:
    """What the user had asked for, in his words or as an object, and what it has become."""
    parameters = dict(kept["parameters"])
    parameters |= {k.removeprefix("divergence."): v for k, v in arrays.items() if k.startswith("divergence.")}
    divergence = divergences.restore(kept["name"], parameters)
    matrices = {key: value for key, value in parameters.items() if isinstance(value, np.ndarray)}
    if isinstance(kept["given"], str) and not matrices:
        given = divergences.get(kept["given"])  # reads no file: only divergences with matrices do
    else:
        given = divergences.restore(kept["name"], kept["given"] | matrices)
    if given.name != divergence.name:
        raise ValueError(f"it was asked for {given.name} and computes {divergence.name}")
    return kept["given"] if isinstance(kept["given"], str) else given, divergence


def _own(divergence: Divergence) -> bool:
    """Is it a class that its name does not lead to?"""
    return not divergence.name or divergences.find(divergence.name) is not type(divergence)


def _given(divergence: Divergence | str) -> str | dict[str, Any]:
    """The user's own words, unless they name a file, which may be gone when the model is read."""
    meant = divergences.get(divergence)
    plain = _scalars(meant.parameters())
    return divergence if isinstance(divergence, str) and len(plain) == len(meant.parameters()) else plain


def _scalars(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in parameters.items() if not isinstance(value, np.ndarray)}


def _plain(value: Any) -> Any:
    """A setting as JSON takes it: NumPy's numbers become Python's, pairs become lists, infinity a word."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return "inf" if isinstance(value, float) and value == np.inf else value


def _number(value: Any) -> Any:
    """The setting that ``_plain`` wrote."""
    return np.inf if isinstance(value, str) and value == "inf" else value
