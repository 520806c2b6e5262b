"""The folder of a run, and its report."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from reproduction.claims import HOLDS, Claim
from reproduction.experiment import Experiment
from reproduction.faces import Faces
from reproduction.report import Folder, Report, heading, paragraph, table
from reproduction.sensitivity import Sensitivity
from reproduction.synthetic import Data, Synthetic
from reproduction.topics import Topics


def test_a_finished_part_is_not_found_again(tmp_path):
    calls = []

    def find(scratch) -> dict:
        calls.append(1)
        (scratch / "large").write_text("...")
        return {"loss": 1.5, "never": math.inf}

    for _ in range(2):
        folder = Folder(tmp_path / "run", {"seed": 1})
        folder.keep("kl-ol", find)
        assert folder.parts() == {"kl-ol": {"loss": 1.5, "never": math.inf}}
    assert len(calls) == 1
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["parts", "settings.json"]


def test_a_part_that_fails_leaves_nothing(tmp_path):
    folder = Folder(tmp_path, {})

    def fails(scratch) -> dict:
        (scratch / "large").write_text("...")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        folder.keep("x", fails)
    assert not list((tmp_path / "parts").glob("*"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "settings.json"]


def test_nothing_is_written_before_there_is_something_to_keep(tmp_path):
    Folder(tmp_path / "run", {"seed": 1})
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    folder = Folder(tmp_path / "run", {"seed": 2})
    (tmp_path / "run" / ".scratch-old").mkdir()  # left by a kill
    folder.table("t", [{"a": 1}])
    assert not (tmp_path / "run" / ".scratch-old").exists()


def test_dictionaries_and_samples_share_no_random_numbers():
    data = Data.draw("kl", 400, 200, K=3, judged=50, seed=0)
    W = data.source.planted.W
    for block in range(2):
        H = 1.0 + np.abs(np.random.default_rng([0, 2, block]).normal(0.0, 5.0, (200, 40)))
        assert not np.isin(H[:5], W).any()


def test_another_run_or_other_files_are_not_mixed_up(tmp_path):
    for _ in range(2):
        Folder(tmp_path / "run", {"seed": 1, "methods": ("ol",)}).table("t", [{"a": 1}])
    with pytest.raises(ValueError, match=r"other settings \(seed 1, not 2\); give --out another folder"):
        Folder(tmp_path / "run", {"seed": 2, "methods": ("ol",)})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="not empty"):
        Folder(tmp_path / "mine", {})


def test_tables_have_all_columns(tmp_path):
    folder = Folder(tmp_path, {})
    folder.table("t", [{"a": 1}, {"a": 2, "b": "x, y"}])
    assert (tmp_path / "t.csv").read_text().split() == ["a,b", "1,", '2,"x,', 'y"']


def test_the_report_escapes_and_ends_with_the_claims(tmp_path):
    claim = Claim("OL < Batch", "a | b", [True])
    blocks = [heading("<h>"), paragraph("x < y"), table("caption", [{"a": 1.23456}, {"b": "<td>"}])]
    report = Report("A & B", blocks, [claim])
    page = report.write(tmp_path).read_text()
    assert "<title>A &amp; B</title>" in page
    assert "&lt;td&gt;" in page
    assert "<td>1.235</td>" in page
    assert f'<td class="holds">{HOLDS}</td>' in page
    text = (tmp_path / "report.md").read_text()
    assert "| OL < Batch | a \\| b | holds |" in text


def test_a_report_without_claims_has_no_table_of_them(tmp_path):
    assert "Claims" not in Report("x", [paragraph("y")]).write(tmp_path).read_text()


@pytest.mark.parametrize("experiment", [Synthetic, Sensitivity, Topics, Faces])
def test_settings_are_json(experiment: type[Experiment]):
    json.dumps({key: value for key, value in vars(experiment()).items() if key != "data"})
