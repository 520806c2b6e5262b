"""``save`` and ``load``: a fitted model as a file that holds numbers and text only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onmf import learner
from onmf.divergences import Divergence
from onmf.estimators.online import OnlineNMF
from onmf.persistence import file, model
from onmf.persistence.file import ModelFileError


def save(nmf: OnlineNMF, path: str | Path) -> None:
    """Write a fitted model to ``path`` (safetensors); a later ``partial_fit`` continues where this one stopped.

    Callbacks are not stored, nor is a ``random_state`` that is not an integer. An unregistered divergence of your own
    must be given to ``load`` again.

    Parameters
    ----------
    nmf : OnlineNMF
        A fitted model.
    path : str or Path
        The file to write. An existing model file is replaced in one step.

    Examples
    --------
    >>> onmf.save(model, "model.safetensors")
    >>> same = onmf.load("model.safetensors")
    >>> bool((same.components_ == model.components_).all())
    True
    """
    if not isinstance(nmf, OnlineNMF):
        raise TypeError(f"save(model, path) takes an OnlineNMF first; got {type(nmf).__name__}.")
    file.write(path, *contents(nmf))


def contents(nmf: OnlineNMF) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arrays and the facts that make up the file of a fitted model."""
    if nmf._learned is None:
        raise ModelFileError("only a fitted model can be saved; call fit or partial_fit first.")
    settings = nmf.get_params(deep=False) | {"divergence": model.lasting(nmf.divergence, nmf.divergence_)}
    again = OnlineNMF(**settings)
    # Settings may have been changed so that no file with them could be read.
    learner.continued(again._configured().recipe, nmf._learned)
    return model.contents(settings, nmf._learned)


def load(path: str | Path, divergence: Divergence | None = None) -> OnlineNMF:
    """Return the model that ``save`` or a checkpoint wrote to ``path``.

    Everything read is checked; nothing is executed. A model that was learnt with an unregistered divergence of your own
    needs it again, as ``divergence``.

    Parameters
    ----------
    path : str or Path
        A model file, or a checkpoint.
    divergence : Divergence or None
        The unregistered divergence of your own that the model was learnt with.

    Returns
    -------
    OnlineNMF
        The fitted model.

    Examples
    --------
    >>> onmf.save(model, "model.safetensors")
    >>> onmf.load("model.safetensors").n_samples_seen_
    60
    """
    settings, learned = model.read(path, divergence)
    if divergence is not None and settings["divergence"] is not divergence:
        raise ModelFileError(f"{path} was learnt with a divergence that is found by its name; leave out divergence=.")
    nmf = OnlineNMF(**settings)
    try:
        nmf._configured()
    except file.BROKEN as error:
        raise file.damaged(path, error) from None
    nmf._learned = learned
    return nmf
