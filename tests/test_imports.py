"""``import onmf`` is quick and quiet: what is heavy waits until it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import onmf

HEAVY = ["numba", "llvmlite", "matplotlib", "typer", "click", "rich", "scipy.signal"]
EXTRAS = ["anndata", "h5py", "PIL", "pyarrow.dataset", "soundfile", "zarr"]  # of onmf.streams, which onmf imports


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules that ``import onmf`` loads, in a process where warnings are errors."""
    done = python("-W", "error", "-c", "import onmf, sys; print(*sys.modules)")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1  # nothing else is printed
    return set(done.stdout.split())


@pytest.mark.parametrize("module", [*HEAVY, *EXTRAS])
def test_import_onmf_does_not_import(imported: set[str], module: str) -> None:
    assert module not in imported


@pytest.mark.parametrize("module", ["onmf.cli.main", "onmf.experiments.demo", "onmf.plots", "onmf.kernels"])
def test_import_onmf_leaves_its_outer_layers_alone(imported: set[str], module: str) -> None:
    assert module not in imported


def test_import_onmf_is_silent_even_where_warnings_are_errors(imported: set[str]) -> None:
    assert "onmf.estimators.online" in imported


def test_import_onmf_leaves_numpys_random_state_error_state_and_warning_filters_alone() -> None:
    done = python(
        "-c",
        "import numpy as np, warnings, sklearn.utils.validation, scipy.sparse\n"
        "facts = lambda: (str(np.random.get_state()), np.geterr(), list(warnings.filters), np.get_printoptions())\n"
        "before = facts()\n"
        "import onmf\n"
        "assert facts() == before\n",
    )
    assert done.returncode == 0, done.stderr


def test_everything_in_all_is_there() -> None:
    assert [name for name in onmf.__all__ if not hasattr(onmf, name)] == []
