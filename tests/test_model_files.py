"""Model files: what is saved comes back bit for bit, and no file, however damaged, does more than be refused."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import pickle
import socket
import stat
import subprocess
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

from onmf import BatchNMF, DataError, OnlineNMF, Sets, __version__, load, methods, save
from onmf._support.atomic import WriteError, replacing
from onmf.data import Rows
from onmf.divergences import Divergence, Huber, KullbackLeibler, Mahalanobis
from onmf.methods import EM, Adaptive, Auto, Canonical, Paper, SparseSurrogate, Surrogate
from onmf.persistence import file as model_file
from onmf.persistence.file import FORMAT, VERSION, ModelFileError
from onmf.persistence.model import USUAL
from reproduction.earlier_methods import Guan, Lefevre, Wang
from tests import processes

from .conftest import DISTINCT, F, LogCosh, Soft, example_id, examples, require_same_learning

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
DATA = np.random.default_rng(0).gamma(2.0, 1.0, (40, F))
MORE = np.random.default_rng(1).gamma(2.0, 1.0, (25, F))
COUNTS = scipy.sparse.csr_matrix(DATA * (DATA > 4))
QUICK = {"paper": Paper(max_iter=5), "wang": Wang(eta=0.01, max_iter=20)}


def served() -> Iterator[Any]:
    """Every method with every divergence that it serves, of the surrogate half, which the default is on these data."""
    for name in methods.names():
        method = QUICK.get(name, methods.get(name))
        for divergence in examples() if name == "auto" else DISTINCT[:: 2 if name == "surrogate" else 1]:
            if not isinstance(method, methods.Method) or method.why_not(divergence) is None:
                yield pytest.param(method, divergence, id=f"{name}-{example_id(divergence)}")


def fitted(divergence: Divergence | str = "kl", X: Any = DATA, **options: Any) -> OnlineNMF:
    options = {"batch_size": 15, "transform_max_iter": 20, "random_state": 3} | options
    return OnlineNMF(3, divergence=divergence, **options).fit(X)


def round_trip(model: OnlineNMF, folder: Path, own: Divergence | None = None) -> OnlineNMF:
    save(model, folder / "model.safetensors")
    return load(folder / "model.safetensors", own)


def plain(model: OnlineNMF) -> dict[str, Any]:
    """The settings in a form that can be compared."""
    params = model.get_params(deep=False)
    return {key: np.asarray(v).tolist() if isinstance(v, (tuple, np.ndarray)) else v for key, v in params.items()}


def require_equal(one: OnlineNMF, other: OnlineNMF) -> None:
    """All that was learnt, bit for bit, and all that stands beside it."""
    require_same_learning(one, other)
    mine, theirs = one._learned, other._learned
    assert mine is not None
    assert theirs is not None
    for name in ("units", "features", "raised", "loss_to_beat", "position", "skipped"):
        assert getattr(mine, name) == getattr(theirs, name), name
    assert mine.state.C == theirs.state.C


def require_same_future(loaded: OnlineNMF, model: OnlineNMF, X: Any = MORE) -> None:
    """Both answer alike, and learn the same from more."""
    require_equal(loaded, model)
    assert np.array_equal(loaded.transform(X), model.transform(X))
    assert loaded.loss(X) == model.loss(X)
    for learner in (model, loaded):
        learner.partial_fit(X[:25]).partial_fit(X)
    require_equal(loaded, model)


# What comes back


@pytest.mark.parametrize(("method", "divergence"), list(served()))
def test_a_loaded_model_is_and_becomes_what_the_saved_one_does(
    tmp_path: Path, method: methods.Choice, divergence: Divergence
) -> None:
    model = fitted(divergence, method=method)
    loaded = round_trip(model, tmp_path)
    assert plain(loaded) | {"divergence": None} == plain(model) | {"divergence": None}
    require_same_future(loaded, model)


MEMORIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "diagonals": (DATA, {"method": Surrogate(max_memory=0.0)}),
    "adapted delta": (DATA, {"divergence": "huber"}),
    "em chosen": (COUNTS, {"method": Auto(tau=7)}),
    "sparse reservoir": (COUNTS, {"reservoir": 200}),
    "full reservoir": (DATA.astype(np.float32), {"reservoir": 8}),
    "forgetting": (DATA, {"method": EM(forgetting=0.3)}),
    "single precision": (DATA.astype(np.float32), {"method": QUICK["paper"]}),
    "buffer": (DATA, {"method": Guan(buffer=7, seed=np.int64(3)), "divergence": "squared_l2"}),
    "length of the data": (DATA, {"method": Lefevre(r=0.8), "divergence": "is"}),
    "skipped": (np.vstack([DATA, np.full((15, F), np.nan)]), {"on_error": "skip", "shuffle": False}),
}


@pytest.mark.parametrize("memory", MEMORIES)
def test_whatever_a_method_keeps_is_kept(tmp_path: Path, memory: str) -> None:
    X, options = MEMORIES[memory]
    model = fitted(X=X, **options)
    loaded = round_trip(model, tmp_path)
    assert loaded.components_.dtype == X.dtype
    assert loaded.method == methods.get(model.method)  # as it was given, ...
    assert loaded.method_ == model.method_  # ... and the one that was chosen
    require_same_future(loaded, model, X[:30])


OTHER_SETTINGS: dict[str, Any] = {
    "batch_size": np.int64(7),
    "max_passes": np.int64(2),
    "shuffle": False,
    "scale": "none",
    "clip": [0.5, np.inf],
    "implicit": "missing",
    "l1_coefficients": np.float32(0.125),
    "l2_coefficients": 0.25,
    "l1_dictionary": 0.01,
    "l2_dictionary": np.float64(0.02),
    "coefficients": "nonnegative",
    "sets": Sets(eps=np.float32(2**-20), eps_prime=1e-7, U=np.inf),
    "reservoir": np.int64(5),
    "transform_tol": np.float32(0.5),
    "transform_max_iter": 30,
    "on_error": "skip",
    "features": "fixed",
    "max_features": np.int64(9),
    "n_init": np.int64(2),
    "shards": np.int64(3),
    "random_state": np.int32(7),
}
OTHER_METHODS = (
    Paper(4, Canonical(1e3, np.float32(0.3), 0.4, True), "armijo-literal", 0.01, 7),
    Paper(4, Adaptive(np.float32(50.3), np.float32(0.3), 30), "armijo-literal", 0.01, 7),
    Surrogate(np.int64(4), 0.1, np.float32(1e5), 0.01, 7),
    *(
        EM(4, 0.1, 7),
        SparseSurrogate(4, 0.1, 7),
        Auto(4, 0.1, 7),
        Lefevre(4, 0.8, 1e3, 7),
        Guan(4, 0.2, 6, 5, 4),
        Wang(4, 0.1, 0.9, 0.2, 0.1, 7),
    ),
)
SERVED = {"lefevre": "is", "guan": "squared_l2", "wang": "huber"}


@pytest.mark.parametrize("method", OTHER_METHODS, ids=lambda method: method.name)
@pytest.mark.filterwarnings("ignore:implicit=:UserWarning")  # X is dense
def test_every_setting_and_every_constant_is_kept(tmp_path: Path, method: Any) -> None:
    fixed, init = np.split(np.random.default_rng(2).random((3, F)), [1])
    refused = ("l1_dictionary", "l2_dictionary") if method.name in SERVED else ()  # their components have a fixed size
    others = {name: value for name, value in OTHER_SETTINGS.items() if name not in refused}
    if method.name in ("auto", "surrogate"):
        others |= {"coefficients": "simplex", "l1_coefficients": 0}  # the same for all shares, and refused
    model = fitted(SERVED.get(method.name, "kl"), method=method, init=init, fixed=fixed, **others)
    loaded = round_trip(model, tmp_path)
    assert plain(loaded) == plain(model)
    defaults = {
        "n_components",
        "divergence",
        "device",
        "callbacks",
        "verbose",
        "method",
        "init",
        "fixed",
        "missing",  # not with a reservoir
    }
    assert OTHER_SETTINGS.keys() == OnlineNMF().get_params(deep=False).keys() - defaults
    assert np.array_equal(loaded.fit(DATA).components_, model.components_)


def test_what_onmf_info_takes_for_usual_are_the_estimators_defaults() -> None:
    unstored = {"device": None, "callbacks": None, "verbose": 0}
    assert OnlineNMF().get_params(deep=False) == USUAL | {"divergence": "kl"} | unstored


def test_callbacks_verbose_and_random_generators_are_not_stored(tmp_path: Path) -> None:
    for seed in (None, np.random.default_rng(1), np.random.RandomState(1)):
        model = fitted(random_state=seed, callbacks=[lambda _: None], verbose=False)
        loaded = round_trip(model, tmp_path)
        assert (loaded.random_state, loaded.callbacks, loaded.verbose) == (None, None, 0)


@pytest.mark.parametrize(
    "given", ["huber", "huber:0.3", "frobenius", "beta:1.5", "beta:1", Huber(0.3), Huber(), KullbackLeibler()]
)
def test_the_divergence_comes_back_as_the_user_gave_it(tmp_path: Path, given: Divergence | str) -> None:
    assert round_trip(fitted(given), tmp_path).divergence == given


def test_a_model_outlives_the_file_that_its_matrix_came_from(tmp_path: Path, rng: np.random.Generator) -> None:
    B = rng.normal(size=(F, F))
    np.save(tmp_path / "A.npy", B @ B.T + np.eye(F))
    model = fitted(f"mahalanobis:{tmp_path / 'A.npy'}")
    (tmp_path / "A.npy").unlink()
    loaded = round_trip(model, tmp_path)
    require_same_future(loaded, model.set_params(divergence=loaded.divergence))


def test_the_names_of_the_features_are_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame(DATA, columns=[f"größe {i}" for i in range(F)])
    loaded = round_trip(fitted(X=frame), tmp_path)
    assert loaded.feature_names_in_.tolist() == frame.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        loaded.transform(frame.iloc[:, ::-1])
    assert not hasattr(round_trip(fitted(), tmp_path), "feature_names_in_")


class Named(Rows):
    """A source with names as files may have them."""

    def __init__(self, names: list[Any]) -> None:
        super().__init__(DATA)
        self.feature_names = names


anything = st.text(
    st.characters(exclude_categories=()), max_size=20
)  # lone surrogates too, as of names that are no UTF-8


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(
        anything | st.sampled_from(["", "x" * 100_000, "inf", None, 3, b"x", np.nan]), min_size=F - 1, max_size=F
    )
)
def test_a_model_that_can_be_learnt_can_be_read_whatever_its_features_are_called(
    names: list[Any], tmp_path: Path
) -> None:
    model, path = OnlineNMF(2, random_state=0, callbacks=[lambda _: True]), tmp_path / "run"
    path.unlink(missing_ok=True)
    if len(names) < F:
        with pytest.raises(ValueError, match="there are 11 names for 12 features; give one name per feature, or none"):
            model.fit(Named(names), checkpoint=path)
        assert not path.exists()
        return
    model.fit(Named(names), checkpoint=path)
    assert load(path).feature_names_in_.tolist() == model.feature_names_in_.tolist() == [str(name) for name in names]


def test_a_warning_already_given_is_not_given_again(tmp_path: Path) -> None:
    X = DATA.copy()
    X[0, 0] = 0.0
    with pytest.warns(UserWarning, match="1 entry .* not defined"):
        model = fitted("is", X)
    round_trip(model, tmp_path).transform(X)  # a second warning would be an error here


def test_constants_changed_since_the_last_batch_are_kept_beside_those_it_was_learnt_with(tmp_path: Path) -> None:
    model = fitted(method=Surrogate())
    model.set_params(method__tau=5, sets=Sets(eps_prime=0.3))
    require_same_future(round_trip(model, tmp_path), model)


# Divergences and methods of the user's own


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names given in a test are forgotten after it."""
    monkeypatch.setattr(Divergence, "_classes", dict(Divergence._classes))
    monkeypatch.setattr(methods.Choice, "_classes", dict(methods.Choice._classes))


def test_a_divergence_without_a_name_is_given_again(tmp_path: Path) -> None:
    for own, other in ((LogCosh(), Huber(1.0)), (Soft(), Soft(0.7))):  # the width of Soft has followed the residuals
        model = fitted(own)
        save(model, tmp_path / "m")
        kind = type(own).__name__
        with pytest.raises(ModelFileError, match=rf"of your own, {kind}; give it: load\(path, divergence={kind}\(\)\)"):
            load(tmp_path / "m")
        with pytest.raises(ModelFileError, match=r"not with Huber|begun with the parameters .*0.5.*, not .*0.7"):
            load(tmp_path / "m", other)
        loaded = load(tmp_path / "m", type(own)())
        assert loaded.divergence == own
        require_same_future(loaded, model)
    save(fitted(), tmp_path / "named")
    with pytest.raises(ModelFileError, match="found by its name; leave out divergence="):
        load(tmp_path / "named", LogCosh())


def test_an_unnamed_child_is_not_taken_for_its_named_parent(tmp_path: Path) -> None:
    class Doubled(KullbackLeibler):
        pass

    class Patient(Paper):
        pass

    save(fitted(Doubled()), tmp_path / "m")
    with pytest.raises(ModelFileError, match="Doubled"):
        load(tmp_path / "m")
    for write in (lambda model: save(model, tmp_path / "n"), lambda model: model.fit(DATA, checkpoint=tmp_path / "n")):
        with pytest.raises(ModelFileError, match=r"give the class a name: class Patient\(\.\.\., name=\.\.\.\)"):
            write(fitted(method=Patient(max_iter=5)))
    assert not (tmp_path / "n").exists()


@pytest.mark.usefixtures("own_names")
def test_a_divergence_and_a_method_with_names_come_back_where_they_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Softer(Soft, name="softer"):
        pass

    @dataclass(frozen=True, repr=False)
    class Slow(Paper, name="slow"):
        pause: float = 0.5

    known = dict(Divergence._classes), dict(methods.Choice._classes)
    for number, (family, options) in enumerate(
        ((Divergence, {"divergence": Softer(0.25)}), (methods.Choice, {"method": Slow(pause=np.inf, max_iter=5)}))
    ):
        model = fitted(**options)
        require_same_future(round_trip(model, tmp_path), model)
        kind, name = ("divergence", "softer") if number == 0 else ("method", "slow")
        monkeypatch.setattr(family, "_classes", {k: v for k, v in known[number].items() if k != name})
        with pytest.raises(ModelFileError, match=f"the {kind} '{name}', unknown here; import the module that defines"):
            load(tmp_path / "model.safetensors")


@dataclass(frozen=True)
class Weighted(LogCosh):
    """With a parameter that no file can hold."""

    weigh: Any = abs


def test_what_a_file_cannot_hold_is_refused_before_anything_is_learnt(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"cannot be saved: a model file holds only numbers and text: .*function"):
        OnlineNMF(2, divergence=Weighted(len)).fit(iter([]), checkpoint=tmp_path / "m")
    with pytest.raises(ModelFileError, match="cannot be saved"):
        save(fitted(Weighted(len)), tmp_path / "m")
    with pytest.raises(ModelFileError, match=r"cannot write .*m: "):
        model_file.write(tmp_path / "m", {"a": np.array([None])}, {})
    assert not list(tmp_path.iterdir())


# Writing


def test_only_a_fitted_online_model_whose_settings_fit_is_saved(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="only a fitted model"):
        save(OnlineNMF(3), tmp_path / "m")
    for wrong in (BatchNMF(2), tmp_path / "m"):
        with pytest.raises(TypeError, match=r"save\(model, path\) takes an OnlineNMF first"):
            save(wrong, tmp_path / "m")
    for change in ({"n_components": 4}, {"divergence": "is"}, {"clip": (0, 1)}, {"batch_size": 0}, {"method": "paper"}):
        with pytest.raises(ValueError, match=r"cannot be changed|batch_size must be|cannot continue with 'paper'"):
            save(fitted().set_params(**change), tmp_path / "m")  # no file that could not be read again
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
    parts: Parts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    earlier: bool,
    place: Any,
    name: str,
    failure: Any,
    error: type[BaseException],
) -> None:
    if earlier:
        (tmp_path / "m").write_bytes(parts.content)
    elif name == "chmod":
        return  # a new file has its permissions from the beginning
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    model = parts.load()
    with monkeypatch.context() as context:
        context.setattr(place, name, failure)
        with pytest.raises(error):
            save(model, tmp_path / "m")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    save(model, str(tmp_path / "m"))  # any suffix, and a text
    require_equal(load(str(tmp_path / "m")), model)


SAVE_FOREVER = """
import sys
import onmf
one, other = (onmf.load(path) for path in sys.argv[1:3])
print("saving", flush=True)
while True:
    onmf.save(one, sys.argv[3])
    onmf.save(other, sys.argv[3])
"""


def test_a_reader_finds_the_old_file_or_the_new_one_even_if_the_writer_is_killed(tmp_path: Path) -> None:
    init, X = np.random.default_rng(0).random((40, 4000)), np.random.default_rng(1).random((2, 4000))
    paths = [tmp_path / "one", tmp_path / "other", tmp_path / "m"]
    for path, tau in zip(paths[:2], (1, 2), strict=True):
        save(OnlineNMF(40, init=init, method=f"paper:max_iter=1,tau={tau}").partial_fit(X), path)  # over a MB
    whole = {after_the_header(path) for path in paths[:2]}
    with processes.start("-c", SAVE_FOREVER, *paths, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"saving\n"
        while not paths[2].exists():
            assert process.poll() is None
        found = {after_the_header(paths[2]) for _ in range(40)}
        process.kill()
    assert found <= whole
    assert len(found) == 2  # it was at work
    assert np.isfinite(load(paths[2]).components_).all()


def after_the_header(path: Path) -> bytes:
    """All but the header, whose entries come in any order."""
    content = path.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_the_file_has_the_permissions_of_an_ordinary_new_file_or_of_the_old_one(
    parts: Parts, tmp_path: Path, umask: int
) -> None:
    before = os.umask(umask)
    try:
        save(parts.load(), tmp_path / "m")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o666 & ~umask
    (tmp_path / "m").chmod(0o640)
    save(parts.load(), tmp_path / "m")
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o640


def test_the_umask_of_the_process_is_never_changed(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even for a moment: files that other threads make in it would be open to everybody."""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("the umask was changed"))
    save(parts.load(), tmp_path / "m")
    save(parts.load(), tmp_path / "m")


def not_ordinary(folder: Path, device: str) -> dict[str, Path]:
    """Whatever is no ordinary file, and links to it."""
    places = {"a named pipe": folder / "pipe", "a socket": folder / "socket", "a directory": folder / "directory"}
    os.mkfifo(places["a named pipe"])
    (folder / "directory").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(places["a socket"]))
    places["a device"] = Path(device)
    for what, place in list(places.items()):
        (folder / f"link to {what}").symlink_to(place)
        places[f"{what};"] = folder / f"link to {what}"
    (folder / "circle").symlink_to(folder / "circle")
    return places | {"loop": folder / "circle"}


def test_a_device_a_pipe_a_socket_or_a_directory_is_never_replaced(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = parts.load()
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    master, terminal = os.openpty()  # a device beside which nothing can be written, whatever the code under test does
    for what, place in not_ordinary(Path(), os.ttyname(terminal)).items():
        before = place.lstat()
        with pytest.raises(ModelFileError, match=rf"cannot write .*{what}"):
            save(model, place)
        with pytest.raises(WriteError, match=rf"cannot write .*{what}"), replacing(place):
            pytest.fail("it would be replaced")
        for resume in (False, True):
            with pytest.raises(ModelFileError, match=rf"cannot write .*{what}"):
                OnlineNMF(2).fit(iter([]), checkpoint=place, resume=resume)  # before learning
        assert (place.lstat().st_ino, place.lstat().st_mode) == (before.st_ino, before.st_mode)
    os.close(master)
    os.close(terminal)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.is_symlink()) == ["directory", "pipe", "socket"]


@pytest.mark.parametrize("number", range(3))
def test_a_file_in_which_one_bit_has_changed_is_refused(
    parts: Parts, paper_parts: Parts, matrix_parts: Parts, number: int, tmp_path: Path, rng: np.random.Generator
) -> None:
    content = (parts, paper_parts, matrix_parts)[number].content
    header = 8 + int.from_bytes(content[:8], "little")
    places = [*rng.integers(8 * header, size=50), *rng.integers(8 * header, 8 * len(content), size=50), 0, 63]
    for place in places:
        changed = bytearray(content)
        changed[place // 8] ^= 1 << int(place % 8)
        (tmp_path / "m").write_bytes(changed)
        with pytest.raises(ModelFileError) as error:
            load(tmp_path / "m")
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 500
        assert not model_file.is_intact(tmp_path / "m")
    (tmp_path / "m").write_bytes(content)
    assert model_file.is_intact(tmp_path / "m")


def test_a_file_without_its_checksum_is_refused(parts: Parts, tmp_path: Path) -> None:
    metadata = {"format": FORMAT, "version": str(VERSION), "facts": json.dumps(parts.facts)}
    (tmp_path / "m").write_bytes(safetensors.numpy.save(parts.arrays, metadata))
    with pytest.raises(ModelFileError, match="has changed since it was written, as its checksum shows"):
        load(tmp_path / "m")


@pytest.mark.parametrize("name", ["absent/m", "file/m", ".", "x" * 300, "null\0byte"])
def test_a_path_that_cannot_be_written_is_refused_by_name(parts: Parts, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelFileError, match="cannot write") as error:
        save(parts.load(), tmp_path / name)
    assert str(tmp_path) in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_name_as_long_as_the_file_system_allows_is_allowed(parts: Parts, tmp_path: Path) -> None:
    path = tmp_path / ("m" * 255)
    path.touch()  # it is allowed
    save(parts.load(), path)
    assert load(path).n_features_in_ == F


# Reading what is no model


@dataclass(frozen=True, repr=False)
class Parts:
    """A valid model file, taken apart."""

    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    content: bytes
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
        content = model_file.sealed(changed, {k: v for k, v in entries.items() if v is not None})
        path = self.folder / "changed.safetensors"
        path.write_bytes(content)
        return load(path)

    def refusal(self, **changes: Any) -> str:
        with pytest.raises(ModelFileError) as error:
            self.load(**changes)
        assert "changed.safetensors" in str(error.value)
        assert "\n" not in str(error.value)
        return str(error.value)

    def with_fact(self, path: str, value: Any) -> dict[str, Any]:
        facts = deepcopy(self.facts)
        *outer, last = path.split(".")
        here = facts
        for key in outer:
            here = here[key]
        here[last] = value
        return facts


def take_apart(divergence: Divergence | str, folder: Path, **options: Any) -> Parts:
    path = folder / "whole.safetensors"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(fitted(divergence, clip=(0.0, 50.0), **options), path)
    return Parts(*model_file.read(path), path.read_bytes(), folder)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return take_apart("kl", tmp_path_factory.mktemp("parts"), reservoir=4, sets=Sets())


@pytest.fixture(scope="module")
def paper_parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return take_apart("huber", tmp_path_factory.mktemp("paper"), method=QUICK["paper"])


@pytest.fixture(scope="module")
def matrix_parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    return take_apart(Mahalanobis(np.eye(F) + 0.1), tmp_path_factory.mktemp("matrix"))


def require_usable(model: OnlineNMF, folder: Path) -> None:
    """A model that load let through can transform, go on learning, be saved and say what it is."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # its numbers may be nonsense
        model.transform(MORE[:4])
        with contextlib.suppress(DataError):  # nonsense is refused, and the model stays as it was
            model.partial_fit(MORE[:4])
        assert all(getattr(model, name) is not None for name in ("reconstruction_err_", "n_iter_", "skipped_"))
        repr(model)
        save(model, folder / "again.safetensors")
        load(folder / "again.safetensors")


def test_the_parts_make_a_whole_without_pickle(
    parts: Parts, matrix_parts: Parts, paper_parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        pytest.fail("pickle was used")

    for each in (parts, matrix_parts, paper_parts):
        with monkeypatch.context() as context:
            for name in ("load", "loads", "Unpickler"):
                context.setattr(pickle, name, forbidden)
            model = each.load()
        require_usable(model, each.folder)


def test_arrays_are_aligned_wherever_the_file_has_them(parts: Parts, tmp_path: Path) -> None:
    length = int.from_bytes(parts.content[:8], "little")
    for pad in range(1, 8):
        header = parts.content[8 : 8 + length].rstrip() + b" " * pad
        (tmp_path / "m").write_bytes(len(header).to_bytes(8, "little") + header + parts.content[8 + length :])
        arrays, _ = model_file.read(tmp_path / "m")
        assert all(array.flags.aligned and array.flags.c_contiguous for array in arrays.values())
        require_same_future(load(tmp_path / "m"), parts.load())


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "absent", "no such file:"), (tmp_path, "is a directory")):
        with pytest.raises(ModelFileError, match=words):
            load(path)


def test_other_files_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    np.save(tmp_path / "m.npy", DATA)
    (tmp_path / "m.csv").write_text("a,b\n1,2\n")
    for length in (0, 1, 7, 8, 100, 5000):
        (tmp_path / f"m{length}.bin").write_bytes(rng.bytes(length))
    for number, metadata in enumerate((None, {"format": "pt"}, {"format": "np", "facts": "{}"})):
        content = safetensors.numpy.save({"components": np.ones((2, 2))}, metadata)
        (tmp_path / f"not a model of onmf {number}").write_bytes(content)
    for path in tmp_path.iterdir():
        with pytest.raises(ModelFileError, match=path.name) as error:
            load(path)
        assert "a model of onmf" in str(error.value)


def test_a_truncated_model_is_refused_wherever_it_is_cut(tmp_path: Path, parts: Parts) -> None:
    for length in [*range(0, len(parts.content), 50), len(parts.content) - 1]:
        (tmp_path / "m").write_bytes(parts.content[:length])
        with pytest.raises(ModelFileError):
            load(tmp_path / "m")


def test_another_format_is_refused_with_what_to_do(parts: Parts) -> None:
    with safetensors.safe_open(parts.folder / "whole.safetensors", framework="numpy") as file:
        assert file.metadata()["onmf"] == __version__
    older, newer = (parts.refusal(version=str(version), onmf="7.1") for version in (VERSION - 1, VERSION + 1))
    assert older.endswith(f"was written by an older version of onmf (format {VERSION - 1}); fit it again.")
    assert newer.endswith(f"(format {VERSION + 1}); onmf {__version__} reads format {VERSION}: install a newer one.")
    for nonsense in (None, "", "one", "-1", "1.5", "9" * 5000, "³"):
        assert len(parts.refusal(version=nonsense)) < 500


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "null", '"text"', "NaN", "{}", "[" * 100_000, '{"samples": ' + "9" * 5000 + "}", "{'a': 1}"],
    ids=lambda text: text[:15],
)
def test_facts_that_are_no_json_object_of_ours_are_refused(parts: Parts, text: str) -> None:
    parts.refusal(text=text)


def paths(facts: dict[str, Any], here: str = "") -> Iterator[str]:
    for key, value in facts.items():
        yield here + key
        if isinstance(value, dict):
            yield from paths(value, f"{here}{key}.")


def test_missing_facts_and_arrays_are_refused(parts: Parts, matrix_parts: Parts, paper_parts: Parts) -> None:
    for each in (parts, matrix_parts, paper_parts):
        for path in paths(each.facts):
            if any(
                word in path for word in ("constants.", "sets.", "position.", "drift.", ".class")
            ):  # they have defaults
                continue
            facts = deepcopy(each.facts)
            here = facts
            for key in path.split(".")[:-1]:
                here = here[key]
            del here[path.split(".")[-1]]
            each.refusal(facts=facts)
        for name in each.arrays:
            each.refusal(arrays={name: None})
        each.refusal(arrays={"memory.more": np.zeros(3)})
        each.refusal(arrays={"divergence.more": np.zeros(3)})


def test_statistics_that_do_not_fit_the_method_are_refused(parts: Parts, paper_parts: Parts) -> None:
    for name, value in parts.arrays.items():
        if name.startswith("memory."):
            for bad in (value[:-1], value[None], value.astype(np.float16), np.full_like(value, np.nan)):
                parts.refusal(arrays={name: bad})
    for name in ("memory.unit", "memory.mass", "memory.kept"):
        assert "negative" in parts.refusal(arrays={name: -parts.arrays[name] - 1})
    assert "statistics do not fit" in paper_parts.refusal(arrays={"memory.S": np.eye(3)})
    for seen in (-1.0, 41.0, 1e300):
        assert "reservoir" in parts.refusal(arrays={"memory.kept_of": np.array([seen])})


@pytest.mark.parametrize("size", [3, 10**6, 10**12, 10**15])
def test_sizes_beyond_the_file_are_refused_without_room_being_made_for_them(
    parts: Parts, size: int, tmp_path: Path
) -> None:
    parts.refusal(facts=parts.with_fact("settings.reservoir", size))
    guan = take_apart("squared_l2", tmp_path, method="guan")
    guan.refusal(facts=guan.with_fact("method.constants.buffer", size))


def bad_dictionaries(W: np.ndarray) -> Iterator[np.ndarray]:
    for bad in (np.nan, np.inf, -1e-9, 1.1):
        changed = W.copy()
        changed[1, 2] = bad
        yield changed
    absent = W.copy()
    absent[:, 3] = 0.0
    yield absent  # a feature without weight is not in C
    yield from (W[0], W[None], W[:, :0], W[:2], np.vstack([W, W]), W > 0.5)
    yield from ((W * 100).astype(np.int64), W.astype(np.float16))


def test_a_dictionary_outside_its_set_is_refused(parts: Parts, matrix_parts: Parts) -> None:
    for bad in bad_dictionaries(parts.arrays["components"]):
        parts.refusal(arrays={"components": bad})
    narrow = matrix_parts.arrays["components"][:, :5]
    assert "the data have 5 features" in matrix_parts.refusal(arrays={"components": narrow})


@pytest.mark.parametrize("method", [Lefevre(N=40), Guan(), Wang(eta=0.01)], ids=lambda method: method.name)
def test_a_dictionary_that_the_set_c_has_moved_is_read_again(method: Any, tmp_path: Path) -> None:
    """With a large eps the projection on C takes components off the simplex or out of the method's ball."""
    model = fitted(SERVED[method.name], method=method, sets=Sets(eps=0.3))
    require_same_future(round_trip(model, tmp_path), model)


def test_a_damaged_matrix_is_refused(matrix_parts: Parts) -> None:
    A = matrix_parts.arrays["divergence.A"]
    for bad in (A * np.nan, -A, np.tri(F), A[:3], A[0], A.astype(np.complex64)):
        matrix_parts.refusal(arrays={"divergence.A": bad})


def test_a_history_that_no_run_could_have_is_refused(parts: Parts) -> None:
    history = {key: a for key, a in parts.arrays.items() if key.startswith("history.")}
    for key, values in history.items():
        wrong = [values[:-1], values[:0], values[None], values[0], values.astype(np.complex64), -values, values > 0]
        if key != "history.loss":
            wrong.append(values[::-1].copy())
        if key == "history.samples":
            wrong += [values.astype(np.uint64), values.astype(float), values + 2**53, values - values[0]]
        else:
            wrong += [values.astype(np.int64), values * np.nan]
        for bad in wrong:
            if key != "history.loss" or bad is not wrong[5]:
                parts.refusal(arrays={key: np.asarray(bad)})
    parts.refusal(arrays={key: a[:0] for key, a in history.items()})
    parts.refusal(arrays={"history.loss": np.full_like(history["history.loss"], np.inf)})


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "BF16", "C64", "U8", "F4"])
def test_an_array_of_a_type_that_numpy_may_not_know_is_refused(parts: Parts, dtype: str) -> None:
    length = int.from_bytes(parts.content[:8], "little")
    header = json.loads(parts.content[8 : 8 + length])
    entry = header["components"]
    bits = {"BF16": 16, "C64": 64, "F4": 4}.get(dtype, 8)
    first, last = entry["data_offsets"]
    entry |= {"dtype": dtype, "shape": [3, (last - first) * 8 // bits // 3]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = parts.folder / "typed.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + parts.content[8 + length :])
    with pytest.raises(ModelFileError):
        load(path)


WHOLE = (-1, 1.5, "many", None, True, [], {}, 10**400, 2**53, float("nan"), float("inf"), "inf")
NUMBER = (-1.0, "one", None, [], {}, 10**400, float("nan"))
ENDLESS = (float("inf"), "inf")
TEXT = (None, 3, [], {}, "", "nonsense", ["kl"])
REFUSED: dict[str, tuple[Any, ...]] = {
    "divergence": (None, [], "kl"),
    "divergence.name": ("nonsense", "", ["kl"], 3, None),
    "divergence.given": ("nonsense", "huber", "kl:1", None, 3, [], {"nonsense": 1.0}, "beta:nan"),
    "divergence.parameters": ({"nonsense": 1.0}, [1.0], None, "kl"),
    "units": ([], None, {}, {"scale": 1.0, "mean": 1.0, "more": 1.0}),
    "units.scale": (*NUMBER, *ENDLESS, 0.0),
    "units.mean": (*NUMBER, *ENDLESS, 0.0),
    "units.whole": (None, 1, "yes", []),
    "state": ([], None, {}),
    "state.samples": (*NUMBER, *ENDLESS, 2**53),
    "blank": tuple(value for value in (*WHOLE, 0) if value is not None),
    "settings.missing": (*(value for value in TEXT if value is not None), "NaN", True),
    "settings.implicit": (*TEXT, True),
    "state.steps": WHOLE,
    "state.clock": (*NUMBER, *ENDLESS),
    "state.eps": (*NUMBER, *ENDLESS, 1.0, 0.9),
    "state.fixed": (*WHOLE, 1, 4),
    "state.high": (*NUMBER, 0.5, 2.0, "inf"),
    "loss_to_beat": NUMBER,
    "passes": WHOLE,
    "pass_began": (*WHOLE, 10**9),
    "method": (None, "surrogate", []),
    "method.name": (*TEXT, "auto", "em", "paper"),
    "method.constants": (None, [], {"nonsense": 1}, {"a": 1.0}),
    "method.constants.tau": tuple(value for value in (*WHOLE, 0) if value is not None),
    "method.constants.forgetting": (*NUMBER, 1.0),
    "method.constants.certified": tuple(value for value in (*WHOLE, 0) if value is not None),
    "method.constants.max_memory": (*NUMBER, *ENDLESS, 0.0),
    "method.constants.max_iter": (0, 2.5, "few", True),
    "method.constants.sparse": (0, 1, 2.5, "few"),
    "skipped": (None, [], {"count": 1}),
    "skipped.count": (*WHOLE, 1),
    "skipped.reasons": (None, 3, "text", [3], {}, ["why"]),
    "position": ([], {}, "here", {"passes": 1}),
    "position.kind": (None, "rounds", "x", 3, []),
    "position.passes": (*WHOLE, 0),
    "position.batches": (*WHOLE, 0),
    "position.faults": WHOLE,
    "position.n_samples": tuple(value for value in WHOLE if value is not None),
    "position.mark": (3, "", "x" * 32, []),
    "position.last": (3, "", "x" * 32, []),
    "position.clock": WHOLE,
    "position.began": WHOLE,
    "position.rows": WHOLE,
    "position.lines": tuple(value for value in WHOLE if value is not None),
    "position.ended": ("PCG64", 3, {"bit_generator": "PCG64"}),
    "position.length": (*WHOLE, 10**9),
    "position.place": tuple(value for value in WHOLE if value is not None),
    "position.files_before": (*WHOLE, 1),
    "position.past": (None, 3, "x", {}, [None], [3], [{}], [{"passes": 1, "batches": 1, "generator": {}}]),
    "position.generator": (None, [], {}, "PCG64", {"bit_generator": "PCG64"}),
    "position.generator.bit_generator": ("MT19937", None, 3),
    "position.generator.state": (None, {}, {"state": -1, "inc": 1}, {"state": "x", "inc": 1}),
    "drift": (None, [], {"nonsense": 1}),
    "drift.batches": WHOLE,
    "drift.weight": (*NUMBER, *ENDLESS),
    "drift.mean": (*NUMBER, *ENDLESS),
    "drift.variance": (*NUMBER, *ENDLESS),
    "drift.rise": (*NUMBER, *ENDLESS, 1.5),
    "drift.fall": (*NUMBER, *ENDLESS, 1.5),
    "drift.changes": WHOLE,
    "feature_names": ([], ["a"], ["a"] * (F + 1), "a" * F, {str(i): 1 for i in range(F)}, [1] * F, 3, True),
    "source": (
        *([], {}, "", "csv", 0, False, {"scheme": "csv"}, {"options": {}}, {"scheme": 3, "options": {}}),
        *({"scheme": "csv", "options": options} for options in ([], None, "a", {"a": None}, {"a": {}}, {"a": [[]]})),
        *({"scheme": "csv", "options": {"a": [value]}} for value in (None, {}, float("nan"), float("inf"))),
        *({"scheme": "csv", "options": {"columns": value}} for value in ("a", 3, True, [1])),
        *({"scheme": "audio", "options": options} for options in ({}, {"window": 2 * F - 2}, {"hop": 1})),
        *({"scheme": "images", "options": {"size": size, "colour": "grey"}} for size in ("", "4", "axb", f"{F}x0", 5)),
        *({"scheme": "images", "options": {"size": f"{F}x1", "colour": colour}} for colour in ("rgb", "blue", 1)),
    ),
    "settings": ([], None, {}),
    "settings.nonsense": (1,),
    "settings.callbacks": (["print"], None),
    "settings.verbose": (1,),
    "settings.divergence": ("kl",),
    "settings.n_components": (*WHOLE, 4),
    "settings.method": (None, "surrogate", {"name": "auto"}, {"name": "auto", "constants": {"a": 1.0}}),
    "settings.method.name": (*TEXT, "em", "paper"),
    "settings.method.constants.tau": tuple(value for value in (*WHOLE, 0) if value is not None),
    "settings.method.constants.certified": tuple(value for value in (*WHOLE, 0) if value is not None),
    "settings.init": (None, {}, ["a", "b"], "nonsense", 3),
    "settings.fixed": (1, "all", [], {}, 1.5),
    "settings.clip": (1.0, [2.0, 1.0], ["a", "b"], [1.0], "kl", [0.0, float("nan")]),
    "settings.coefficients": (*TEXT, "simplex"),
    "settings.l1_coefficients": (*NUMBER, *ENDLESS),
    "settings.l2_coefficients": (*NUMBER, *ENDLESS),
    "settings.l1_dictionary": (*NUMBER, *ENDLESS, 0.1),  # void alone
    "settings.l2_dictionary": (*NUMBER, *ENDLESS, 0.1),
    "settings.scale": (*TEXT, "none"),
    "settings.shuffle": (1, 0.0, None, "yes"),
    "settings.on_error": (*TEXT, True),
    "settings.shards": tuple(value for value in (*WHOLE, 0) if value is not None),
    "settings.batch_size": tuple(value for value in (*WHOLE, 0) if value is not None),
    "settings.n_init": (*WHOLE, 0),
    "settings.max_features": tuple(value for value in (*WHOLE, 0) if value is not None),
    "settings.features": (*TEXT, True),
    "settings.max_passes": (*WHOLE, 0),
    "settings.transform_tol": (*NUMBER, *ENDLESS),
    "settings.transform_max_iter": (*WHOLE, 0),
    "settings.random_state": (-1, 1.5, "luck", True, [], 2**2000),
    "settings.sets": ([], {"eps": 1e-8, "more": 1}, {"eps": "small"}),
    "settings.sets.eps": (*NUMBER, *ENDLESS, 1.0),
    "settings.sets.eps_prime": (*NUMBER, *ENDLESS, 0.0, 1e9),
    "settings.sets.U": (*NUMBER, 0.0),
    "settings.reservoir": (*WHOLE, 0, 5),
}


@pytest.mark.parametrize("path", REFUSED)
def test_a_fact_that_no_model_could_have_is_refused(parts: Parts, path: str) -> None:
    for value in REFUSED[path]:
        parts.refusal(facts=parts.with_fact(path, value))


def test_a_window_and_a_hop_that_the_features_do_not_have_are_refused(parts: Parts) -> None:
    sizes = (2 * F - 2, 2 * F - 1, 1, 0, -1, 10**30, 2.5, "4")
    taken = []
    for window, hop in itertools.product(sizes, sizes):
        facts = parts.with_fact("source", {"scheme": "audio", "options": {"window": window, "hop": hop}})
        if type(hop) is int and window in sizes[:2] and 1 <= hop <= window:
            taken.append(parts.load(facts=facts).source_.options)
        else:
            parts.refusal(facts=facts)
    assert len(taken) == 5


def test_every_fact_has_values_that_are_refused(parts: Parts) -> None:
    free = {"raised", "divergence.class", "position.generator.has_uint32", "position.generator.uinteger"}
    free |= {f"position.generator.state.{key}" for key in ("state", "inc")} | {"settings.method.constants"}
    free |= {f"settings.method.constants.{key}" for key in ("forgetting", "max_iter")} | {"method.constants.tol"}
    assert set(paths(parts.facts)) - REFUSED.keys() == free


def test_a_file_does_not_have_another_file_read(parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "A.npy", np.eye(F))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("another file was read"))
    parts.refusal(facts=parts.with_fact("divergence.given", f"mahalanobis:{tmp_path / 'A.npy'}"))


def test_a_message_stays_one_sentence_however_long_and_deep_the_nonsense(parts: Parts) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    for value in (deep, "x" * 10**6, ["\n"] * 1000):
        for path in ("settings.clip", "feature_names", "units.scale", "divergence.given", "skipped.reasons"):
            assert len(parts.refusal(facts=parts.with_fact(path, value))) < 1000


def test_a_scale_whose_square_is_no_number_is_refused_or_usable(matrix_parts: Parts) -> None:
    facts = matrix_parts.with_fact("units", {"scale": 1e300, "mean": 1e300})
    with contextlib.suppress(ModelFileError):
        require_usable(matrix_parts.load(facts=facts), matrix_parts.folder)


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


def is_small(model: OnlineNMF) -> bool:
    """Would it iterate for a time that a test has?"""
    return max(getattr(model.method_, "max_iter", None) or 0, model.transform_max_iter) < 10**4


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_facts_changed_at_random_are_refused_or_make_a_usable_model(
    parts: Parts, matrix_parts: Parts, paper_parts: Parts, data: st.DataObject
) -> None:
    parts = data.draw(st.sampled_from([parts, matrix_parts, paper_parts]))
    facts = deepcopy(parts.facts)
    for path in data.draw(st.lists(st.sampled_from(list(paths(parts.facts))), min_size=1, max_size=2)):
        here: Any = facts
        *outer, last = path.split(".")
        for key in outer:
            here = here.get(key) if isinstance(here, dict) else None
        if isinstance(here, dict):
            here[last] = data.draw(json_values)
    try:
        model = parts.load(text=json.dumps(facts))
    except ModelFileError:
        return
    if is_small(model):
        require_usable(model, parts.folder)


@pytest.mark.parametrize("which", ["parts", "matrix_parts", "paper_parts"])
def test_bytes_changed_at_random_are_refused_or_make_a_usable_model(
    request: pytest.FixtureRequest, which: str, rng: np.random.Generator
) -> None:
    parts: Parts = request.getfixturevalue(which)
    header = 8 + int.from_bytes(parts.content[:8], "little")
    likely = np.frombuffer(b'0123456789eE+-.,:[]{}" ', dtype=np.uint8)
    path = parts.folder / "flipped.safetensors"
    for k in range(500):
        flipped = bytearray(parts.content)
        end = len(flipped) if k % 3 == 0 else header
        for place in rng.integers(end, size=rng.integers(1, 4)):
            flipped[place] = rng.integers(256) if k % 2 else rng.choice(likely)
        path.write_bytes(flipped)
        try:
            model = load(path)
        except ModelFileError:
            continue
        if is_small(model):
            require_usable(model, parts.folder)
