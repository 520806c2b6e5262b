"""``import onmf``, ``onmf --help`` and ``onmf info`` are quick and quiet: what is heavy waits until it is used."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import onmf

HEAVY = ["sklearn", "scipy.sparse", "scipy.optimize", "numba", "llvmlite", "matplotlib", "pandas", "threadpoolctl"]
TERMINAL = ["typer", "click", "rich"]
EXTRAS = ["anndata", "h5py", "jinja2", "PIL", "plotly", "pyarrow", "soundfile", "zarr"]
# What an estimator stands on is there once one is asked for; the rest waits for data.
UNUSED_BY_ESTIMATORS = [
    *("numba", "llvmlite", "matplotlib", *TERMINAL, "sklearn.decomposition", "sklearn.linear_model", "scipy.signal"),
    *("anndata", "h5py", "jinja2", "PIL", "plotly", "pyarrow.dataset", "soundfile", "zarr"),
    *("onmf.cli.main", "onmf.cli.demo.photograph", "onmf.insight.plots"),
]
COMMAND = "import sys; sys.argv[0] = 'onmf'; from onmf.cli.main import main\ntry: main()\nexcept SystemExit: pass\n"
MODULES = "import sys; print('loaded:', *sys.modules)"


def python(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False)


def loaded(code: str, *arguments: str | Path) -> set[str]:
    """The modules that are there after the code has run, in a process where warnings are errors."""
    done = python("-W", "error", "-c", f"{code}\n{MODULES}", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.partition("loaded:")[2].split())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    onmf.save(onmf.OnlineNMF(2, random_state=0).fit(np.random.default_rng(0).random((30, 5)) + 0.1), path)
    return path


def test_import_onmf_imports_next_to_nothing() -> None:
    found = loaded("import onmf")
    ours = {name for name in found if name.partition(".")[0] == "onmf"}
    assert ours == {"onmf", "onmf._support", "onmf._support.version"}
    assert not found & {"numpy", *HEAVY, *TERMINAL, *EXTRAS}


def test_import_onmf_prints_nothing() -> None:
    done = python("-W", "error", "-c", "import onmf")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_estimator_needs_sklearn_base_and_no_more() -> None:
    imported = loaded("from onmf import BatchNMF, OnlineNMF, load")
    assert "sklearn.base" in imported
    assert not imported & set(UNUSED_BY_ESTIMATORS)
    packages = {".".join(name.split(".")[:2]) for name in imported if name.startswith("sklearn.")}
    assert packages == {
        ".".join(name.split(".")[:2]) for name in loaded("import sklearn.base") if name.startswith("sklearn.")
    }


@pytest.mark.parametrize("name", ["divergences", "methods", "data", "Sets", "Checkpoint", "Progress", "DataError"])
def test_names_without_an_estimator_need_no_scikit_learn(name: str) -> None:
    assert not loaded(f"import onmf; onmf.{name}") & {*HEAVY, *TERMINAL, *EXTRAS}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["fit", "--help"], ["info", "--help"]], ids=" ".join)
def test_help_needs_neither_scikit_learn_nor_numba(arguments: list[str]) -> None:
    assert not loaded(COMMAND, *arguments) & {
        *HEAVY,
        *EXTRAS,
        "onmf.estimators",
        "onmf.learner",
    }


def test_onmf_info_needs_neither_scikit_learn_nor_numba(model: Path) -> None:
    assert not loaded(COMMAND, "info", model) & {*HEAVY, *EXTRAS, "onmf.estimators"}


def test_help_and_info_take_at_most_half_the_time_of_importing_sklearn_decomposition(model: Path) -> None:
    """They take a quarter of it (benchmarks/start_up.py); with scikit-learn they would take more than all of it."""
    ran = {
        "sklearn": ["-c", "import sklearn.decomposition"],
        "help": ["-m", "onmf", "--help"],
        "info": ["-m", "onmf", "info", str(model)],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ran}
    compiled = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(3):  # the first time writes the bytecode
        for name, arguments in ran.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=compiled, timeout=120)
            seconds[name].append(time.perf_counter() - started)
    assert min(seconds["help"]) < min(seconds["sklearn"]) / 2
    assert min(seconds["info"]) < min(seconds["sklearn"]) / 2


def test_import_onmf_leaves_numpys_random_state_error_state_and_warning_filters_alone() -> None:
    done = python(
        "-c",
        "import numpy as np, warnings, sklearn.utils.validation, scipy.sparse\n"
        "facts = lambda: (str(np.random.get_state()), np.geterr(), list(warnings.filters), np.get_printoptions())\n"
        "before = facts()\n"
        "from onmf import *\n"
        "assert facts() == before\n",
    )
    assert done.returncode == 0, done.stderr


def test_everything_in_all_is_there_and_listed_before_it_is_imported() -> None:
    assert [name for name in onmf.__all__ if not hasattr(onmf, name)] == []
    code = "import onmf; assert set(onmf.__all__) < set(dir(onmf))\nfrom onmf import *\nOnlineNMF, divergences, save"
    assert "onmf.estimators.online" in loaded(code)


def test_a_name_that_is_not_there_is_an_attribute_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match=r"^module 'onmf' has no attribute 'NMF'$"):
        onmf.NMF  # noqa: B018
