"""What the experiments make of their results: verdicts on the paper's claims."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from onmf.methods import Adaptive, Canonical
from reproduction import claims, sensitivity
from reproduction.claims import HOLDS, IN_PART, NOT, NOT_EXAMINED, TOO_SHORT, Claim, still_falling
from reproduction.faces import QUALITY, Faces
from reproduction.sensitivity import Sensitivity
from reproduction.synthetic import NAMES, Synthetic
from reproduction.topics import corpus_claims, leading


def facts(seconds: float, *course: tuple[float, float], **more: object) -> dict:
    """A run with a mark at every doubling of the samples."""
    losses = ("train", "objective")
    points = [
        {"seconds": at, "samples": 2**mark, "psnr": 10 * at} | dict.fromkeys(losses, loss)
        for mark, (at, loss) in enumerate(course)
    ]
    end = {"n": points[-1]["samples"], "held_out": points[-1]["train"], "start": 0}
    return {"seconds": seconds, "points": points} | end | more


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
        "batch": [facts(10, (1, 9), (10, 5)), facts(20, (1, 9), (20, 5), start=1)],
        "ol": [facts(4, (1, 8), (4, 5)), facts(4, (1, 6), (4, 6), start=1)],
        "ours": [facts(1, (0.1, 4.9), (1, 4)), facts(1, (0.1, 5), (1, 4), start=1)],
    }
    assert claims.speedups(by_method, "ol") == [2.5, 0]
    assert cell(by_method, "ol") == "2.5, reached in 1 of 2"
    assert cell(by_method, "ours") == "150 (71)"
    claim = claims.faster_than_batch("{} is faster", {"here": by_method}, "ol")
    assert claim.verdict == IN_PART
    assert "final training loss: here 2.5, not reached (ended" in claim.measured
    assert claim.figure == "reached in 1 of 2, 2.5 times as fast"
    claim = claims.faster_than_batch("{} is faster", {"here": by_method}, "ours")
    assert claim.verdict == HOLDS
    assert claim.claim == "(not in the paper) onmf is faster"
    assert cell(by_method | {"ol": [facts(1, (1, 9))]}, "ol") == "not reached"
    assert claims.beside_batch(by_method, "batch") == {}
    shorter = claims.shorter_run({"here": by_method}, "ol", "7.1", "here")
    assert (shorter.verdict, shorter.figure) == (HOLDS, "3.75 times as fast (the paper: 7.1)")
    assert shorter.claim == "here: OL runs in significantly less time than Batch"
    there = claims.beside_batch(by_method, "ours")
    assert there["seconds there"] == "0.1 (0)"
    assert there["psnr there"] == "1 (0)"


def test_a_loss_counts_as_reached_where_a_run_falls_to_it_for_good():
    run = facts(4, (1, 4), (2, 6), (3, 5), (4, 3))
    assert claims.seconds_to(run, 6) == 1
    assert claims.seconds_to(run, 5) == 3
    assert claims.seconds_to(run, 4) == 4
    assert claims.seconds_to(run, 2) == math.inf
    by_method = {"batch": [facts(6, (6, 5))], "ours": [run]}
    assert claims.speedups(by_method, "ours") == [2]
    assert claims.beside_batch(by_method, "ours")["seconds there"] == "3"


def test_numbers_have_no_exponent_where_they_are_large():
    assert claims.listed([1234.5, 4.988e6, 0.25, 2e-9]) == "1230, 4990000, 0.25, 2e-09"
    assert claims.mean_and_deviation([12345.0, 12355.0]) == "12350 (7.1)"


def test_batch_stops_at_its_limit_or_before():
    found = {"here": {"batch": [facts(1, (1, 1), converged=True), facts(1, (1, 1), converged=False)]}}
    assert claims.how_batch_stopped(found).endswith("or after 1000: 1 of 2 runs met that limit.")
    assert claims.how_batch_stopped({}).endswith("or after 1000.")


def test_runs_are_compared_from_the_starts_that_both_have():
    by_method = {"batch": [facts(9, (9, 5), start=2)], "ol": [facts(1, (1, 9)), facts(3, (3, 4), start=2)]}
    assert claims.speedups(by_method, "ol") == [3.0]
    assert claims.speedups({"ol": by_method["ol"]}, "ol") == []
    assert claims.faster_than_batch("{}", {"here": {"ol": by_method["ol"]}}, "ol").verdict == NOT_EXAMINED


@pytest.mark.parametrize(
    ("before", "loss", "verdict", "words"),
    [
        (8, 6, TOO_SHORT, "not reached (ended 20.00% above it, still falling)"),
        (6, 6, NOT, "not reached (ended 20.00% above it)"),
        (6, 7, NOT, "not reached (ended 40.00% above it)"),
        (5.2, 5.2, TOO_SHORT, "not reached (ended 4.00% above it)"),
        (8, 5, NOT, ": here 0.5"),
    ],
)
def test_a_run_that_was_still_falling_or_came_near_was_too_short_to_tell_its_speed(before, loss, verdict, words):
    by_method = {"batch": [facts(10, (10, 5))], "ol": [facts(20, (10, before), (20, loss))]}
    claim = claims.faster_than_batch("{} is faster", {"here": by_method}, "ol")
    assert claim.verdict == verdict
    assert words in claim.measured


@pytest.mark.parametrize(("samples", "verdict"), [(None, TOO_SHORT), (100_000, NOT)])
def test_no_claim_fails_for_want_of_samples_at_the_papers_number_of_them(samples, verdict, tmp_path, monkeypatch):
    results = {NAMES["kl"]: {"ol": [facts(4, (1, 8), (4, 6))], "batch": [facts(9, (9, 5))]}}
    monkeypatch.setattr(Synthetic, "stored", lambda self, parts: (results, {}))
    report = Synthetic(samples=samples).report(tmp_path)
    assert report.claims[0].verdict == verdict
    assert (TOO_SHORT in report.rule) == (verdict == TOO_SHORT)
    assert report.rule in (tmp_path / "report.md").read_text()


def test_the_claims_about_figure_2():
    results = {
        NAMES["is"]: {
            "ol": [facts(4, (1, 8), (4, 4))],
            "batch": [facts(9, (0, 12), (9, 4))],
            "ol-lef": [facts(9, (9, 8))],
        },
        NAMES["kl"]: {"ol": [facts(4, (2, 4.5), (4, 4.5))], "batch": [facts(9, (0, 9), (9, 4))]},
        NAMES["huber"]: {"ol": [facts(4, (3.5, 4), (4, 4))], "ol-wang": [facts(2, (2, 4))]},
    }
    results[NAMES["kl"]]["ol-adaptive"] = [facts(1, (1, 5), (1, 4.4))]
    results[NAMES["kl"]]["ol-exact"] = [facts(1, (1, 5), (1, 4.5)), facts(1, (1, 5), (1, 4.6), start=1)]
    found = {claim.claim: claim for claim in Synthetic().claims(results, {})}
    fast = "{} converges significantly faster than Batch for all the divergences"
    assert found[fast.format("OL")].verdict == IN_PART
    assert "Kullback-Leibler not reached" in found[fast.format("OL")].measured
    assert found["(not in the paper) " + fast.format("OL with its adaptive step")].verdict == TOO_SHORT
    rivals = "OL converges {} the reconstruction of OL-{} ({})"
    assert found[rivals.format("as fast as", "Wang", "Huber")].verdict == NOT  # half the time
    assert found[rivals.format("significantly faster than", "Lef", NAMES["is"])].verdict == HOLDS  # in a ninth
    assert found[rivals.format("significantly faster than", "Guan", "squared l2")].verdict == NOT_EXAMINED
    (own,) = [claim for text, claim in found.items() if text.startswith("OL ends no higher than Batch by")]
    assert own.measured.endswith("Batch's: Itakura-Saito 1.000, Kullback-Leibler 1.125")
    (ahead,) = [claim for text, claim in found.items() if text.startswith("When OL has seen")]
    assert (ahead.verdict, ahead.figure) == (
        HOLDS,
        "Batch's loss is 2.000 to 3.000 times its own (Itakura-Saito, Kullback-Leibler)",
    )
    (lower,) = [claim for text, claim in found.items() if "equally exact coefficients" in text]
    assert (lower.verdict, lower.measured[-22:]) == (HOLDS, "Kullback-Leibler 0.967")
    alike = [claim.verdict for text, claim in found.items() if text.startswith("Different initialisations")]
    assert alike == [NOT_EXAMINED, HOLDS, NOT_EXAMINED, NOT_EXAMINED]


def courses(method: str, slow: dict[str, dict], flat: int = 0) -> dict:
    """Runs that reach their final loss of 1 at the second mark, but for slow ones, which take some doublings more."""
    found = {}
    for variant in sensitivity.variants(method):
        doublings = slow.get(variant.parameter, {}).get(variant.factor, 0)
        found[variant] = [facts(1, (0.1, 3.0), *[(0.5, 1.5)] * doublings, *[(1.0, 1.0)] * (1 + flat))]
    return {"kl": found}


def test_sensitivity_is_the_spread_of_the_samples_to_the_final_loss():
    results = courses("ol", {"tau": {0.1: 1, 40: 9}, "a": {10: 2}})
    rows = {row["parameter"]: row for row in Sensitivity().summary(results, {})}
    assert rows["tau"]["samples"] == 2  # a factor of 40 is beyond the paper's rule
    assert rows["tau"]["seconds"] == 1
    assert rows["tau"]["loss"] == 1
    assert rows["tau"]["samples by factor"] == "x 0.1: 2, x 1: 1, x 4: 1, x 40: 512"
    assert rows["K"]["samples by factor"] == "x 0.5: 1, x 1: 1, x 2: 1"
    full = Sensitivity(size="paper", samples=100_000)
    settled = [replace(claim, unsettled=()).verdict for claim in full.claims(results, {})]
    assert settled == [HOLDS, HOLDS, NOT, NOT_EXAMINED]


def test_a_run_that_ends_higher_is_seen_in_the_losses():
    results = courses("ol", {})
    (high,) = [variant for variant in results["kl"] if str(variant) == "ol-tau-4"]
    results["kl"][high] = [facts(4, (0.1, 3.0), (2, 1.5))]
    row = next(row for row in Sensitivity().summary(results, {}) if row["parameter"] == "tau")
    assert row["samples"] == 1
    assert row["loss"] == 1.5
    assert [claim.verdict for claim in Sensitivity().claims(results, {})][:3] == [TOO_SHORT, HOLDS, HOLDS]
    results["kl"][high] = [facts(4, (0.1, 3.0), (2, 1.5), (3, 1.5), (4, 1.5))]
    assert [claim.verdict for claim in Sensitivity().claims(results, {})][:3] == [NOT, HOLDS, HOLDS]


def test_the_slowest_variant_may_have_been_too_short_but_for_fewer_components():
    slow = {"tau": {4: 3}, "K": {0.5: 3}}
    *short, _ = [claim.verdict for claim in Sensitivity().claims(courses("ol", slow), {})]
    assert short == [TOO_SHORT, NOT, HOLDS]
    *flat, _ = [claim.verdict for claim in Sensitivity().claims(courses("ol", slow, flat=2), {})]
    assert flat == [NOT, NOT, HOLDS]  # it falls no more, and took eight times as many


def test_fixed_factors_of_the_adaptive_step_are_compared_with_the_one_found():
    results = courses("ol-adaptive", {})
    for variant, loss in (("found", 2.0), (1 / 16, 1.0), (16, 8.0)):
        (who,) = [each for each in results["kl"] if each.parameter == "c" and each.factor == variant]
        results["kl"][who] = [facts(1, (0, 9.0), (0, loss), (1, loss))]
    *_, c, _ = Sensitivity().claims(results, {})
    assert c.verdict == NOT
    assert "of 5: kl 2" in c.measured
    *_, c, _ = Sensitivity().claims(courses("ol-adaptive", {}), {})
    assert c.verdict == HOLDS


def test_a_parameter_is_judged_when_all_its_factors_have_been_run():
    results = courses("ol", {})
    results["kl"] = {who: runs for who, runs in results["kl"].items() if str(who) != "ol-a-10"}
    assert [row["parameter"] for row in Sensitivity().summary(results, {})] == ["tau", "K"]


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


def test_words_at_the_cap_of_the_dictionary_are_ranked_by_how_far_they_belong_to_the_topic():
    components = np.array([[1.0, 1.0, 1.0, 0.5], [0.2, 0.0, 1.0, 1.0]])
    assert leading(components, 3) == [[1, 0, 2], [3, 2, 0]]


def test_initialisations_are_alike_if_accuracy_and_coherence_are():
    def verdict(*accuracies: float) -> str:
        runs = [facts(1, (1, 4), documents=[[1, 0], [0, 1]], accuracy=each, npmi=0.3) for each in accuracies]
        (claim,) = [c for c in corpus_claims("News", {"ol": runs}, ["a", "b"]) if "initialisations" in c.sentence]
        return claim.verdict

    assert (verdict(0.9, 0.92), verdict(0.9, 0.5)) == (HOLDS, NOT)


def test_the_claims_about_topics():
    good = {"documents": [[3, 0], [1, 2]], "accuracy": 0.9, "npmi": 0.3}
    bad = {"documents": [[3, 0], [2, 1]], "accuracy": 0.5, "npmi": 0.1}
    by_method = {
        "ol": [facts(1, (0, 5), (1, 5), **bad)],
        "ol-mean": [facts(1, (0, 5), (1, 4), **good)],
        "ol-adaptive": [facts(1, (0, 9), (1, 5), **bad)],
        "batch": [facts(9, (9, 4), **good)],
        "ours": [facts(1, (1, 3), **good)],
    }
    found = {claim.claim: claim.verdict for claim in corpus_claims("News", by_method, ["a", "b"])}
    topics, alike = (
        "News: {} learns 2 distinct topics that coincide with the categories, by their documents",
        "News: the topics of {} are of",
    )
    alike += " comparable quality to Batch's"
    assert found[topics.format("OL")] == found[alike.format("OL")] == NOT
    assert (
        found[topics.format("OL with the mean gradient")] == found[alike.format("OL with the mean gradient")] == HOLDS
    )
    assert found[topics.format("Batch")] == HOLDS
    faster = "News: {} achieves Batch's results with much greater efficiency: time to its training loss"
    assert found[faster.format("OL")] == NOT
    assert found["News: OL runs in significantly less time than Batch"] == HOLDS
    adaptive = "(not in the paper) {}".format
    assert found[adaptive(topics.format("OL with its adaptive step"))] == TOO_SHORT
    assert found[adaptive(alike.format("OL with its adaptive step"))] == TOO_SHORT
    assert found[adaptive(faster.format("onmf"))] == HOLDS
    for runs in by_method.values():
        runs[0]["keywords"] = [["nasa", "sun", "the"], ["hockey", "of", "a"]]
    newsgroups = list(corpus_claims("20 Newsgroups", by_method, ["sci.space", "rec.sport"]))
    general = {claim.method: claim.figure for claim in newsgroups if "general" in claim.claim}
    assert general["batch"] == "2 of 5 categories; all in 0 of 1 starts"
    named = {claim.method: claim.measured for claim in newsgroups if "name the categories" in claim.claim}
    assert named["batch"].endswith("Space 2.0, Sports 1.0, Religion 0.0, Hardware 0.0, Sale 0.0")
    assert len(list(corpus_claims("News", {"ol": by_method["ol"]}, ["a", "b"]))) == 1


def test_the_claims_about_faces():
    about = {"A": {"noisy": dict.fromkeys(QUALITY, 12.0), "clean": dict.fromkeys(QUALITY, 0.1)}}
    better = {"psnr": 40.0, "brightness in shadow": 0.9}
    worse = {"psnr": 12.0, "brightness in shadow": 0.1}
    by_method = {"ol": [facts(2, (1, 3), (2, 3), **better)], "ol-wang": [facts(3, (1, 3), (3, 3), **worse)]}
    found = {claim.claim: claim.verdict for claim in Faces().claims({"A": by_method}, about)}
    wang, before = "the reconstruction of OL-Wang", "noise before copying: "
    assert {text: verdict for text, verdict in found.items() if verdict != NOT_EXAMINED} == {
        f"{before}OL removes the salt-and-pepper noise": HOLDS,
        f"{before}{wang} removes the salt-and-pepper noise": NOT,
        f"{before}OL removes shadows": HOLDS,
        f"{before}{wang} fails to remove shadows (three subjects of four)": HOLDS,
        f"{before}{wang} runs slightly slower than OL": HOLDS,
    }
    assert f"{before}different initialisations of OL lead to similar results" in found  # though there is but one
    by_method["ol-wang"] = [facts(1, (1, 5), (1, 3), **worse)]  # still falling
    by_method["ol-adaptive"], by_method["batch"] = by_method["ol"], [facts(9, (9, 3), **better)]
    later = {claim.claim: claim.verdict for claim in Faces(fresh_noise=True).claims({"A": by_method}, about)}
    fresh = "fresh noise in every copy: "
    assert later[f"{fresh}{wang} removes the salt-and-pepper noise"] == TOO_SHORT
    assert later[f"{fresh}{wang} fails to remove shadows (three subjects of four)"] == TOO_SHORT
    assert later[f"{fresh}{wang} runs slightly slower than OL"] == NOT
    assert later[f"{fresh}OL and Batch perform alike and greatly outperform {wang}"] == HOLDS
    assert later[f"(not in the paper) {fresh}OL with its adaptive step removes shadows"] == HOLDS
    assert (
        later[
            f"(not in the paper) {fresh}OL with its adaptive step reaches Batch's training loss significantly faster "
            "(our test)"
        ]
        == HOLDS
    )
    by_method["batch"] = [facts(9, (9, 3), **better | {"psnr": 39.5})]
    by_method["ol-wang"] = [facts(1, (1, 5), (1, 3), **worse | {"psnr": 38.8})]
    nearer = {claim.claim: claim.verdict for claim in Faces(fresh_noise=True).claims({"A": by_method}, about)}
    assert nearer[f"{fresh}OL and Batch perform alike and greatly outperform {wang}"] == NOT  # Batch by 0.7 dB only
