"""Compiled code on disk is the user's own, and a machine that keeps none of it learns all the same."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
import pytest

from onmf.coefficients.kernels import cache
from onmf.coefficients.kernels.gram import solve_free
from tests.test_compiling import FIT, SENTENCE, compiled, fit, python

pytestmark = [compiled, pytest.mark.skipif(os.name == "nt", reason="permissions are those of POSIX")]

NOWHERE = "import tempfile\ntempfile.tempdir = '/proc'\n"  # where nobody, not even root, can make a folder


def kept(place: Path) -> list[Path]:
    return sorted((place / "onmf").iterdir())


def homeless() -> dict[str, str]:
    return {"HOME": "/proc", "XDG_CACHE_HOME": "/proc", "NUMBA_CACHE_DIR": "/proc"}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with the code that the first fit has compiled, and what that learnt."""
    folder = tmp_path_factory.mktemp("first")
    return folder, fit(folder)[0]["W"]


def test_compiled_code_lies_in_a_folder_that_nobody_else_can_enter(first: tuple[Path, Any]) -> None:
    folder, _ = first
    assert stat.S_IMODE((folder / "onmf").stat().st_mode) == 0o700
    assert len(kept(folder)) > 1


def test_a_configuration_of_numba_in_the_working_directory_moves_no_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numba unpickles what lies in its cache: whoever wrote the data beside it would run code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    Path(".numba_config.yaml").write_text(f"cache_dir: {tmp_path / 'planted'}\n")
    # A Python of its own: Numba reads that file when it is imported.
    code = "import numpy as np; from onmf.coefficients.kernels.gram import _unpack; _unpack(np.ones(1), np.eye(1))"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=120)
    assert not Path("planted").exists()
    assert kept(tmp_path / "own")


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o770])
def test_a_folder_that_others_can_enter_is_not_used(tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_all = tmp_path / "onmf"
    open_to_all.mkdir()
    open_to_all.chmod(mode)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert cache.folder.__wrapped__() == tmp_path / f"onmf-{os.geteuid()}"


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    (tmp_path / "onmf").symlink_to(elsewhere)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    fit(tmp_path)
    assert not list(elsewhere.iterdir())
    assert any((tmp_path / f"onmf-{os.geteuid()}").iterdir())


def test_without_any_folder_that_can_be_written_a_fit_compiles_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hardened containers have a read-only installation and no home."""
    for name, value in homeless().items():
        monkeypatch.setenv(name, value)
    _, said = python(NOWHERE + FIT)
    assert said == (
        "Compiling, which takes a few seconds in every run, as no folder of yours can keep the result; "
        "set NUMBA_CACHE_DIR to a folder that you can write.\n"
    )


@pytest.mark.parametrize("damage", ["truncated", "emptied", "changed", "a folder"])
def test_damaged_code_is_compiled_again(tmp_path: Path, damage: str, first: tuple[Path, Any]) -> None:
    shutil.copytree(first[0], tmp_path, dirs_exist_ok=True)
    whole = {path: path.read_bytes() for path in kept(tmp_path)}
    for path, content in whole.items():
        if damage == "a folder":
            path.unlink()
            path.mkdir()
        else:
            middle = len(content) // 2
            changed = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            path.write_bytes({"truncated": content[:middle], "emptied": b"", "changed": changed}[damage])
    second, said = fit(tmp_path)
    assert SENTENCE in said
    assert second["W"] == first[1]
    if damage != "a folder":
        assert not fit(tmp_path)[0]["misses"]


def test_no_room_for_compiled_code_is_one_warning(tmp_path: Path) -> None:
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    _, said = python(limit + FIT, cache=tmp_path)
    assert said.count("Compiled code cannot be kept in ") == 1
    assert "make room there, or set NUMBA_CACHE_DIR to a folder that you can write." in said
    assert not kept(tmp_path)


def test_numbas_own_cache_is_not_asked() -> None:
    """It ends with "no locator available" where it can write neither beside the package nor in a home."""
    assert isinstance(solve_free, numba.core.dispatcher.Dispatcher)
    assert isinstance(solve_free._cache, cache.KernelCache)
