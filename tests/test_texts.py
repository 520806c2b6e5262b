"""Texts: one row per text, blank or not; scikit-learn's vocabulary and weights, counted in bounded memory."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from onmf import OnlineNMF
from onmf.data import Source, SourceError, open_source, text
from onmf.data.text import WordCounts

TOPICS = ("cat dog horse cow the and", "engine wheel road car the and", "bread salt butter milk the and")


def lines(n: int = 60) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(TOPICS[row % 3].split(), 8)) for row in range(n)]


def whole(source: Source, size: int = 7) -> np.ndarray:
    found = list(source.batches(size))
    assert [row for rows, _ in found for row in rows.tolist()] == list(range(sum(batch.shape[0] for _, batch in found)))
    return np.concatenate([batch.toarray() for _, batch in found])


def written(folder: Path, texts: list[str], name: str = "x.txt") -> Path:
    path = folder / name
    path.write_text("".join(f"{each}\n" for each in texts))
    return path


# Rows


def test_blank_lines_stay_as_rows_of_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, ["the cat", "", "   ", "a dog", ""])
    for source in (open_source(f"{path}?words=9"), open_source(f"{path}?hashed=8")):
        np.testing.assert_array_equal(whole(source, 2).sum(axis=1), [2, 0, 0, 1, 0])
    assert open_source(f"{path}?words=9").n_samples == 5
    monkeypatch.setattr(sys, "stdin", io.StringIO(path.read_text()))
    np.testing.assert_array_equal(whole(open_source("text:-?hashed=8")).sum(axis=1), [2, 0, 0, 1, 0])


@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "is"])
@pytest.mark.filterwarnings("ignore:.*raised")
def test_blank_texts_are_learnt_from_and_get_coefficients_of_next_to_nothing(divergence: str, tmp_path: Path) -> None:
    texts = lines()
    texts[::5] = [""] * 12
    source = open_source(f"{written(tmp_path, texts)}?words=50")
    model = OnlineNMF(3, divergence=divergence, random_state=0, batch_size=20).fit(source)
    assert model.n_samples_seen_ == 60
    H = np.concatenate([model.transform(batch) for _, batch in source.batches(50)])
    assert H.shape == (60, 3)
    assert H[::5].max() < 1e-6 < H[np.arange(60) % 5 > 0].max(axis=1).min()


def test_texts_after_one_that_cannot_be_read_keep_their_numbers(tmp_path: Path) -> None:
    objects = [json.dumps({"text": each}) for each in lines(6)]
    objects[2] = "{nonsense"
    errors: list[Any] = []
    source = open_source(f"{written(tmp_path, objects, 'x.jsonl')}?words=9")
    found = [rows.tolist() for rows, _ in source.batches(4, on_bad=errors.append)]
    assert found == [[0, 1, 3, 4], [5]]
    assert [str(error).rpartition(": ")[2][:5] for error in errors] == ["row 2"]
    assert source.n_samples == 6


def test_json_lines_come_from_anywhere_once_their_field_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = "".join(json.dumps({"body": each}) + "\n" for each in ("the cat", "", "a dog"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(objects))
    (tmp_path / "x.log").write_text(objects)
    for where in ("text:-", f"text:{tmp_path}/x.log"):
        source = open_source(f"{where}?field=body&hashed=8")
        np.testing.assert_array_equal(whole(source).sum(axis=1), [2, 0, 1])
    with pytest.raises(SourceError, match="the files of a folder are texts"):
        open_source(f"text:{tmp_path}?field=body")


def test_a_named_pipe_is_a_stream_that_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = open_source(f"text:{pipe}?hashed=8")
    assert (source.rewinds, source.n_samples) == (False, None)
    writer = threading.Thread(target=pipe.write_text, args=("the cat\n\na dog\n",))
    writer.start()
    np.testing.assert_array_equal(whole(source).sum(axis=1), [2, 0, 1])
    writer.join()
    with pytest.raises(SourceError, match=r"pipe can be read only once"):
        source.batches(5)
    with pytest.raises(SourceError, match=r"pipe can be read only once, so no vocabulary can be learnt first"):
        open_source(f"text:{pipe}?words=5")


# Words


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ("", {}),
        ("&stop=english", {"stop_words": "english"}),
        ("&min_df=9&max_df=30", {"min_df": 9, "max_df": 30}),
        ("&min_df=0.15&max_df=0.5", {"min_df": 0.15, "max_df": 0.5}),
        ("&ngrams=2", {"ngram_range": (1, 2)}),
        ("&stop=english&min_df=2&max_df=1.0&ngrams=3", {"stop_words": "english", "min_df": 2, "ngram_range": (1, 3)}),
    ],
)
def test_words_are_chosen_counted_and_weighted_as_by_scikit_learn(
    options: str, same: dict[str, Any], tmp_path: Path
) -> None:
    texts = [*lines(), ""]
    path = written(tmp_path, texts)
    for tfidf, vectoriser in (("no", CountVectorizer(**same)), ("yes", TfidfVectorizer(**same))):
        source = open_source(f"{path}?words=5000&tfidf={tfidf}{options}")
        expected = vectoriser.fit_transform(texts).toarray()
        assert source.feature_names == vectoriser.get_feature_names_out().tolist()
        np.testing.assert_allclose(whole(source), expected, rtol=1e-14)


def test_the_most_frequent_words_are_taken(tmp_path: Path) -> None:
    path = written(tmp_path, ["bb bb bb aa", "cc cc", "dd aa", "aa"])
    assert open_source(f"{path}?words=2").feature_names == ["aa", "bb"]
    assert open_source(f"{path}?words=2&max_df=2").feature_names == ["bb", "cc"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("words=5&stop=klingon", "stop must be english"),
        ("words=5&min_df=half", "min_df must be a number, got 'half'"),
        ("words=5&max_df=nan", "max_df must be a number"),
        ("words=5&max_df=1.5", r"a share of them, as in max_df=0\.5; got 1\.5"),
        ("words=5&min_df=0", "min_df is a number of texts, as in min_df=5"),
        ("words=5&min_df=999", "of 2 words in 2 texts none is in at least 999 and at most 2 of them"),
        ("words=5&ngrams=0", "ngrams must be at least 1"),
        ("words=5&tfidf=maybe", "tfidf must be yes or no, got 'maybe'"),
        ("words=5&hashed=5", "give one of them"),
        ("hashed=99999999999", "hashed must be at least 1 and at most 2147483647"),
        ("hashed=64&tfidf=yes", "need a vocabulary; leave out hashed="),
        ("hashed=64&min_df=5", "need a vocabulary; leave out hashed="),
    ],
)
def test_settings_of_words_that_make_no_sense_are_refused(options: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, ["the cat", "the cat"])
    with pytest.raises(SourceError, match=words):
        open_source(f"{path}?{options}")


def test_counting_forgets_rare_words_rather_than_growing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    counts = WordCounts(most=1000)
    for row in range(3000):
        counts.add(["often", "often", f"once{row}", f"once more{row}"])
        assert max(len(counts.total), len(counts.in_texts)) <= 1000
    assert (counts.texts, counts.total["often"], counts.in_texts["often"]) == (3000, 6000, 3000)
    assert counts.chosen("here", 1, None, None) == ["often"]
    (record,) = caplog.records
    assert "more than 1000 different words" in record.getMessage()


def test_hashing_says_once_that_words_will_not_be_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, lines())
    text._say_hashed.cache_clear()
    open_source(f"{path}?words=5")
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "onmf"):
        source = open_source(f"{path}?hashed=64")
        for each in (source, open_source(f"{path}?hashed=16"), open_source(path, like=source.spec)):
            next(each.batches(5))
    (record,) = caplog.records
    assert "will not know which words" in record.getMessage()
    assert "without hashed= they are kept" in record.getMessage()
    text._say_hashed.cache_clear()
    next(open_source(path, like=source.spec).batches(5))  # nothing can be done about it any more
    assert len(caplog.records) == 1


@pytest.mark.parametrize("use", ["transform", "loss", "partial_fit"])
def test_texts_given_to_a_model_of_numbers_raise_an_error(use: str) -> None:
    model = OnlineNMF(2, random_state=0).fit(np.random.default_rng(0).gamma(1, 1, (30, 5)))
    with pytest.raises(ValueError, match="a list of texts has 16384 features, but the model was learnt from 5"):
        getattr(model, use)(["the cat sat", "the dog"])
