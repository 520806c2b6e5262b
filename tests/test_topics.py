"""Topics: leading features, shares of what was fitted, coherence, and the way from raw texts to readable words."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.text
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF
from onmf.cli import main as cli
from onmf.cli.terminal import console
from onmf.data import SourceError, open_source, text
from onmf.learner import Usage
from onmf.learner.learned import proportions
from onmf.persistence import file
from onmf.topics import Coherence, coherence, leading, ranked

SUBJECTS = {
    "animals": "cat dog horse cow goat hen",
    "roads": "engine wheel road car brake fuel",
    "food": "bread salt butter milk flour sugar",
}
SHARES = (0.6, 0.3, 0.1)


def sentences(n: int = 300, words: str = "", seed: int = 0) -> list[str]:
    """Texts of one subject each, in order of subject, with ``words`` of all subjects in each."""
    rng = np.random.default_rng(seed)
    counts = (np.asarray(SHARES) * n).astype(int)
    return [
        " ".join([*rng.choice(SUBJECTS[subject].split(), 8), words])
        for subject, count in zip(SUBJECTS, counts, strict=True)
        for _ in range(count)
    ]


def json_lines(path: Path, texts: list[str], **fields: Any) -> Path:
    path.write_text("".join(json.dumps({**fields, "body": each}) + "\n" for each in texts))
    return path


def invoke(*arguments: object, columns: int = 100, fails: bool = False) -> str:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": str(columns)})
    if fails:
        assert result.exit_code != 0
        return f"{result.output}{result.exception}"
    assert result.exception is None, result.output
    return result.output


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return json_lines(tmp_path / "docs.jsonl", sentences())


@pytest.fixture
def model(texts: Path) -> Path:
    """Learnt from them, without anything being said of the words."""
    invoke("fit", texts, "-k", 3, "--seed", 0, "--passes", 2, "--out", "m")
    return Path("m")


# Shares of what was fitted


@pytest.mark.parametrize("settings", [{}, {"method": "paper"}, {"divergence": "squared_l2"}], ids=str)
def test_usage_is_the_mean_of_proportions(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    X = rng.gamma(0.5, 1.0, (900, 4)) * [4, 2, 1, 0.5] @ rng.gamma(0.3, 1.0, (4, 20)) + 0.01
    model = OnlineNMF(4, random_state=0, **settings).fit(X)
    assert model.usage_.sum() == pytest.approx(1)
    np.testing.assert_allclose(model.usage_, model.proportions(X).mean(axis=0), atol=0.04)
    assert model.usage_.max() > 2 * model.usage_.min()


def test_usage_of_a_batch_fit_is_exact_and_counts_samples_by_their_weights() -> None:
    rng = np.random.default_rng(0)
    X, weights = rng.gamma(1.0, 1.0, (60, 3)) @ rng.gamma(1.0, 1.0, (3, 8)), rng.integers(1, 4, 60).astype(float)
    model = BatchNMF(3, random_state=0, max_iter=50, tol=0)
    for given in (None, weights):
        model.fit(X, sample_weight=given)
        shares = proportions(model.coefficients_, model.components_)
        np.testing.assert_allclose(model.usage_, np.average(shares, axis=0, weights=given), rtol=1e-12)


def test_a_weighted_sample_uses_components_as_often_as_its_weight_says() -> None:
    X = np.kron(np.eye(2), np.ones((30, 3))) + 0.01
    start = np.kron(np.eye(2), np.ones(3)) + 0.01
    settings: dict[str, Any] = {"init": start, "shuffle": False, "batch_size": 60, "random_state": 0}
    plain = OnlineNMF(2, **settings).fit(X).usage_
    weighted = OnlineNMF(2, **settings).fit(X, sample_weight=np.repeat([3.0, 1.0], 30)).usage_
    np.testing.assert_allclose(plain, 0.5, atol=0.03)
    np.testing.assert_allclose(weighted, [0.75, 0.25], atol=0.03)


def test_usage_means_the_present_and_not_the_start() -> None:
    start = np.kron(np.eye(2), np.ones(3)) + 0.01
    one, other = np.repeat(start, [300, 0], axis=0), np.repeat(start, [0, 300], axis=0)
    for method, share in (("surrogate", 0.75), ("surrogate:forgetting=0.99", 0.9)):
        model = OnlineNMF(2, init=start, method=method, random_state=0)
        for batch in np.split(np.concatenate([one, other]), 12):
            model.partial_fit(batch)
        assert model.usage_[1] == pytest.approx(share, abs=0.05), method


def test_shares_of_parts_of_the_data_add_up() -> None:
    rng = np.random.default_rng(0)
    H, W = rng.gamma(1.0, 1.0, (30, 4)), rng.gamma(1.0, 1.0, (4, 7))
    H[3] = 0  # nothing is fitted, so it does not count
    some, others = Usage.of(H[:10], W), Usage.of(H[10:], W)
    np.testing.assert_allclose(some.sums + others.sums, Usage.of(H, W).sums)
    assert Usage.of(H, W).sums.sum() == pytest.approx(29)
    np.testing.assert_array_equal(Usage(np.zeros(4)).shares, 0.25)
    assert np.isnan(proportions(np.array([[np.nan, np.nan], [1, 1]]), np.ones((2, 2)))).tolist() == [
        [True] * 2,
        [False] * 2,
    ]


def test_usage_is_in_files_and_checkpoints_and_goes_on_from_there(tmp_path: Path) -> None:
    X = np.random.default_rng(0).gamma(1.0, 1.0, (200, 9))
    whole = OnlineNMF(3, random_state=0, batch_size=50).fit(X, checkpoint=tmp_path / "c")
    onmf.save(whole, tmp_path / "m")
    for path in ("m", "c"):
        read = onmf.load(tmp_path / path)
        np.testing.assert_array_equal(read.usage_, whole.usage_)
    np.testing.assert_array_equal(read.partial_fit(X).usage_, whole.partial_fit(X).usage_)


@pytest.mark.parametrize("sums", [np.array([1.0, 2.0]), np.array([1.0, -1.0, 2.0]), np.array([1.0, np.nan, 2.0])])
def test_shares_that_no_run_could_have_are_refused(sums: np.ndarray, tmp_path: Path) -> None:
    model = OnlineNMF(3, random_state=0).fit(np.random.default_rng(0).gamma(1.0, 1.0, (60, 5)))
    model._learned = replace(model._learned, usage=Usage(sums))  # type: ignore[type-var]
    onmf.save(model, tmp_path / "m")
    with pytest.raises(file.ModelFileError, match="damaged"):
        onmf.load(tmp_path / "m")


def test_the_shares_leave_the_learning_alone() -> None:
    X = np.random.default_rng(0).gamma(1.0, 1.0, (200, 9))
    plain, stirred = (OnlineNMF(3, random_state=0).partial_fit(X[:100]) for _ in range(2))
    stirred._learned = replace(stirred._learned, usage=Usage(np.array([9.0, 0, 0])))  # type: ignore[type-var]
    assert np.array_equal(plain.partial_fit(X[100:]).components_, stirred.partial_fit(X[100:]).components_)


# Leading features


def test_features_are_ranked_by_the_formulas_of_the_documentation() -> None:
    W, usage = np.array([[8.0, 1, 1, 0], [4.0, 0, 0, 4]]), np.array([0.75, 0.25])
    P = np.array([[0.8, 0.1, 0.1, 0], [0.5, 0, 0, 0.5]])
    np.testing.assert_allclose(ranked(W, usage, "weight"), P)
    np.testing.assert_allclose(ranked(W, usage), P / (usage @ P + 0.25) ** 0.6)
    np.testing.assert_allclose(ranked(W, usage, "lift"), P / (usage @ P + 0.25))
    specific = ranked(W, usage, "specificity")
    np.testing.assert_allclose(specific[0, 0], 0.8 * np.log(0.8 / 0.5) + 0.5 - 0.8)
    np.testing.assert_allclose(specific[1, 3], 0.5 * np.log(0.5 / 0.025) + 0.025 - 0.5)  # a tenth of 1/4 at least
    assert specific[1, 0] < 0
    assert leading(specific, 2) == [[0, 1], [3, 0]]
    np.testing.assert_allclose(ranked(W * 2e307, usage, "weight"), P)


def test_what_every_component_has_leads_by_weight_alone_and_rare_features_do_not_win_by_chance() -> None:
    W = np.full((3, 100), 1e-3)
    W[:, 0] = 1  # everywhere, as "the" is
    W[range(3), [1, 2, 3]] = 0.5  # each has one of its own
    W[0, 99], W[1:, 99] = 2e-3, 1e-9  # rare, and by chance in one alone
    usage = np.full(3, 1 / 3)
    assert [each[0] for each in leading(ranked(W, usage, "weight"), 1)] == [0, 0, 0]
    for by in ("lift", "specificity"):
        assert [each[0] for each in leading(ranked(W, usage, by), 1)] == [1, 2, 3]


def test_marker_genes_lead_by_specificity() -> None:
    """Genes that every program expresses, at levels that differ a little, and a few that one alone expresses."""
    rng = np.random.default_rng(0)
    programs = rng.gamma(0.5, 1.0, 400) * rng.uniform(0.7, 1.4, (4, 400))
    for k in range(4):
        programs[:, 10 * k : 10 * k + 10] = 0.01
        programs[k, 10 * k : 10 * k + 10] = 0.5
    X = rng.poisson(3 * rng.dirichlet(np.full(4, 0.3), 1000) @ programs).astype(float)
    model = OnlineNMF(4, random_state=0, max_passes=3).fit(X)
    for features in model.top_features(10, by="specificity"):
        numbers = [int(name.removeprefix("feature ")) // 10 for name, _ in features]
        assert max(map(numbers.count, range(4))) >= 9


@pytest.mark.parametrize("kind", [OnlineNMF, BatchNMF])
def test_top_features_have_names_and_values(kind: type[OnlineNMF | BatchNMF]) -> None:
    X = pd.DataFrame(np.random.default_rng(0).gamma(1.0, 1.0, (80, 5)), columns=list("abcde"))
    model = kind(2, random_state=0).set_params(**({"tol": 0.01} if kind is BatchNMF else {})).fit(X)
    W = model.components_ / model.components_.sum(axis=1, keepdims=True)
    for k, features in enumerate(model.top_features(3, by="weight")):
        assert [name for name, _ in features] == [list("abcde")[f] for f in np.argsort(-W[k])[:3]]
        np.testing.assert_allclose([value for _, value in features], np.sort(W[k])[::-1][:3])
    assert [len(features) for features in model.top_features(99, by="lift")] == [5, 5]
    bare = kind(1, random_state=0).fit(X.to_numpy())
    assert re.fullmatch(r"feature [0-4]", bare.top_features(1, by="specificity")[0][0][0])
    for bad in (0, 2.5, "3"):
        with pytest.raises(ValueError, match="n must be a whole number of at least 1"):
            model.top_features(bad)  # type: ignore[arg-type]
    for wrong in ("size", ["weight"]):
        with pytest.raises(ValueError, match="by must be one of relevance, weight, lift, specificity, got"):
            model.top_features(3, by=wrong)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="fit"):
        kind(2).top_features()
    with pytest.raises(AttributeError, match="usage_ is available only after fit"):
        _ = kind(2).usage_


def test_coherence_is_the_same_batch_by_batch() -> None:
    counts = scipy.sparse.csr_matrix(np.random.default_rng(0).poisson(0.5, (50, 9)))
    topics = [[0, 1, 2], [8, 3, 0], [4]]
    found = Coherence(topics)
    for first in range(0, 50, 7):
        found.add(counts[first : first + 7])
    np.testing.assert_allclose(found.values(), coherence(counts.toarray(), topics))
    assert np.isnan(found.values()).tolist() == [False, False, True]


# onmf topics


def shown(output: str) -> list[int]:
    """The numbers of the topics, as the rows of the table begin."""
    return [int(number) for number in re.findall(r"^ +(\d+) +[\d.]+%", output, re.MULTILINE)]


def test_topics_are_listed_by_share_with_the_words_that_belong_together(model: Path) -> None:
    nmf, output = onmf.load(model), invoke("topics", model, "--top", 6)
    assert "words (times their share in all)" in output
    assert "words (% of the topic)" in invoke("topics", model, "--by", "weight")
    assert shown(output) == np.argsort(-nmf.usage_).tolist()
    rows = output.split("%  ")[1:]
    assert [set(re.findall(r"[a-z]{3,}", row)) for row in rows] == [set(each.split()) for each in SUBJECTS.values()]
    np.testing.assert_allclose(np.sort(nmf.usage_), np.sort(SHARES), atol=0.05)


@pytest.mark.parametrize(("stop", "by"), [("", "lift"), ("?stop=english", "relevance"), ("?tfidf=yes", "relevance")])
def test_fit_topics_top_features_plots_and_report_lead_with_the_same_words(texts: Path, stop: str, by: str) -> None:
    said = invoke("fit", f"{texts}{stop}", "-k", 3, "--seed", 0, "--out", "same")
    nmf = onmf.load("same")
    assert nmf.top_features(8) == nmf.top_features(8, by) != nmf.top_features(8, "weight")
    words = [[name for name, _ in features] for features in nmf.top_features(8)]
    assert re.findall(r"^topic \d+ .*: (.*)$", said, re.MULTILINE) == [
        " ".join(words[k]) for k in np.argsort(-nmf.usage_)
    ]
    told = json.loads(invoke("topics", "same", "--top", 8, "--json"))
    assert told["by"] == by
    assert {each["topic"]: [word["name"] for word in each["features"]] for each in told["topics"]} == dict(
        enumerate(words)
    )
    drawn = {label.get_text() for label in onmf.plots.topics(nmf).figure.findobj(matplotlib.text.Text)}
    assert drawn >= {word for each in words for word in each}
    invoke("report", "same", "--out", "same.html")
    page = Path("same.html").read_text("utf-8")
    assert f"the {by} of the leading" in page
    for leading_words in words:
        assert ", ".join(leading_words[:5]) in page


def test_topics_of_data_have_coherence_and_the_shares_of_the_data(model: Path, texts: Path) -> None:
    few = json_lines(texts.with_name("few.jsonl"), [*sentences()[-60:], ""])
    told = json.loads(invoke("topics", model, few, "--json", "--top", 4))
    batches = [batch for _, batch in open_source(few, like=onmf.load(model).source_).batches(99)]
    counts = scipy.sparse.vstack(batches).tocsr()
    nmf = onmf.load(model)
    H = np.concatenate(list(nmf.transform(open_source(few, like=nmf.source_))))[:-1]  # the last text is blank
    shares = proportions(H, nmf.components_).mean(axis=0)
    words = leading(nmf.components_, 4)
    assert [topic["topic"] for topic in told["topics"]] == np.argsort(-shares).tolist()
    for topic in told["topics"]:
        k = topic["topic"]
        assert topic["share"] == pytest.approx(shares[k])
        assert topic["coherence"] == pytest.approx(coherence(counts, words)[k])
        assert [each["name"] for each in topic["features"]] == [nmf.feature_names_in_[f] for f in words[k]]
    assert told["coherence"] == pytest.approx(coherence(counts, words).mean())
    assert "over 61 texts" in invoke("topics", model, few)


def test_no_word_is_parted_from_its_weight_in_any_terminal(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in range(30, 130, 3):
        monkeypatch.setattr(console, "_width", columns)  # whatever other tests have made of it
        whole_words(invoke("topics", model, "--by", "lift", columns=columns), columns)


def whole_words(output: str, columns: int) -> None:
    assert max(map(len, output.splitlines())) <= columns
    assert not re.findall(r"^ +\d+\.\d(?:,|\s*$)", output, re.MULTILINE)
    assert len(re.findall(r"[a-z]+ \d+\.\d(?=[,\s])", output)) >= 18  # words and values, side by side
    assert "…" not in output


def test_a_hundred_topics_are_a_hundred_rows(tmp_path: Path) -> None:
    X = pd.DataFrame(np.random.default_rng(0).gamma(0.1, 1.0, (200, 30))).rename(columns="gene {}".format)
    onmf.save(OnlineNMF(100, random_state=0, method="em").fit(X), tmp_path / "m")
    output = invoke("topics", tmp_path / "m", "--top", 3, columns=70)
    assert sorted(shown(output)) == list(range(100))
    assert len(output.splitlines()) == 102


def test_features_that_are_no_words_are_called_so_and_nameless_ones_have_a_cure(tmp_path: Path) -> None:
    X = np.random.default_rng(0).gamma(0.5, 1.0, (60, 5))
    pd.DataFrame(X, columns=["red", "green", "blue", "near infrared", "x"]).to_csv(tmp_path / "x.csv", index=False)
    np.save(tmp_path / "x.npy", X)
    for name in ("x.csv", "x.npy"):
        invoke("fit", tmp_path / name, "-k", 2, "--seed", 0, "--out", tmp_path / f"{name}.m")
    output = invoke("topics", tmp_path / "x.csv.m", tmp_path / "x.csv", "--top", 5, "--by", "weight")
    assert "features (% of the component)" in output
    assert "near infrared" in output
    assert "coherence" not in output.lower()  # which intensities do not have
    assert "no names" not in output
    output = invoke("topics", tmp_path / "x.npy.m")
    assert "feature 3" in output
    assert "onmf: the features of this model have no names; learn it from data that have some" in output
    assert "-0." not in invoke(
        "topics", tmp_path / "x.csv.m", "--by", "specificity"
    )  # what other components have more of
    assert "is not one of 'relevance', 'weight'" in invoke("topics", tmp_path / "x.npy.m", "--by", "x", fails=True)


def test_topics_of_hashed_words_say_how_to_keep_them(texts: Path) -> None:
    output = invoke("fit", f"{texts}?hashed=64", "-k", 2, "--out", "h")
    assert "topic" not in output
    assert "the words of this model were hashed" in invoke("topics", "h")


def test_words_that_lead_every_topic_are_named_with_the_cure(texts: Path) -> None:
    json_lines(texts, sentences(words="the and the and the of"))
    said = invoke("fit", texts, "-k", 3, "--seed", 0, "--passes", 2, "--out", "m")
    assert len(re.findall(r"%\): ([a-z]{3,} ){6}the and$", said, re.MULTILINE)) == 3  # what fit says, it says by lift
    output = invoke("topics", "m", "--by", "weight")
    assert re.search("most topics have '(the|and)', '(the|and)'.* among their leading words; --by lift", output)
    assert "most topics" not in invoke("topics", "m", "--by", "lift")
    assert invoke("fit", f"{texts}?stop=english", "-k", 3, "--seed", 0, "--out", "s")
    assert "most topics" not in invoke("topics", "s")


# onmf transform --proportions


@pytest.mark.parametrize("out", ["h.csv", "h.tsv", "h.jsonl", "h.parquet", "h.npy"])
def test_proportions_are_written_instead_of_coefficients(out: str, model: Path, texts: Path) -> None:
    assert "proportions of 300 samples, 3 each" in invoke("transform", model, texts, "--proportions", "--out", out)
    readers: dict[str, Any] = {
        ".csv": pd.read_csv,
        ".tsv": lambda path: pd.read_csv(path, sep="\t"),
        ".jsonl": lambda path: pd.read_json(path, lines=True),
        ".parquet": pd.read_parquet,
        ".npy": lambda path: pd.DataFrame(np.load(path)),
    }
    found = readers[Path(out).suffix](out).to_numpy()[:, -3:]
    nmf = onmf.load(model)
    X = scipy.sparse.vstack([batch for _, batch in open_source(texts, like=nmf.source_).batches(99)])
    named = pd.DataFrame.sparse.from_spmatrix(X.tocsr(), columns=nmf.feature_names_in_)
    np.testing.assert_allclose(found, nmf.proportions(named.sparse.to_dense()), atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1)


def test_proportions_of_a_row_that_cannot_be_read_are_nan(model: Path, texts: Path) -> None:
    lines = texts.read_text().splitlines()
    lines[4] = "{nonsense"
    texts.write_text("\n".join(lines))
    invoke("transform", model, texts, "--proportions", "--on-error", "skip", "--out", "h.npy")
    assert np.flatnonzero(np.isnan(np.load("h.npy")).any(axis=1)).tolist() == [4]


# From raw texts to words


def test_texts_in_a_file_keep_their_words_and_those_in_one_text_alone_are_left_out(tmp_path: Path) -> None:
    texts = sentences()
    texts[7] += " unheard"
    source = open_source(json_lines(tmp_path / "x.jsonl", texts))
    assert source.feature_names == sorted(" ".join(SUBJECTS.values()).split())
    assert source.spec is not None
    assert {"words": 10_000, "min_df": 2, "field": "body"}.items() <= source.spec.options.items()
    few = open_source(json_lines(tmp_path / "y.jsonl", texts[:20]))
    assert "unheard" in few.feature_names  # type: ignore[operator]
    (tmp_path / "z.txt").write_text("\n".join(f"word{number}" for number in range(200)))
    assert open_source(tmp_path / "z.txt").n_features == 200  # no word is in two texts


def test_the_usual_vocabulary_is_of_the_most_frequent_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "USUAL", 6)
    source = open_source(json_lines(tmp_path / "x.jsonl", sentences()))
    assert source.feature_names == sorted(SUBJECTS["animals"].split())


def test_texts_that_come_once_are_hashed_and_say_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text._say_hashed.cache_clear()
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(sentences(30))))
    source = open_source("text:-")
    assert source.feature_names is None
    assert not caplog.records  # the error of data that are no texts comes alone
    next(source.batches(5))
    assert "Words are hashed, so that the model will not know which words" in caplog.text
    with pytest.raises(SourceError, match="need a vocabulary; learn one from a file first"):
        open_source("text:-?min_df=2")


LONG = " ".join(["many words"] * 8)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"body": LONG}, "body"),
        ({"id": "a7", "body": LONG}, "body"),
        ({"title": "a few words", "story": LONG}, "story"),
        ({"text": "short", "body": LONG}, "text"),
        ({"stars": 4, "review": "so so"}, "review"),
    ],
    ids=str,
)
def test_the_field_that_is_clearly_the_text_need_not_be_named(
    fields: dict[str, Any], found: str, tmp_path: Path
) -> None:
    (tmp_path / "x.jsonl").write_text((json.dumps(fields) + "\n") * 5)
    source = open_source(tmp_path / "x.jsonl")
    assert source.spec is not None
    assert source.spec.options["field"] == found


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"question": LONG, "answer": LONG, "id": 3}, "choose one of question, answer, id, as in '"),
        ({"label": "cat", "x": 1.5}, "its fields are label, x: choose those of numbers by features="),
        ({"label": "cat"}, "none of its fields looks like a text; its fields are label: choose the text by field="),
    ],
    ids=str,
)
def test_where_no_field_is_clearly_the_text_they_are_listed(fields: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text((json.dumps(fields) + "\n") * 5)
    with pytest.raises(SourceError, match=re.escape(words)):
        open_source(tmp_path / "x.jsonl")


def test_a_fit_of_texts_ends_with_its_topics_ten_at_most(texts: Path) -> None:
    output = invoke("fit", texts, "-k", 3, "--seed", 0, "--passes", 2, "--out", "m")
    said = re.findall(r"^topic \d \((\d+)%\): (.*)$", output, re.MULTILINE)
    assert [int(share) for share, _ in said] == pytest.approx([60, 30, 10], abs=5)
    assert "The texts are those of the field 'body'." in output
    assert set(said[0][1].split()) > set(SUBJECTS["animals"].split())
    assert output.rstrip().endswith("onmf topics m shows more of them, with their values.")
    output = invoke("fit", texts, "-k", 12, "--seed", 0, "--out", "m")
    assert len(re.findall(r"^topic ", output, re.MULTILINE)) == 10
    assert "shows all 12" in output
    pd.DataFrame(np.random.default_rng(0).random((40, 3)), columns=list("abc")).to_csv("x.csv", index=False)
    assert "topic" not in invoke("fit", "x.csv", "-k", 2, "--out", "m")


@pytest.mark.parametrize("kind", ["texts", "table", "objects"])
def test_lines_in_order_of_subject_are_shuffled_unless_asked_not_to_be(texts: Path, kind: str) -> None:
    X, data, W = np.random.default_rng(0).poisson(np.repeat(4 * np.eye(3), 100, axis=0)), str(texts), {}
    if kind == "table":
        np.savetxt(data := "x.csv", X, delimiter=",")
    elif kind == "objects":
        Path("x.jsonl").write_text("\n".join(json.dumps(dict(zip("abc", row, strict=True))) for row in X.tolist()))
        data = "x.jsonl?features=a,b,c"
    for name, options in {"usual": [], "buffer": ["--shuffle-buffer", 10_000], "none": ["--no-shuffle"]}.items():
        invoke("fit", data, "-k", 3, "--seed", 0, "--batch-size", 50, *options, "--out", name)
        W[name] = onmf.load(name).components_
    assert np.array_equal(W["usual"], W["buffer"])
    assert not np.array_equal(W["usual"], W["none"])
    if kind == "table":  # one pass finds the three classes
        assert (W["usual"].max(axis=1) > 0.95 * W["usual"].sum(axis=1)).all()


def test_help_tells_of_stop_words_and_limits() -> None:
    told = invoke("formats")
    assert all(option in told for option in ("stop=english", "min_df=5", "max_df=0.5", "words "))
