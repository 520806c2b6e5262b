"""Features that grow: new words and columns are learnt, forgotten ones make room, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import onmf
from onmf import OnlineNMF
from onmf.cli import main as cli
from onmf.data import open_source
from onmf.data.columns import Features
from onmf.learner.growth import grown
from onmf.samples import as_samples

OLD = ("cat dog horse cow goat hen", "engine wheel road car brake fuel", "bread salt butter milk flour sugar")
NEW = ("court judge law trial jury verdict", "star moon planet orbit comet sun")


def sentences(n: int, subjects: tuple[str, ...], seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(subjects[rng.integers(len(subjects))].split(), 8)) for _ in range(n)]


def model_of(**settings: Any) -> OnlineNMF:
    return OnlineNMF(**({"n_components": 3, "random_state": 0} | settings))


def frame(n: int, columns: str, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    X = rng.gamma(1.0, 1.0, (n, 2)) @ rng.gamma(0.5, 1.0, (2, len(columns)))
    return pd.DataFrame(rng.poisson(5 * X).astype(float), columns=list(columns))


def invoke(*arguments: object, fails: bool = False) -> str:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "120"})
    assert (result.exit_code != 0) == fails, result.output
    return f"{result.output}{result.exception or ''}"


def written(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    return path


def words_of(model: OnlineNMF) -> list[set[str]]:
    return [{word for word, _ in features} for features in model.top_features(5)]


# Words


def test_partial_fit_on_texts_learns_new_words_and_keeps_the_names_of_old_ones() -> None:
    model = model_of()
    for seed in range(5):
        model.partial_fit(sentences(100, OLD, seed))
    before = model.feature_names_in_.tolist()
    assert set(before) == set(" ".join(OLD).split())
    for seed in range(40):
        model.partial_fit(sentences(100, NEW, seed))
    assert model.feature_names_in_.tolist()[: len(before)] == before
    assert set(model.feature_names_in_) == set(" ".join(OLD + NEW).split())
    assert model.components_.shape == (3, 30)
    assert all(any(found <= set(subject.split()) for found in words_of(model)) for subject in NEW)


@pytest.mark.parametrize("method", ["surrogate", "sparse_surrogate", "em", "auto"])
@pytest.mark.parametrize("divergence", ["kl", "squared_l2"])
def test_what_is_known_of_a_feature_that_stays_does_not_change(method: str, divergence: str) -> None:
    if divergence == "squared_l2" and method in ("sparse_surrogate", "em"):
        pytest.skip("they learn kl")
    model = model_of(method=method, divergence=divergence)
    for seed in range(3):
        model.partial_fit(sentences(100, OLD, seed))
    learned = model._learned
    assert learned is not None
    names = (*reversed(learned.features.names or ()), "comet")
    X = as_samples(np.random.default_rng(0).poisson(1.0, (10, len(names))).astype(float))
    there = grown(learned, Features.of(len(names), names), X)
    assert (there.state.W[:, -1] > 0).all()
    back = grown(there, learned.features, X.of_features(slice(18)))
    np.testing.assert_array_equal(back.state.W, learned.state.W)
    for name, array in learned.state.memory.items():
        np.testing.assert_array_equal(back.state.memory[name], array, err_msg=name)
        assert array.any() == back.state.memory[name].any()
    expected = learned.method.expected(learned.inside, there.state)
    assert {name: array.shape for name, array in expected.items()} == {
        name: array.shape for name, array in there.state.memory.items()
    }


def test_fit_from_a_model_learns_the_new_words_of_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = (
        written(tmp_path / "old.jsonl", sentences(200, OLD)),
        written(tmp_path / "new.jsonl", sentences(400, NEW)),
    )
    invoke("fit", old, "-k", 3, "--seed", 0, "--out", tmp_path / "m")
    invoke("fit", new, "--from", tmp_path / "m", "--passes", 10, "--out", tmp_path / "n")
    model = onmf.load(tmp_path / "n")
    assert set(model.feature_names_in_) == set(" ".join(OLD + NEW).split())
    assert any(found <= set(" ".join(NEW).split()) for found in words_of(model))
    assert "outside the model's" not in caplog.text
    invoke("transform", tmp_path / "m", new, "--out", tmp_path / "h.npy")
    assert "words; 400 of 400 texts have none of these" in caplog.text
    caplog.clear()
    some = written(tmp_path / "some.jsonl", sentences(100, (OLD[0] + " comet",)))
    invoke("fit", some, "--from", tmp_path / "m", "--features", "fixed", "--passes", 3, "--out", tmp_path / "n")
    assert caplog.text.count("16 % of the words are outside the model's ") == 1
    assert onmf.load(tmp_path / "n").n_features_in_ == 18


def test_weights_of_rarity_of_new_words_are_those_of_the_new_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "old.jsonl", sentences(200, OLD))
    model = model_of(divergence="squared_l2").fit(open_source(f"{path}?tfidf=yes"))
    then = dict(zip(model.feature_names_in_, model.source_.options["idf"], strict=True))
    new = written(tmp_path / "new.jsonl", sentences(300, NEW))
    model.fit(open_source(new, like=model.source_, grow=True), resume_from=model)
    now = dict(zip(model.feature_names_in_, model.source_.options["idf"], strict=True))
    assert len(now) == 30
    assert then.items() <= now.items()
    assert len(next(iter(model.transform(open_source(new, like=model.source_))))) == 300


def test_forgotten_words_make_room_and_without_forgetting_none_do() -> None:
    for method, stay in (("auto:forgetting=0.9", False), ("auto", True)):
        model = model_of(method=method, max_features=20)
        model.partial_fit(sentences(300, OLD))
        for seed in range(120):
            model.partial_fit(sentences(100, NEW, seed))
        names = set(model.feature_names_in_)
        assert len(names) == 20
        assert (set(" ".join(OLD).split()) <= names) == stay
        assert (set(" ".join(NEW).split()) <= names) != stay


def test_a_run_that_grows_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    first = model_of(batch_size=50).fit(sentences(200, OLD))
    onmf.save(first, tmp_path / "m")
    new, keep = sentences(400, OLD[:1] + NEW, 1), tmp_path / "run"
    whole = onmf.load(tmp_path / "m").fit(new, resume_from=tmp_path / "m")
    batches = 0

    def stop(_: Any) -> bool:
        nonlocal batches
        batches += 1
        return batches == 3

    cut = onmf.load(tmp_path / "m")
    cut.callbacks = [stop]
    cut.fit(new, resume_from=tmp_path / "m", checkpoint=keep)
    assert cut.n_samples_seen_ == 350
    resumed = onmf.load(tmp_path / "m").fit(new, resume_from=tmp_path / "m", checkpoint=keep, resume=True)
    np.testing.assert_array_equal(resumed.components_, whole.components_)
    assert resumed.feature_names_in_.tolist() == whole.feature_names_in_.tolist()
    assert whole.n_features_in_ == 30


def test_the_command_resumes_a_run_that_has_grown_bit_for_bit(tmp_path: Path) -> None:
    old, new = (
        written(tmp_path / "old.jsonl", sentences(200, OLD)),
        written(tmp_path / "new.jsonl", sentences(400, NEW)),
    )
    model, keep = tmp_path / "m", tmp_path / "run"
    invoke("fit", old, "-k", 3, "--seed", 0, "--batch-size", 50, "--out", model)
    invoke("fit", new, "--from", model, "--passes", 1, "--checkpoint", keep, "--out", tmp_path / "one")
    invoke("fit", new, "--from", model, "--passes", 2, "--out", tmp_path / "two")
    assert onmf.load(tmp_path / "one").n_features_in_ == 30
    again = invoke(
        "fit", new, "--from", model, "--passes", 1, "--checkpoint", keep, "--resume", "--out", tmp_path / "r"
    )
    assert "Resuming" in again
    np.testing.assert_array_equal(onmf.load(tmp_path / "r").components_, onmf.load(tmp_path / "one").components_)


# Columns


@pytest.mark.parametrize("divergence", ["kl", "squared_l2", "huber"])
def test_new_columns_are_learnt_on_request_and_raise_an_error_otherwise(divergence: str) -> None:
    model = model_of(divergence=divergence, n_components=2).partial_fit(frame(100, "abcdef") + 0.1)
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame(100, "bcdefgh") + 0.1)
    model.set_params(features="grow")
    for seed in range(20):
        model.partial_fit(frame(100, "bcdefgh", seed) + 0.1)
    assert model.feature_names_in_.tolist() == list("abcdefgh")
    X = (frame(50, "bcdefgh", 3) + 0.1).assign(a=0.1)[list("abcdefgh")]
    fresh = model_of(divergence=divergence, n_components=2)
    for seed in range(20):
        fresh.partial_fit((frame(100, "bcdefgh", seed) + 0.1).assign(a=0.1)[list("abcdefgh")])
    assert model.loss(X) < 1.5 * fresh.loss(X)


def test_a_column_that_is_gone_is_missing_where_entries_may_be() -> None:
    data = frame(200, "abcdef")
    model = model_of(n_components=2, missing="nan", features="grow").partial_fit(data)
    before = model.components_[:, 0] / model.components_.sum(axis=1)
    for seed in range(10):
        model.partial_fit(data.drop(columns="a").sample(80, random_state=seed))
    after = model.components_[:, 0] / model.components_.sum(axis=1)
    np.testing.assert_allclose(after, before, rtol=0.5)
    assert after.max() > 0.05


def test_tables_in_files_grow(tmp_path: Path) -> None:
    for name, columns in (("old", "abcdef"), ("new", "bcdefgh")):
        frame(100, columns).to_csv(tmp_path / f"{name}.csv", index=False)
    invoke("fit", tmp_path / "old.csv", "-k", 2, "--out", tmp_path / "m")
    said = invoke("fit", tmp_path / "new.csv", "--from", tmp_path / "m", "--out", tmp_path / "n", fails=True)
    assert "has no column 'a'" in said
    invoke("fit", tmp_path / "new.csv", "--from", tmp_path / "m", "--features", "grow", "--out", tmp_path / "n")
    assert onmf.load(tmp_path / "n").feature_names_in_.tolist() == list("abcdefgh")


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"method": "paper"}, "method 'paper' cannot take new ones"),
        ({"method": "auto:certified=100", "l2_coefficients": 0.1}, "with certified cannot take new ones"),
        ({"divergence": "mahalanobis"}, "that of its features"),
        ({"fixed": np.ones((1, 6))}, "fixed is set"),
        ({"device": "cpu"}, "device is set"),
    ],
    ids=["paper", "certified", "mahalanobis", "fixed", "device"],
)
def test_a_model_that_cannot_grow_says_so(settings: dict[str, Any], cause: str) -> None:
    if settings.get("divergence") == "mahalanobis":
        settings = {"divergence": onmf.divergences.find("mahalanobis")(np.eye(6))}
    if "device" in settings:
        pytest.importorskip("torch")
    model = model_of(n_components=2, features="grow", **settings)
    with pytest.raises(ValueError, match=cause):
        model.partial_fit(frame(100, "abcdef")).partial_fit(frame(100, "abcdefg"))


def test_texts_of_a_model_that_cannot_grow_are_learnt_by_the_words_it_knows(caplog: pytest.LogCaptureFixture) -> None:
    model = model_of(method="paper").partial_fit(sentences(100, OLD))
    model.partial_fit(sentences(100, (OLD[0] + " comet",), 1))
    assert model.n_features_in_ == 18
    assert "14 % of the words are outside the model's " in caplog.text


@pytest.mark.parametrize("wrong", [{"features": "more"}, {"max_features": 0}])
def test_settings_of_growth_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        model_of(**wrong).fit(sentences(50, OLD))
