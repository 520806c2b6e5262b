"""``import onmf``, ``onmf --help`` and ``onmf info`` are quick and quiet: what is heavy waits until it is used."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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
    *("onmf.cli.main", "onmf.cli.demo.photograph", "onmf.plots"),
]
COMMANDS = """
import sys
from onmf.cli.main import main
for line in sys.argv[1:]:
    sys.argv = ["onmf", *line.split(maxsplit=1)]
    try: main()
    except SystemExit: pass
"""
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
    code = """
import sys, sklearn.base
packages = lambda: {".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("sklearn.")}
before = packages()
from onmf import BatchNMF, OnlineNMF, load
assert packages() == before
"""
    assert not loaded(code) & set(UNUSED_BY_ESTIMATORS)


def test_names_without_an_estimator_need_no_scikit_learn() -> None:
    names = ("divergences", "methods", "data", "Sets", "Checkpoint", "Progress", "DataError")
    assert not loaded(f"import onmf; {', '.join(f'onmf.{name}' for name in names)}") & {*HEAVY, *TERMINAL, *EXTRAS}


def test_help_needs_neither_scikit_learn_nor_numba() -> None:
    needed = loaded(COMMANDS, "--help", "--version", "fit --help", "info --help")
    assert not needed & {*HEAVY, *EXTRAS, "onmf.estimators", "onmf.learner"}


def test_onmf_info_needs_neither_scikit_learn_nor_numba(model: Path) -> None:
    needed = loaded(COMMANDS, f"info {model}")
    assert not needed & {*HEAVY, *EXTRAS, "onmf.estimators"}


def test_help_and_info_take_at_most_half_the_time_of_importing_sklearn_decomposition(model: Path) -> None:
    """They take a quarter of it (benchmarks/start_up.py); with scikit-learn they would take more than all of it."""
    ran = {
        "sklearn": ["-c", "import sklearn.decomposition"],
        "help": ["-m", "onmf", "--help"],
        "info": ["-m", "onmf", "info", str(model)],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ran}
    compiled = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(2):  # the first time writes the bytecode
        for name, arguments in ran.items():
            before = os.times()
            subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=compiled, timeout=120)
            after = os.times()  # of the processor, whatever else it does
            seconds[name].append(sum(after[2:4]) - sum(before[2:4]))
    assert min(seconds["help"]) < min(seconds["sklearn"]) / 2
    assert min(seconds["info"]) < min(seconds["sklearn"]) / 2


def test_all_names_are_listed_before_and_imported_without_a_change_of_numpys_states_and_warning_filters() -> None:
    code = """
import numpy as np, warnings, sklearn.utils.validation, scipy.sparse
facts = lambda: (str(np.random.get_state()), np.geterr(), list(warnings.filters), np.get_printoptions())
before = facts()
import onmf
assert set(onmf.__all__) < set(dir(onmf))
from onmf import *
OnlineNMF, divergences, save
assert [name for name in onmf.__all__ if not hasattr(onmf, name)] == []
assert facts() == before
"""
    assert "onmf.estimators.online" in loaded(code)


def test_a_name_that_is_not_there_is_an_attribute_error_that_says_so() -> None:
    with pytest.raises(AttributeError, match=r"^module 'onmf' has no attribute 'NMF'$"):
        onmf.NMF  # noqa: B018


def test_public_modules_are_imported_by_their_public_names() -> None:
    modules = {name for name in onmf.__all__ if isinstance(getattr(onmf, name), ModuleType)}
    assert modules == {"data", "divergences", "methods", "plots", "topics"}
    assert all(importlib.import_module(f"onmf.{name}") is getattr(onmf, name) for name in modules)
