"""The paper's experiments from the command line, end to end, at a tiny size; the reports in a real browser."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onmf import plots
from reproduction import __main__ as cli
from reproduction import charts, contest, faces, judge, synthetic, topics
from reproduction.datasets.files import VARIABLE
from reproduction.sensitivity import Sensitivity
from reproduction.synthetic import Synthetic
from reproduction.trial import Trial
from tests import processes

# Sizes at which a run takes seconds; a process of its own is told the same.
TINY = """
from reproduction import contest, faces, judge, sensitivity, synthetic, topics
synthetic.Synthetic.SIZES["small"] = (400, 16, 6, 10)
synthetic.NAMES = {name: synthetic.NAMES[name] for name in ("is", "squared_l2", "huber")}
sensitivity.Sensitivity.SIZES["small"] = (100, 6, 3, 6)
topics.SIZES["small"] = (80, 200, 100, 10)
faces.COPIES["small"], faces.COMPONENTS["small"], faces.SUBJECTS["small"] = 2, 6, 1
contest.MOST_ITERATIONS = 30
judge.TOL, judge.FLOORS = 1e-4, (1e-6, 1e-3)
"""
TINY_PROGRAM = f"{TINY}\nfrom reproduction.__main__ import main\nmain()"
NAMES, PANELS = synthetic.NAMES, charts.panels
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module", autouse=True)
def _tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((contest, "MOST_ITERATIONS"), (judge, "TOL"), (judge, "FLOORS")):
            patch.setattr(module, name, getattr(module, name))
        patch.setattr(synthetic, "NAMES", synthetic.NAMES)
        for sizes in (Synthetic.SIZES, Sensitivity.SIZES, topics.SIZES, faces.COPIES, faces.COMPONENTS, faces.SUBJECTS):
            patch.setitem(sizes, "small", sizes["small"])
        exec(TINY)  # noqa: S102 - so that both processes have the same
        # Charts take seconds each; one run draws them, and the others only look for the files.
        patch.setattr(charts, "panels", lambda *_: plots.new_figure(2, 2))
        yield


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def require_whole(folder: Path, pictures: list[str], tables: list[str]) -> str:
    """The report, after a look at the files beside it."""
    for name in pictures:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (folder / f"{name}.svg").read_bytes()[:2000]
    for name in tables:
        assert rows(folder / f"{name}.csv")
    assert not list(folder.glob(".scratch*"))
    page = (folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(pictures)
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []  # opens offline
    assert re.search(r'class="(holds|part|not|short|unknown)"', page)
    return page


@pytest.fixture(scope="module")
def synthetic_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("experiments") / "synthetic"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "panels", lambda charts, *labels: PANELS(dict([*charts.items()][:1]), *labels))
        assert "report.html" in invoke("synthetic", "--out", out)
    return out


OURS = ("--methods", "ours")


@pytest.fixture(scope="module")
def our_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("experiments") / "ours"
    invoke("synthetic", *OURS, "--out", out)
    return out


def test_the_verdicts_of_a_run_are_one_json_object_on_demand(our_run: Path) -> None:
    said = json.loads(invoke("synthetic", *OURS, "--out", our_run, "--json").splitlines()[-1])
    assert said["folder"] == str(our_run)
    assert [sorted(claim) for claim in said["claims"]] == [["claim", "measured", "verdict"]] * len(said["claims"])
    assert said["claims"]


def test_synthetic(synthetic_run: Path) -> None:
    require_whole(synthetic_run, ["objective", "train"], ["curves", "summary"])
    found = {(row["divergence"], row["method"]): float(row["held_out"]) for row in rows(synthetic_run / "summary.csv")}
    assert {method for divergence, method in found if divergence == "Huber"} == {
        "OL", "OL, exact coefficients", "OL, mean gradient", "OL, adaptive step", "Batch", "OL-Wang, reconstructed",
        "onmf",
    }  # fmt: skip
    divergences = {divergence for divergence, _ in found}
    assert divergences == {NAMES[name] for name in ("is", "squared_l2", "huber")}  # of the paper's six
    assert len(NAMES) == 6
    assert all(found[divergence, "onmf"] < found[divergence, "OL"] for divergence in divergences)


def test_sensitivity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "NAMES", {"huber": "Huber"})  # test_synthetic has more
    out = tmp_path / "run"
    invoke("sensitivity", "--out", out)
    methods = ("ol", "ol-exact", "ol-adaptive", "ours")
    both = [f"{parameter}-{method}" for parameter in ("tau", "K") for method in methods]
    require_whole(out, [*both, "a-ol", "a-ol-exact", "b-ol-adaptive", "c-ol-adaptive"], ["curves", "summary"])
    assert len(rows(out / "summary.csv")) == 12


def test_topics_of_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(topics.SIZES, "small", (200, 400, 500, 10))
    out = tmp_path / "run"
    invoke("topics", "--stand-in", "--initialisations", 1, "--out", out)
    name = "stand-in-standard-library-docstrings"
    page = require_whole(out, [f"{name}-curves"], [f"{name}-keywords", "summary", "curves"])
    keywords = rows(out / f"{name}-keywords.csv")
    assert [row["category"] for row in keywords] == ["asyncio", "email", "multiprocessing", "unittest", "xml"]
    assert {len(row["onmf"].split(", ")) for row in keywords if row["onmf"] != "(no topic)"} == {8}
    assert "xml" in keywords[4]["Batch"]
    assert "Stand-in: standard library docstrings" in page


def test_faces_of_the_stand_in(tmp_path: Path) -> None:
    out = tmp_path / "run"
    invoke("faces", "--stand-in", "--initialisations", 1, "--out", out)
    require_whole(out, ["patch-1-pictures"], ["summary", "curves"])
    found = {(row["subject"], row["method"]): float(row["psnr"].split()[0]) for row in rows(out / "summary.csv")}
    assert found["patch 1", "onmf"] > found["patch 1", "noisy"] + 6


def test_faces_with_fresh_noise(tmp_path: Path) -> None:
    invoke(
        "faces", "--stand-in", "--fresh-noise", "--methods", "ours", "--initialisations", 1, "--out", tmp_path / "run"
    )
    assert "noise drawn anew" in (tmp_path / "run" / "report.html").read_text()


needs_data = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} does not name a folder of data sets")


@needs_data
def test_topics_of_the_public_collections(tmp_path: Path) -> None:
    out = tmp_path / "run"
    invoke("topics", "--methods", "ours", "--initialisations", 1, "--out", out)
    assert [row["category"] for row in rows(out / "bbc-news-keywords.csv")][:2] == ["Business", "Sports"]
    assert len(rows(out / "20-newsgroups-keywords.csv")) == 5


@needs_data
def test_faces_of_yale(tmp_path: Path) -> None:
    out = tmp_path / "run"
    invoke("faces", "--methods", "ours", "--initialisations", 1, "--subjects", 1, "--out", out)
    noisy, _, ours = rows(out / "summary.csv")
    assert float(ours["psnr"].split()[0]) > float(noisy["psnr"]) + 6


def test_a_killed_run_resumes_with_what_is_finished(tmp_path: Path, our_run: Path) -> None:
    command = ["-c", TINY_PROGRAM, "synthetic", *OURS, "--out", tmp_path / "killed"]
    parts, said = tmp_path / "killed" / "parts", tmp_path / "said"
    with said.open("w") as output:
        process = processes.start(*command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    deadline = time.monotonic() + 300
    while not list(parts.glob("*-ours-0.json")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.wait()
    done = {path.name: path.stat().st_mtime_ns for path in parts.glob("*-ours-0.json")}
    assert 1 <= len(done) < 3, said.read_text()
    assert not (tmp_path / "killed" / "report.html").exists()

    invoke("synthetic", *OURS, "--out", tmp_path / "killed")
    after = {path.name: path.stat().st_mtime_ns for path in parts.glob("*-ours-0.json")}
    assert len(after) == 3
    assert {name: after[name] for name in done} == done
    measures = ("divergence", "method", "samples", "objective", "train")
    killed, whole = (
        [[row[name] for name in measures] for row in rows(each / "curves.csv")]
        for each in (tmp_path / "killed", our_run)
    )
    assert killed == whole


def test_a_finished_run_takes_more_methods(tmp_path: Path, our_run: Path) -> None:
    out = tmp_path / "more"
    shutil.copytree(our_run, out)
    before = {path.name: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}
    invoke("synthetic", "--methods", "ol-adaptive,ours", "--out", out)
    after = {path.name: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}
    assert len([name for name in after if "-data" not in name]) == 2 * 3
    assert {name: after[name] for name in before} == before
    assert {row["method"] for row in rows(out / "summary.csv")} == {"OL, adaptive step", "onmf"}


def test_ctrl_c_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "run", interrupted)
    result = CliRunner().invoke(cli.app, ["synthetic", *OURS, "--out", str(tmp_path / "run")])
    assert result.exit_code == 130
    assert "Interrupted; run the same command again to continue" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topics", "--data", "nowhere"], "there is no folder nowhere .* To try it without the data, add --stand-in"),
        (["faces", "--data", "nowhere"], "add --stand-in"),
        (["synthetic", "--methods", "ol,sgd"], "--methods does not know 'sgd'; choose from ol, ol-exact, ol-mean"),
        (["synthetic", "--only", "l3"], "--only names none of Itakura-Saito"),
    ],
)
def test_errors_are_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["reproduction", *arguments, "--out", str(tmp_path / "run")])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main sets it
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert re.search(message, said), said
    assert said.count("reproduction: ") == 1


def test_other_settings_do_not_mix_with_an_earlier_run(our_run: Path) -> None:
    assert json.loads((our_run / "settings.json").read_text())["experiment"] == "synthetic"
    result = CliRunner().invoke(cli.app, ["synthetic", *OURS, "--seed", "1", "--out", str(our_run)])
    assert result.exit_code == 2
    assert "other settings (seed 0, not 1)" in result.stderr


def test_the_report_opens_in_a_browser(browser: Any, synthetic_run: Path) -> None:
    browser.get((synthetic_run / "report.html").as_uri())
    assert browser.title == "Synthetic data"
    sizes = browser.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth)")
    assert len(sizes) == 2
    assert all(size > 300 for size in sizes)
    assert browser.get_log("browser") == []
    wider = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    assert wider <= 0  # wide tables scroll by themselves
