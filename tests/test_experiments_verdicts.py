"""What the experiments make of their results: verdicts on the paper's claims."""

from __future__ import annotations

import math

import numpy as np
import pytest

from onmf.data import Rows
from onmf.methods import Adaptive, Canonical
from reproduction import claims, sensitivity
from reproduction.claims import HOLDS, IN_PART, NOT, NOT_EXAMINED, TOO_SHORT, Claim, still_falling
from reproduction.faces import Contaminated, Faces, Subject
from reproduction.judge import Scorer
from reproduction.sensitivity import Sensitivity
from reproduction.synthetic import NAMES, Synthetic
from reproduction.topics import corpus_claims


def facts(seconds: float, *course: tuple[float, float], **more: object) -> dict:
    """A run with a mark at every doubling of the samples."""
    losses = ("train", "held_out", "objective")
    points = [
        {"seconds": at, "samples": 2**mark, "psnr": 10 * at} | dict.fromkeys(losses, loss)
        for mark, (at, loss) in enumerate(course)
    ]
    return {"seconds": seconds, "points": points, "n": points[-1]["samples"], **more}


def test_verdicts():
    cases = {(True, True): HOLDS, (True, False): IN_PART, (False,): NOT, (): NOT_EXAMINED}
    assert {successes: Claim("", "", successes).verdict for successes in cases} == cases


def test_what_a_longer_run_might_settle_is_neither_a_success_nor_a_failure():
    verdicts = {
        ((False, False), (True, True)): TOO_SHORT,
        ((False, False), (True, False)): NOT,
        ((True, False), (False, True)): IN_PART,
        ((True, False), (False, False)): IN_PART,
        ((True,), (True,)): TOO_SHORT,  # of a claim that something fails
    }
    assert {case: Claim("", "", *case).verdict for case in verdicts} == verdicts


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ((9, 6, 5), True),
        ((9, 5, 4.99), False),  # flat
        ((9, 5, 6), False),  # risen
        ((4, 9, 5), False),  # has been lower long before
        ((9, 5, math.inf), False),
        ((math.inf, 5, 4), True),
        ((5,), True),  # there is nothing to compare it with
    ],
)
def test_a_run_is_still_falling_if_its_last_doubling_brought_it_to_a_new_low(losses, expected):
    assert still_falling(facts(1, *enumerate(losses))) is expected
    assert not still_falling(facts(1, (1, 9), (2, 1)), facts(1, (1, 9), (2, 9)))  # all of them must


def cell(by_method: dict, method: str) -> str:
    return claims.beside_batch(by_method, method)[claims.TO_BATCH]


def test_speed_is_judged_by_the_time_to_batchs_final_loss():
    by_method = {
        "batch": [facts(10, (1, 9), (10, 5)), facts(20, (1, 9), (20, 5))],
        "ol": [facts(4, (1, 8), (4, 5)), facts(4, (1, 6), (4, 6))],
        "ours": [facts(1, (0.1, 4.9), (1, 4)), facts(1, (0.1, 5), (1, 4))],
    }
    assert claims.speedups(by_method, "ol") == [2.5, 0]
    assert cell(by_method, "ol") == "2.5, reached in 1 of 2"
    assert cell(by_method, "ours") == "150 (70.7)"
    claim = claims.faster_than_batch("here", by_method, "ol")
    assert claim.verdict == IN_PART
    assert "final training loss, by start: 2.5, not reached (ended" in claim.measured
    claim = claims.faster_than_batch("here", by_method, "ours")
    assert claim.verdict == HOLDS
    assert "not in the paper" in claim.claim
    assert cell(by_method | {"ol": [facts(1, (1, 9))] * 2}, "ol") == "not reached"
    assert claims.beside_batch(by_method, "batch") == {}
    there = claims.beside_batch(by_method, "ours")
    assert there["seconds there"] == "0.1 (0)"
    assert there["psnr there"] == "1 (0)"


@pytest.mark.parametrize(
    ("before", "loss", "verdict", "words"),
    [
        (8, 6, TOO_SHORT, "not reached (ended 20.00% above it, still falling)"),
        (6, 6, NOT, "not reached (ended 20.00% above it);"),
        (6, 7, NOT, "not reached (ended 40.00% above it);"),
        (5.2, 5.2, TOO_SHORT, "not reached (ended 4.00% above it);"),
        (8, 5, NOT, ": 0.5;"),
    ],
)
def test_a_run_that_was_still_falling_or_came_near_was_too_short_to_tell_its_speed(before, loss, verdict, words):
    by_method = {"batch": [facts(10, (10, 5))], "ol": [facts(20, (10, before), (20, loss))]}
    claim = claims.faster_than_batch("here", by_method, "ol")
    assert claim.verdict == verdict
    assert words in claim.measured


@pytest.mark.parametrize(("samples", "verdict"), [(None, TOO_SHORT), (100_000, NOT)])
def test_no_claim_fails_for_want_of_samples_at_the_papers_number_of_them(samples, verdict, tmp_path, monkeypatch):
    results = {NAMES["kl"]: {"ol": [facts(4, (1, 8), (4, 6))], "batch": [facts(9, (9, 5))]}}
    monkeypatch.setattr(Synthetic, "_results", lambda self, folder, watch: results)
    monkeypatch.setattr(Synthetic, "sets", {})
    report = Synthetic(samples=samples).run(tmp_path)
    assert report.claims[0].verdict == verdict
    assert (TOO_SHORT in report.rule) == (verdict == TOO_SHORT)
    assert report.rule in (tmp_path / "report.md").read_text()


def test_the_claims_about_figure_2():
    results = {
        NAMES["is"]: {"ol": [facts(4, (1, 8), (4, 4))], "batch": [facts(9, (9, 4))], "ol-lef": [facts(9, (9, 8))]},
        NAMES["kl"]: {"ol": [facts(4, (2, 4.5), (4, 4.5))], "batch": [facts(9, (9, 4))]},
        NAMES["huber"]: {"ol": [facts(4, (3.5, 4), (4, 4))], "ol-wang": [facts(2, (2, 4))]},
    }
    results[NAMES["huber"]]["ol-adaptive"] = [facts(1, (1, 5), (1, 3.9))]
    results[NAMES["kl"]]["ol-adaptive"] = [facts(1, (1, 5), (1, 4.4))]
    first, wang, lef, guan, alike, adaptive, lower, ours = Synthetic().claims(results)
    assert first.verdict == IN_PART
    assert "Kullback-Leibler not reached" in first.measured
    assert adaptive.verdict == TOO_SHORT
    assert lower.verdict == HOLDS
    assert "Kullback-Leibler 0.978, Huber 0.975" in lower.measured
    assert all("(not in the paper)" in claim.claim for claim in (adaptive, lower, ours))
    assert wang.verdict == NOT  # half the time
    assert lef.verdict == HOLDS  # in a ninth of the time
    assert {guan.verdict, ours.verdict, alike.verdict} == {NOT_EXAMINED}


def spreads(method: str, wild: dict[str, dict], before: float = 1.0) -> dict:
    """Runs that end at a loss of 1, but for the wild ones, and had another loss in the middle."""
    found = {}
    for variant in sensitivity.variants(method):
        loss = wild.get(variant.parameter, {}).get(variant.factor, 1.0)
        found[variant] = [facts(1, (0, 3.0), (0, before * loss), (1, loss))]
    return {"kl": found}


def test_sensitivity_is_the_spread_of_the_final_losses():
    results = spreads("ol", {"tau": {0.1: 2.0, 40: 9.0}, "a": {10: 1.05}})
    rows = {row["parameter"]: row for row in Sensitivity().summary(results)}
    assert rows["tau"]["largest / smallest"] == 9
    assert rows["tau"]["worst on the way"] == 3
    assert rows["K"]["x 2"] == 1
    assert "x 16" not in rows["K"]  # a factor of c, which OL does not have
    assert [claim.verdict for claim in Sensitivity().claims(results)] == [NOT, HOLDS, HOLDS]


def test_variants_that_ended_high_may_have_been_too_short_but_for_fewer_components():
    wild = {"tau": {40: 1.5}, "K": {0.5: 1.5}}
    results = spreads("ol", wild, before=1.5)
    assert [claim.verdict for claim in Sensitivity().claims(results)] == [TOO_SHORT, NOT, HOLDS]
    (high,) = [variant for variant in results["kl"] if variant.factor == 40]
    results["kl"][high] = spreads("ol", wild)["kl"][high]  # the others still fall, which does not excuse it
    assert [claim.verdict for claim in Sensitivity().claims(results)] == [NOT, NOT, HOLDS]


def test_fixed_factors_of_the_adaptive_step_are_compared_with_the_raced_one():
    results = spreads("ol-adaptive", {"c": {"found": 2.0, 1 / 16: 1.0, 16: 8.0}, "b": {0.01: 1.3}})
    row = next(row for row in Sensitivity().summary(results) if row["parameter"] == "c")
    assert (row["x 0.0625"], row["x 1"], row["x 16"]) == (0.5, 0.5, 4)
    *_, b, c = Sensitivity().claims(results)
    assert b.verdict == NOT
    assert "factors 0.01 to 10: kl 1.3" in b.measured
    assert c.verdict == NOT
    assert "of 5: kl 2" in c.measured
    *_, c = Sensitivity().claims(spreads("ol-adaptive", {"c": {16: 8.0}}))
    assert c.verdict == HOLDS  # whatever the worst one does


def applied(name: str, n: int = 1000) -> tuple:
    """What the variant of this name is, for 40 components."""
    known = {str(variant): variant for method in sensitivity.PARAMETERS for variant in sensitivity.variants(method)}
    return known[name].applied(n, 40)


def test_a_variant_changes_one_parameter():
    assert {variant.parameter for variant in sensitivity.variants("ours")} == {"tau", "K"}
    assert applied("ol-a-10") == (40, {"method__step": Canonical(a=2000.0, b=200.0)})
    assert applied("ol-tau-0.1", 100_000) == (40, {"method__tau": 1})
    assert applied("ol-K-2") == (80, {})
    assert applied("ol-adaptive-tau-40") == (40, {"method__tau": 400})
    assert applied("ol-adaptive-b-0.01") == (40, {"method__step": Adaptive(b=200.0)})
    assert applied("ol-adaptive-c-0.25") == (40, {"method__step": Adaptive(c=0.125)})
    assert applied("ours-tau-4") == (40, {"method__tau": 120})
    assert applied("ol") == applied("ol-adaptive") == applied("ours") == (40, {})


def test_the_claims_about_topics():
    good = {"majority": [0, 1], "accuracy": 0.9, "npmi": 0.3}
    bad = {"majority": [0, 0], "accuracy": 0.5, "npmi": 0.1}
    by_method = {
        "ol": [facts(1, (0, 5), (1, 5), **bad)],
        "ol-adaptive": [facts(1, (0, 9), (1, 5), **bad)],
        "batch": [facts(9, (9, 4), **good)],
        "ours": [facts(1, (1, 3), **good)],
    }
    found = {claim.claim: claim.verdict for claim in corpus_claims("BBC News", by_method, ["a", "b"])}
    assert found["BBC News: OL learns 2 distinct topics that coincide with the categories"] == NOT
    assert found["BBC News: Batch learns 2 distinct topics that coincide with the categories"] == HOLDS
    assert found["BBC News: the topics of OL are of comparable quality to Batch's"] == NOT
    assert found["BBC News: OL is significantly faster than Batch"] == NOT
    adaptive = [verdict for claim, verdict in found.items() if "(not in the paper) BBC News: OL" in claim]
    assert adaptive == [TOO_SHORT] * 2
    assert (
        found[
            "(not in the paper) BBC News: the topics of OL with its adaptive step are of comparable quality to Batch's"
        ]
        == TOO_SHORT
    )
    assert found["(not in the paper) BBC News: onmf is significantly faster than Batch"] == HOLDS
    general = [claim for claim in corpus_claims("20 Newsgroups", by_method, ["a.x", "a.y"]) if "general" in claim.claim]
    assert [claim.verdict for claim in general] == [HOLDS] * 4  # a is the only general category
    assert "of 1 general categories" in general[0].measured
    without = {"ol": by_method["ol"]}
    assert len(list(corpus_claims("BBC News", without, ["a", "b"]))) == 1


def test_the_claims_about_faces(monkeypatch):
    images = np.full((64, 4), 200.0)
    images[0] = 20.0
    noisy = images.copy()
    noisy[:, 0] = 0
    scorer = Scorer("huber:1", noisy.mean(axis=0), noisy)
    data = Contaminated(Rows(noisy), "huber:1", 2, scorer, scorer, Subject("A", images), noisy, np.arange(64))
    monkeypatch.setattr(Faces, "sets", {"A": data})
    better = {"psnr": 40.0, "brightness in shadow": 0.9}
    worse = {"psnr": 12.0, "brightness in shadow": 0.1}
    by_method = {"ol": [facts(2, (1, 3), (2, 3), **better)], "ol-wang": [facts(3, (1, 3), (3, 3), **worse)]}
    found = {claim.claim: claim.verdict for claim in Faces().claims({"A": by_method})}
    assert found == {
        "OL removes the salt-and-pepper noise": HOLDS,
        "OL-Wang removes the salt-and-pepper noise": NOT,
        "OL removes shadows": HOLDS,
        "OL-Wang fails to remove shadows (three subjects of four)": HOLDS,
        "OL-Wang runs slightly slower than OL": HOLDS,
    }
    by_method["ol-wang"] = [facts(1, (1, 5), (1, 3), **worse)]  # still falling
    by_method["ol-adaptive"], by_method["batch"] = by_method["ol"], [facts(9, (9, 3), **better)]
    later = {claim.claim: claim.verdict for claim in Faces().claims({"A": by_method})}
    assert later["OL-Wang removes the salt-and-pepper noise"] == TOO_SHORT
    assert later["OL-Wang fails to remove shadows (three subjects of four)"] == TOO_SHORT
    assert later["OL-Wang runs slightly slower than OL"] == NOT
    assert later["(not in the paper) OL with its adaptive step removes shadows"] == HOLDS
    assert later["(not in the paper) A: OL with its adaptive step is significantly faster than Batch"] == HOLDS
