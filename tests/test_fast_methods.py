"""The methods "surrogate" and "em", asked for by name: the promises of the estimator hold for every divergence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from onmf.dictionary import Floor, Surrogate
from onmf.schedules import Averaging
from sklearn.utils.estimator_checks import parametrize_with_checks

from onmf import OnlineNMF, load, save
from onmf.coefficients import Newton
from onmf.datasets.synthetic import NOISE_OF, Planted
from onmf.divergences import L1, Divergence, Huber, Mahalanobis, Separable, get
from onmf.methods import Settings, build
from onmf.problem import DenseFits, SparseFits
from onmf.sets import DictionarySet
from tests.conftest import F, LogCosh, example_id, examples

pytestmark = pytest.mark.filterwarnings("ignore:The coefficients of:sklearn.exceptions.ConvergenceWarning")


def linear_at_zero(divergence: Divergence) -> bool:
    return isinstance(divergence, Separable) and divergence.slope_at_zero is not None


SERVED = [("surrogate", d) for d in examples()]
SERVED += [("em", d) for d in examples() if linear_at_zero(d)]
every_pair = pytest.mark.parametrize(
    ("method", "divergence"), SERVED, ids=[f"{method}-{example_id(d)}" for method, d in SERVED]
)


def data(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.gamma(2.0, 1.0, (n, 3)) @ rng.gamma(1.0, 1.0, (3, F)) * rng.gamma(50, 1 / 50, (n, F)) + 0.1


def quick(method: str, divergence: Divergence | str = "kl", **settings: object) -> OnlineNMF:
    given = {"n_components": 3, "random_state": 0, "batch_size": 20, "transform_max_iter": 200}
    return OnlineNMF(method=method, divergence=divergence, **(given | settings))


@parametrize_with_checks([quick("surrogate", "l2"), quick("em", "kl"), quick("em", "hellinger", reservoir=10)])
def test_scikit_learn_contract_holds(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@every_pair
def test_partial_fit_over_the_batches_is_fit_to_the_bit_and_a_seed_repeats(method, divergence, rng):
    X = data(50, rng)
    whole, again = (quick(method, divergence, shuffle=False, tau=8).fit(X) for _ in range(2))
    pieces = quick(method, divergence, tau=8)
    for first in range(0, 50, 20):
        pieces.partial_fit(X[first : first + 20].copy())
    np.testing.assert_array_equal(whole.components_, pieces.components_)
    np.testing.assert_array_equal(whole.components_, again.components_)


@every_pair
def test_learning_lowers_the_loss_and_stays_in_the_set(method, divergence, rng):
    X = data(300, rng)
    start = quick("paper", divergence, a=1e-12).fit(X[:200])
    model = quick(method, divergence, max_passes=3).fit(X[:200])
    assert model.loss(X[200:]) < start.loss(X[200:])
    assert DictionarySet(model.eps).contains(model.components_)


@every_pair
def test_a_saved_model_goes_on_to_the_bit_and_reading_does_not_change_it(method, divergence, rng, tmp_path):
    X = data(60, rng)
    model = quick(method, divergence).fit(X)
    save(model, tmp_path / "m")
    model.transform(X)
    model.score(X)
    loaded = load(tmp_path / "m")
    assert loaded.method_ == method
    np.testing.assert_array_equal(model.partial_fit(X).components_, loaded.partial_fit(X).components_)


@every_pair
@pytest.mark.parametrize("c", [1e-9, 1e9])
def test_scaling_the_data_scales_the_coefficients_only(method, divergence, c, rng):
    X = data(60, rng)
    model, scaled = quick(method, divergence).fit(X), quick(method, divergence.in_units(1 / c)).fit(c * X)
    np.testing.assert_allclose(scaled.components_, model.components_, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("method", "name"), [("surrogate", "kl"), ("surrogate", "squared_l2"), ("em", "kl")])
def test_how_a_stream_is_sliced_hardly_matters(method, name, rng):
    W = rng.gamma(0.3, 1.0, (5, 40))
    X, held_out = (rng.poisson(3 * rng.gamma(0.5, 1.0, (n, 5)) @ W).astype(float) for n in (2000, 200))
    losses = []
    for pieces in (1, 20, 400):
        model = OnlineNMF(5, divergence=name, method=method, init="kmeans++", random_state=0)
        model.partial_fit(X[:100])  # the same start for all
        for batch in np.array_split(X[100:], pieces):
            model.partial_fit(batch)
        losses.append(model.loss(held_out))
    # A visit to a short chunk moves W too little to help its neighbours: em loses a little by it.
    assert max(losses) < (1.1 if method == "em" else 1.05) * min(losses)


def test_surrogate_is_ahead_of_the_papers_step_after_as_many_samples(rng):
    for name in NOISE_OF:
        planted = Planted.draw(60, 8, NOISE_OF[name], rng)
        X, held_out = planted.sample(1000, rng).V, planted.sample(100, rng).V
        settings = {"divergence": name, "init": "uniform", "random_state": 0}
        fast = OnlineNMF(8, method="surrogate", **settings).fit(X)
        paper = OnlineNMF(8, method="paper", a=200, b=200, **settings).fit(X)
        assert fast.loss(held_out) < paper.loss(held_out), name


def test_drift_is_followed_with_forgetting(rng):
    old, new = (Planted.draw(40, 4, "poisson", rng) for _ in range(2))
    models = [OnlineNMF(4, method="surrogate", forgetting=f, random_state=0) for f in (0.0, 0.3)]
    for model in models:
        model.partial_fit(old.sample(3000, np.random.default_rng(0)).V)
        model.partial_fit(new.sample(300, np.random.default_rng(1)).V)
    held_out = new.sample(100, rng).V
    assert models[1].loss(held_out) < 0.9 * models[0].loss(held_out)


@pytest.mark.parametrize("name", ["kl", "hellinger", "alpha:2"])
def test_sparse_data_give_what_dense_data_give(name, rng):
    X = rng.poisson(0.5, (60, F)).astype(float)
    dense, sparse = quick("em", name).fit(X), quick("em", name).fit(scipy.sparse.csr_matrix(X))
    np.testing.assert_allclose(sparse.components_, dense.components_, rtol=1e-9, atol=1e-12)
    H, h = dense.transform(X), sparse.transform(scipy.sparse.csr_matrix(X))
    values = [get(name).value(X, dense.inverse_transform(found)) for found in (H, h)]
    np.testing.assert_allclose(*values, rtol=1e-3)  # the coefficients of nearly equal atoms themselves are not unique
    assert sparse.loss(scipy.sparse.csc_matrix(X)) == pytest.approx(dense.loss(X), rel=1e-6)


@pytest.mark.parametrize("method", ["surrogate", "em"])
def test_float32_stays_float32(method, rng):
    X = data(60, rng)
    model = quick(method).fit(X.astype(np.float32))
    assert model.components_.dtype == np.float32
    assert all(value.dtype == np.float32 for value in model._memory.values())
    assert model.loss(X) == pytest.approx(quick(method).fit(X).loss(X), rel=1e-2)


def test_methods_refuse_what_they_cannot_serve_by_name():
    with pytest.raises(ValueError, match="em refuses is: it serves kl, hellinger and alpha > 0; use"):
        build("em", get("is"), Settings())
    with pytest.raises(ValueError, match="em refuses mahalanobis"):
        build("em", Mahalanobis(np.eye(3)), Settings())
    for name in ("surrogate", "em"):
        with pytest.raises(ValueError, match="solver='armijo' is one of method='paper'"):
            build(name, get("kl"), Settings(solver="armijo"))
    with pytest.raises(ValueError, match="forgetting must lie in"):
        build("surrogate", get("kl"), Settings(forgetting=1.5))


def test_a_users_own_divergence_works_without_curvature(rng):
    X = data(200, rng)
    start = quick("paper", LogCosh(), a=1e-12, init="uniform").fit(X)
    assert quick("surrogate", LogCosh(), init="uniform", max_passes=3).fit(X).loss(X) < 0.5 * start.loss(X)


# The parts


@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("divergence", [d for d in examples() if not isinstance(d, L1)], ids=example_id)
def test_newton_is_as_good_as_the_papers_solvers(divergence, ridge, rng):
    W = rng.random((4, F)) + 0.01
    X = rng.gamma(2.0, 0.5, (20, 4)) @ W * rng.gamma(20, 1 / 20, (20, F))
    tol = 1e-6 if divergence.robust else 1e-7  # reweighted least squares converge at a linear rate
    newton = Newton(ridge=ridge, tol=tol, max_iter=500).solve(divergence, X, W)
    reference = build("paper", divergence, Settings(ridge=ridge)).precise.precise(1e-8, 20_000).solve(divergence, X, W)
    assert newton.converged.all()

    def value(H: np.ndarray) -> np.ndarray:
        return divergence.value(X, H @ W) + 0.5 * ridge * np.square(H).sum(axis=1)

    slack = 1e-6 * divergence.value(X, 2 * X)
    if divergence.convex:
        assert (value(newton.H) <= value(reference.H) + slack).all()
    else:  # either may be in the better of two valleys
        assert np.median(value(newton.H) - value(reference.H)) <= slack.max()


@pytest.mark.parametrize("divergence", [d for d in examples() if not isinstance(d, L1)], ids=example_id)
def test_a_samples_coefficients_do_not_depend_on_its_batch(divergence, rng):
    W = rng.random((4, F)) + 0.01
    X = rng.gamma(2.0, 0.5, (12, 4)) @ W * rng.gamma(20, 1 / 20, (12, F))
    solver = Newton(tol=1e-8, max_iter=500)
    together = solver.solve(divergence, X, W).H
    alone = np.vstack([solver.solve(divergence, x[None], W).H for x in X])
    np.testing.assert_allclose(together, alone, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", ["is", "beta:-0.5", "alpha:0", "kl"])
def test_newton_bears_atoms_with_zeros(name, rng):
    W = DictionarySet().project(rng.random((4, F)) * (rng.random((4, F)) < 0.4))
    X = rng.gamma(2.0, 0.5, (12, 4)) @ W + 0.01
    found = Newton(tol=1e-4, max_iter=300).solve(get(name), X, W)
    assert np.isfinite(get(name).value(X, found.H @ W)).all()


@pytest.mark.parametrize("name", ["kl", "hellinger", "alpha:2", "alpha:0.3"])
def test_sparse_products_are_the_dense_ones(name, rng):
    X = rng.poisson(0.7, (9, F)).astype(float)
    W, H = rng.random((4, F)) + 0.01, rng.random((9, 4)) + 0.01
    dense, sparse = DenseFits(get(name), X, W), SparseFits(get(name), scipy.sparse.csr_matrix(X), W)
    Y, y = dense.fit(H), sparse.fit(H)
    np.testing.assert_allclose(sparse.value(H, y), dense.value(H, Y))
    np.testing.assert_allclose(sparse.newton(H, y)[0], dense.newton(H, Y)[0])
    keep = np.arange(9) % 2 == 0
    np.testing.assert_allclose(sparse.rows(keep).fit(H[keep]), sparse.rows_of(y, keep))


@pytest.mark.parametrize("name", ["kl", "is", "beta:1.5", "huber:0.3", "alpha:2"])
def test_the_statistics_and_the_sweeps_are_those_of_the_formulas(name, rng):
    divergence = get(name)
    W, X, H = rng.random((3, F)) + 0.1, rng.random((25, F)) + 0.1, rng.random((25, 3)) + 0.1
    update = Surrogate(chunk=25, sweeps=500, floor=Floor(0.0))
    state = update.apply(update.start(W), update.local(divergence, X, H, W))
    Y = H @ W
    G, C = divergence.model(X, Y)
    scale = state.W.max(axis=1) / np.maximum(state.W.max(axis=1), 1)  # W stays in [0, 1] by a change of units
    assert (scale <= 1).all()
    for f in range(F):
        A = np.einsum("n,nj,nk->jk", C[:, f], H, H)
        b = (C[:, f] * Y[:, f] - G[:, f]) @ H
        root = np.linalg.cholesky(A)
        w = scipy.optimize.nnls(root.T, np.linalg.solve(root, b))[0]
        ratio = w[w > 1e-6] / state.W[w > 1e-6, f]
        if f == 0:
            first = dict(zip(np.flatnonzero(w > 1e-6), ratio, strict=True))
        for k, value in zip(np.flatnonzero(w > 1e-6), ratio, strict=True):
            assert value == pytest.approx(first.setdefault(k, value), rel=1e-4)  # one factor an atom


def test_short_chunks_weigh_less():
    rho = Averaging()
    assert rho(30, 30, 30) == 1.0
    assert rho(10, 5, 30) == 0.5
    assert rho(3003, 3, 30) == pytest.approx(0.1 * rho(3003, 30, 30))
    assert Averaging(forgetting=0.3)(3_000_000, 30, 30) == 0.3
    with pytest.raises(ValueError, match="exponent"):
        Averaging(exponent=0.5)


def test_huber_withstands_outliers_in_the_fast_method_too(rng):
    clean = data(600, rng)
    X = np.where(rng.random(clean.shape) < 0.1, 10 * clean.max(), clean)

    def error(divergence: Divergence | str) -> float:
        model = quick("surrogate", divergence, max_passes=3).fit(X)
        return float(np.abs(model.inverse_transform(model.transform(X)) - clean).mean())

    assert error(Huber(0.5)) < 0.2 * error("squared_l2")
