"""``save`` and ``load``: a fitted model as a file that holds numbers and text only."""

from __future__ import annotations

from pathlib import Path

from onmf.divergences import Divergence
from onmf.estimators.online import OnlineNMF
from onmf.persistence import file, model
from onmf.persistence.file import ModelFileError


def save(nmf: OnlineNMF, path: str | Path) -> None:
    """Write a fitted model to ``path`` (safetensors); a later ``partial_fit`` goes on where this one stopped.

    Callbacks are not stored, nor is a ``random_state`` that is not an integer. A divergence of your own is stored by
    the name of its class: ``load`` is given it again.
    """
    if not isinstance(nmf, OnlineNMF):
        raise TypeError(f"save(model, path) takes an OnlineNMF first; got {type(nmf).__name__}.")
    if nmf._learned is None:
        raise ModelFileError("only a fitted model can be saved; call fit or partial_fit first.")
    file.write(path, *model.contents(nmf.get_params(deep=False), nmf._learned))


def load(path: str | Path, divergence: Divergence | None = None) -> OnlineNMF:
    """The model that ``save`` wrote to ``path``. Everything read is checked; nothing is executed.

    A model that was learnt with a divergence of your own needs it again, as ``divergence``.
    """
    if divergence is not None and model.named(path):
        raise ModelFileError(f"{path} was learnt with a divergence that is found by its name; leave out divergence=.")
    settings, learned = model.read(path, divergence)
    try:
        nmf = OnlineNMF(**settings)
        nmf._recipe(), nmf._reading(marked=False)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"{path} is damaged or not a model of this onmf: {str(error).rstrip('.')}.") from None
    nmf._learned = learned
    return nmf
