"""Topics as people read them: documents that show them, names from a pipeline, an export for pyLDAvis; blank texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

import onmf
from onmf import BatchNMF, OnlineNMF
from onmf.data import SourceError, open_source
from tests.test_topics import SUBJECTS, invoke, json_lines, sentences


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return json_lines(tmp_path / "docs.jsonl", sentences())


@pytest.fixture
def model(texts: Path) -> OnlineNMF:
    return OnlineNMF(3, random_state=0, max_passes=2).fit(open_source(texts))


UNKNOWN = ["zebra zebra", "", "cat dog cat", "quagga"]

# Texts without a known word


def test_proportions_of_texts_without_a_known_word_are_nan_counted_and_told_once(
    model: OnlineNMF, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.warns(UserWarning, match="3 of 4 samples have no entry above zero") as told:
        shares = model.proportions(UNKNOWN)
    assert len(told) == 1
    assert np.isnan(shares).any(axis=1).tolist() == [True, True, False, True]
    assert shares[2].sum() == pytest.approx(1)
    told = f"50 % of the words are outside the model's {model.n_features_in_} words; 3 of 4 texts have none of these."
    assert caplog.text.count(told) == 1
    H = model.transform(UNKNOWN)
    assert H[[0, 1, 3]].max() < 1e-6 < H[2].max()


def test_the_shares_of_a_dark_pixel_on_the_simplex_stay() -> None:
    X = np.random.default_rng(0).random((60, 5))
    model = OnlineNMF(2, divergence="squared_l2", coefficients="simplex", random_state=0).fit(X)
    assert np.isfinite(model.proportions(np.zeros((1, 5)))).all()


def test_the_command_writes_nan_for_them_and_says_how_many(texts: Path) -> None:
    invoke("fit", texts, "-k", 3, "--seed", 0, "--out", "m")
    json_lines(Path("new.jsonl"), UNKNOWN)
    said = invoke("transform", "m", "new.jsonl", "--proportions", "--out", "h.npy")
    assert np.isnan(np.load("h.npy")).any(axis=1).tolist() == [True, True, False, True]
    assert "3 of the 4 rows are zeros, so that their proportions are NaN" in said
    assert "none of these" not in said  # once is enough
    invoke("transform", "m", "new.jsonl", "--out", "h.npy")
    assert np.isfinite(np.load("h.npy")).all()


def test_words_of_the_training_texts_are_not_called_unknown(
    model: OnlineNMF, texts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    list(model.transform(open_source(texts, like=model.source_)))
    assert "outside the model's" not in caplog.text


# Texts in memory


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda texts: __import__("pandas").Series(texts, index=texts)])
def test_texts_in_python_are_those_of_a_file(kind: Any, texts: Path) -> None:
    given = sentences()
    there = OnlineNMF(3, random_state=0, shuffle=False).fit(open_source(texts))
    here = OnlineNMF(3, random_state=0, shuffle=False).fit(kind(given))
    np.testing.assert_array_equal(here.components_, there.components_)
    assert here.source_.names == there.source_.names
    np.testing.assert_array_equal(
        here.transform(kind(given)), np.concatenate(list(there.transform(open_source(texts))))
    )
    onmf.save(here, "m")
    np.testing.assert_array_equal(onmf.load("m").transform(given[:9]), here.transform(given[:9]))
    many = BatchNMF(3, random_state=0, max_iter=20).fit(kind(given))
    assert many.transform(kind(given[:5])).shape == (5, 3)


def test_texts_in_python_take_the_options_of_files_and_keep_them(texts: Path) -> None:
    words = onmf.data.texts(sentences(words="the and"), stop="english", ngrams=2, tfidf=True)
    model = OnlineNMF(3, divergence="squared_l2", random_state=0).fit(words)
    assert "the" not in model.feature_names_in_
    assert "cat dog" in model.feature_names_in_
    onmf.save(model, "m")
    np.testing.assert_array_equal(onmf.load("m").transform(sentences(words="the")), model.transform(sentences()))
    with pytest.raises(SourceError, match=r"row 1 \(counted from 0\) is of type int, not a text"):
        onmf.data.texts(["cat", 3])  # type: ignore[list-item]


def test_stop_words_of_ones_own_are_read_once_and_kept_by_the_model(texts: Path) -> None:
    Path("stop.txt").write_text("Cat's dog\nHORSE\n")
    invoke("fit", f"{texts}?stop=stop.txt", "-k", 3, "--seed", 0, "--out", "m")
    Path("stop.txt").unlink()
    model = onmf.load("m")
    assert not {"cat", "dog", "horse"} & set(model.feature_names_in_)
    assert "goat" in model.feature_names_in_
    invoke("transform", "m", texts, "--out", "h.npy")
    with pytest.raises(SourceError, match=r"stop must be english, or a file of words; no such file: 'none.txt'"):
        open_source(f"{texts}?stop=none.txt")


# What people see


def test_documents_that_show_a_topic_best_are_of_its_subject_and_not_too_short(model: OnlineNMF) -> None:
    texts = [*sentences(), "bread"]
    found = model.representative_samples(texts, 5)
    assert [len(best) for best in found] == [5, 5, 5]
    for leaders, features in zip(found, model.top_features(3), strict=True):
        subject = next(words.split() for words in SUBJECTS.values() if features[0][0] in words.split())
        assert all(set(texts[row].split()) <= set(subject) and share > 0.9 for row, share in leaders)
        assert 300 not in [row for row, _ in leaders]


def test_the_command_shows_documents_of_topics(texts: Path) -> None:
    invoke("fit", texts, "-k", 3, "--seed", 0, "--passes", 2, "--out", "m")
    said = invoke("topics", "m", texts, "--documents", 2)
    assert said.count("% of row ") == 6
    facts = json.loads(invoke("topics", "m", texts, "--documents", 2, "--json"))
    assert facts["by"] == "lift"
    for topic in facts["topics"]:
        subject = next(words.split() for words in SUBJECTS.values() if topic["features"][0]["name"] in words.split())
        assert all(set(each["text"].split()) <= set(subject) for each in topic["documents"])
    assert "give DATA, too" in invoke("topics", "m", "--documents", 2, fails=True)


def test_names_of_a_pipeline_are_given_to_its_model(texts: Path) -> None:
    pipeline = make_pipeline(CountVectorizer(), OnlineNMF(3, random_state=0)).fit(sentences())
    model = pipeline[-1].with_feature_names(pipeline[:-1].get_feature_names_out())
    assert {word for word, _ in model.top_features(6)[0]} <= set(" ".join(SUBJECTS.values()).split())
    assert pipeline[-1].top_features(1)[0][0][0].startswith("feature ")
    onmf.save(model, "m")
    assert "cat" in onmf.load("m").feature_names_in_
    counts = pipeline[:-1].transform(sentences())
    for named in (model, onmf.load("m")):  # without scikit-learn's warning about names, which would be an error here
        np.testing.assert_allclose(named.proportions(counts.toarray()), named.proportions(counts), atol=1e-4)
        with pytest.raises(ValueError, match="X has 17 features, but the model was learnt from 18"):
            named.transform(counts[:, 1:])
    with pytest.raises(ValueError, match="there are 2 names for 18 features"):
        model.with_feature_names(["a", "b"])


def test_what_pyldavis_takes_is_normalised_and_without_blank_texts(model: OnlineNMF) -> None:
    given = [*sentences(), "", "zebra"]
    facts = model.for_pyldavis(given)
    assert facts["topic_term_dists"].shape == (3, 18)
    assert facts["doc_topic_dists"].shape == (300, 3)
    for name in ("topic_term_dists", "doc_topic_dists"):
        np.testing.assert_allclose(facts[name].sum(axis=1), 1)
    assert facts["doc_lengths"].tolist() == [8] * 300
    assert facts["vocab"] == model.feature_names_in_.tolist()
    assert facts["term_frequency"].sum() == 2400


def test_a_suggestion_for_texts_says_what_to_take_for_words(texts: Path) -> None:
    said = onmf.suggest_divergence(open_source(texts)).reason
    assert "read the texts with tfidf=yes and take squared_l2" in said
    assert "tfidf" not in onmf.suggest_divergence(np.random.default_rng(0).poisson(3.0, (50, 20))).reason
