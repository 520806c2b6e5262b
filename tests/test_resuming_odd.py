"""A run that goes on in data with odd beginnings and ends: skipped rows, files without samples, other types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import onmf
from onmf import DataError, OnlineNMF
from onmf.data import Batches, Rows, SourceError, open_source

from .conftest import require_same_learning
from .test_checkpoints import command, cut_short, resumed
from .test_resuming import FIXED, GROWING, Command, X

_ = command  # a fixture
NAMES = list("abcdef")


def write(folder: Path, name: str, data: Any) -> Path:
    pd.DataFrame(data, columns=NAMES).to_parquet(folder / f"{name}.parquet", row_group_size=70)
    return folder


def test_bad_rows_at_the_end_are_counted_once_however_often_a_finished_run_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    data = np.tile(X, (2, 1))
    data[-420:-220:10] = np.nan
    data[-200:] = np.nan  # whole blocks, after a last batch that is shorter than the others
    write(folder, "m", data)
    settings = GROWING | {"on_error": "skip"}
    found = [resumed(open_source(f"parquet:{folder}"), tmp_path / "run", **settings).n_skipped_ for _ in range(3)]
    assert found == [220] * 3
    write(folder, "a", np.vstack([X[:50], np.full((1, 6), np.nan)]))
    found = [resumed(open_source(f"parquet:{folder}"), tmp_path / "run", **settings).n_skipped_ for _ in range(2)]
    assert found == [221] * 2


@pytest.mark.parametrize("seeks", [True, False])
@pytest.mark.parametrize("first", [0.0, 1e-310])  # passed over as silence, and skipped as too small
def test_batches_skipped_before_anything_is_learnt_are_cut_alike_on_resumption(
    seeks: bool, first: float, tmp_path: Path
) -> None:
    data = np.vstack([np.full((1100, 6), first), np.tile(X, (3, 1))])
    settings = GROWING | {"on_error": "skip", "shuffle": False, "method": "em"}

    def source() -> Any:
        return Rows(data) if seeks else Batches(lambda: iter(np.array_split(data, 13)))

    whole = OnlineNMF(**settings).fit(source())
    assert (whole.n_skipped_ > 3) == (first > 0)
    for batches in (1, 2, 5):
        cut_short(source(), tmp_path / f"run{batches}", batches, **settings)
        require_same_learning(resumed(source(), tmp_path / f"run{batches}", **settings), whole)


def test_a_new_file_without_samples_is_no_error(tmp_path: Path) -> None:
    folder = write(tmp_path, "m", X[:100])
    settings = FIXED | {"max_passes": 2}
    resumed(open_source(f"parquet:{folder}"), tmp_path / "run", **settings)
    write(folder, "n", X[:0])
    assert resumed(open_source(f"parquet:{folder}"), tmp_path / "run", **settings).n_samples_seen_ == 200


def test_the_total_of_a_folder_that_has_grown_is_what_will_be_learnt(tmp_path: Path) -> None:
    folder = write(tmp_path, "m", X[:100])
    settings, told = FIXED | {"max_passes": 2}, []
    resumed(open_source(f"parquet:{folder}"), tmp_path / "run", **settings)
    write(folder, "a", X[100:150])
    callback = {"callbacks": [lambda progress: told.append((progress.samples, progress.total))]}
    resumed(open_source(f"parquet:{folder}"), tmp_path / "run", **settings, **callback)
    assert told[-1] == (250, 250)


def test_files_of_another_precision_change_nothing_of_those_before(tmp_path: Path) -> None:
    folder = write(tmp_path, "m", X[:300])
    cut_short(open_source(f"parquet:{folder}"), tmp_path / "run", 3, **FIXED)
    write(folder, "a", X[300:400].astype(np.float32))
    assert resumed(open_source(f"parquet:{folder}"), tmp_path / "run", **FIXED).n_samples_seen_ == 400
    types = [batch.dtype for _, batch in open_source(f"parquet:{folder}").batches(100)]
    assert set(types) == {np.dtype(np.float64)}  # the digits of one file are not lost to the other


def test_nothing_to_go_on_with_is_said(tmp_path: Path) -> None:
    first = OnlineNMF(**FIXED).fit(X)
    with pytest.raises(DataError, match="There are no batches"):
        OnlineNMF(**FIXED).fit(Rows(X[:0]), resume_from=first)


def test_texts_with_a_vocabulary_resume_and_other_models_have_none(tmp_path: Path, command: Command) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["stone", "river", "cloud", "night", "piano", "bread"])
    (tmp_path / "docs.txt").write_text("\n".join(" ".join(rng.choice(words, 6)) for _ in range(400)))
    fit = ["fit", f"{tmp_path / 'docs.txt'}?words=5", "-k", "2", "--seed", "0", "--out", tmp_path / "out"]
    fit += ["--checkpoint", tmp_path / "run", "--resume"]
    for _ in range(2):
        status, said = command(*fit)
        assert status == 0, said
    assert onmf.load(tmp_path / "out").n_samples_seen_ == 400
    pictures = OnlineNMF(2).fit(open_source(write(tmp_path, "x", X) / "x.parquet"))
    with pytest.raises(SourceError, match="learnt from parquet, not from texts"):
        open_source(tmp_path / "docs.txt", like=pictures.source_)


def test_a_column_of_pandas_index_can_be_dropped(tmp_path: Path) -> None:
    pd.DataFrame(X[:9], columns=NAMES, index=pd.Index(list("ABCDEFGHI"), name="id")).to_parquet(tmp_path / "x.parquet")
    assert open_source(f"{tmp_path / 'x.parquet'}?drop=id,f").feature_names == NAMES[:-1]
