"""A fitted model as arrays and facts, and back: settings and ``Learned``, each part checked by its own class."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onmf import divergences, methods
from onmf._support.checks import require_whole
from onmf._support.registry import Constants, UnknownNameError
from onmf.data import Spec
from onmf.data.columns import Features
from onmf.divergences import Divergence
from onmf.learner import Coverage, Drift, History, Learned, Recipe, Skipped, Usage, continued, resume
from onmf.learner.reservoir import Reservoir
from onmf.methods import Choice, Method
from onmf.model.sets import DictionarySet, Sets
from onmf.model.settings import ONLINE, Setting, defaults
from onmf.model.state import State
from onmf.model.units import Units
from onmf.persistence import file
from onmf.persistence.file import ModelFileError

STORED = [each for each in ONLINE if each.stored not in ("never", "divergence")]  # the divergence is stored apart
USUAL = defaults(STORED)
ARRAYS = [each.name for each in STORED if each.stored == "array"]


def contents(settings: Mapping[str, Any], learned: Learned) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and the facts that make up the model; ``settings`` are the parameters of its estimator."""
    state, position, source = learned.state, learned.position, learned.source
    matrices = {key: value for key, value in learned.divergence.parameters().items() if isinstance(value, np.ndarray)}
    arrays = {f"divergence.{key}": value for key, value in matrices.items()}
    arrays |= {f"history.{key}": value for key, value in learned.history.columns().items()}
    arrays |= {f"memory.{key}": value for key, value in state.memory.items()}
    arrays["components"] = state.W
    arrays["usage"] = learned.usage.sums
    if learned.coverage is not None:
        arrays["covered_features"] = learned.coverage.features.astype(np.uint8)
    lists, where = ({}, None) if position is None else resume.stored(position)
    arrays |= lists
    given = {name: settings[name] for name in ARRAYS if not isinstance(settings[name], (str, type(None)))}
    arrays |= {name: np.asarray(array, dtype=np.float64) for name, array in given.items()}
    facts = {
        "settings": stored(settings),
        "divergence": _divergence_facts(settings["divergence"], learned.divergence),
        "method": _method_facts(learned.method),
        "units": {"scale": learned.units.scale, "mean": learned.units.mean, "whole": learned.units.whole},
        "state": {"samples": state.samples, "clock": state.clock, "steps": state.steps, **plain(vars(state.C))},
        "loss_to_beat": plain(learned.loss_to_beat),
        "raised": learned.raised,
        "blank": None if learned.coverage is None else learned.coverage.blank,
        "passes": learned.passes,
        "pass_began": learned.pass_began,
        "skipped": dataclasses.asdict(learned.skipped),
        "position": where,
        "feature_names": learned.features.names,
        "source": source and {"scheme": source.scheme, "options": dict(source.options)},  # names stand by themselves
        "drift": dataclasses.asdict(learned.drift),
    }
    return arrays, facts


def stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as a file holds them, but for the divergence; of arrays only how many rows they have."""
    return {each.name: _written(each.stored, settings[each.name]) for each in STORED}


def _written(how: str, value: Any) -> Any:
    match how:
        case "array":
            return value if value is None or isinstance(value, str) else len(value)
        case "seed":
            return int(value) if isinstance(value, (int, np.integer)) else None
        case "method":
            return _method_facts(methods.get(value))
        case "sets":
            return value and plain(dataclasses.asdict(value))
    return plain(value)


def _read_setting(setting: Setting, fact: Any, arrays: Mapping[str, Any]) -> Any:
    match setting.stored:
        case "array" if not isinstance(fact, str) and fact is not setting.default:
            array = arrays[setting.name]
            if len(array) != fact:
                raise ValueError(f"{setting.name} has {len(array)} rows, not {fact!r}")
            return array
        case "method":
            return _method(fact, Choice)
        case "sets":
            return None if fact is None else Sets(**read_back(fact))
    value = read_back(fact)
    return tuple(value) if isinstance(value, list) else value


def require_storable(settings: Mapping[str, Any]) -> None:
    """Raise an error, before anything is learnt, for settings that a file could not hold."""
    divergence = settings["divergence"]
    file.as_text([stored(settings), _divergence_facts(divergence, divergences.get(divergence))])


def lasting(given: Divergence | str | float, meant: Divergence) -> Divergence | str | float:
    """Return the divergence as it was given, unless in words that name a file, which may be gone later."""
    return given if not isinstance(given, str) or _holds_numbers(given) else meant


def read(path: str | Path, own: Divergence | None = None) -> tuple[dict[str, Any], Learned]:
    """Return the settings and what was learnt. Everything read is checked; nothing is executed.

    A model learnt with a divergence of the user's own, one that no name leads to, needs it again as ``own``; the
    settings then hold that very object.
    """
    arrays, facts = file.read(path)
    try:
        divergence = facts["divergence"]
        if divergence["name"] is None and type(own).__name__ != divergence["class"]:
            given, kind = "" if own is None else f", not with {type(own).__name__}", divergence["class"]
            raise ModelFileError(
                f"{path} was learnt with a divergence of your own, {kind}{given}; give it: load(path, "
                f"divergence={kind}())."
            )
        return _restored(arrays, facts, own)
    except ModelFileError:
        raise
    except UnknownNameError as error:
        raise ModelFileError(
            f"{path} was learnt with the {error.kind} {error.name[:100]!r}, unknown here; import the module that "
            "defines it first, or give its file to the command: --module FILE."
        ) from None
    except file.BROKEN as error:
        raise file.damaged(path, error) from None


def _restored(
    arrays: Mapping[str, Any], facts: Mapping[str, Any], own: Divergence | None
) -> tuple[dict[str, Any], Learned]:
    given, divergence = _divergences(arrays, facts["divergence"], own)
    kept = facts["settings"]
    if kept.keys() != USUAL.keys():
        raise ValueError(f"its settings are {', '.join(map(str, kept))}")
    settings = defaults(ONLINE) | {each.name: _read_setting(each, kept[each.name], arrays) for each in STORED}
    settings["divergence"] = given
    recipe = Recipe.of(settings)
    W, state, names, skipped = arrays["components"], facts["state"], facts["feature_names"], facts["skipped"]
    C, source = DictionarySet(state["eps"], state["fixed"], read_back(state["high"])), facts["source"]
    if W.ndim != 2 or 0 in W.shape or W.dtype not in (np.float32, np.float64):
        raise ValueError(f"the dictionary has shape {W.shape} and type {W.dtype}")
    memory = {key.removeprefix("memory."): value for key, value in arrays.items() if key.startswith("memory.")}
    counts = state["samples"], state["clock"], state["steps"]
    learned = Learned(
        state=State(W, C, *counts, memory, recipe.penalties),
        divergence=divergence,
        units=Units(**facts["units"], clip=recipe.clip),
        method=_method(facts["method"], Method),
        features=Features(W.shape[1], None if names is None else texts(names)),
        history=History.of_columns({key: arrays[f"history.{key}"] for key in ("samples", "seconds", "loss")}),
        raised=bool(facts["raised"]),
        usage=Usage(arrays["usage"]),
        coverage=_coverage(arrays, facts["blank"], W.shape[1]),
        passes=facts["passes"],
        pass_began=facts["pass_began"],
        adaptive=divergences.get(given).adaptive,
        loss_to_beat=read_back(facts["loss_to_beat"]),
        position=None if facts["position"] is None else resume.restored(arrays, facts["position"]),
        skipped=Skipped(skipped["count"], texts(skipped["reasons"])),
        source=None if source is None else Spec(source["scheme"], source["options"], names and texts(names)),
        drift=Drift(**facts["drift"]),
    )
    learned.require_sound()
    divergence.for_data(learned.units.mean, W.shape[1])  # raises an error for a matrix that does not fit the features
    _require_statistics(learned, recipe)
    continued(recipe, learned)  # raises an error for settings that do not fit what was learnt
    return settings, learned


def _coverage(arrays: Mapping[str, Any], blank: Any, n_features: int) -> Coverage | None:
    if blank is None:
        return None
    require_whole(0, blank=blank)
    seen = arrays["covered_features"]
    if seen.shape != (n_features,) or seen.dtype != np.uint8:
        raise ValueError("it does not say which features have had entries")
    return Coverage(seen > 0, blank)


def _require_statistics(learned: Learned, recipe: Recipe) -> None:
    """Raise an error for a dictionary and statistics that the method would never keep."""
    method, state = learned.method, learned.state
    state.require_counts()
    if not state.C.contains(state.W):
        raise ValueError("the dictionary does not lie in its set C")
    expected = method.expected(learned.inside, state, learned.masked)
    if recipe.reservoir_size:
        expected = expected | Reservoir(recipe.reservoir_size).start(state.W)
    shapes = ({key: (a.shape, a.dtype) for key, a in memory.items()} for memory in (state.memory, expected))
    if next(shapes) != next(shapes):
        raise ValueError("its statistics do not fit its method")
    if not all(np.isfinite(array).all() for array in state.memory.values()):
        raise ValueError("its statistics are not finite")
    if any((state.memory[name] < 0).any() for name in (*method.nonnegative, "kept") if name in state.memory):
        raise ValueError("its statistics have negative entries")
    method.require_sound(learned.inside, state)
    if "kept_of" in state.memory and not 0 <= state.memory["kept_of"][0] <= learned.history.samples:
        raise ValueError("its reservoir does not fit its samples")


def _method_facts(method: Choice) -> dict[str, Any]:
    if "name" not in vars(type(method)):  # inherited, it would lead to another class
        kind = type(method).__name__
        raise ModelFileError(f"a model file names its method; give the class a name: class {kind}(..., name=...).")
    return {"name": method.name, "constants": plain(method.constants())}


def _method(facts: Mapping[str, Any], kind: type) -> Any:
    if not isinstance(facts["name"], str):
        raise ValueError(f"the name of its method is {facts['name']!r}")
    method = methods.find(facts["name"]).make(read_back(facts["constants"]))
    if not isinstance(method, kind):
        raise ValueError(f"it was learnt by {method.name!r}, which is not itself a learning method")
    return method


def _divergence_facts(given: Divergence | str | float, learned: Divergence) -> dict[str, Any]:
    """Return the divergence by name, or by class if no name leads to it: as it was given, and what it has become."""
    own = not learned.name or divergences.find(learned.name) is not type(learned)
    return {
        "name": None if own else learned.name,
        "class": type(learned).__name__,
        "given": given if isinstance(given, str) else _scalars(divergences.get(given)),
        "parameters": _scalars(learned),
    }


def _divergences(arrays: Mapping[str, Any], kept: Mapping[str, Any], own: Divergence | None) -> tuple[Any, Divergence]:
    """Return the divergence as the user gave it, in words or as an object, and what it has become."""
    matrices = {key.removeprefix("divergence."): a for key, a in arrays.items() if key.startswith("divergence.")}
    given, parameters = kept["given"], read_back(kept["parameters"]) | matrices
    if kept["name"] is None and own is not None:
        if _scalars(own) != given:
            raise ValueError(f"it was begun with the parameters {given}, not {_scalars(own)}")
        kept_as_given = all(np.array_equal(value, parameters[key]) for key, value in own.parameters().items())
        return own, own if kept_as_given else dataclasses.replace(own, **parameters)  # type: ignore[type-var]
    divergence = divergences.restore(kept["name"], parameters)
    if not isinstance(given, str):
        return divergences.restore(kept["name"], read_back(given) | matrices), divergence
    if not _holds_numbers(given) or type(divergences.get(given)) is not type(divergence):
        raise ValueError(f"it was asked for {given!r} and computes {divergence.name}")
    return given, divergence


def _holds_numbers(text: str) -> bool:
    """Tell whether it is a name, or a name and numbers; other words may name a file, which no model makes us read."""
    name, colon, _ = text.partition(":")
    return not colon or next(kind for kind in divergences.find(name).__mro__ if "parse" in vars(kind)) is Divergence


def _scalars(divergence: Divergence) -> dict[str, Any]:
    parameters = divergence.parameters()
    return {key: plain(value) for key, value in parameters.items() if not isinstance(value, np.ndarray)}


def plain(value: Any) -> Any:
    """Return a value as JSON takes it: NumPy's numbers become Python's, tuples lists, infinity a word."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, Constants):
        return value.text()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, float) and np.isinf(value) else value


def read_back(value: Any) -> Any:
    """Return the value that ``plain`` was given, but for the types that JSON does not have."""
    if isinstance(value, dict):
        return {key: read_back(part) for key, part in value.items()}
    if isinstance(value, list):
        return [read_back(part) for part in value]
    return float(value) if value in ("inf", "-inf") else value


def texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts that was read, or raise an error."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError(f"it has {value!r} where texts belong")
    return tuple(value)
