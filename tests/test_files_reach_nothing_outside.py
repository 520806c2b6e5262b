"""Files of samples reach nothing outside: no other file is read or written, no code run, and nothing waits for ever."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import tomllib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onmf
from onmf import OnlineNMF
from onmf.data import SourceError, open_source, register
from onmf.data.registry import each_file
from tests.conftest import Run

N, F = 40, 6
X = np.random.default_rng(0).gamma(1.0, 1.0, (N, F))
FOLLOW = "links=follow"

# Samples in files, and folders of them


def text(path: Path) -> None:
    path.write_text("river stone cloud\n")


def picture(path: Path) -> None:
    pytest.importorskip("PIL.Image").fromarray(np.full((4, 5), 9, np.uint8)).save(path)


def sound(path: Path) -> None:
    pytest.importorskip("soundfile").write(path, np.sin(np.arange(3000.0)), 8000)


def parquet(path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    parquet.write_table(table({"a": [1.0, 2.0], "b": [3.0, 4.0]}), path)


KINDS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "text": (".txt", text),
    "images": (".png", picture),
    "audio": (".wav", sound),
    "parquet": (".parquet", parquet),
}
every_kind = pytest.mark.parametrize("scheme", KINDS)


def a_folder(scheme: str, folder: Path) -> tuple[Path, Path]:
    """A file in a folder, and one elsewhere."""
    suffix, write = KINDS[scheme]
    for place in ("data", "elsewhere"):
        (folder / place).mkdir()
        write(folder / place / f"a{suffix}")
    return folder / "data" / f"a{suffix}", folder / "elsewhere" / f"a{suffix}"


def rows(name: str) -> int:
    return sum(len(numbers) for numbers, _ in open_source(name).batches(1000))


def require_links_option(name: str) -> None:
    with pytest.raises(SourceError, match=r"; give \?links=follow to read what such links lead to\.$"):
        open_source(name)


@every_kind
def test_a_link_out_of_a_folder_or_pattern_raises_an_error_unless_links_are_followed(
    tmp_path: Path, scheme: str
) -> None:
    own, other = a_folder(scheme, tmp_path)
    once = rows(f"{scheme}:{own.parent}")
    link = own.with_stem("b")
    link.symlink_to(other)
    for name in (f"{scheme}:{own.parent}", f"{scheme}:{own.parent}/*{own.suffix}"):
        require_links_option(name)
        assert rows(f"{name}?{FOLLOW}") == 2 * once


@every_kind
def test_links_within_a_folder_and_links_that_the_user_names_are_read(tmp_path: Path, scheme: str) -> None:
    own, _ = a_folder(scheme, tmp_path)
    once = rows(f"{scheme}:{own.parent}")
    own.with_stem("b").symlink_to(own.name)
    (tmp_path / "linked").symlink_to(own.parent)
    (tmp_path / f"linked{own.suffix}").symlink_to(own)
    assert rows(f"{scheme}:{tmp_path}/linked") == rows(f"{scheme}:{tmp_path}/linked/*{own.suffix}") == 2 * once
    assert rows(f"{scheme}:{tmp_path}/linked{own.suffix}") == once


def test_a_pattern_does_not_leave_its_folder_through_a_linked_one(tmp_path: Path) -> None:
    own, other = a_folder("text", tmp_path)
    (own.parent / "sub").symlink_to(other.parent)
    require_links_option(f"text:{own.parent}/*/*.txt")
    assert rows(f"text:{own.parent}/*/*.txt?{FOLLOW}") == 1
    assert rows(f"text:{tmp_path}/*/sub/*.txt") == 1  # within the folder where this pattern begins


def test_workers_do_not_read_links_out_of_a_folder_of_tables(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "t.csv").write_text("1,2\n")
    (tmp_path / "data" / "t.csv").symlink_to(tmp_path / "t.csv")
    with pytest.raises(SourceError, match=FOLLOW):
        each_file(f"csv:{tmp_path}/data")
    assert [rows(each) for each in each_file(f"csv:{tmp_path}/data?{FOLLOW}")] == [1]


def test_links_is_an_option_of_every_scheme_and_of_no_model(tmp_path: Path) -> None:
    own, other = a_folder("text", tmp_path)
    own.with_stem("b").symlink_to(other)
    source = open_source(f"text:{own.parent}?{FOLLOW}")
    assert source.spec is not None
    assert "links" not in source.spec.options
    assert rows(str(source.opened)) == 2  # as workers open it
    require_links_option(f"text:{own.parent}")  # the option ends with what it was given for
    with pytest.raises(SourceError, match=r"links must be follow, or be left out; got 'yes'\."):
        open_source(f"text:{own.parent}?links=yes")
    with pytest.raises(SourceError, match=r"npy has no option 'link'; it has links, memory\."):
        open_source("x.npy?link=follow")

    def opener(path: Path, links: str) -> Any: ...

    with pytest.raises(TypeError, match="every scheme has an option links"):
        register("linking")(opener)


# Pipes, devices and sockets


class Late(BaseException):
    """Not an Exception, which readers would take for a fault of the file."""


@pytest.fixture
def at_once() -> Iterator[None]:
    """Nothing here may wait: what does is interrupted, and fails."""

    def late(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def a_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # since names of sockets must be short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path.name)
    os.chdir(before)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


SPECIAL: dict[str, Callable[[Path], None]] = {"a named pipe": os.mkfifo, "a socket": a_socket, "a device": a_device}


@pytest.mark.usefixtures("at_once")
@every_kind
def test_pipes_devices_and_sockets_in_a_folder_raise_an_error_at_once(tmp_path: Path, scheme: str) -> None:
    own, _ = a_folder(scheme, tmp_path)
    for kind, make in SPECIAL.items():
        special, option = own.with_stem("b"), f"?{FOLLOW}" if kind == "a device" else ""
        make(special)
        words = f"b{own.suffix} is {kind}, which holds no samples; remove it from"
        for name in (f"{scheme}:{own.parent}{option}", f"{scheme}:{own.parent}/*{own.suffix}{option}"):
            with pytest.raises(SourceError, match=words):
                open_source(name)
        special.unlink()


@pytest.mark.usefixtures("at_once")
def test_special_files_are_no_bad_samples_that_could_be_skipped(tmp_path: Path, run_main: Run) -> None:
    own, _ = a_folder("text", tmp_path)
    os.mkfifo(own.with_stem("b"))
    status, _, said = run_main("fit", f"text:{own.parent}", "-k", 1, "--on-error", "skip", "--out", tmp_path / "m")
    assert status == 2
    assert "is a named pipe, which holds no samples" in " ".join(said.split())


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("place", ["c/0/0", "zarr.json", "c"])
def test_a_pipe_in_zarr_raises_an_error_at_once(tmp_path: Path, place: str) -> None:
    pytest.importorskip("zarr").save_array(str(tmp_path / "x.zarr"), X)
    where = tmp_path / "x.zarr" / place
    where.rename(tmp_path / "before")
    os.mkfifo(where)
    with pytest.raises(SourceError, match="is a named pipe, which holds no samples"):
        open_source(tmp_path / "x.zarr")


# Zarr


def test_links_out_of_zarr_raise_an_error_unless_they_are_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    zarr = pytest.importorskip("zarr")
    for place in ("c/0/0", "c", "zarr.json", "../zarr.json"):  # a chunk, all chunks, and metadata of array and group
        store = tmp_path / place.replace("/", "-")
        zarr.open_group(str(store)).create_array("X", data=X)
        where, elsewhere = store / "X" / place, tmp_path / f"elsewhere-{store.name}"
        where.rename(elsewhere)
        where.symlink_to(elsewhere)
        require_links_option(f"zarr:{store}?name=X")
        [(_, found)] = open_source(f"zarr:{store}?name=X&{FOLLOW}").batches(N)
        np.testing.assert_array_equal(found, X)
    assert not caplog.records  # of chunks that are not there


def test_links_within_zarr_are_read_and_circles_end(tmp_path: Path) -> None:
    array = pytest.importorskip("zarr").create_array(str(tmp_path / "x.zarr"), shape=(N, F), chunks=(20, F), dtype="f8")
    array[:] = np.tile(X[:20], (2, 1))
    (tmp_path / "x.zarr" / "c" / "1" / "0").unlink()
    (tmp_path / "x.zarr" / "c" / "1" / "0").symlink_to("../0/0")
    (tmp_path / "x.zarr" / "c" / "circle").symlink_to("..")
    (tmp_path / "x.zarr" / "c" / "round").symlink_to("../c/circle")
    [(_, found)] = open_source(tmp_path / "x.zarr").batches(N)
    np.testing.assert_array_equal(found, np.tile(X[:20], (2, 1)))


class Attack:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("attacked"),)


@pytest.mark.parametrize("place", ["compressor", "filters"])
def test_zarr_runs_no_code_from_chunks(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = pytest.importorskip("zarr")
    pickles = pytest.importorskip("numcodecs.pickles")
    monkeypatch.setattr(pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)  # as in versions before 0.16.6
    monkeypatch.chdir(tmp_path)
    zarr.create_array("x.zarr", data=X, chunks=(N, F), compressors=None, zarr_format=2)
    facts = json.loads(Path("x.zarr/.zarray").read_text())
    codec = {"id": "pickle", "protocol": 5}
    Path("x.zarr/.zarray").write_text(json.dumps(facts | {place: codec if place == "compressor" else [codec]}))
    Path("x.zarr/0.0").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(SourceError, match=r"x.zarr/.zarray names the codec 'pickle', which onmf does not run; write"):
        list(open_source("x.zarr").batches(N))
    assert not Path("attacked").exists()


@pytest.fixture
def odd_codec() -> Any:
    """Zarr with a codec of somebody else, which changes nothing."""
    zarr = pytest.importorskip("zarr")
    from zarr.abc.codec import BytesBytesCodec

    class Odd(BytesBytesCodec):
        is_fixed_size = True

        @classmethod
        def from_dict(cls, data: Any) -> Any:
            return cls()

        def to_dict(self) -> Any:
            return {"name": "odd"}

        def compute_encoded_size(self, length: int, spec: Any) -> int:
            return length

    zarr.registry.register_codec("odd", Odd)
    return zarr


def in_array(facts: Any) -> None:
    facts["codecs"].append({"name": "odd"})


def by_short_name(facts: Any) -> None:
    facts["codecs"].append("odd")


def in_shard(facts: Any) -> None:
    facts["codecs"][0]["configuration"]["codecs"].append({"name": "odd"})


def in_index_of_shard(facts: Any) -> None:
    facts["codecs"][0]["configuration"]["index_codecs"].append({"name": "odd"})


def in_group(facts: Any) -> None:
    in_shard(facts["consolidated_metadata"]["metadata"]["X"])


def in_group_of_format_2(facts: Any) -> None:
    facts["metadata"]["X/.zarray"]["compressor"] = {"id": "pickle"}


@pytest.mark.parametrize(
    ("change", "file"),
    [
        (in_array, "X/zarr.json"),
        (by_short_name, "X/zarr.json"),
        (in_shard, "X/zarr.json"),
        (in_index_of_shard, "X/zarr.json"),
        (in_group, "zarr.json"),
        (in_group_of_format_2, ".zmetadata"),
    ],
)
def test_codecs_of_zarr_are_those_of_a_list_wherever_metadata_name_them(
    tmp_path: Path, change: Callable[[Any], None], file: str, odd_codec: Any
) -> None:
    zarr, path, old = odd_codec, tmp_path / "x.zarr", change is in_group_of_format_2
    group = zarr.open_group(str(path), zarr_format=2 if old else 3)
    group.create_array("X", data=X, chunks=(10, F), **({} if old else {"shards": (20, F)}))
    group["X"].attrs["codecs"] = group.attrs["filters"] = ["attributes may have such names"]
    with warnings.catch_warnings(action="ignore"):  # that consolidated metadata are new in format 3
        zarr.consolidate_metadata(str(path))
    assert rows(f"{path}?name=X") == N
    facts = json.loads((path / file).read_text())
    change(facts)
    (path / file).write_text(json.dumps(facts))
    with pytest.raises(SourceError, match=r"names the codec '(odd|pickle)', which onmf does not run"):
        open_source(f"{path}?name=X")


def test_usual_codecs_of_zarr_are_read(tmp_path: Path) -> None:
    zarr, numcodecs = pytest.importorskip("zarr"), pytest.importorskip("numcodecs")
    codecs = pytest.importorskip("zarr.codecs")
    written: dict[str, Any] = {
        "blosc": {"compressors": codecs.BloscCodec()},
        "gzip, transposed": {"compressors": codecs.GzipCodec(), "filters": codecs.TransposeCodec(order=(1, 0))},
        "zlib": {"compressors": numcodecs.Zlib(), "zarr_format": 2},
        "delta": {"compressors": numcodecs.LZ4(), "filters": [numcodecs.Delta("f8")], "zarr_format": 2},
    }
    for name, options in written.items():
        zarr.create_array(str(tmp_path / name), data=X, **options)
        [(_, found)] = open_source(f"zarr:{tmp_path / name}").batches(N)
        np.testing.assert_allclose(found, X)


def test_the_required_versions_of_zarr_do_not_unpickle_chunks_either() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"]["zarr"] == ["zarr>=3.1", "numcodecs>=0.16.6"]


# HDF5


def external_link(h5py: Any, file: Any) -> None:
    file["X"] = h5py.ExternalLink("other.h5", "/X")


def external_storage(h5py: Any, file: Any) -> None:
    X.tofile(Path(file.filename).with_name("raw"))
    file.create_dataset("X", X.shape, X.dtype, external=[(str(Path(file.filename).with_name("raw")), 0, X.nbytes)])


def virtual(h5py: Any, file: Any, where: str = "other.h5") -> None:
    layout = h5py.VirtualLayout(X.shape, X.dtype)
    layout[:] = h5py.VirtualSource(where, "X" if where == "other.h5" else "own/X", X.shape)
    file.create_virtual_dataset("X", layout)


@pytest.mark.parametrize("write", [external_link, external_storage, virtual])
def test_hdf5_that_leads_to_other_files_raises_an_error_unless_links_are_followed(
    tmp_path: Path, write: Callable[[Any, Any], None]
) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["X"] = X
    with h5py.File(tmp_path / "x.h5", "w") as file:
        write(h5py, file)
    require_links_option(f"{tmp_path / 'x.h5'}?name=X")
    [(_, found)] = open_source(f"{tmp_path / 'x.h5'}?name=X&{FOLLOW}").batches(N)
    np.testing.assert_array_equal(found, X)


def test_what_stays_within_an_hdf5_file_is_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["own/X"] = X
        file["soft"] = h5py.SoftLink("/own/X")
        virtual(h5py, file, ".")
    for name in ("own/X", "soft", "X"):
        [(_, found)] = open_source(f"{tmp_path / 'x.h5'}?name={name}").batches(N)
        np.testing.assert_array_equal(found, X)


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An .h5ad and a model for it, and a file that it may link to, in the current folder; h5py."""
    pytest.importorskip("anndata").AnnData(X).write_h5ad(tmp_path / "x.h5ad")
    monkeypatch.chdir(tmp_path)
    onmf.save(OnlineNMF(2, random_state=0).fit(X), "m")
    h5py = pytest.importorskip("h5py")
    with h5py.File("other.h5", "w") as file:
        for part, key in (("obsm", "X_onmf"), ("varm", "onmf"), ("uns", "onmf")):
            file.create_group(part)[key] = "precious"
        file["X"] = X
    return h5py


def linked(h5py: Any, part: str, link: Any) -> None:
    with h5py.File("x.h5ad", "r+") as file:
        del file[part]
        file[part] = link


@pytest.mark.parametrize("part", ["obsm", "varm", "uns"])
def test_coefficients_are_never_written_to_another_file_that_the_data_link_to(
    cells: Any, part: str, run_main: Run
) -> None:
    linked(cells, part, cells.ExternalLink("other.h5", f"/{part}"))
    before = Path("other.h5").read_bytes()
    for data, words in (("x.h5ad", FOLLOW), (f"x.h5ad?{FOLLOW}", f"keeps {part} elsewhere, behind a link")):
        status, _, said = run_main("transform", "m", data, "--out", "new.h5ad")
        assert words in " ".join(said.split())
        assert status == 2
        assert Path("other.h5").read_bytes() == before
        assert not Path("new.h5ad").exists()


def test_coefficients_are_not_written_through_soft_links(cells: Any, run_main: Run) -> None:
    with cells.File("x.h5ad", "r+") as file:
        file["precious/X_onmf"] = "precious"
    linked(cells, "obsm", cells.SoftLink("/precious"))
    _, _, said = run_main("transform", "m", "x.h5ad", "--out", "new.h5ad")
    words = "x.h5ad keeps obsm elsewhere, behind a link; write it anew: anndata.read_h5ad(name).write_h5ad(name)."
    assert words in " ".join(said.split())
    assert not Path("new.h5ad").exists()


def test_cells_in_another_file_raise_an_error_unless_links_are_followed(cells: Any) -> None:
    linked(cells, "X", cells.ExternalLink("other.h5", "/X"))
    require_links_option("x.h5ad")
    [(_, found)] = open_source(f"x.h5ad?{FOLLOW}").batches(N)
    np.testing.assert_array_equal(found, X)


@pytest.mark.usefixtures("at_once")
def test_an_h5ad_that_links_to_a_pipe_raises_an_error_at_once(cells: Any) -> None:
    os.mkfifo("pipe")
    linked(cells, "X", cells.ExternalLink("pipe", "/X"))
    require_links_option("x.h5ad")


# Pictures


def test_postscript_that_is_called_a_picture_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = pytest.importorskip("PIL.EpsImagePlugin")
    monkeypatch.setattr(plugin, "gs_binary", None)  # not looked for yet
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (tmp_path / "gs").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "b.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n%%EndComments\nshowpage\n")
    with pytest.raises(SourceError, match=r"b\.png cannot be read as a picture: cannot identify image file"):
        open_source(tmp_path / "b.png")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp"])
def test_pictures_of_every_suffix_are_read_whatever_they_are_called(tmp_path: Path, suffix: str) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((4, 5), 9, np.uint8)).convert("RGB").save(tmp_path / f"x{suffix}")
    (tmp_path / f"x{suffix}").rename(tmp_path / "y.png")
    assert open_source(tmp_path / "y.png").n_features == 20
