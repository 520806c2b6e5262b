"""The page of the paper's experiments is made whole from stored records."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import reproduction_page as page
from onmf import plots
from reproduction import charts, contest, synthetic
from reproduction.claims import Claim

ROOT = Path(__file__).resolve().parents[1]
RUN = {
    "start": 0,
    "seconds": 1.23456789,
    "places": [0, 9],
    "points": [{"samples": 1, "train": 2.0, "psnr": None}, {"samples": 9, "train": 1.0, "psnr": None}],
    "pictures": "AAAA",
}


def test_the_page_is_what_the_records_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for chart in ("panels", "gallery"):
        monkeypatch.setattr(charts, chart, lambda *_: plots.new_figure(1, 1))
    page.write(tmp_path)
    place = "evidence/reproduction.md"
    assert (tmp_path / place).read_text() == (ROOT / "docs" / place).read_text(), (
        "run python -m benchmarks.reproduction_page"
    )
    pictures = {path.name for path in (tmp_path / "images").iterdir()}
    assert pictures == {path.name for path in (ROOT / "docs" / "images").glob("reproduction-*.png")}


def test_the_records_are_small() -> None:
    assert sum(path.stat().st_size for path in page.RECORDS.iterdir()) < 1_500_000


def test_a_record_keeps_six_digits_and_pictures_of_the_first_start() -> None:
    kept = page.unpacked(page.packed(RUN, seed=0))
    points = [{"samples": 1, "train": 2.0}, {"samples": 9, "train": 1.0}]
    assert kept == {"start": 0, "seconds": 1.23457, "points": points, "pictures": "AAAA"}
    assert "pictures" not in page.packed(RUN | {"start": 1}, seed=0)


def test_finished_parts_join_the_record_of_their_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "RECORDS", tmp_path / "records")
    parts = tmp_path / "synthetic" / "parts"
    parts.mkdir(parents=True)
    settings = {"experiment": "synthetic", "size": "paper", "seed": 0, "samples": None, "features": None}
    (tmp_path / "synthetic" / "settings.json").write_text(json.dumps(settings))
    about = {"title": "l2", "place": 0, "divergence": "l2"}
    for name, facts in {"l2-data": about, "l2-ol-0": RUN}.items():
        (parts / f"{name}.json").write_text(json.dumps(facts))
        page.take(tmp_path / "synthetic")
    record = json.loads((tmp_path / "records" / "synthetic.json").read_text())
    assert sorted(record["parts"]) == ["l2-data", "l2-ol-0"]
    absent = list(page.missing("synthetic", record))
    assert "- Synthetic data, OL: l2 (1 of 5 starts)" in absent
    assert "- Synthetic data, Batch: l2" in absent
    monkeypatch.setattr(sys, "argv", ["reproduction_page", "--resume", str(tmp_path / "again" / "synthetic")])
    page.main()
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "again" / "synthetic" / "parts").iterdir()}
    assert found == {name: page.unpacked(record["parts"][name]) for name in ("l2-data", "l2-ol-0")}
    (tmp_path / "synthetic" / "settings.json").write_text(json.dumps(settings | {"seed": 1}))
    with pytest.raises(SystemExit, match="other settings"):
        page.take(tmp_path / "synthetic")


def test_the_readings_of_a_claim_share_a_row_and_other_methods_have_a_table_of_their_own() -> None:
    claims = [
        Claim("{} is fast", "", [False], (), "ol", "2 s"),
        Claim("{} is fast", "", [True], (), "ol-mean", "1 s"),
        Claim("{} is fast", "", [True], (), "batch"),
        Claim("{} is fast", "", [True], (), "ours"),  # not the paper's
        Claim("{} is slow", "", []),  # not run
        Claim("{} is fast", "", [True], (), "ol", where="News"),
    ]
    text = "\n".join(page.summary(synthetic.Synthetic(), claims)).splitlines()
    assert "| OL is fast | **does not hold**: 2 s | not run | **holds**: 1 s |" in text
    assert "| OL is slow | not run | not run | not run |" in text
    assert "| Batch is fast | **holds** |" in text
    assert "| OL is fast | **holds** | not run | not run |" in text[text.index("### Synthetic data: News") :]
    assert not any("onmf" in line for line in text)


def test_a_verdict_that_changed_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "BEFORE", {("News", "{} is fast", "ol"): ("holds", "it was not")})
    claims = [
        Claim("{} is fast", "", [verdict], (), method, where="News")
        for method, verdict in (("ol", False), ("ol-mean", True))
    ]
    now = "the paper's solvers: does not hold; mean gradient: holds"
    assert page.changed(claims) == [{"claim": "News: OL is fast", "before": "holds", "now": now, "why": "it was not"}]
    assert page.changed(claims[1:]) == []


def test_a_contestant_has_one_colour_in_all_figures_and_none_shares_that_of_ol() -> None:
    titles = [contest.TITLES[name] for name in ("ol-guan", "ol-wang", "ol-exact", "ol")]
    every, alone = (
        charts.panels({"squared l2": {title: ([1, 2], [2, 1]) for title in drawn}}, "seconds", "loss").axes[0].lines
        for drawn in (titles, titles[-1:])
    )
    colours = {line.get_label(): line.get_color() for line in every}
    assert colours["OL"] == alone[0].get_color()
    assert [title for title in titles if colours[title] == colours["OL"]] == ["OL"]
    assert len({colours[title] for title in titles}) == 3  # reconstructions are black, and never in one panel


def test_methods_race_to_a_loss_that_both_reach_from_every_start() -> None:
    def run(*losses: float) -> dict[str, object]:
        points = [{"samples": at, "seconds": float(at), "train": loss} for at, loss in enumerate(losses, start=1)]
        return {"points": points, "start": 0, "seconds": float(len(losses))}

    results = {"squared l2": {"ol": [run(20, 12, 10), run(3, 2, 1)], "ol-guan": [run(20, 10.04, 9)]}}
    claim = synthetic._against(results, "ol-guan", "faster than", "ol")
    assert claim.measured.endswith("by start: 3 against 2; 1 against 3")
    assert (claim.figure, claim.verdict) == ("2 s to a loss that OL-Guan reaches in 2.5 s", "holds in part")
