from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onmf.divergences import Divergence, get
from onmf.model.sets import Box, DictionaryBox, DictionarySet, Sets, project_on_simplex
from tests.conftest import every_divergence

EPS = (0.0, 1e-8, 0.3, 0.9)
every_eps = pytest.mark.parametrize("eps", EPS)
every_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def matrices(low: float = -3, high: float = 3) -> st.SearchStrategy[np.ndarray]:
    shape = st.tuples(st.integers(1, 5), st.integers(1, 4))
    return hnp.arrays(np.float64, shape, elements=st.floats(low, high, allow_subnormal=False))


def members(C: DictionarySet, shape: tuple[int, int], seed: int, n: int = 20) -> list[np.ndarray]:
    """Elements of C found without its projection: corners, and weights shared out at random."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(n):
        if number % 2:
            W = C.eps * rng.dirichlet(np.full(shape[0], 0.3), shape[1]).T
        else:
            W = rng.random(shape) ** rng.integers(1, 9)
            W[rng.integers(shape[0]), :] = 1.0
        found.append(W)
    return found


# The dictionary


@every_eps
@given(V=matrices())
@settings(max_examples=50, deadline=None)
def test_projection_lies_in_the_set(eps: float, V: np.ndarray) -> None:
    W = DictionarySet(eps).project(V)
    assert W.min() >= 0
    assert W.max() <= 1
    assert (W.sum(axis=0) >= eps * (1 - 1e-14)).all()
    assert DictionarySet(eps).contains(W)


@every_eps
@given(V=matrices())
@settings(max_examples=50, deadline=None)
def test_projection_stays_where_it_is_when_repeated(eps: float, V: np.ndarray) -> None:
    C = DictionarySet(eps)
    W = C.project(V)
    np.testing.assert_allclose(C.project(W), W, rtol=1e-14, atol=1e-14 * eps)


@every_eps
@given(data=st.data(), V=matrices())
@settings(max_examples=50, deadline=None)
def test_projection_does_not_expand(eps: float, data: st.DataObject, V: np.ndarray) -> None:
    U = data.draw(hnp.arrays(np.float64, V.shape, elements=st.floats(-3, 3)))
    C = DictionarySet(eps)
    assert np.linalg.norm(C.project(U) - C.project(V)) <= np.linalg.norm(U - V) * (1 + 1e-12) + 1e-15


@every_eps
@given(V=matrices(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_no_member_of_the_set_lies_on_the_near_side_of_the_projection(eps: float, V: np.ndarray, seed: int) -> None:
    C = DictionarySet(eps)
    P = C.project(V)
    for Z in members(C, V.shape, seed):
        assert np.sum((V - P) * (Z - P)) <= 1e-14 * (1 + np.abs(V).sum())


@pytest.mark.parametrize("eps", [1e-8, 0.3, 0.9])
@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_projection_is_the_solution_of_its_quadratic_programme(
    eps: float, spread: float, rng: np.random.Generator
) -> None:
    V = spread * (rng.standard_normal((4, 12)) - 0.5)
    W = DictionarySet(eps).project(V)
    constraint = {"type": "ineq", "fun": lambda w: w.sum() - eps, "jac": lambda _: np.ones(4)}
    for f in range(V.shape[1]):
        solution = scipy.optimize.minimize(
            lambda w, v=V[:, f]: 0.5 * np.sum((w - v) ** 2),
            np.full(4, 0.5),
            jac=lambda w, v=V[:, f]: w - v,
            bounds=[(0, 1)] * 4,
            constraints=constraint,
            method="SLSQP",
            options={"ftol": 1e-15},
        )
        np.testing.assert_allclose(W[:, f], solution.x, atol=1e-6)


def exact_projection(v: np.ndarray, d: np.ndarray, eps: float) -> np.ndarray:
    """Argmin sum (w - v)^2 / d over 0 <= w <= 1 with sum w >= eps, in fractions: clip(v + d nu), the least nu >= 0."""
    V, D, size = [Fraction(float(x)) for x in v], [Fraction(float(x)) for x in d], Fraction(eps)

    def weights(nu: Fraction) -> list[Fraction]:
        return [min(max(x + y * nu, Fraction(0)), Fraction(1)) for x, y in zip(V, D, strict=True)]

    # The sum rises piecewise linearly with nu; the pieces end where a weight leaves 0 or reaches 1.
    ends = [Fraction(0), *sorted(nu for x, y in zip(V, D, strict=True) for nu in (-x / y, (1 - x) / y) if nu > 0)]
    last = next(number for number, nu in enumerate(ends) if sum(weights(nu)) >= size)
    if last == 0:
        return np.array([float(w) for w in weights(Fraction(0))])
    left, right = ends[last - 1], ends[last]
    low, high = sum(weights(left)), sum(weights(right))
    return np.array([float(w) for w in weights(left + (right - left) * (size - low) / (high - low))])


@every_eps
@every_dtype
@pytest.mark.parametrize("spread", [0.1, 1.0, 1e6])
@pytest.mark.parametrize("decades", [0, 6, 20])
def test_projection_in_a_metric_is_the_solution_of_its_quadratic_programme(
    eps: float, dtype: type, spread: float, decades: int, rng: np.random.Generator
) -> None:
    V = (spread * (rng.standard_normal((5, 40)) - 0.7)).astype(dtype)
    V[:, :10] = np.minimum(V[:, :10], 0.01)  # features that have next to nothing, or nothing at all
    metric = 10 ** rng.uniform(-decades, decades, V.shape)
    W = DictionarySet(eps).project(V, metric)
    expected = np.array([exact_projection(v, d, eps) for v, d in zip(V.T, metric.T, strict=True)]).T
    tolerance = 4 * np.finfo(dtype).eps
    rounding = tolerance * eps + 4 * np.finfo(np.float64).eps * np.abs(V).max(axis=0)
    np.testing.assert_array_less(np.abs(W - expected), 8 * (tolerance * expected + rounding))
    assert W.dtype == dtype
    assert DictionarySet(eps).contains(W)
    np.testing.assert_allclose(DictionarySet(eps).project(W, metric), W, rtol=tolerance, atol=4 * tolerance * eps)


@every_eps
@every_dtype
def test_a_metric_of_ones_is_the_euclidean_one_and_of_no_effect_where_clipping_does(
    eps: float, dtype: type, rng: np.random.Generator
) -> None:
    V = (rng.standard_normal((4, 50)) - 0.5).astype(dtype)
    C, metric = DictionarySet(eps), 10 ** rng.uniform(-6, 6, V.shape)
    np.testing.assert_array_equal(C.project(V, np.ones_like(V)), C.project(V))
    np.testing.assert_allclose(C.project(V, 1e6 * metric), C.project(V, metric), rtol=1e-6, atol=1e-6 * eps)
    enough = np.clip(V, 0, 1).sum(axis=0) >= eps
    assert enough.any()
    np.testing.assert_array_equal(C.project(V, metric)[:, enough], np.clip(V, 0, 1)[:, enough])


@every_dtype
def test_projection_on_the_box_is_thresholding_in_any_metric(dtype: type, rng: np.random.Generator) -> None:
    V, low = rng.standard_normal((4, 50)).astype(dtype), rng.uniform(0, 0.5, 50).astype(dtype)
    W = DictionaryBox(low).project(V, 10 ** rng.uniform(-6, 6, V.shape))
    np.testing.assert_array_equal(W, np.clip(V, low, 1))
    assert W.dtype == dtype


def test_negative_weights_are_not_clipped_before_the_sum_is_mended() -> None:
    # Clipping first would share the missing 0.4 evenly: (0.7, 0.2).
    W = DictionarySet(0.9).project(np.array([[0.5], [-0.4]]))
    np.testing.assert_allclose(W, [[0.9], [0.0]], atol=1e-15)


@pytest.mark.parametrize("far", [-1e3, -1e6, -1e9, -1e15, -1e30])
@pytest.mark.parametrize("eps", [1e-8, 0.3])
def test_projection_from_far_away_lies_in_the_set(far: float, eps: float) -> None:
    V = np.array([[far, far, 0.1], [far - 1, 2 * far, far], [far, 0.0, 0.4]])
    W = DictionarySet(eps).project(V)
    assert DictionarySet(eps).contains(W)
    if far - 1 < far:
        np.testing.assert_allclose(W[:, 0], [eps / 2, 0, eps / 2], rtol=1e-5, atol=1e-5 * eps)
    np.testing.assert_allclose(W[:, 1], [0, 0, eps], rtol=1e-5)


@every_dtype
def test_projection_keeps_its_dtype_and_its_argument(dtype: type, rng: np.random.Generator) -> None:
    V = (rng.standard_normal((5, 40)) - 1).astype(dtype)
    before = V.copy()
    for eps in EPS:
        C = DictionarySet(eps)
        W = C.project(V)
        assert W.dtype == dtype
        assert C.contains(W)
        rounding = 10 * np.finfo(dtype).eps
        np.testing.assert_allclose(C.project(W), W, rtol=rounding, atol=rounding * eps)
    np.testing.assert_array_equal(V, before)


@pytest.mark.parametrize(
    ("W", "inside"),
    [
        ([[0.5, 1.0], [0.0, 0.0]], True),
        ([[0.5, 1.1], [0.0, 0.0]], False),
        ([[0.5, -1e-9], [0.0, 1.0]], False),
        ([[0.5, 0.1], [0.0, 0.1]], False),
        ([[0.5, np.nan], [0.0, 1.0]], False),
        ([[0.5, np.inf], [0.0, 1.0]], False),
    ],
)
def test_contains_tells_members_from_others(W: list[list[float]], inside: bool) -> None:
    assert DictionarySet(0.3).contains(np.array(W)) is inside


@given(W=matrices(0.0, 1e4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_a_change_of_units_keeps_the_directions_of_the_components(W: np.ndarray, seed: int) -> None:
    W = W + np.random.default_rng(seed).uniform(0.01, 1, W.shape)
    C = DictionarySet()
    inside = C.rescale_into(W)
    factor = np.maximum(W.max(axis=1, keepdims=True), 1.0)
    assert C.contains(inside)
    np.testing.assert_allclose(inside * factor, W, rtol=1e-13)


def test_a_component_without_weight_and_a_feature_without_weight_are_brought_in() -> None:
    W = DictionarySet(0.2).rescale_into(np.array([[0.0, 0.0, 0.0], [8.0, 0.0, 4.0]]))
    np.testing.assert_allclose(W, [[0.0, 0.1, 0.0], [1.0, 0.1, 0.5]])


def test_a_dictionary_in_the_set_needs_no_change_of_units(rng: np.random.Generator) -> None:
    W = rng.random((3, 7))
    np.testing.assert_array_equal(DictionarySet().rescale_into(W), W)


@pytest.mark.parametrize("eps", [-1e-9, 1.0, 2.0, np.nan, np.inf])
def test_dictionary_set_raises_an_error_for_a_weight_outside_its_range(eps: float) -> None:
    with pytest.raises(ValueError, match=r"eps must lie in \[0, 1\)"):
        DictionarySet(eps)


# The simplex


@given(V=matrices(), size=st.floats(1e-3, 5))
@settings(max_examples=50, deadline=None)
def test_simplex_projection_has_its_size_and_satisfies_the_optimality_conditions(V: np.ndarray, size: float) -> None:
    P = project_on_simplex(V, size)
    assert P.min() >= 0
    np.testing.assert_allclose(P.sum(axis=0), size, rtol=1e-12)
    multiplier = P - V
    for f in range(V.shape[1]):
        used = P[:, f] > 0
        shift = multiplier[used, f].mean()
        np.testing.assert_allclose(multiplier[used, f], shift, atol=1e-13)
        assert (multiplier[~used, f] >= shift - 1e-13).all()


def test_simplex_projection_ignores_a_common_shift(rng: np.random.Generator) -> None:
    V = rng.standard_normal((4, 6))
    np.testing.assert_allclose(project_on_simplex(V + 7, 0.5), project_on_simplex(V, 0.5), atol=1e-13)


# The coefficients


@given(V=matrices(-1e9, 1e9), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_box_projection_is_the_nearest_member_and_stays_there(V: np.ndarray, seed: int) -> None:
    box = Box()
    P = box.project(V)
    Z = np.random.default_rng(seed).uniform(box.low, box.high, (20, *V.shape))
    assert box.contains(P)
    np.testing.assert_array_equal(box.project(P), P)
    assert (((V - P) * (Z - P)).sum(axis=(1, 2)) <= 0).all()


@given(data=st.data(), V=matrices(-5, 5))
@settings(max_examples=50, deadline=None)
def test_box_projection_does_not_expand(data: st.DataObject, V: np.ndarray) -> None:
    U = data.draw(hnp.arrays(np.float64, V.shape, elements=st.floats(-5, 5)))
    box = Box(0.5, 2.0)
    assert (np.abs(box.project(U) - box.project(V)) <= np.abs(U - V)).all()


@every_dtype
@pytest.mark.parametrize("low", [0.0, 1e-8, 0.1])
def test_box_projection_keeps_its_dtype(dtype: type, low: float) -> None:
    box = Box(low, 10.0)
    P = box.project(np.array([[-1, 0, 5, 20]], dtype=dtype))
    assert P.dtype == dtype
    assert box.contains(P)
    np.testing.assert_allclose(P, [[low, low, 5, 10]], rtol=1e-6)


@pytest.mark.parametrize("bad", [0.05, 10.5, np.nan])
def test_box_contains_nothing_outside(bad: float) -> None:
    assert not Box(0.1, 10.0).contains(np.array([[1.0, bad]]))


@pytest.mark.parametrize(("low", "high"), [(-1e-9, 1.0), (1.0, 1.0), (2.0, 1.0), (np.nan, 1.0), (0.0, np.nan)])
def test_box_raises_an_error_for_bounds_out_of_order(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="need 0 <= eps_prime < U"):
        Box(low, high)


# Remark 2


@every_divergence
def test_a_fit_of_zero_raises_an_error_where_the_divergence_is_not_defined(divergence: Divergence) -> None:
    Sets().require_positive_fit(divergence)  # a positive fit suits every divergence
    for zeros in (Sets(eps=0.0), Sets(eps_prime=0.0), Sets(eps=0.0, eps_prime=0.0)):
        if divergence.domain.y.includes_zero:
            zeros.require_positive_fit(divergence)
        else:
            with pytest.raises(ValueError, match=f"{divergence.name} is not defined for a fit of zero, so eps and"):
                zeros.require_positive_fit(divergence)


def test_the_names_that_allow_a_fit_of_zero_are_those_of_the_message() -> None:
    zeros = Sets(eps=0.0, eps_prime=0.0)
    for name in ("huber", "l1", "l2", "squared_l2"):
        zeros.require_positive_fit(get(name))
    for name in ("kl", "is", "hellinger"):
        with pytest.raises(ValueError, match="zeros suit losses that are, such as huber, l1, l2 and squared_l2"):
            zeros.require_positive_fit(get(name))


def test_the_constants_make_both_sets() -> None:
    sets = Sets(eps=1e-3, eps_prime=1e-2, U=9.0)
    assert (sets.dictionaries, sets.coefficients) == (DictionarySet(1e-3), Box(1e-2, 9.0))
