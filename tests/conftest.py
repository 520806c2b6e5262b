"""Shared by all tests: random generators with names, the divergences of the registry, and the command line."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

import reproduction.earlier_methods  # noqa: F401 (custom methods: what holds for all methods holds for these)
from onmf import BatchNMF, OnlineNMF, divergences, methods
from onmf.cli import main as cli
from onmf.divergences import Separable, find

# On a build machine every run tries the same cases; elsewhere each run tries new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="one case of every test that tests/slow.txt does not name")


def pytest_configure(config: pytest.Config) -> None:
    """Processes that share the cores have one thread each: threads that wait for each other take twice as long.

    They are told before they start, since a plugin of pytest may import NumPy before they read this file.
    """
    if config.getoption("numprocesses", None):
        for library in ("OPENBLAS", "OMP"):
            os.environ.setdefault(f"{library}_NUM_THREADS", "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``make quick``: the first case of a test; of tests of methods and divergences, the first of each of them."""
    if not config.getoption("--quick"):
        return
    slow = set((Path(__file__).parent / "slow.txt").read_text().split())
    first: dict[str, pytest.Item] = {}
    for item in items:
        name, _, case = item.nodeid.removeprefix("tests/").partition("[")
        each = case.partition("-")[0] if name.startswith(("test_methods.py", "test_divergences.py")) else ""
        if name not in slow:
            first.setdefault(f"{name}[{each}", item)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(first.values())])
    items[:] = first.values()


@dataclass(frozen=True)
class Pinball(Separable):
    """A convex loss with a kink, of no name: the class's own stands for it."""

    convex, smooth, degree = True, False, 1.0

    def d(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.where(x > y, 0.3, 0.7) * abs(x - y)

    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        return xp.where(x > y, -0.3, 0.7)


F = 12  # features of the registry's examples (Mahalanobis carries a matrix of this size)


def mahalanobis(n_features: int = F) -> list[divergences.Mahalanobis]:
    """A correlation that decays with the distance between features, and very unequal variances."""
    distance = np.abs(np.subtract.outer(np.arange(n_features), np.arange(n_features)))
    matrices = np.linalg.inv(0.7**distance), np.diag(np.geomspace(0.1, 10.0, n_features)) + 0.05
    return [divergences.Mahalanobis(A) for A in matrices]


def examples(n_features: int = F) -> list[divergences.Divergence]:
    """Every divergence of the registry, those with parameters at, next to and far from their limits."""
    families = {
        "alpha": [divergences.Alpha(alpha) for alpha in (-1.0, 0.0, 0.3, 0.5, 1.0, 1.0 + 1e-8, 2.0, 3.0)],
        "beta": [divergences.Beta(beta) for beta in (-0.5, 0.0, 0.5, 1.0, 1.0 + 1e-8, 1.5, 2.0, 3.0)],
        "huber": [divergences.Huber(delta) for delta in (0.1, 2.0)],  # mostly linear, mostly quadratic
        "mahalanobis": mahalanobis(n_features),
    }
    return [example for name in divergences.names() for example in families.get(name) or [find(name)()]]


def example_id(divergence: divergences.Divergence) -> str:
    values = [v for v in divergence.parameters().values() if not isinstance(v, np.ndarray)]
    return divergence.name + "".join(f":{v:.9g}" for v in values)


@dataclass(frozen=True)
class LogCosh(divergences.Separable):
    """A user's own divergence: not homogeneous, not registered, value and derivative alone."""

    convex = True

    def d(self, xp, x, y):
        r = xp.abs(x - y)
        return r + xp.log1p(0.5 * xp.expm1(-2.0 * r))

    def dy(self, xp, x, y):
        return xp.tanh(y - x)


@dataclass(frozen=True)
class Soft(LogCosh):
    """Another one, that says all it knows: curvature, robustness, and a width that follows the residuals."""

    width: float = 0.5

    robust = True
    lipschitz = 1.0
    adaptive = True
    averaging_exponent = 0.7

    def d(self, xp, x, y):
        return self.width**2 * super().d(xp, x / self.width, y / self.width)

    def dy(self, xp, x, y):
        return self.width * xp.tanh((y - x) / self.width)

    def curvature(self, xp, x, y):
        r = xp.abs(y - x) / self.width + 1e-6
        return xp.tanh(r) / r

    def newton_curvature(self, xp, x, y):
        return xp.maximum(1 - xp.tanh((y - x) / self.width) ** 2, 1e-3)

    def adapted(self, residuals, weights, mean, share):
        return replace(self, width=(1 - share) * self.width + share * float(np.average(residuals, weights=weights)))

    def for_data(self, mean, n_features):
        return replace(self, width=0.5 * mean)


@dataclass(frozen=True)
class Overdispersed(divergences.Separable):
    """d = (x log(x/y) - x + y) / (1 + x): not homogeneous, but linear at zero, so that sparse data stay sparse."""

    domain = divergences.Domain(y=divergences.Interval(includes_zero=False))
    convex = True
    slope_at_zero = 1.0

    def d(self, xp, x, y):
        return (x * xp.log(xp.where(x > 0, x, y) / y) - x + y) / (1 + x)

    def dy(self, xp, x, y):
        return (1 - x / y) / (1 + x)

    def curvature(self, xp, x, y):
        return 1 / (y * (1 + x))

    def newton_curvature(self, xp, x, y):
        return xp.maximum(x / y, 1e-3) / (y * (1 + x))

    def multiplicative_parts(self, X, Y, mean=None):
        return X / (Y * (1 + X)), 1 / (1 + X)

    def loss_of_samples(self, X):
        return float(((X * np.log(np.where(X > 0, X, 1.0)) - X) / (1 + X)).sum())

    def loss_of_fits(self, X, Y, P, N):
        return float((N * (Y - X * np.log(Y))).sum())


def require_scikit_learns_check(estimator: OnlineNMF | BatchNMF, check: Any) -> None:
    """The check passes, or fails where weights cannot pass it.

    That is asserted, not marked as an expected failure: pytest would write the traceback of each, which takes ten
    times as long as the check.
    """
    failing = {  # it also shuffles the samples, from which the start is drawn; tests/test_weights.py keeps their order
        f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")
    }
    if not getattr(methods.get(getattr(estimator, "method", "auto")), "weighs", True):  # the method refuses weights
        kinds = ("pandas_series", "not_an_array", "list", "shape", "not_overwritten")
        failing |= {f"check_sample_weights_{kind}" for kind in kinds}
    fails = check.func.__name__ in failing
    with warnings.catch_warnings(), pytest.raises((AssertionError, ValueError)) if fails else nullcontext():
        warnings.simplefilter("ignore")
        check(estimator)


def require_same_learning(one: OnlineNMF, other: OnlineNMF) -> None:
    """Both have learnt the same, bit for bit."""
    mine, theirs = one._learned, other._learned
    assert mine is not None
    assert theirs is not None
    np.testing.assert_array_equal(mine.state.W, theirs.state.W)
    assert mine.state.memory.keys() == theirs.state.memory.keys()
    for name, array in mine.state.memory.items():
        np.testing.assert_array_equal(array, theirs.state.memory[name], err_msg=name)
    for name in ("samples", "clock", "steps"):
        assert getattr(mine.state, name) == getattr(theirs.state, name), name
    for name in ("samples", "loss"):
        np.testing.assert_array_equal(one.history_[name], other.history_[name])
    for name in ("n_iter_", "method_", "skipped_", "scale_"):
        assert getattr(one, name) == getattr(other, name), name
    assert type(mine.divergence) is type(theirs.divergence)
    for name, value in mine.divergence.parameters().items():
        np.testing.assert_array_equal(value, theirs.divergence.parameters()[name])


def covering(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Few combinations of one value per axis in which any two values of two axes meet, found greedily."""
    values = [list(axis) for axis in axes]
    rows = list(product(*(range(len(axis)) for axis in values)))
    left = {pair for row in rows for pair in combinations(enumerate(row), 2)}
    chosen = []
    while left:
        chosen.append(max(rows, key=lambda row: sum(pair in left for pair in combinations(enumerate(row), 2))))
        left.difference_update(combinations(enumerate(chosen[-1]), 2))
    return [tuple(axis[place] for axis, place in zip(values, row, strict=True)) for row in sorted(chosen)]


def spread(rows: Iterable[Any], columns: Iterable[Any], step: int) -> list[tuple[Any, Any]]:
    """Each row with every ``step``-th column, the next row one column further, so that columns take turns, too."""
    columns = list(columns)
    return [
        (row, column)
        for r, row in enumerate(rows)
        for c, column in enumerate(columns)
        if (r + c) % step == 0 or len(columns) < step
    ]


every_divergence = pytest.mark.parametrize("divergence", examples(), ids=example_id)
# For what sees values and slopes alone, as solvers and models do: no special case under two names, and no parameter
# next to a limit, where a formula may lose digits; tests/test_divergences.py has all of them.
DISTINCT = [
    each for each in examples() if divergences.get(each) == each and not example_id(each).endswith(":1.00000001")
]
every_distinct_divergence = pytest.mark.parametrize("divergence", DISTINCT, ids=example_id)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator seeded by the test's own name: tests do not change each other's numbers."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


@pytest.fixture(autouse=True)
def _same_folder() -> Iterator[None]:
    """A test that changes the working directory changes it back; processes that later tests start depend on it."""
    before = os.getcwd()
    yield
    assert os.getcwd() == before


# The command line

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run_main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """``main`` with these arguments: its exit status, stdout and stderr; what it changes in the process is undone."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setenv("COLUMNS", "200")
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["onmf", *map(str, arguments)])
        status: object = None
        try:
            cli.main()
        except SystemExit as stop:
            status = stop.code
        assert status is None or isinstance(status, int)  # a text would be printed by Python itself
        captured = capsys.readouterr()
        return status or 0, captured.out, captured.err

    yield run
    signal.signal(signal.SIGTERM, handler)


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """This process has no more of it meanwhile: resource.RLIMIT_NOFILE, files; RLIMIT_FSIZE, bytes in one, as on a disk
    that is full.
    """
    usual = resource.getrlimit(what)
    resource.setrlimit(what, (most, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(what, usual)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium without a window, where it is installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium and its driver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", "disable-dev-shm-usage",
        f"user-data-dir={tmp_path_factory.mktemp('browser')}",
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield found
    found.quit()
