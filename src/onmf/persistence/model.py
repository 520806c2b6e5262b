"""``save`` and ``load``: a fitted model as a file that holds numbers and text only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onmf import divergences
from onmf._support.checks import require_whole
from onmf.estimators.online import OnlineNMF
from onmf.initial import INITS
from onmf.learning import Position
from onmf.persistence import file as model_file
from onmf.persistence.file import ModelFileError
from onmf.sets import DictionarySet
from onmf.units import Units, checked_clip

NOT_NEGATIVE = {  # of a method's statistics
    "em": ("N", "D", "size", "entries", "evidence"),
    "surrogate": ("unit", "mass"),
    "lefevre": ("A", "B", "N"),
    "guan": ("X", "H"),
    "wang": ("A", "B", "unit"),
}
SINCE_VERSION_2 = {"on_error", "options"}  # settings
NOT_STORED = ("callbacks", "divergence", "init", "random_state")


def save(model: OnlineNMF, path: str | Path) -> None:
    """Write a fitted model to ``path`` (safetensors); a later ``partial_fit`` goes on where this one stopped.

    Callbacks are not stored, nor is a ``random_state`` that is not an integer. A divergence of your own is stored by
    the name of its class: ``load`` is given it again.
    """
    model_file.write(path, *contents(model))


def contents(model: OnlineNMF) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the facts that are the model."""
    if not isinstance(model, OnlineNMF):
        raise TypeError(f"save(model, path) takes an OnlineNMF first; got {type(model).__name__}.")
    if not hasattr(model, "components_"):
        raise ModelFileError("only a fitted model can be saved; call fit or partial_fit first.")
    divergence = model.divergence_
    own = not divergence.name or divergences.find(divergence.name) is not type(divergence)
    position = model._position
    settings = {key: value for key, value in model.get_params(deep=False).items() if key not in NOT_STORED}
    settings["init"] = model.init if isinstance(model.init, str) else None
    seed = model.random_state
    settings["random_state"] = int(seed) if isinstance(seed, (int, np.integer)) else None
    parameters = divergence.parameters()
    arrays = {f"divergence.{key}": value for key, value in parameters.items() if isinstance(value, np.ndarray)}
    arrays |= {f"history.{key}": value for key, value in model.history_.items()}
    arrays |= {f"memory.{key}": value for key, value in model._memory.items()}
    arrays["components"] = model.components_
    if settings["init"] is None:
        arrays["init"] = np.asarray(model.init, dtype=np.float64)
    facts = {
        "settings": {key: _plain(value) for key, value in settings.items()},
        "divergence": {
            "name": None if own else divergence.name,
            "class": type(divergence).__name__,
            "given": {} if own else _given(model.divergence),
            "parameters": _scalars(parameters),
        },
        "units": {"scale": model.scale_, "mean": model._units.mean},
        "samples": model.n_samples_seen_,
        "averaged": model._averaged,
        "steps": model.n_steps_,
        "passes": model.n_iter_,
        "method": model.method_,
        "raised": model._raised,
        "loss_to_beat": _plain(model._loss_to_beat),
        "skipped": [model.n_skipped_, model.skipped_],
        "position": None if position is None else dataclasses.asdict(position),
        "feature_names": [str(name) for name in getattr(model, "feature_names_in_", [])] or None,
    }
    return arrays, facts


def load(path: str | Path, divergence: divergences.Divergence | None = None) -> OnlineNMF:
    """The model that ``save`` wrote to ``path``. Everything read is checked; nothing is executed.

    A model that was learnt with a divergence of your own needs it again, as ``divergence``.
    """
    arrays, facts = model_file.read(path)
    kept = facts.get("divergence")
    name, kind = (kept.get("name", ""), kept.get("class")) if isinstance(kept, dict) else ("", None)
    if isinstance(name, str) and name and name not in divergences.names():
        raise ModelFileError(
            f"{path} was learnt with the divergence {name!r}, unknown here; import the module that defines it first."
        )
    if name is None and (divergence is None or type(divergence).__name__ != kind):
        given = "" if divergence is None else f", not with {type(divergence).__name__}"
        raise ModelFileError(
            f"{path} was learnt with a divergence of your own, {kind}{given}; give it: load(path, divergence={kind}())."
        )
    if name is not None and divergence is not None:
        raise ModelFileError(
            f"{path} was learnt with the divergence {name!r}, which is found by its name; leave out divergence=."
        )
    try:
        return _restored(arrays, facts, divergence)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"{path} is damaged or not a model of this onmf: {str(error).rstrip('.')}.") from None


def _divergences(arrays: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[Any, divergences.Divergence]:
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


def _restored(arrays: Mapping[str, Any], facts: Mapping[str, Any], own: divergences.Divergence | None) -> OnlineNMF:
    given, divergence = (own, own) if own is not None else _divergences(arrays, facts["divergence"])
    if own is not None and _scalars(own.parameters()) != facts["divergence"]["parameters"]:
        raise ValueError(
            f"it was learnt with the parameters {facts['divergence']['parameters']}, not {own.parameters()}"
        )
    defaults = {key: value for key, value in OnlineNMF().get_params().items() if key not in ("callbacks", "divergence")}
    settings = {key: _number(value) for key, value in facts["settings"].items()}
    if not set(defaults) - SINCE_VERSION_2 <= set(settings) <= set(defaults):
        raise ValueError("its settings are not those of this onmf")
    settings = defaults | settings
    if settings["init"] is None:
        settings["init"] = arrays["init"]
    elif settings["init"] not in INITS:
        raise ValueError(f"its initial dictionary is {settings['init']!r}")
    if isinstance(settings["clip"], list):
        settings["clip"] = tuple(_number(bound) for bound in settings["clip"])
    model = OnlineNMF(**settings, divergence=given)
    model._check_settings()

    W = arrays["components"]
    if W.ndim != 2 or 0 in W.shape or W.dtype not in (np.float32, np.float64):
        raise ValueError(f"the dictionary has shape {W.shape} and type {W.dtype}")
    if not DictionarySet(model.eps).contains(W) or len(W) != model.n_components:
        raise ValueError("the dictionary does not lie in the set C of its settings")
    units = facts["units"]
    scale, mean = float(units["scale"]), float(units["mean"])
    if not (0 < scale < np.inf and 0 < mean < np.inf):
        raise ValueError(f"the scale is {scale!r}, the mean {mean!r}")
    samples, averaged, steps, passes = (facts[key] for key in ("samples", "averaged", "steps", "passes"))
    require_whole(1, samples=samples, averaged=averaged, steps=steps, passes=passes)
    history = [arrays[f"history.{key}"] for key in ("samples", "seconds", "loss")]
    if len({a.shape for a in history}) != 1 or any(
        a.ndim != 1 or not len(a) or a.dtype.kind not in "iuf" for a in history
    ):
        raise ValueError("the columns of its history are not equally long rows of numbers")
    passed, seconds, losses = history
    if not ((np.diff(passed) > 0).all() and 0 < passed[0] <= passed[-1] <= samples and (np.diff(seconds) >= 0).all()):
        raise ValueError("its history does not run forwards")
    if not (np.isfinite(seconds).all() and seconds[0] >= 0) or np.isnan(losses).any():
        raise ValueError("its history has times or losses that are none")
    names = facts["feature_names"]
    if names is not None:
        if not isinstance(names, list) or len(names) != W.shape[1]:
            raise ValueError("its feature names do not fit its dictionary")
        model.feature_names_in_ = np.asarray([str(name) for name in names], dtype=object)

    model.components_ = W
    model.n_features_in_ = W.shape[1]
    model.n_samples_seen_, model._averaged, model.n_steps_ = samples, averaged, steps
    model.method_ = facts["method"]
    if model.method_ != model.method and model.method != "auto":
        raise ValueError(f"it was asked for {model.method!r} and used {model.method_!r}")
    model.scale_, model.n_iter_ = scale, passes
    model._units = Units(scale, mean, checked_clip(model.clip))
    model.divergence_ = divergence.for_data(model._units.mean, W.shape[1])
    model._raised = bool(facts["raised"])
    if not {"loss_to_beat", "position", "skipped"} & set(facts):  # version 1
        facts = {**facts, "loss_to_beat": "inf", "position": None, "skipped": [0, []]}
    model._loss_to_beat = float(_number(facts["loss_to_beat"]))
    model._position = _position(facts["position"])
    skipped, reasons = facts["skipped"]
    require_whole(0, skipped=skipped)
    model.n_skipped_, model.skipped_ = skipped, [str(reason) for reason in reasons]
    if not model._loss_to_beat >= 0:
        raise ValueError(f"its first loss is {model._loss_to_beat!r}")
    model._history = list(zip(*(column.tolist() for column in history), strict=True))
    method = model._method(model.method_, model._inside)  # refuses settings that do not fit
    start = method.start(W)
    if not np.allclose(start.W, W, rtol=1e-4, atol=1e-7):  # a start in the method's own set stays where it is
        raise ValueError(f"the dictionary does not lie in the set of the method {model.method_}")
    expected = start.memory
    memory = {key.removeprefix("memory."): value for key, value in arrays.items() if key.startswith("memory.")}
    if {k: (v.shape, v.dtype) for k, v in memory.items()} != {k: (v.shape, v.dtype) for k, v in expected.items()}:
        raise ValueError("its statistics do not fit its method")
    if not all(np.isfinite(value).all() for value in memory.values()):
        raise ValueError("its statistics are not finite")
    signed = [memory[name] for name in (*NOT_NEGATIVE.get(model.method_, ()), "kept") if name in memory]
    if any((array < 0).any() for array in signed):
        raise ValueError("its statistics have negative entries")
    if "kept_of" in memory and not 0 <= memory["kept_of"][0] <= samples:
        raise ValueError("its reservoir does not fit its samples")
    model._memory = memory
    return model


def _position(kept: Any) -> Position | None:
    """Where the fit stood; the generator's state is tried on a generator."""
    if kept is None:
        return None
    position = Position(**kept)
    require_whole(1, passes=position.passes, batches=position.batches)
    require_whole(0, faults=position.faults)
    np.random.default_rng().bit_generator.state = position.generator
    return position


def _given(divergence: divergences.Divergence | str) -> str | dict[str, Any]:
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
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return "inf" if isinstance(value, float) and value == np.inf else value


def _number(value: Any) -> Any:
    """The setting that ``_plain`` wrote."""
    return np.inf if isinstance(value, str) and value == "inf" else value
