"""Every way into the library, tried with what is no clean array of floats: the right answer, or one sentence."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, DataError, OnlineNMF, divergences, methods
from onmf.cli.main import app

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::onmf.DomainWarning")
F = 6
X = np.random.default_rng(0).integers(1, 20, (40, F)).astype(float)
EXTRA = np.random.default_rng(1).integers(1, 20, (12, F)).astype(float)


def with_entry(value: Any) -> np.ndarray:
    changed = EXTRA.copy()
    changed[2, 3] = value
    return changed


REFUSED: dict[str, tuple[Any, str]] = {
    "NaN": (with_entry(np.nan), "NaN in the data at row 2, column 3"),
    "infinity": (with_entry(np.inf), "Infinity (inf) in the data at row 2, column 3"),
    "minus infinity": (with_entry(-np.inf), "at row 2, column 3"),
    "negative": (with_entry(-3.0), "Negative values in data, the first -3"),
    "sparse NaN": (scipy.sparse.csr_matrix(with_entry(np.nan)), "NaN in the data at row 2, column 3"),
    "sparse negative": (scipy.sparse.csc_matrix(with_entry(-1.0)), "Negative values in data"),
    "empty batch": (np.empty((0, F)), "minimum of 1"),
    "no features": (np.empty((3, 0)), "minimum of 1"),
    "fewer features": (EXTRA[:, :4], "4 features"),
    "one dimension": (EXTRA[0], "2D"),
    "four dimensions": (EXTRA[None, None], "dim 4"),
    "a number": (3.0, "2D"),
    "strings": (np.full((3, F), "x"), "'x'"),
    "objects": (np.full((3, F), object()), "object"),
    "complex": (EXTRA + 1j, "omplex"),
    "ragged": ([[1, 2], [3]], "inhomogeneous"),
    "None": (None, "2D"),
    "all zeros": (np.zeros((3, F)), "The samples are all zeros"),
    "a text": ("x.csv", "open_source"),
}


def usable(kind: str) -> Any:
    """The numbers of EXTRA in another dress."""
    if kind.startswith(("int", "uint", "float")):
        return EXTRA.astype(kind)
    if kind in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia"):
        return getattr(scipy.sparse, f"{kind}_array")(EXTRA)
    if kind == "explicit zeros":
        coo = scipy.sparse.coo_array(EXTRA)
        more = np.zeros(F)
        data = np.concatenate([coo.data, more])
        rows, columns = np.concatenate([coo.row, np.zeros(F, int)]), np.concatenate([coo.col, np.arange(F)])
        return scipy.sparse.coo_array((data, (rows, columns)), shape=EXTRA.shape)
    if kind == "duplicates":
        coo = scipy.sparse.coo_array(EXTRA)
        twice = (np.concatenate([coo.row, coo.row]), np.concatenate([coo.col, coo.col]))
        return scipy.sparse.coo_array((np.concatenate([coo.data, coo.data]) / 2, twice), shape=EXTRA.shape)
    if kind == "unsorted":
        csr = scipy.sparse.csr_array(EXTRA)
        order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(csr.indptr, csr.indptr[1:], strict=False)])
        return scipy.sparse.csr_array((csr.data[order], csr.indices[order], csr.indptr), shape=EXTRA.shape)
    if kind == "Fortran":
        return np.asfortranarray(EXTRA)
    if kind == "strided":
        return np.repeat(EXTRA, 2, axis=1)[:, ::2]
    if kind == "reversed":
        return EXTRA[::-1][::-1]
    if kind == "read-only":
        fixed = EXTRA.copy()
        fixed.flags.writeable = False
        return fixed
    if kind == "big-endian":
        return EXTRA.astype(">f8")
    return EXTRA.tolist()


USABLE = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64", "csr",
    "csc", "coo", "lil", "dok", "bsr", "dia", "explicit zeros", "duplicates", "unsorted", "Fortran", "strided",
    "reversed", "read-only", "big-endian", "lists",
]  # fmt: skip

BITS = ("int32", "uint8", "Fortran", "strided", "reversed", "read-only", "big-endian", "lists")  # these bit for bit


def online() -> OnlineNMF:
    return OnlineNMF(2, divergence="kl", method="surrogate", random_state=0).fit(X)


def batch() -> BatchNMF:
    return BatchNMF(2, divergence="kl", max_iter=5, random_state=0).fit(X)


ENTRIES: dict[str, Callable[[Any], Any]] = {
    "fit": lambda data: OnlineNMF(2, method="surrogate", random_state=0).fit(data).components_,
    "partial_fit": lambda data: online().partial_fit(data).components_,
    "first partial_fit": lambda data: OnlineNMF(2, method="surrogate", random_state=0).partial_fit(data).components_,
    "fit_transform": lambda data: OnlineNMF(2, method="surrogate", random_state=0).fit_transform(data),
    "transform": lambda data: online().transform(data),
    "loss": lambda data: online().loss(data),
    "score": lambda data: online().score(data),
    "stationarity": lambda data: online().stationarity(data),
    "proportions": lambda data: online().proportions(data),
    "batch fit": lambda data: BatchNMF(2, max_iter=5, random_state=0).fit(data).components_,
    "batch transform": lambda data: batch().transform(data),
}
BEGINNINGS = ("fit", "first partial_fit", "fit_transform", "batch fit")


def is_bad(entry: str, kind: str) -> bool:
    """A model that knows no features takes any number of them; one that knows a scale takes samples of zeros."""
    return {"fewer features": entry not in BEGINNINGS, "all zeros": entry in BEGINNINGS}.get(kind, True)


@pytest.mark.parametrize(("entry", "kind"), [(e, k) for e in ENTRIES for k in REFUSED if is_bad(e, k)])
def test_what_cannot_be_used_is_refused_in_one_sentence(entry: str, kind: str) -> None:
    data, words = REFUSED[kind]
    with pytest.raises((ValueError, TypeError)) as error:
        ENTRIES[entry](data)
    message = str(error.value)
    assert words in message
    assert len(message) < 700


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("entry", ["fit", "partial_fit", "transform", "batch fit"])
def test_of_many_bad_entries_the_first_is_named(entry: str, form: Any) -> None:
    data = with_entry(np.nan)
    data[9, 1] = data[2, 5] = -1
    with pytest.raises(DataError, match="NaN in the data at row 2, column 3"):
        ENTRIES[entry](form(data))


@pytest.mark.parametrize("kind", USABLE)
@pytest.mark.parametrize("entry", ENTRIES)
def test_the_same_numbers_in_another_dress_give_the_same_answer(entry: str, kind: str) -> None:
    expected, found = ENTRIES[entry](EXTRA), ENTRIES[entry](usable(kind))
    if kind in BITS:
        np.testing.assert_array_equal(found, expected)
    tolerance = 2e-2 if kind in ("float16", "float32") else 1e-3  # coefficients are found to 1e-4
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected)))


ON_DISK = [kind for kind, (data, _) in REFUSED.items() if isinstance(data, np.ndarray) or scipy.sparse.issparse(data)]


def written(data: Any, folder: Path) -> Path:
    """The data in the file that holds such."""
    if scipy.sparse.issparse(data):
        scipy.sparse.save_npz(folder / "x.npz", data)
        return folder / "x.npz"
    np.save(folder / "x.npy", data, allow_pickle=True)
    return folder / "x.npy"


@pytest.mark.parametrize(("kind", "command"), [(k, c) for k in ON_DISK for c in ("fit", "transform") if is_bad(c, k)])
def test_the_command_line_refuses_it_too(kind: str, command: str, tmp_path: Path) -> None:
    data = written(REFUSED[kind][0], tmp_path)
    onmf.save(online(), tmp_path / "model")
    arguments = ["fit", data, "-k", "2"] if command == "fit" else ["transform", tmp_path / "model", data]
    before = set(tmp_path.iterdir())
    result = CliRunner().invoke(app, [*map(str, arguments), "--out", str(tmp_path / "out.npy")])
    assert isinstance(result.exception, ValueError | SystemExit)  # the former is printed by main
    message = str(result.exception) if isinstance(result.exception, ValueError) else result.output
    assert 10 < len(message) < 700
    assert "No such" not in message
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", [each for each in USABLE if each not in ("lists", "lil", "dok")])
def test_the_command_line_takes_every_dress(kind: str, tmp_path: Path) -> None:
    data = usable(kind)
    path = written(data, tmp_path)
    arguments = ["fit", path, "-k", "2", "--method", "surrogate", "--seed", "0", "--out", tmp_path / "model"]
    assert CliRunner().invoke(app, [*map(str, arguments)]).exit_code == 0
    expected = ENTRIES["fit"](EXTRA)
    tolerance = 2e-2 if kind in ("float16", "float32") else 1e-3
    found = onmf.load(tmp_path / "model").components_
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.max(expected))


@pytest.mark.parametrize("kind", REFUSED)
def test_after_an_error_in_partial_fit_the_model_is_as_before(kind: str) -> None:
    data = REFUSED[kind][0]
    if is_bad("partial_fit", kind):
        model = online()
        before = pickle.dumps(model)
        with pytest.raises((ValueError, TypeError)):
            model.partial_fit(data)
        assert pickle.dumps(model) == before
    if is_bad("first partial_fit", kind):
        fresh = OnlineNMF(2)
        with pytest.raises((ValueError, TypeError)):
            fresh.partial_fit(data)
        assert not hasattr(fresh, "components_")
        fresh.partial_fit(EXTRA)


@pytest.mark.parametrize(
    "divergence", ["kl", "is", "squared_l2", "huber", "l1", "l2", "hellinger", "alpha:-1", "beta:0.5"]
)
def test_zeros_samples_and_features_of_zeros_give_finite_answers(divergence: str) -> None:
    data = X.copy()
    data[3] = 0
    data[:, 2] = 0
    data[5, 4] = 0
    model = OnlineNMF(2, divergence=divergence, random_state=0).fit(data)
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.transform(data)).all()
    assert np.isfinite(model.loss(data))


@pytest.mark.parametrize("divergence", ["kl", "is", "squared_l2", "huber"])
@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150])
def test_tiny_and_huge_numbers_are_learnt_or_refused(divergence: str, size: float) -> None:
    with np.errstate(all="ignore"):
        try:
            model = OnlineNMF(2, divergence=divergence, random_state=0).fit(X * size)
        except DataError as error:
            assert "rescale or clip" in str(error)  # noqa: PT017
            return
    assert np.isfinite(model.components_).all()
    expected = OnlineNMF(2, divergence=divergence, random_state=0).fit(X)
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-6, atol=1e-9)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(model.transform(X[:3] * size) / size, expected.transform(X[:3]), rtol=1e-2, atol=0.1)


def test_denormal_numbers_are_learnt_or_refused() -> None:
    data = X.copy()
    data[0] = 5e-324
    model = OnlineNMF(2, random_state=0).fit(data)
    assert np.isfinite(model.components_).all()


def test_a_batch_model_takes_more_components_than_samples_one_sample_and_one_feature() -> None:
    assert BatchNMF(50, random_state=0).fit(X[:3]).components_.shape == (50, F)
    assert BatchNMF(2, random_state=0).fit(X[:1]).components_.shape == (2, F)
    assert BatchNMF(2, random_state=0).fit(X[:, :1]).components_.shape == (2, 1)


def test_bool_is_zero_and_one() -> None:
    data = X > 10
    ours = OnlineNMF(2, method="surrogate", random_state=0)
    np.testing.assert_allclose(ours.fit(data).components_, ours.fit(data.astype(float)).components_)


@pytest.mark.parametrize(
    ("H", "words"),
    [
        (np.ones(2), r"takes coefficients of shape \(n, 2\)"),
        (np.ones((3, 5)), r"takes coefficients of shape \(n, 2\)"),
        (np.ones((1, 2, 2)), r"takes coefficients of shape \(n, 2\)"),
        ("x", "real numbers, got <U1"),
        (1j * np.eye(2), "real numbers, got complex128"),
        (np.full((1, 2), np.nan), "NaN in the data at row 0"),
        (-np.ones((1, 2)), "Negative values in data"),
    ],
)
def test_coefficients_that_are_none_are_refused(H: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        online().inverse_transform(H)


# Settings

RIGHT = {  # of the values below, those that are settings after all
    "batch_size": ["None"], "callbacks": ["None", "[]"], "clip": ["None"], "random_state": ["None", "0"],
    "l1_coefficients": ["2.5", "0"], "l2_coefficients": ["2.5", "0"], "l1_dictionary": ["0"], "l2_dictionary": ["0"],
    "reservoir": ["0"], "sets": ["None"], "shuffle": ["True"], "tol": ["2.5", "0", "None"],
    "transform_tol": ["2.5", "0"], "verbose": ["True", "0"], "fixed": ["None"], "missing": ["None"], "shards": ["None"],
    "device": ["None"], "divergence": ["-1", "-1.5", "2.5", "0"], "pseudo_counts": ["2.5", "0", "None"],
}  # fmt: skip
WRONG = ["magic", -1, -1.5, 2.5, 0, np.nan, np.inf, 1j, 10**400, True, None, [], [None], {"a": 1}, (1,), b"x", object(),
         np.ones(3), np.ones((2, 2)), print, OnlineNMF, iter([])]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name"), [(k, name) for k in (OnlineNMF, BatchNMF) for name in k().get_params(deep=False)]
)
def test_a_setting_of_the_wrong_type_is_refused_by_its_name(kind: Any, name: str) -> None:
    for value in WRONG:
        if str(value) in RIGHT.get(name, []):
            continue
        with pytest.raises((ValueError, TypeError), match=name) as error:
            kind(2).set_params(**{name: value}).fit(X)
        assert len(str(error.value)) < 700


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 2.5}, "n_components must be a whole number of at least 1"),
        ({"divergence": "itakura"}, r"unknown divergence 'itakura' \(did you mean 'itakura-saito'\?\); choose one of"),
        ({"divergence": "kl:3"}, "kl takes no parameter"),
        ({"divergence": "huber:0"}, "huber: delta must be positive"),
        ({"divergence": "alpha"}, "'alpha' needs a parameter; write alpha:"),
        ({"divergence": divergences.Huber}, r"divergence is the class Huber; write Huber\(\)"),
        ({"divergence": divergences.Mahalanobis(np.eye(3))}, "A is 3 x 3, but the data have 6 features"),
        ({"method": "magic"}, "unknown method 'magic'; choose one of"),
        ({"method": "papr"}, r"unknown method 'papr' \(did you mean 'paper'\?\)"),
        ({"method": methods.Paper}, r"method is the class Paper; write Paper\(\)"),
        ({"method": "paper:solver=magic"}, "unknown solver 'magic'; choose one of"),
        ({"method": "paper:solver=armijo", "divergence": "l1"}, "l1"),
        ({"method": "paper:step=canonical,power=0.4"}, "breaks the Robbins-Monro conditions"),
        ({"method": "paper:tol=-1"}, "tol must be .*at least 0"),
        ({"method": "paper:delta_tol=0.1"}, "delta_tol belongs to Polyak's step"),
        ({"method": "em", "divergence": "is"}, "supports only kl, hellinger and alpha > 0, not .is."),
        ({"method": "auto:tau=0"}, "tau must be .*at least 1"),
        ({"method": "auto:max_iter=0"}, "max_iter must be .*at least 1"),
        ({"method": "auto:forgetting=1"}, "forgetting must lie in"),
        ({"method": "surrogate:max_memory=-1"}, "max_memory must be .*at least 0"),
        ({"init": "magic"}, "unknown init 'magic'"),
        ({"init": np.ones((2, 2))}, "must have shape"),
        ({"clip": (3, 1)}, "clip must be a pair"),
        ({"sets": onmf.Sets(eps=0.0)}, "kl is not defined for a fit of zero"),
        ({"sets": 1e-8}, r"sets must be an onmf.Sets, as in Sets\(eps=1e-8\), got 1e-08"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_with_the_reason(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        OnlineNMF(**({"n_components": 2} | settings)).fit(X)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"eps": 1.0}, r"eps must lie in \[0, 1\)"),
        ({"eps": "x"}, r"eps must lie in \[0, 1\)"),
        ({"eps_prime": 2.0, "U": 1.0}, "0 <= eps_prime < U"),
        ({"U": None}, "0 <= eps_prime < U"),
    ],
)
def test_sets_that_are_none_are_refused(constants: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        onmf.Sets(**constants)


@pytest.mark.parametrize("kind", [OnlineNMF, BatchNMF])
@pytest.mark.parametrize("fixed", [object(), [["a"]], 10**400, [[1, 2], [3]], 1j * np.ones((2, F)), np.ones((0, F))])
def test_a_fixed_dictionary_that_is_none_is_refused(kind: Any, fixed: Any) -> None:
    with pytest.raises(ValueError, match="fixed must be an array"):
        kind(2, fixed=fixed).fit(X)


class Foreign:
    """An array of another library, on a device that NumPy does not reach."""

    __module__ = "array_api_strict._array_object"
    shape, ndim, dtype = (20, 3), 2, "float64"

    def __init__(self, reachable: bool) -> None:
        self.reachable = reachable

    def __array_namespace__(self) -> None:
        """Its functions, which nobody calls here."""

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if not self.reachable:
            raise RuntimeError("Can not convert array on the 'device1' device\nto a Numpy array.")
        return np.random.default_rng(0).random((20, 3)).astype(dtype)


@pytest.mark.parametrize("call", ["fit", "partial_fit", "transform", "inverse_transform", "loss", "score"])
def test_arrays_of_other_libraries_are_taken_where_numpy_can_take_them_and_else_one_sentence_says_so(call: str) -> None:
    model = onmf.OnlineNMF(3, random_state=0).fit(Foreign(True))
    getattr(model, call)(Foreign(True))
    with pytest.raises(TypeError, match=r"^X is an array of array_api_strict .* 'device1' device to .*; pass it as"):
        getattr(model, call)(Foreign(False))
