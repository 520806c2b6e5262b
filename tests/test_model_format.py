"""The format number of model files changes with what they hold: ``model_format.json`` writes that down per number.

When a test here fails, what a file holds has changed: raise ``VERSION`` in onmf/persistence/file.py, and run
``python -m tests.test_model_format``, which writes the new contents down.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from onmf import Checkpoint, OnlineNMF, methods, save
from onmf.data import open_source
from onmf.divergences import Mahalanobis
from onmf.learner import OpenPartition, RoundPosition
from onmf.methods import Method
from onmf.persistence import file, model
from onmf.persistence.file import VERSION, ModelFileError

RECORD = Path(__file__).with_name("model_format.json")
FREE = ("constants", "parameters", "options", "generator", "ended")  # what is in them is not ours to write down
X = np.random.default_rng(0).random((60, 5)) + 0.1


def names(facts: Any, here: str = "") -> set[str]:
    """The names of facts within facts, but for those that are free."""
    if not isinstance(facts, dict):
        return set()
    inner = [names(value, f"{here}{key}.") for key, value in facts.items() if key not in FREE]
    return {here + key for key in facts}.union(*inner)


def held_by(arrays: dict[str, Any], facts: dict[str, Any]) -> set[str]:
    return {f"[{name}]" for name in arrays} | names(facts)


def formats(folder: Path) -> dict[str, str]:
    """What all files hold, and what each method, and some settings and data, add to it; arrays are in brackets."""

    def saved(fitted: OnlineNMF) -> set[str]:
        save(fitted, folder / "model")
        return held_by(*file.read(folder / "model"))

    found = {}
    for name in methods.names():
        if issubclass(methods.find(name), Method):
            method = "lefevre:N=60" if name == "lefevre" else name
            divergence = {"lefevre": "is", "guan": "squared_l2", "wang": "huber"}.get(name, "kl")
            found[name] = saved(OnlineNMF(2, divergence=divergence, method=method, random_state=0).partial_fit(X))
    given: dict[str, dict[str, Any]] = {
        "init and fixed": {"init": X[:1], "fixed": X[1:2]},
        "missing": {"missing": "nan"},
        "reservoir": {"reservoir": 5},
        "simplex": {"coefficients": "simplex"},
        "penalties": {"l1_coefficients": 0.1, "l2_dictionary": 0.1},
        "mahalanobis": {"divergence": Mahalanobis(np.eye(5))},
    }
    for name, settings in given.items():
        found[name] = saved(OnlineNMF(2, random_state=0, **settings).partial_fit(X))
    found["sparse"] = saved(
        OnlineNMF(2, random_state=0).partial_fit(sp.random(60, 40, 0.02, "csr", rng=0) + sp.eye(60, 40))
    )
    (folder / "texts").mkdir()
    for number in range(20):
        (folder / "texts" / f"{number}.txt").write_text("a rose is a rose" if number % 2 else "the sea is the sea")
    source = open_source(f"text:{folder / 'texts'}")
    OnlineNMF(2, random_state=0).fit(source, checkpoint=Checkpoint(folder / "run"))
    found["checkpoint of a folder"] = held_by(*file.read(folder / "run"))
    nmf = OnlineNMF(2, random_state=0).partial_fit(X)
    position = RoundPosition(1, 0, 2, 1, (OpenPartition(0, 5, "0" * 32),), "0" * 32)
    assert nmf._learned is not None
    found["rounds"] = held_by(*model.contents(nmf.get_params(deep=False), replace(nmf._learned, position=position)))
    common = set.intersection(*found.values())
    return {"all": _listed(common)} | {kind: _listed(held - common) for kind, held in found.items()}


def _listed(names: set[str]) -> str:
    return " ".join(sorted(names))


def test_what_a_file_holds_is_what_was_written_down_for_its_format(tmp_path: Path) -> None:
    written = json.loads(RECORD.read_text())
    assert max(map(int, written)) == VERSION
    assert formats(tmp_path) == written[str(VERSION)]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (VERSION - 1, f"was written by an older version of onmf (format {VERSION - 1}); fit it again."),
        (VERSION + 1, f"was written by a newer version of onmf (format {VERSION + 1}); onmf .* reads format {VERSION}"),
    ],
)
def test_a_file_of_another_format_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, said: str
) -> None:
    nmf = OnlineNMF(2, random_state=0).partial_fit(X)
    with monkeypatch.context() as patched:
        patched.setattr(file, "VERSION", version)
        save(nmf, tmp_path / "model")
    with pytest.raises(ModelFileError, match=said.replace("(", r"\(").replace(")", r"\)")):
        file.read(tmp_path / "model")


if __name__ == "__main__":
    import tempfile

    import reproduction.earlier_methods  # noqa: F401  (their methods are in the record)

    with tempfile.TemporaryDirectory() as folder:
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        record[str(VERSION)] = formats(Path(folder))
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
