"""Model files: what is saved comes back to the bit, and no file, however damaged, does more than be refused."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onmf import DataError, OnlineNMF, __version__, load, save
from onmf.divergences import Divergence, Huber, KullbackLeibler, Mahalanobis, Separable
from onmf.divergences import base as registry
from onmf.persistence import file as model_file
from onmf.persistence.file import FORMAT, VERSION, ModelFileError
from tests.conftest import F, every_divergence

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
DATA = np.random.default_rng(0).gamma(2.0, 1.0, (40, F))
MORE = np.random.default_rng(1).gamma(2.0, 1.0, (25, F))


# Each keeps other statistics between batches.
both_methods = pytest.mark.parametrize("method", ["auto", "paper"])
MEMORIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "surrogate": (DATA, {}),
    "diagonals": (DATA, {"max_memory": 0.0}),
    "one matrix": (DATA, {"divergence": "squared_l2"}),
    "coupled": (DATA, {"divergence": Mahalanobis(np.eye(F) + 0.1)}),
    "adapted delta": (DATA, {"divergence": "huber"}),
    "em": (scipy.sparse.csr_matrix(np.round(DATA)), {}),
    "reservoir": (DATA, {"reservoir": 8}),
    "sparse reservoir": (scipy.sparse.csr_matrix(np.round(DATA)), {"reservoir": 200}),
    "forgetting": (DATA, {"forgetting": 0.3}),
    "single precision": (DATA.astype(np.float32), {"reservoir": 8}),
    "paper": (DATA, {"method": "paper"}),
    "lefevre": (DATA + 0.1, {"method": "lefevre", "divergence": "is", "options": {"r": 0.8}}),
    "guan": (DATA, {"method": "guan", "divergence": "squared_l2", "options": {"buffer": 7, "seed": np.int64(3)}}),
    "wang": (DATA, {"method": "wang", "divergence": "huber"}),
}
every_memory = pytest.mark.parametrize("memory", MEMORIES)


def fitted(divergence: Divergence | str = "kl", X: Any = DATA, **options: Any) -> OnlineNMF:
    options = {"batch_size": 15, "transform_max_iter": 20, "random_state": 3} | options
    if options.get("method") == "paper":
        options = {"max_iter": 5} | options
    return OnlineNMF(3, divergence=divergence, **options).fit(X)


def round_trip(model: OnlineNMF, folder: Path) -> OnlineNMF:
    save(model, folder / "model.safetensors")
    return load(folder / "model.safetensors")


def plain_settings(model: OnlineNMF) -> dict[str, Any]:
    """The settings in a form that can be compared."""
    return {k: np.asarray(v).tolist() if isinstance(v, (tuple, np.ndarray)) else v for k, v in vars_of(model).items()}


def vars_of(model: OnlineNMF) -> dict[str, Any]:
    return {key: value for key, value in model.get_params(deep=False).items() if key != "divergence"}


# What comes back


@both_methods
@every_divergence
def test_a_loaded_model_transforms_to_the_same_bits(tmp_path: Path, divergence: Divergence, method: str) -> None:
    model = fitted(divergence, method=method)
    loaded = round_trip(model, tmp_path)
    assert np.array_equal(loaded.components_, model.components_)
    assert np.array_equal(loaded.transform(MORE), model.transform(MORE))
    assert loaded.loss(MORE) == model.loss(MORE)


@every_memory
def test_what_the_method_keeps_is_kept_to_the_bit(tmp_path: Path, memory: str) -> None:
    X, options = MEMORIES[memory]
    model = fitted(X=X, **options)
    loaded = round_trip(model, tmp_path)
    assert (loaded.method_, loaded.divergence_.parameters().keys()) == (
        model.method_,
        model.divergence_.parameters().keys(),
    )
    for learner in (model, loaded):
        learner.partial_fit(X[:25]).partial_fit(X)
    assert np.array_equal(loaded.components_, model.components_)
    assert np.array_equal(loaded.transform(X), model.transform(X))
    assert loaded._memory.keys() == model._memory.keys()
    for name, value in model._memory.items():
        assert np.array_equal(loaded._memory[name], value), name
    if memory == "adapted delta":
        assert loaded.delta_ == model.delta_
        assert loaded.divergence == "huber"


@both_methods
@every_divergence
def test_a_loaded_model_goes_on_learning_to_the_same_bits(tmp_path: Path, divergence: Divergence, method: str) -> None:
    model = fitted(divergence, method=method)
    loaded = round_trip(model, tmp_path)
    for learner in (model, loaded):
        learner.partial_fit(MORE).partial_fit(DATA)
    assert np.array_equal(loaded.components_, model.components_)
    assert np.array_equal(loaded.history_["loss"], model.history_["loss"])
    assert np.array_equal(loaded.history_["samples"], model.history_["samples"])
    assert (loaded.n_samples_seen_, loaded.n_steps_) == (model.n_samples_seen_, model.n_steps_)


@every_divergence
def test_the_settings_and_what_was_learnt_come_back_equal(tmp_path: Path, divergence: Divergence) -> None:
    model = fitted(divergence, max_passes=2)
    loaded = round_trip(model, tmp_path)
    assert plain_settings(loaded) == plain_settings(model)
    for name in ("scale_", "n_samples_seen_", "n_steps_", "n_iter_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(model, name), name
    for key, values in model.history_.items():
        assert np.array_equal(loaded.history_[key], values)
        assert loaded.history_[key].dtype == values.dtype
    assert type(loaded.divergence_) is type(model.divergence_)
    for key, value in model.divergence_.parameters().items():
        assert np.array_equal(loaded.divergence_.parameters()[key], value)


OTHER_SETTINGS: dict[str, Any] = {
    "method": "paper",
    "batch_size": None,
    "max_passes": np.int64(2),
    "shuffle": False,
    "init": "samples",
    "scale": "none",
    "clip": (0.5, 9),
    "ridge": 0.25,
    "solver": "armijo-literal",
    "tol": 0.01,
    "max_iter": 7,
    "transform_tol": np.float32(0.5),
    "transform_max_iter": 30,
    "delta_tol": 0.5,
    "tau": 4,
    "a": 1e3,
    "b": 2e3,
    "power": 0.4,
    "any_power": True,
    "eps": 1e-6,
    "eps_prime": 1e-7,
    "U": 1e9,
    "forgetting": 0.25,
    "reservoir": np.int64(5),
    "max_memory": np.float32(1e5),
    "on_error": "skip",
    "options": {},
    "random_state": np.int32(7),
}


@pytest.mark.parametrize("method", ["paper", "surrogate", "em", "auto"])
def test_every_setting_can_be_stored(tmp_path: Path, method: str) -> None:
    others = OTHER_SETTINGS | {"method": method} | ({} if method == "paper" else {"solver": "auto"})
    model = fitted(**others)
    defaults = vars_of(OnlineNMF())
    assert set(OTHER_SETTINGS) == set(defaults) - {"n_components", "callbacks"}
    assert all(OTHER_SETTINGS[name] != defaults[name] for name in OTHER_SETTINGS if name != "batch_size")
    assert plain_settings(round_trip(model, tmp_path)) == plain_settings(model)


@pytest.mark.parametrize(
    "given", ["huber", "huber:0.3", "frobenius", "beta:1.5", Huber(0.3), Huber(), KullbackLeibler()]
)
def test_the_divergence_comes_back_as_the_user_gave_it(tmp_path: Path, given: Divergence | str) -> None:
    loaded = round_trip(fitted(given), tmp_path)
    assert loaded.divergence == given


def test_a_mahalanobis_matrix_comes_back_to_the_bit(tmp_path: Path, rng: np.random.Generator) -> None:
    B = rng.normal(size=(F, F))
    model = fitted(Mahalanobis(B @ B.T + np.eye(F)))
    assert np.array_equal(round_trip(model, tmp_path).divergence_.A, model.divergence_.A)


def test_single_precision_stays_single(tmp_path: Path) -> None:
    model = fitted(X=DATA.astype(np.float32))
    loaded = round_trip(model, tmp_path)
    assert loaded.components_.dtype == np.float32
    H = loaded.transform(MORE.astype(np.float32))
    assert H.dtype == np.float32
    assert np.array_equal(H, model.transform(MORE.astype(np.float32)))


def test_the_names_of_the_features_are_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame(DATA, columns=[f"größe {i}" for i in range(F)])
    loaded = round_trip(fitted(X=frame), tmp_path)
    assert loaded.feature_names_in_.tolist() == frame.columns.tolist()
    assert loaded.transform(frame).shape == (len(DATA), 3)
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame.iloc[:, ::-1])


def test_without_names_there_are_none(tmp_path: Path) -> None:
    assert not hasattr(round_trip(fitted(), tmp_path), "feature_names_in_")


def test_an_initial_dictionary_is_kept_and_starts_the_same_fit_again(tmp_path: Path, rng: np.random.Generator) -> None:
    init = rng.random((3, F))
    loaded = round_trip(fitted(init=init), tmp_path)
    assert np.array_equal(loaded.init, init)
    assert np.array_equal(loaded.fit(DATA).components_, fitted(init=init).components_)


@pytest.mark.parametrize("clip", [(0.5, 2.0), [0, 4], (1, np.inf), np.array([0.5, 2.0])], ids=str)
def test_clipping_is_kept(tmp_path: Path, clip: Any) -> None:
    model = fitted(clip=clip)
    loaded = round_trip(model, tmp_path)
    assert list(loaded.clip) == list(clip)
    wide = MORE * 10
    assert np.array_equal(loaded.transform(wide), model.transform(wide))


def test_unbounded_coefficients_are_kept(tmp_path: Path) -> None:
    loaded = round_trip(fitted(U=np.inf), tmp_path)
    assert np.isposinf(loaded.U)


@pytest.mark.parametrize("make", [lambda: None, lambda: np.random.default_rng(1), lambda: np.random.RandomState(1)])
def test_a_random_state_that_is_no_number_becomes_none(tmp_path: Path, make: Any) -> None:
    assert round_trip(fitted(random_state=make()), tmp_path).random_state is None


def test_callbacks_are_not_stored(tmp_path: Path) -> None:
    assert round_trip(fitted(callbacks=[lambda _: None]), tmp_path).callbacks is None


def test_a_loaded_model_can_be_fitted_afresh_to_the_same_bits(tmp_path: Path) -> None:
    model = fitted("huber", max_passes=2)
    assert np.array_equal(round_trip(model, tmp_path).fit(DATA).components_, model.components_)


def test_a_warning_already_given_is_not_given_again(tmp_path: Path) -> None:
    X = DATA.copy()
    X[0, 0] = 0.0
    with pytest.warns(UserWarning, match="outside the domain"):
        model = fitted("is", X)
    round_trip(model, tmp_path).transform(X)  # a second warning would be an error here


def test_saving_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    model, same = fitted(), fitted()
    save(model, tmp_path / "m")
    assert plain_settings(model) == plain_settings(same)
    assert np.array_equal(model.components_, same.components_)


def test_a_path_may_be_a_string_with_any_suffix(tmp_path: Path) -> None:
    save(fitted(), str(tmp_path / "model"))
    assert load(str(tmp_path / "model")).n_features_in_ == F


# Divergences of the user's own


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names given in a test are forgotten after it."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


def stretched_class(**naming: str) -> type[Separable]:
    @dataclass(frozen=True)
    class Stretched(Separable, **naming):
        """Not homogeneous: sum_f log(1 + stretch (x - y)^2)."""

        stretch: float = 1.0

        def d(self, xp: Any, x: Any, y: Any) -> Any:
            return xp.log(1.0 + self.stretch * (x - y) ** 2)

        def dy(self, xp: Any, x: Any, y: Any) -> Any:
            return 2.0 * self.stretch * (y - x) / (1.0 + self.stretch * (x - y) ** 2)

    return Stretched


@pytest.mark.usefixtures("own_registry")
def test_a_named_divergence_of_the_users_own_comes_back(tmp_path: Path) -> None:
    model = fitted(stretched_class(name="stretched")(0.25))
    loaded = round_trip(model, tmp_path)
    assert loaded.divergence_ == model.divergence_
    assert np.array_equal(loaded.transform(MORE), model.transform(MORE))


def test_an_unnamed_divergence_must_be_given_again(tmp_path: Path) -> None:
    divergence = stretched_class()()
    model = fitted(divergence)
    save(model, tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"divergence of your own, Stretched; give it"):
        load(tmp_path / "m")
    assert load(tmp_path / "m", divergence).loss(MORE) == model.loss(MORE)


def test_an_unnamed_child_of_a_named_divergence_is_not_stored_as_its_parent(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Doubled(KullbackLeibler):
        def d(self, xp: Any, x: Any, y: Any) -> Any:
            return 2.0 * super().d(xp, x, y)

        def dy(self, xp: Any, x: Any, y: Any) -> Any:
            return 2.0 * super().dy(xp, x, y)

    save(fitted(Doubled()), tmp_path / "m")
    with pytest.raises(ModelFileError, match="Doubled"):
        load(tmp_path / "m")


def test_a_model_of_a_divergence_that_is_not_there_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(registry, "_registry", dict(registry._registry))
        save(fitted(stretched_class(name="stretched")()), tmp_path / "m")
    with pytest.raises(ModelFileError, match="the divergence 'stretched', unknown here; import the module"):
        load(tmp_path / "m")


# Writing


def test_an_unfitted_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="only a fitted model"):
        save(OnlineNMF(3), tmp_path / "m")
    assert not list(tmp_path.iterdir())


def half_written(path: Path, content: bytes) -> int:
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])
    raise OSError(errno.ENOSPC, "No space left on device")


def failing(*_: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize(
    ("place", "name", "failure", "error"),
    [
        (Path, "write_bytes", half_written, ModelFileError),
        (Path, "replace", failing, ModelFileError),
        (Path, "chmod", failing, ModelFileError),
        (os, "fsync", failing, ModelFileError),
        (os, "fsync", interrupted, KeyboardInterrupt),
    ],
    ids=["disk full", "replace", "chmod", "fsync", "Ctrl-C"],
)
def test_a_failure_while_writing_keeps_the_old_file_and_leaves_no_litter(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    earlier: bool,
    place: Any,
    name: str,
    failure: Any,
    error: type[BaseException],
) -> None:
    path = tmp_path / "m.safetensors"
    old, new = fitted("kl"), fitted("huber")
    if earlier:
        save(old, path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with monkeypatch.context() as context:
        context.setattr(place, name, failure)
        with pytest.raises(error):
            save(new, path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    if earlier:
        assert np.array_equal(load(path).components_, old.components_)


def test_a_model_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save(fitted("kl"), path)
    save(fitted("huber"), path)
    assert load(path).divergence_.name == "huber"
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


SAVE_FOREVER = """
import sys
import onmf
path = sys.argv[1]
model = onmf.load(path)
print("saving", flush=True)
while True:
    onmf.save(model, path)
"""


def test_a_process_killed_while_it_saves_leaves_a_whole_model(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "m.safetensors"
    model = OnlineNMF(40, max_iter=1, init=rng.random((40, 4000))).partial_fit(rng.random((2, 4000)))  # over a MB
    save(model, path)
    command = [sys.executable, "-c", SAVE_FOREVER, str(path)]
    for seconds in rng.uniform(0.05, 0.3, size=3):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"saving\n"
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        assert np.array_equal(load(path).components_, model.components_)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_file_has_the_permissions_of_an_ordinary_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        save(fitted(), tmp_path / "m")
        (tmp_path / "ordinary").touch()
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {0o666 & ~umask}


@pytest.mark.parametrize("name", ["absent/m", "file/m", ".", "x" * 300])
def test_a_path_that_cannot_be_written_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelFileError, match="cannot write") as error:
        save(fitted(), tmp_path / name)
    assert str(tmp_path) in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_long_name_that_the_file_system_allows_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / ("m" * 255)
    path.touch()  # it is allowed
    save(fitted(), path)
    assert load(path).n_features_in_ == F


# Reading what is no model


@dataclass(frozen=True, repr=False)
class Parts:
    """A valid model file, taken apart."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    folder: Path

    def load(
        self,
        *,
        facts: Any = None,
        text: str | None = None,
        arrays: dict[str, np.ndarray | None] | None = None,
        **metadata: str | None,
    ) -> OnlineNMF:
        """The model in the file with these changes; None removes an array or an entry of the metadata."""
        text = json.dumps(self.facts if facts is None else facts) if text is None else text
        changed = {k: v for k, v in (self.arrays | (arrays or {})).items() if v is not None}
        entries = {"format": FORMAT, "version": str(VERSION), "facts": text} | metadata
        content = safetensors.numpy.save(changed, {k: v for k, v in entries.items() if v is not None})
        path = self.folder / "changed.safetensors"
        path.write_bytes(content)
        return load(path)

    def refusal(self, **changes: Any) -> str:
        with pytest.raises(ModelFileError) as error:
            self.load(**changes)
        assert "changed.safetensors" in str(error.value)
        assert "\n" not in str(error.value)
        return str(error.value)

    def with_fact(self, path: tuple[str, ...], value: Any) -> dict[str, Any]:
        facts = deepcopy(self.facts)
        here = facts
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = value
        return facts


def take_apart(divergence: Divergence | str, folder: Path, **options: Any) -> Parts:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(fitted(divergence, clip=(0.0, 50.0), **options), folder / "whole.safetensors")
    return Parts(*model_file.read(folder / "whole.safetensors"), folder)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return take_apart("kl", tmp_path_factory.mktemp("parts"), reservoir=4)


@pytest.fixture(scope="module")
def paper_parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return take_apart("huber", tmp_path_factory.mktemp("paper"), method="paper")


@pytest.fixture(scope="module")
def matrix_parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return take_apart(Mahalanobis(np.eye(F) + 0.1), tmp_path_factory.mktemp("matrix"))


def require_usable(model: OnlineNMF, folder: Path) -> None:
    """A model that load let through can transform, go on learning, be saved and say what it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its numbers may be nonsense
        model.transform(MORE[:4])
        with contextlib.suppress(DataError):  # nonsense is refused, and the model stays as it was
            model.partial_fit(MORE[:4])
        repr(model)
        save(model, folder / "again.safetensors")


def test_the_parts_make_a_whole(parts: Parts, matrix_parts: Parts, paper_parts: Parts) -> None:
    for each in (parts, matrix_parts, paper_parts):
        require_usable(each.load(), each.folder)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "absent", "there is no model file"), (tmp_path, "is a directory")):
        with pytest.raises(ModelFileError, match=words):
            load(path)


def test_a_model_outlives_the_file_that_its_matrix_came_from(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.eye(F))
    model = fitted(f"mahalanobis:{tmp_path / 'A.npy'}")
    save(model, tmp_path / "m")
    (tmp_path / "A.npy").unlink()
    assert np.array_equal(load(tmp_path / "m").transform(MORE), model.transform(MORE))


@pytest.mark.parametrize("length", [0, 1, 7, 8, 100, 5000])
def test_random_bytes_are_refused(tmp_path: Path, rng: np.random.Generator, length: int) -> None:
    (tmp_path / "m").write_bytes(rng.bytes(length))
    with pytest.raises(ModelFileError):
        load(tmp_path / "m")


def test_a_truncated_model_is_refused_wherever_it_is_cut(tmp_path: Path, parts: Parts) -> None:
    content = (parts.folder / "whole.safetensors").read_bytes()
    for length in [*range(0, len(content), 50), len(content) - 1]:
        (tmp_path / "m").write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            load(tmp_path / "m")


@pytest.mark.parametrize(
    "metadata", [None, {"format": "pt"}, {"format": "np", "facts": "{}"}, {"format": FORMAT, "version": "1"}]
)
def test_a_safetensors_file_of_somebody_else_is_refused_as_such(tmp_path: Path, metadata: Any) -> None:
    (tmp_path / "m").write_bytes(safetensors.numpy.save({"components": np.ones((2, 2))}, metadata))
    with pytest.raises(ModelFileError, match="not a model of onmf"):
        load(tmp_path / "m")


def test_an_array_file_or_text_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", DATA)
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    for name in ("m.npy", "m.csv"):
        with pytest.raises(ModelFileError, match=name):
            load(tmp_path / name)


@pytest.mark.parametrize("version", [str(VERSION + 1), "99"])
def test_a_newer_format_is_refused_with_the_cure(parts: Parts, version: str) -> None:
    assert "install a newer one" in parts.refusal(version=version)
    assert "written by onmf 7.1" in parts.refusal(version=version, onmf="7.1")


def test_a_file_names_the_version_that_wrote_it(tmp_path: Path) -> None:
    save(OnlineNMF(2, random_state=0).fit(np.ones((5, 3))), tmp_path / "model")
    with safetensors.safe_open(tmp_path / "model", framework="numpy") as file:
        assert file.metadata()["onmf"] == __version__


@pytest.mark.parametrize("version", [None, "", "one", "-1", "1.5", "9" * 5000], ids=lambda v: repr(v)[:8])
def test_a_format_that_is_no_number_is_refused(parts: Parts, version: str | None) -> None:
    parts.refusal(version=version)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '"text"', "NaN", "{}", "[" * 100_000, '{"samples": ' + "9" * 5000 + "}", "{'a': 1}"],
    ids=lambda text: text[:15],
)
def test_facts_that_are_no_json_object_of_ours_are_refused(parts: Parts, text: str) -> None:
    parts.refusal(text=text)


def test_missing_facts_are_refused(parts: Parts) -> None:
    for key in parts.facts:
        parts.refusal(facts={k: v for k, v in parts.facts.items() if k != key})
    for key, inner in (("divergence", "name"), ("divergence", "parameters"), ("units", "scale"), ("settings", "init")):
        parts.refusal(facts=parts.facts | {key: {k: v for k, v in parts.facts[key].items() if k != inner}})


def test_missing_arrays_are_refused(parts: Parts, matrix_parts: Parts) -> None:
    for each in (parts, matrix_parts):
        for name in each.arrays:
            each.refusal(arrays={name: None})


def test_statistics_that_do_not_fit_the_method_are_refused(parts: Parts, paper_parts: Parts) -> None:
    for name, value in parts.arrays.items():
        if name.startswith("memory."):
            for bad in (value[:-1], value[None], value.astype(np.float32), np.full_like(value, np.nan)):
                parts.refusal(arrays={name: bad})
    assert "statistics do not fit" in paper_parts.refusal(arrays={"memory.S": np.eye(3)})


@pytest.mark.parametrize("seen", [-1.0, 41.0, 1e300])
def test_a_reservoir_of_more_or_fewer_samples_than_were_seen_is_refused(parts: Parts, seen: float) -> None:
    assert "reservoir" in parts.refusal(arrays={"memory.kept_of": np.array([seen])})


@pytest.mark.parametrize("size", [3, 10**6, 10**12, 10**15])
def test_a_reservoir_of_another_size_is_refused_without_room_being_made_for_it(parts: Parts, size: int) -> None:
    parts.refusal(facts=parts.with_fact(("settings", "reservoir"), size))


def bad_dictionaries(W: np.ndarray) -> Iterator[np.ndarray]:
    for bad in (np.nan, np.inf, -1e-9, 1.1):
        changed = W.copy()
        changed[1, 2] = bad
        yield changed
    absent = W.copy()
    absent[:, 3] = 0.0
    yield absent  # a feature without weight is not in C
    yield W[0]
    yield W[None]
    yield W[:, :0]
    yield W[:2]
    yield np.vstack([W, W])
    yield (W * 100).astype(np.int64)
    yield W.astype(np.float16)
    yield W > 0.5


@pytest.mark.parametrize(
    ("method", "divergence", "options"),
    [("lefevre", "is", {"N": 40}), ("guan", "squared_l2", {}), ("wang", "huber:0.5", {"eta": 0.01})],
)
def test_a_dictionary_outside_the_set_of_its_method_is_refused(
    method: str, divergence: str, options: dict[str, float], tmp_path: Path
) -> None:
    parts = take_apart(divergence, tmp_path, method=method, options=options)
    parts.load()
    W = parts.arrays["components"]
    larger = W / W.max() if method != "wang" else np.ones_like(W)
    assert f"the set of the method {method}" in parts.refusal(arrays={"components": larger})


def test_a_dictionary_outside_its_set_is_refused(parts: Parts) -> None:
    for bad in bad_dictionaries(parts.arrays["components"]):
        parts.refusal(arrays={"components": bad})


def test_a_matrix_that_does_not_fit_the_dictionary_is_refused(matrix_parts: Parts) -> None:
    message = matrix_parts.refusal(arrays={"components": matrix_parts.arrays["components"][:, :5]})
    assert "the data have 5 features" in message


def test_a_damaged_matrix_is_refused(matrix_parts: Parts) -> None:
    A = matrix_parts.arrays["divergence.A"]
    for bad in (A * np.nan, -A, np.tri(F), A[:3], A[0], A.astype(np.complex64)):
        matrix_parts.refusal(arrays={"divergence.A": bad})


@pytest.mark.parametrize("column", ["samples", "seconds", "loss"])
def test_a_history_of_the_wrong_shape_or_type_is_refused(parts: Parts, column: str) -> None:
    values = parts.arrays[f"history.{column}"]
    for bad in (values[:-1], values[:0], values[None], values[0], values.astype(np.complex64)):
        parts.refusal(arrays={f"history.{column}": np.asarray(bad)})
    parts.refusal(arrays={f"history.{c}": np.zeros(0) for c in ("samples", "seconds", "loss")})


@pytest.mark.parametrize("names", [[], ["a"], ["a"] * (F + 1), "a" * F, {"a": 1}, 3, True])
def test_names_that_do_not_fit_the_features_are_refused(parts: Parts, names: Any) -> None:
    parts.refusal(facts=parts.facts | {"feature_names": names})


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "BF16", "C64", "U8", "F4"])
def test_an_array_of_a_type_that_numpy_may_not_know_is_refused(parts: Parts, dtype: str) -> None:
    content = (parts.folder / "whole.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    entry = header["components"]
    bits = {"BF16": 16, "C64": 64, "F4": 4}.get(dtype, 8)
    first, last = entry["data_offsets"]
    entry |= {"dtype": dtype, "shape": [3, (last - first) * 8 // bits // 3]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = parts.folder / "typed.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(ModelFileError):
        load(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("divergence", "name"), "nonsense"),
        (("divergence", "name"), ""),
        (("divergence", "name"), ["kl"]),
        (("divergence", "parameters"), {"nonsense": 1.0}),
        (("divergence", "parameters"), [1.0]),
        (("units", "scale"), 0.0),
        (("units", "scale"), -1.0),
        (("units", "scale"), float("nan")),
        (("units", "scale"), float("inf")),
        (("units", "scale"), "one"),
        (("units", "scale"), 10**400),
        (("units", "mean"), 0.0),
        (("units", "mean"), None),
        (("units",), []),
        (("samples",), 0),
        (("samples",), 1.5),
        (("samples",), "many"),
        (("samples",), 10**400),
        (("averaged",), 0),
        (("averaged",), 1.5),
        (("averaged",), None),
        (("method",), "em"),
        (("method",), "nonsense"),
        (("method",), None),
        (("steps",), -1),
        (("passes",), "many"),
        (("passes",), float("inf")),
        (("settings",), []),
        (("settings", "nonsense"), 1),
        (("settings", "callbacks"), ["print"]),
        (("settings", "divergence"), "kl"),
        (("settings", "n_components"), 4),
        (("settings", "n_components"), "3"),
        (("settings", "method"), "nonsense"),
        (("settings", "solver"), "nonsense"),
        (("settings", "init"), None),
        (("settings", "init"), {}),
        (("settings", "init"), ["a", "b"]),
        (("settings", "clip"), 1.0),
        (("settings", "clip"), [2.0, 1.0]),
        (("settings", "clip"), ["a", "b"]),
        (("settings", "clip"), [1.0]),
        (("settings", "clip"), "kl"),
        (("settings", "ridge"), -1.0),
        (("settings", "ridge"), 10**400),
        (("settings", "tol"), None),
        (("settings", "tol"), 10**400),
        (("settings", "max_iter"), 0),
        (("settings", "max_iter"), 1e300),
        (("settings", "transform_tol"), -1.0),
        (("settings", "transform_tol"), "small"),
        (("settings", "transform_max_iter"), 0),
        (("settings", "transform_max_iter"), None),
        (("settings", "transform_max_iter"), 2.5),
        (("settings", "tau"), 0),
        (("settings", "tau"), 2.5),
        (("settings", "tau"), "ten"),
        (("settings", "a"), 0.0),
        (("settings", "power"), 7.0),
        (("settings", "eps"), 2.0),
        (("settings", "eps_prime"), -1.0),
        (("settings", "eps_prime"), 0.0),
        (("settings", "U"), 0.0),
        (("settings", "U"), 10**400),
        (("settings", "forgetting"), 1.0),
        (("settings", "forgetting"), "much"),
        (("settings", "reservoir"), -1),
        (("settings", "reservoir"), 0),
        (("settings", "reservoir"), 2.5),
        (("settings", "reservoir"), 10**400),
        (("settings", "max_memory"), -1.0),
        (("settings", "max_memory"), 0),
        (("settings", "max_memory"), None),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else repr(value)[:12],
)
def test_a_fact_that_no_model_could_use_is_refused_when_it_is_loaded(
    parts: Parts, path: tuple[str, ...], value: Any
) -> None:
    parts.refusal(facts=parts.with_fact(path, value))


def test_a_scale_whose_square_is_no_number_is_refused_or_usable(matrix_parts: Parts) -> None:
    with contextlib.suppress(ModelFileError):
        require_usable(matrix_parts.load(facts=matrix_parts.with_fact(("units", "scale"), 1e300)), matrix_parts.folder)


def paths(facts: dict[str, Any], here: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in facts.items():
        found.append((*here, key))
        if isinstance(value, dict):
            found += paths(value, (*here, key))
    return found


numbers = (
    st.integers() | st.floats(width=16) | st.floats() | st.sampled_from([0, 1, -1, 10**30, 10**400, 1e300, 5e-324])
)
leaves = (
    st.none() | st.booleans() | numbers | st.text(max_size=5) | st.sampled_from(["kl", "huber", "paper", "uniform"])
)
json_values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_facts_changed_at_random_are_refused_or_make_a_usable_model(
    parts: Parts, matrix_parts: Parts, paper_parts: Parts, data: st.DataObject
) -> None:
    parts = data.draw(st.sampled_from([parts, matrix_parts, paper_parts]))
    facts = deepcopy(parts.facts)
    for path in data.draw(st.lists(st.sampled_from(paths(parts.facts)), min_size=1, max_size=2)):
        here = facts
        for key in path[:-1]:
            here = here.get(key) if isinstance(here, dict) else None
        if isinstance(here, dict):
            here[path[-1]] = data.draw(json_values)
    try:
        model = parts.load(text=json.dumps(facts))
    except ModelFileError:
        return
    if is_small(model):
        require_usable(model, parts.folder)


def is_small(model: OnlineNMF) -> bool:
    """Would it iterate for a time that a test has?"""
    return max(model.max_iter or 0, model.transform_max_iter) < 10**4


@pytest.mark.parametrize("which", ["parts", "matrix_parts", "paper_parts"])
def test_bytes_changed_at_random_are_refused_or_make_a_usable_model(
    request: pytest.FixtureRequest, which: str, rng: np.random.Generator
) -> None:
    parts: Parts = request.getfixturevalue(which)
    content = (parts.folder / "whole.safetensors").read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    likely = np.frombuffer(b'0123456789eE+-.,:[]{}" ', dtype=np.uint8)
    path = parts.folder / "flipped.safetensors"
    for k in range(1000):
        flipped = bytearray(content)
        end = len(content) if k % 3 == 0 else header
        for place in rng.integers(end, size=rng.integers(1, 4)):
            flipped[place] = rng.integers(256) if k % 2 else rng.choice(likely)
        path.write_bytes(flipped)
        try:
            model = load(path)
        except ModelFileError:
            continue
        if is_small(model):
            require_usable(model, parts.folder)
