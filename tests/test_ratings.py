"""Ratings: read as users x items, learnt, and turned into lists of items for users, new ones included."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from onmf import OnlineNMF, load, recommend, save
from onmf.data import SourceError, open_source
from onmf.data.ratings import item_means, user_lines
from onmf.insight.recommendation import scores_and_ratings
from tests.conftest import Run

OPTIONS = "?user=who&item=film&value=stars"
USERS, ITEMS, GROUP = 120, 30, 10  # three groups of users, each with films of its own
SETTINGS: dict[str, Any] = {"divergence": "squared_l2", "max_passes": 5, "random_state": 0}


@pytest.fixture(scope="module")
def ratings() -> pd.DataFrame:
    """Each user has rated six of the ten films of the group; later films are better, some users are generous."""
    rng = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"f{film}", np.clip(2 + 0.2 * (film % GROUP) + bias, 0.5, 5), 123)
        for user in range(USERS)
        for bias in [rng.choice([-1.0, 1.0])]
        for film in GROUP * (user % 3) + rng.permutation(GROUP)[:6]
    ]
    return pd.DataFrame(rows, columns=["who", "film", "stars", "time"]).sample(frac=1, random_state=0)


@pytest.fixture(scope="module")
def path(ratings: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ratings") / "r.csv"
    ratings.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(path: Path) -> OnlineNMF:
    return OnlineNMF(3, **SETTINGS).fit(open_source(f"{path}{OPTIONS}"))


def read(text: object) -> tuple[list[str], list[str], Any]:
    source = open_source(str(text))
    (rows, X), *none = source.batches(10**6)
    assert not none
    assert scipy.sparse.issparse(X)
    return list(rows), list(source.feature_names or ()), X


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# Reading


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet"])
def test_ratings_are_read_as_users_by_items_that_have_their_names(
    kind: str, ratings: pd.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / f"r{kind}"
    if kind == ".parquet":
        ratings.to_parquet(path)
    else:
        ratings.to_csv(path, index=False, sep="\t" if "tsv" in kind else ",")
    users, items, X = read(f"{path}{OPTIONS}")
    table = ratings.pivot(index="who", columns="film", values="stars").loc[users, items]
    assert X.nnz == len(ratings)
    np.testing.assert_array_equal(X.toarray(), table.fillna(0))


def test_names_may_be_texts_with_commas_and_columns_numbers(tmp_path: Path) -> None:
    path = written(tmp_path / "r.csv", 'Ann,"Good, Bad, Ugly",5\nBob,Heat,0\n')
    users, items, X = read(f"{path}?user=0&item=1&value=2")
    assert (users, items) == (["Ann", "Bob"], ["Good, Bad, Ugly", "Heat"])
    assert X.nnz == 2  # a zero that is given is known


def test_of_repeated_ratings_the_last_one_counts_and_empty_ones_are_not_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "r.csv", "who,film,stars\na,x,1\na,y,\nb,x,2\na,x,5\n")
    users, items, X = read(f"{path}{OPTIONS}")
    assert (users, items, X.nnz) == (["a", "b"], ["x", "y"], 2)
    np.testing.assert_array_equal(X.toarray(), [[5, 0], [2, 0]])
    assert "1 earlier rating of the same user and item is replaced by the last one." in caplog.text


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("who,film,stars\na,x,1\n", "?user=who&item=film", "user=, item= and value=, all three"),
        ("who,film,stars\na,x,1\n", f"{OPTIONS}&drop=who", "none of drop=, index= and weight="),
        ("who,film,stars\na,x,1\n", "?user=who&item=movie&value=stars", "no column 'movie'; its columns are who, film"),
        ("who,film,stars\na,x,good\n", OPTIONS, "'good' is not a number at row a"),
        ("who,film,stars\na,x\n", OPTIONS, "has 2 values, the header has 3"),
        ("who,film,stars\na,x,\n", OPTIONS, "no known rating"),
        ("who,film,stars\na,x,inf\n", OPTIONS, "a rating larger than 1e+100"),
        ("who,film,stars\na,x,1\n" * 2000, f"{OPTIONS}&memory=90kB", "takes"),
    ],
)
def test_bad_ratings_raise_an_error_that_names_the_cure(text: str, options: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "r.csv", text)
    with pytest.raises(SourceError) as caught:
        open_source(f"{path}{options}")
    assert words in str(caught.value)


def test_a_pipe_of_ratings_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"who,film,stars\na,x,1\n")))
    with pytest.raises(SourceError, match="standard input can be read only once, and ratings are read twice; write it"):
        open_source(f"csv:-{OPTIONS}")


def test_ratings_take_no_more_memory_than_allowed(tmp_path: Path) -> None:
    lines = "".join(f"user{k},item{k},1\n" for k in range(5000))
    path = written(tmp_path / "r.csv", "who,film,stars\n" + lines)
    with pytest.raises(SourceError, match=r"the ratings in .*r.csv takes? .* of memory"):
        open_source(f"{path}{OPTIONS}&memory=1MB")
    assert open_source(f"{path}{OPTIONS}&memory=20MB").n_samples == 5000


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_a_plain_table_that_looks_like_ratings_gets_a_warning_with_the_options(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"r{kind}"
    frame = pd.DataFrame({"userId": [1, 1], "movieId": [3, 4], "rating": [4.0, 3.0], "timestamp": [9, 9]})
    frame.to_parquet(path) if kind == ".parquet" else frame.to_csv(path, index=False)
    assert open_source(path).n_features == 4
    assert "?user=userId&item=movieId&value=rating reads users x items" in caplog.text
    caplog.clear()
    open_source(f"{path}?columns=rating,timestamp")
    open_source(f"{path}?user=userId&item=movieId&value=rating")
    frame.drop(columns="rating").to_csv(tmp_path / "other.csv", index=False)
    open_source(tmp_path / "other.csv")
    assert caplog.text == ""


def test_other_data_have_the_items_of_the_model_and_unknown_ones_are_counted(
    model: OnlineNMF, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "new.csv", "who,film,stars\nme,f3,4\nme,new,2\nme,f1,5\nyou,new,1\n")
    source = open_source(str(path), like=model.source_)  # the model knows the columns
    assert "2 ratings are of items that the model does not know, and left out" in caplog.text
    ((users, X),) = source.batches(10)
    assert (list(users), source.feature_names) == (["me", "you"], list(model.feature_names_in_))
    assert X.nnz == 2
    expected = np.zeros((2, ITEMS))
    expected[0, [source.feature_names.index("f3"), source.feature_names.index("f1")]] = 4, 5
    np.testing.assert_allclose(np.concatenate(list(model.transform(source))), model.transform(expected))


def test_a_file_of_unknown_items_gets_what_is_popular(model: OnlineNMF, tmp_path: Path) -> None:
    path = written(tmp_path / "new.csv", "who,film,stars\nme,new,2\n")
    ((_, X),) = open_source(str(path), like=model.source_).batches(10)
    assert recommend(model, X.toarray()) == recommend(model, np.zeros((1, ITEMS)))


# Recommending


def test_a_new_user_is_recommended_what_people_alike_have_rated(model: OnlineNMF) -> None:
    names = list(model.feature_names_in_)
    user = np.zeros((2, ITEMS))
    user[0, [names.index(name) for name in ("f10", "f11", "f12", "f13")]] = 4
    user[1, [names.index(name) for name in ("f20", "f21", "f22")]] = 4
    first, second = recommend(model, user, 5)
    assert {each.item for each in first} < {f"f{k}" for k in range(14, 20)}
    assert {each.item for each in second} < {f"f{k}" for k in range(23, 30)}
    assert [each.score for each in first] == sorted((each.score for each in first), reverse=True)
    (seen,) = recommend(model, user[:1], 10, exclude_seen=False)
    assert {each.item for each in seen} == {f"f{k}" for k in range(10, 20)}
    (every,) = recommend(model, user[0], 10**6)  # as many as there are
    assert len(every) == ITEMS - 4


def test_users_may_be_arrays_sparse_matrices_or_data_frames_whose_items_are_found_by_name(model: OnlineNMF) -> None:
    rng = np.random.default_rng(1)
    user = np.where(rng.random((4, ITEMS)) < 0.3, rng.integers(1, 6, (4, ITEMS)), 0).astype(float)
    expected = recommend(model, user)
    assert recommend(model, scipy.sparse.csr_matrix(user)) == expected
    assert recommend(model, np.where(user == 0, np.nan, user)) == expected
    frame = pd.DataFrame(user, columns=model.feature_names_in_)
    order = rng.permutation(ITEMS)
    assert recommend(model, frame.iloc[:, order]) == expected
    with pytest.warns(UserWarning, match="1 item that the model does not know is left out"):
        assert recommend(model, frame.iloc[:, order].assign(new=3.0)) == expected
    rated = user.any(axis=0)
    assert recommend(model, frame.loc[:, rated]) == expected  # items that are not there are not known
    with pytest.raises(ValueError, match="a user has 3 ratings, but the model has 30 items"):
        recommend(model, user[:, :3])


def test_who_has_rated_nothing_is_recommended_what_is_popular(model: OnlineNMF, ratings: pd.DataFrame) -> None:
    (found,) = recommend(model, np.zeros(ITEMS), ITEMS)
    totals = ratings.groupby("film").stars.sum()
    order = [totals[each.item] for each in found]
    assert np.corrcoef(order, [each.score for each in found])[0, 1] > 0.9
    assert sum(each.score for each in found) == pytest.approx(totals.sum() / USERS, rel=0.1)


def test_a_rating_is_predicted_by_the_items_mean_and_the_users_bias(model: OnlineNMF, ratings: pd.DataFrame) -> None:
    """Films get better by a fifth of a star, and users are a star below or above."""
    names = list(model.feature_names_in_)
    user = np.zeros(ITEMS)
    user[[names.index(name) for name in ("f10", "f11", "f12", "f13", "f14", "f15")]] = 0.2 * np.arange(6) + 3
    found = {each.item: each.rating for each in recommend(model, user, ITEMS)[0]}
    assert 4.2 < found["f19"] < 4.8  # 3.8 for an average user; this one is a star above, by six ratings only
    assert found["f19"] - found["f16"] == pytest.approx(0.6, abs=0.25)
    generous = {each.item: each.rating for each in recommend(model, np.where(user > 0, 5.0, 0), ITEMS)[0]}
    assert max(generous.values()) == ratings.stars.max()  # no more than anyone has given


def test_items_are_as_good_as_their_raters_are_strict_and_few_ratings_say_little() -> None:
    rng = np.random.default_rng(0)
    quality, level, slope = rng.normal(3, 0.5, 40), rng.normal(0, 0.5, 200), rng.uniform(0.5, 1.5, 200)
    rows, columns = np.nonzero(rng.random((200, 41)) < 0.5)
    rows, columns = rows[columns < 40], columns[columns < 40]  # nobody has rated the last one
    values = level[rows] + 3 + slope[rows] * (quality[columns] - 3)
    found = item_means(rows, columns, values, (200, 41))
    assert np.corrcoef(found[:40], quality)[0, 1] > 0.999
    assert found[40] == pytest.approx(values.mean())
    levels, slopes = user_lines(rows, columns, values, found, 201)
    assert np.corrcoef(slopes[:200], slope)[0, 1] > 0.95
    assert (levels[200], slopes[200]) == (0, 1)  # nothing is known of this user
    few = item_means(np.arange(5), np.array([0, 0, 0, 0, 1]), np.array([3.0, 3.0, 3.0, 3.0, 5.0]), (5, 2))
    assert 3.4 < few[1] < 4.0


@pytest.mark.parametrize("settings", [{"implicit": "missing"}, {"missing": "nan"}])
def test_a_model_of_ratings_alone_ranks_by_the_rating(settings: dict[str, Any]) -> None:
    X = np.outer([1.0, 2, 1, 2] * 10, [1.0, 2, 3, 0.5])
    X[::3, 1] = X[1::3, 2] = np.nan
    given = scipy.sparse.csr_matrix(np.nan_to_num(X)) if "implicit" in settings else X
    model = OnlineNMF(1, **SETTINGS, **settings).fit(given)
    (found,) = recommend(model, [[4.0, np.nan, np.nan, 2.0]])
    assert [each.item for each in found] == ["feature 2", "feature 1"]
    assert found[0].score == found[0].rating == pytest.approx(12, rel=0.1)


def test_a_model_without_means_predicts_no_rating() -> None:
    (found,) = recommend(OnlineNMF(2, **SETTINGS).fit(np.eye(4) + 1), np.ones(4), 2, exclude_seen=False)
    assert len(found) == 2
    assert all(np.isnan(each.rating) for each in found)


@pytest.mark.parametrize("damage", [{"means": [3.0]}, {"means": ["a"] * ITEMS}, {"low": [1, 2]}, {"high": "x"}])
def test_a_model_with_damaged_means_raises_an_error(model: OnlineNMF, damage: dict[str, Any]) -> None:
    spec = replace(model.source_, options=dict(model.source_.options) | damage)
    broken = OnlineNMF(3, **SETTINGS)
    broken._learned = replace(model._learned, source=spec)
    with pytest.raises(ValueError, match="the means of ratings in this model are damaged; learn it again"):
        recommend(broken, np.ones(ITEMS))


# The command line


def test_the_command_line_learns_ratings_and_recommends(
    path: Path, model: OnlineNMF, tmp_path: Path, run_main: Run
) -> None:
    out = tmp_path / "m.safetensors"
    status, _, error = run_main(
        "fit", f"{path}{OPTIONS}", "-k", 3, "--divergence", "squared_l2", "--passes", 5, "--seed", 0, "--out", out
    )
    assert status == 0, error
    status, output, error = run_main("recommend", out, path, "--user", "u7", "-n", 3, "--json")
    assert status == 0, error
    (user,) = json.loads(output)["users"]
    source = open_source(str(path), like=model.source_)
    ((names, X),) = source.batches(10**4)
    (expected,) = recommend(load(out), X[list(names).index("u7")], 3)
    assert user["user"] == "u7"
    assert [each["item"] for each in user["items"]] == [each.item for each in expected]
    assert user["items"][0]["score"] == pytest.approx(expected[0].score)
    table = run_main("recommend", out, path, "--user", "u7", "-n", 3)[1]
    assert all(each.item in table and f"{each.rating:.2f}" in table for each in expected)
    lists = list(csv.DictReader(io.StringIO(run_main("recommend", out, path, "-n", 3, "--csv")[1])))
    assert len(lists) == 3 * USERS
    assert [each["item"] for each in lists if each["user"] == "u7"] == [each.item for each in expected]
    assert [each["rank"] for each in lists[:3]] == ["1", "2", "3"]
    for arguments, words in ((("--user", "nobody"), "has no user nobody"), (("--csv", "--json"), "give one of them")):
        status, _, error = run_main("recommend", out, path, *arguments)
        assert (status, words in error, "Traceback" in error) == (2, True, False)


def test_names_that_spreadsheets_would_compute_can_be_kept_from_it(tmp_path: Path, run_main: Run) -> None:
    path = written(tmp_path / "r.csv", "who,film,stars\n=1+1,@x,1\n=1+1,y,5\nb,y,2\nc,z,1\nc,y,1\n")
    save(OnlineNMF(1, **SETTINGS).fit(open_source(f"{path}{OPTIONS}")), tmp_path / "m")
    arguments = "recommend", tmp_path / "m", path, "--user", "=1+1", "--include-seen", "--csv"
    assert "=1+1,1,y" in run_main(*arguments)[1]
    assert "'=1+1,1,y" in run_main(*arguments, "--safe-csv")[1]


# Real ratings


def test_on_real_ratings_one_recipe_ranks_and_predicts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fifth of the entries is held out; popularity finds .16 of them in ten, and .866 is the aim for ratings."""
    if "ONMF_DATA" not in os.environ:
        pytest.skip("needs ONMF_DATA")
    place = Path(os.environ["ONMF_DATA"]) / "movielens_latest_small" / "ratings.csv.gz"
    if not place.exists():
        pytest.skip(f"needs {place}")
    caplog.set_level(logging.ERROR)
    header, *lines = gzip.decompress(place.read_bytes()).decode().splitlines()
    user, item, value, _ = header.split(",")
    options = f"?user={user}&item={item}&value={value}"
    fold = np.random.default_rng(0).permutation(len(lines)) % 5
    known, held = (
        written(tmp_path / name, "\n".join([header, *(line for line, k in zip(lines, fold, strict=True) if kept(k))]))
        for name, kept in (("known.csv", lambda k: k > 0), ("held.csv", lambda k: k == 0))
    )
    model = OnlineNMF(20, **SETTINGS).fit(source := open_source(f"{known}{options}"))
    ((users, X),) = source.batches(10**4)
    ((others, test),) = open_source(str(held), like=model.source_).batches(10**4)
    test = test[[list(others).index(user) for user in users]]
    lists = recommend(model, X)
    place_of = {name: f for f, name in enumerate(model.feature_names_in_)}
    rated = test.toarray() > 0
    hits = [rated[row, [place_of[each.item] for each in items]].mean() for row, items in enumerate(lists)]
    assert np.mean(hits) > 0.24
    assert len({frozenset(each.item for each in items) for items in lists}) > 500
    dense = np.where(X.toarray() == 0, np.nan, X.toarray())
    rows, items = test.nonzero()
    errors = scores_and_ratings(model, dense)[1][rows, items] - test.data
    assert np.sqrt(np.square(errors).mean()) < 0.866
