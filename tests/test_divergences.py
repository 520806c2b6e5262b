from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from onmf import divergences
from onmf.coefficients.problem import scales
from onmf.divergences import (
    L1,
    L2,
    Alpha,
    Beta,
    Divergence,
    Hellinger,
    Huber,
    Interval,
    ItakuraSaito,
    KullbackLeibler,
    Mahalanobis,
    Separable,
    SquaredL2,
    get,
    restore,
)
from onmf.samples import Samples
from tests.conftest import F, LogCosh, Overdispersed, Soft, every_divergence, example_id, examples

LIMITS = [p + e for p in (0.0, 1.0, 2.0) for e in (0.0, 1e-8, -1e-8, 1e-12, -1e-12)]
parameter = st.floats(-3, 4, allow_subnormal=False) | st.sampled_from(LIMITS)
entry = st.floats(1e-3, 1e3)
NOTHING = Decimal("1e-18")  # a parameter this close to 0 cannot be told from 0 by a double

DISTINCT = [d for d in [*examples(), LogCosh(), Soft(), Overdispersed()] if get(d) is d]
every_property = pytest.mark.parametrize(
    "divergence",
    [pytest.param(d, id=example_id(d)) for d in DISTINCT],
)

PAPERS = ("l1", "l2", "huber", "alpha", "hellinger", "kl", "mahalanobis", "beta", "is", "squared_l2")


def wide(rng: np.random.Generator, n: int) -> np.ndarray:
    return 10.0 ** rng.uniform(-3, 3, (n, F))


def magnitude(divergence: Divergence, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """The size of the terms that may cancel in d(x || y): what its rounding errors are measured by."""
    return divergence.value(X, Y) + divergence.value(2 * X, Y) + divergence.value(X, 2 * Y)


def central_differences(divergence: Divergence, X: np.ndarray, Y: np.ndarray, h: np.ndarray) -> np.ndarray:
    slopes = np.empty_like(Y)
    for f in range(Y.shape[1]):
        step = np.zeros_like(Y)
        step[:, f] = h[:, f]
        slopes[:, f] = (divergence.value(X, Y + step) - divergence.value(X, Y - step)) / (2 * h[:, f])
    return slopes


# Derivatives


@every_divergence
def test_derivative_agrees_with_finite_differences(divergence: Divergence, rng: np.random.Generator) -> None:
    X, Y = wide(rng, 300), wide(rng, 300)
    if isinstance(divergence, Separable):  # entry by entry, so that no small one drowns in the sum of a row
        X, Y = X.reshape(-1, 1), Y.reshape(-1, 1)
    away = (np.abs(X - Y) > 1e-3 * np.maximum(X, Y)).all(axis=1)
    X, Y = X[away], Y[away]
    h = 1e-5 * Y
    slope = divergence.grad(X, Y)
    rounding = 1e-14 * magnitude(divergence, X, Y)[:, None] / h
    assert (np.abs(slope - central_differences(divergence, X, Y, h)) <= 1e-6 * np.abs(slope) + rounding).all()


@every_divergence
def test_derivative_is_zero_where_the_fit_is_exact(divergence: Divergence, rng: np.random.Generator) -> None:
    X = wide(rng, 50)
    curvature = np.abs(divergence.grad(X, 2 * X))
    assert (np.abs(divergence.grad(X, X)) <= 1e-14 * curvature).all()


@pytest.mark.parametrize("family", [Alpha, Beta])
@given(p=parameter, x=entry, y=entry)
@settings(max_examples=100, deadline=None)
def test_derivative_is_that_of_the_printed_formula_for_any_parameter(
    family: type[Separable], p: float, x: float, y: float
) -> None:
    printed = PRINTED[family]
    with localcontext() as context:
        context.prec = 100
        h = Decimal(y) * Decimal("1e-25")
        expected = float((printed(p, x, Decimal(y) + h) - printed(p, x, Decimal(y) - h)) / (2 * h))
    slope = float(family(p).grad(np.array([[x]]), np.array([[y]]))[0, 0])
    size = float(max(abs(family(p).grad(np.array([[x]]), np.array([[c * y]]))[0, 0]) for c in (0.5, 1, 2)))
    assert slope == pytest.approx(expected, rel=1e-9, abs=1e-14 * size)


# Values


@every_divergence
def test_divergence_is_nonnegative_and_zero_at_equality(divergence: Divergence, rng: np.random.Generator) -> None:
    X, Y = wide(rng, 200), wide(rng, 200)
    near = X * (1 + 1e-7 * rng.standard_normal(X.shape))
    assert (divergence.value(X, Y) > 0).all()
    assert (divergence.value(X, near) >= 0).all()
    assert (divergence.value(X, X) <= 1e-14 * divergence.value(X, 2 * X)).all()


@every_divergence
def test_value_has_one_number_a_row_and_derivative_the_shape_of_the_fit(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, Y = wide(rng, 5), wide(rng, 5)
    value, slope = divergence.value(X, Y), divergence.grad(X, Y)
    assert value.shape == (5,)
    assert slope.shape == (5, F)
    np.testing.assert_allclose(divergence.value(X[2:3], Y[2:3]), value[2:3], rtol=1e-13)
    np.testing.assert_allclose(divergence.grad(X[2:3], Y[2:3]), slope[2:3], rtol=1e-11)


def printed_kl(x: Decimal, y: Decimal) -> Decimal:
    return x * (x / y).ln() - x + y


def printed_alpha(alpha: float, x: float | Decimal, y: float | Decimal) -> Decimal:
    a, x, y = Decimal(alpha), Decimal(x), Decimal(y)
    if a == 1:
        return printed_kl(x, y)
    if abs(a) < NOTHING:
        return printed_kl(y, x)
    return (y * ((x / y) ** a - 1) - a * (x - y)) / (a * (a - 1))


def printed_beta(beta: float, x: float | Decimal, y: float | Decimal) -> Decimal:
    b, x, y = Decimal(beta), Decimal(x), Decimal(y)
    if b == 1:
        return printed_kl(x, y)
    if abs(b) < NOTHING:
        return x / y - (x / y).ln() - 1
    return (x**b - y**b - b * y ** (b - 1) * (x - y)) / (b * (b - 1))


PRINTED: dict[type[Separable], Callable[..., Decimal]] = {Alpha: printed_alpha, Beta: printed_beta}


@pytest.mark.parametrize("family", [Alpha, Beta])
@given(p=parameter, x=entry, y=entry)
@settings(max_examples=100, deadline=None)
def test_families_keep_their_digits_for_any_parameter(family: type[Separable], p: float, x: float, y: float) -> None:
    printed = PRINTED[family]
    with localcontext() as context:
        context.prec = 60
        expected = float(printed(p, x, y))
        terms = float(printed(p, 2 * x, y) + printed(p, x, 2 * y))
    value = float(family(p).value(np.array([[x]]), np.array([[y]]))[0])
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-14 * terms)


@pytest.mark.parametrize("p", LIMITS)
@pytest.mark.parametrize("family", [Alpha, Beta])
def test_families_keep_their_digits_next_to_their_limits(family: type[Separable], p: float) -> None:
    for x, y in [(1e-3, 1e3), (0.3, 0.7), (1.0, 1.01), (5.0, 0.2), (1e3, 1e-3), (700.0, 699.0)]:
        with localcontext() as context:
            context.prec = 60
            expected = float(PRINTED[family](p, x, y))
        assert family(p).value(np.array([[x]]), np.array([[y]]))[0] == pytest.approx(expected, rel=1e-9)


same_divergences = pytest.mark.parametrize(
    ("one", "other"),
    [
        (Alpha(0.5), Hellinger()),
        (Alpha(1.0), KullbackLeibler()),
        (Beta(0.0), ItakuraSaito()),
        (Beta(1.0), KullbackLeibler()),
        (Beta(2.0), SquaredL2()),
        (Beta(2.0 - 1e-12), SquaredL2()),
        (Alpha(1.0 - 1e-12), KullbackLeibler()),
        (Alpha(1.0 + 1e-12), KullbackLeibler()),
        (Beta(1.0 - 1e-12), KullbackLeibler()),
        (Beta(1.0 + 1e-12), KullbackLeibler()),
        (Beta(1e-12), ItakuraSaito()),
        (Beta(-1e-12), ItakuraSaito()),
        (Alpha(1e-12), Alpha(0.0)),
        (Alpha(-1e-12), Alpha(0.0)),
        (Mahalanobis(np.eye(F)), SquaredL2()),
        (Huber(1e9), SquaredL2()),
    ],
    ids=lambda d: f"{d.name}{list(d.parameters().values()) if d.name in {'alpha', 'beta'} else ''}",
)


@same_divergences
def test_a_divergence_under_two_names_is_the_same(one: Divergence, other: Divergence, rng: np.random.Generator) -> None:
    X, Y = wide(rng, 100), wide(rng, 100)
    np.testing.assert_allclose(one.value(X, Y), other.value(X, Y), rtol=1e-9)
    scale = np.abs(other.grad(X, 2 * Y)) + np.abs(other.grad(X, Y))
    assert (np.abs(one.grad(X, Y) - other.grad(X, Y)) <= 1e-9 * scale).all()


@pytest.mark.parametrize(
    ("divergence", "formula"),
    [
        (Hellinger(), lambda x, y: 2 * np.sum((np.sqrt(x) - np.sqrt(y)) ** 2)),
        (KullbackLeibler(), lambda x, y: np.sum(x * np.log(x / y) - x + y)),
        (Alpha(0.0), lambda x, y: np.sum(y * np.log(y / x) + x - y)),
        (ItakuraSaito(), lambda x, y: np.sum(np.log(y / x) + x / y - 1)),
        (SquaredL2(), lambda x, y: 0.5 * np.linalg.norm(x - y) ** 2),
        (L1(), lambda x, y: np.linalg.norm(x - y, 1)),
        (L2(), lambda x, y: np.linalg.norm(x - y, 2)),
        (Huber(0.7), lambda x, y: sum(u**2 / 2 if u <= 0.7 else 0.7 * (u - 0.35) for u in np.abs(x - y))),
        (Mahalanobis(2 * np.eye(F) + 1), lambda x, y: (x - y) @ (2 * np.eye(F) + 1) @ (x - y) / 2),
    ],
    ids=lambda part: part.name if isinstance(part, Divergence) else "",
)
def test_scalings_are_those_of_the_tables(
    divergence: Divergence, formula: Callable[..., float], rng: np.random.Generator
) -> None:
    X, Y = rng.uniform(0.2, 2, (20, F)), rng.uniform(0.2, 2, (20, F))
    np.testing.assert_allclose(divergence.value(X, Y), [formula(x, y) for x, y in zip(X, Y, strict=True)], rtol=1e-12)


# Flags


@every_divergence
def test_convexity_flag_tells_the_truth(divergence: Divergence, rng: np.random.Generator) -> None:
    X, A, B = wide(rng, 2000), wide(rng, 2000), wide(rng, 2000)
    middle = divergence.value(X, (A + B) / 2)
    chord = (divergence.value(X, A) + divergence.value(X, B)) / 2
    if divergence.convex:
        assert (middle <= chord * (1 + 1e-12)).all()
    else:
        assert (middle > chord * (1 + 1e-6)).any()


@pytest.mark.parametrize("beta", [0.99, 1.0, 1.3, 2.0, 2.01])
def test_beta_is_convex_from_one_to_two_only(beta: float) -> None:
    assert Beta(beta).convex == (1 <= beta <= 2)


@every_divergence
def test_all_but_the_two_norms_are_smooth(divergence: Divergence) -> None:
    assert divergence.smooth == (divergence.name not in {"l1", "l2"})
    assert divergence.smooth_unless_exact == (divergence.name != "l1")


@every_divergence
def test_lipschitz_constant_bounds_the_change_of_the_gradient(divergence: Divergence, rng: np.random.Generator) -> None:
    X, A = wide(rng, 500), wide(rng, 500)
    B = np.vstack([wide(rng, 250), A[250:] * (1 + 1e-3 * rng.standard_normal((250, F)))])
    ratio = np.linalg.norm(divergence.grad(X, A) - divergence.grad(X, B), axis=1) / np.linalg.norm(A - B, axis=1)
    if divergence.lipschitz is not None:
        assert ratio.max() <= divergence.lipschitz * (1 + 1e-9)


def test_lipschitz_constants_exist_for_quadratic_growth_only() -> None:
    assert {d.name for d in examples() if d.lipschitz is not None} == {"huber", "mahalanobis", "squared_l2"}


def test_lipschitz_constant_of_mahalanobis_is_attained() -> None:
    A = np.diag([1.0, 4.0, 9.0])
    step = Mahalanobis(A).grad(np.zeros((1, 3)), np.array([[0.0, 0.0, 1.0]]))
    assert np.linalg.norm(step) == pytest.approx(Mahalanobis(A).lipschitz) == pytest.approx(9.0)


# What solvers and methods rely on, in any units


@every_property
def test_a_slope_at_zero_is_that_of_the_loss_of_zeros(divergence: Divergence, rng: np.random.Generator) -> None:
    if divergence.slope_at_zero is not None:
        Y = wide(rng, 20)
        np.testing.assert_allclose(divergence.value(0 * Y, Y), divergence.slope_at_zero * Y.sum(axis=1), rtol=1e-12)
        np.testing.assert_allclose(divergence.grad(0 * Y, Y), divergence.slope_at_zero, rtol=1e-12)
        entries = getattr(divergence, "inner", divergence)
        assert isinstance(entries, Separable)
        assert entries.newton_curvature(np, Y, Y) is not None


@every_property
def test_an_alpha_order_is_that_of_an_equal_alpha_divergence(divergence: Divergence, rng: np.random.Generator) -> None:
    if divergence.alpha_order is not None:
        X, Y = wide(rng, 20), wide(rng, 20)
        np.testing.assert_allclose(divergence.value(X, Y), Alpha(divergence.alpha_order).value(X, Y), rtol=1e-9)
        assert divergence.alpha_order > 0


@every_property
def test_a_divergence_that_sees_ratios_is_blind_to_the_scale_of_every_entry(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    X, Y, C = wide(rng, 20), wide(rng, 20), wide(rng, 20)
    if divergence.sees_ratios:
        np.testing.assert_allclose(divergence.value(C * X, C * Y), divergence.value(X, Y), rtol=1e-9)
    else:
        assert not np.allclose(divergence.value(C * X, C * Y), divergence.value(X, Y), rtol=1e-2)


@every_property
def test_a_quadratic_divergence_has_a_linear_derivative_and_no_other_has(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    (X, Y), (A, B) = (wide(rng, 200), wide(rng, 200)), (wide(rng, 200), wide(rng, 200))
    middle, mean = divergence.grad((X + A) / 2, (Y + B) / 2), (divergence.grad(X, Y) + divergence.grad(A, B)) / 2
    if divergence.quadratic:
        np.testing.assert_allclose(middle, mean, rtol=1e-9, atol=1e-12 * np.abs(mean).max())
        assert divergence.least_squares is not None
    else:
        assert not np.allclose(middle, mean, rtol=1e-6)


@every_property
def test_a_metric_gives_the_value(divergence: Divergence, rng: np.random.Generator) -> None:
    if divergence.metric is not None:
        X, Y = wide(rng, 20), wide(rng, 20)
        expected = 0.5 * np.einsum("nf,fg,ng->n", X - Y, divergence.metric, X - Y)
        np.testing.assert_allclose(divergence.value(X, Y), expected, rtol=1e-9)
        assert divergence.quadratic


@every_property
def test_least_squares_have_the_minimiser_of_the_divergence(divergence: Divergence, rng: np.random.Generator) -> None:
    least_squares = divergence.least_squares
    if least_squares is not None:
        X, Y = wide(rng, 20), wide(rng, 20)
        slopes = divergence.grad(X, Y), least_squares.grad(X, Y)
        one, other = (slope / np.linalg.norm(slope, axis=1, keepdims=True) for slope in slopes)
        assert least_squares.quadratic
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@every_property
def test_absolute_deviations_are_the_l1_distance(divergence: Divergence, rng: np.random.Generator) -> None:
    if divergence.absolute_deviations:
        X, Y = wide(rng, 20), wide(rng, 20)
        np.testing.assert_allclose(divergence.value(X, Y), np.abs(X - Y).sum(axis=1), rtol=1e-12)


@every_property
def test_a_curvature_per_sample_is_the_same_for_all_features(divergence: Divergence, rng: np.random.Generator) -> None:
    X, Y = wide(rng, 20), wide(rng, 20)
    curvature = divergence.model(np, X, Y)[1]
    assert divergence.curvature_per_sample == np.allclose(curvature, curvature[:, :1], rtol=1e-9)


@every_property
def test_a_model_that_is_said_to_majorise_lies_above_the_loss(divergence: Divergence, rng: np.random.Generator) -> None:
    if not divergence.majorised:
        return
    X, Y, other = (wide(rng, 300).reshape(-1, 1) for _ in range(3))
    slope, curvature = divergence.model(np, X, Y)
    above = divergence.value(X, Y) + (slope * (other - Y) + 0.5 * curvature * np.square(other - Y))[:, 0]
    assert (divergence.value(X, other) <= above + 1e-9 * magnitude(divergence, X, other)).all()


@every_property
def test_the_weights_of_old_models_fall_fast_enough_to_forget_and_slowly_enough_to_average(
    divergence: Divergence,
) -> None:
    assert 0.5 < divergence.averaging_exponent <= 1


@pytest.mark.parametrize("layout", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
@every_property
def test_the_scale_of_samples_is_the_loss_of_a_fit_twice_too_large(
    divergence: Divergence, layout: Callable[[np.ndarray], Any], rng: np.random.Generator
) -> None:
    X = wide(rng, 20)
    if divergence.domain.x.includes_zero:
        X[rng.random(X.shape) < 0.5] = 0
    expected = divergence.value(X, np.maximum(2 * X, 1e-30))
    np.testing.assert_allclose(scales(divergence, Samples(layout(X))), expected, rtol=1e-9)


def test_the_properties_belong_to_these_divergences() -> None:
    def having(name: str) -> set[str]:
        return {d.name for d in examples() if d.name in PAPERS and getattr(d, name) not in (None, False)}

    assert having("slope_at_zero") == having("alpha_order") == {"alpha", "hellinger", "kl"}
    assert having("sees_ratios") == {"is", "beta"}  # beta:0
    assert having("quadratic") == {"mahalanobis", "squared_l2"}
    assert having("least_squares") == {"l2", "mahalanobis", "squared_l2"}
    assert having("absolute_deviations") == {"l1"}
    assert having("curvature_per_sample") == {"l2", "squared_l2"}
    assert having("robust") == {"huber", "l1"}
    assert having("majorised") == {"huber"}
    assert {d.name for d in examples() if d.metric is not None} == {"mahalanobis"}


# Edges of the domain


@every_divergence
def test_zero_data_are_finite_where_the_domain_says_so(divergence: Divergence, rng: np.random.Generator) -> None:
    Y = wide(rng, 20)
    X = wide(rng, 20)
    X[:, ::2] = 0
    X[0] = 0
    if divergence.domain.x.includes_zero:
        assert np.isfinite(divergence.value(X, Y)).all()
        assert np.isfinite(divergence.grad(X, Y)).all()
        tiny = np.where(X == 0, 1e-100, X)
        if not (isinstance(divergence, Beta | Alpha) and next(iter(divergence.parameters().values())) < 0.4):
            np.testing.assert_allclose(divergence.value(X, Y), divergence.value(tiny, Y), rtol=1e-9)


@every_divergence
def test_zero_fits_are_finite_where_the_domain_says_so(divergence: Divergence, rng: np.random.Generator) -> None:
    if divergence.domain.y.includes_zero:
        X, Y = wide(rng, 20), wide(rng, 20)
        X[:, ::3], Y[:, ::2], Y[0] = 0, 0, 0
        assert np.isfinite(divergence.value(X, Y)).all()
        assert np.isfinite(divergence.grad(X, Y)).all()


def test_domains_are_those_of_remark_2() -> None:
    papers = [d for d in examples() if d.name in PAPERS]
    zero_data_excluded = {example_id(d) for d in papers if not d.domain.x.includes_zero}
    assert zero_data_excluded == {"is", "alpha:-1", "alpha:0", "beta:-0.5", "beta:0"}
    zero_fit_allowed = {d.name for d in papers if d.domain.y.includes_zero}
    assert zero_fit_allowed == {"beta", "huber", "l1", "l2", "mahalanobis", "squared_l2"}
    assert {d.beta for d in examples() if isinstance(d, Beta) and d.domain.y.includes_zero} == {2.0, 3.0}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_divergence
def test_the_least_positive_number_is_as_good_as_zero(divergence: Divergence, dtype: type) -> None:
    if divergence.domain.x.includes_zero:
        X, Y = np.full((1, F), np.finfo(dtype).smallest_subnormal), np.full((1, F), 10, dtype=dtype)
        np.testing.assert_allclose(divergence.value(X, Y), divergence.value(np.zeros_like(X), Y), rtol=1e-3)
        assert np.isfinite(divergence.grad(X, Y)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_least_positive_number_is_in_the_domain_of_itakura_saito(dtype: type) -> None:
    least = np.finfo(dtype).smallest_subnormal
    value = ItakuraSaito().value(np.full((1, 1), least), np.full((1, 1), 10, dtype=dtype))
    assert value[0] == pytest.approx(np.log(10) - np.log(np.float64(least)) - 1, rel=1e-5)


@pytest.mark.parametrize(("includes_zero", "expected"), [(True, [True, False, False]), (False, [True, True, False])])
def test_an_interval_knows_what_lies_outside(includes_zero: bool, expected: list[bool]) -> None:
    assert Interval(includes_zero=includes_zero).outside(np.array([-1.0, 0.0, 1.0])).tolist() == expected


# Units


@pytest.mark.parametrize("c", [1e-3, 0.5, 40.0])
@every_divergence
def test_a_change_of_units_multiplies_the_loss(divergence: Divergence, c: float, rng: np.random.Generator) -> None:
    X, Y = wide(rng, 50), wide(rng, 50)
    inside, unit = divergence.in_units(c), divergence.loss_unit(c)
    np.testing.assert_allclose(divergence.value(c * X, c * Y), unit * inside.value(X, Y), rtol=1e-10)
    slope = divergence.grad(c * X, c * Y)
    np.testing.assert_allclose(c * slope, unit * inside.grad(X, Y), rtol=1e-9)


def test_huber_takes_its_default_delta_from_the_mean_of_the_data() -> None:
    with pytest.raises(ValueError, match=r"huber has no delta yet: give one, Huber\(delta=...\)"):
        Huber().value(np.ones((1, 2)), np.ones((1, 2)))
    assert Huber().for_data(mean=5.0, n_features=3).delta == pytest.approx(0.5)
    assert Huber(2.0).for_data(mean=5.0, n_features=3).delta == 2.0


@every_divergence
def test_data_with_the_right_number_of_features_change_nothing_but_defaults(divergence: Divergence) -> None:
    assert divergence.for_data(1.0, F) is divergence


def test_mahalanobis_raises_an_error_for_data_with_another_number_of_features() -> None:
    with pytest.raises(ValueError, match="A is 3 x 3, but the data have 4 features"):
        Mahalanobis(np.eye(3)).for_data(1.0, 4)


# Types and copies


@every_divergence
def test_single_precision_stays_single(divergence: Divergence, rng: np.random.Generator) -> None:
    X, Y = rng.uniform(0.1, 2, (5, F)), rng.uniform(0.1, 2, (5, F))
    x, y = X.astype(np.float32), Y.astype(np.float32)
    value, slope = divergence.value(x, y), divergence.grad(x, y)
    assert value.dtype == slope.dtype == np.float32
    np.testing.assert_allclose(value, divergence.value(X, Y), rtol=1e-4)
    np.testing.assert_allclose(slope, divergence.grad(X, Y), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("divergence", [Alpha(np.float64(0.3)), Beta(np.float64(1.5)), Huber(np.float64(0.1))])
def test_a_numpy_parameter_does_not_make_single_precision_double(divergence: Divergence) -> None:
    x, y = np.ones((2, F), dtype=np.float32), np.full((2, F), 2, dtype=np.float32)
    assert divergence.value(x, y).dtype == divergence.grad(x, y).dtype == np.float32


@every_divergence
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda d: pickle.loads(pickle.dumps(d))], ids=["deepcopy", "pickle"])  # noqa: S301
def test_copies_are_the_same_divergence(
    divergence: Divergence, clone: Callable[[Divergence], Divergence], rng: np.random.Generator
) -> None:
    twin = clone(divergence)
    X, Y = wide(rng, 3), wide(rng, 3)
    assert type(twin) is type(divergence)
    np.testing.assert_array_equal(twin.value(X, Y), divergence.value(X, Y))


@every_divergence
def test_a_divergence_is_restored_from_its_name_and_parameters(
    divergence: Divergence, rng: np.random.Generator
) -> None:
    meant = get(divergence)
    twin = restore(divergence.name, divergence.parameters())
    X, Y = wide(rng, 3), wide(rng, 3)
    assert type(twin) is type(meant)
    assert twin == meant
    assert hash(twin) == hash(meant)
    np.testing.assert_array_equal(twin.value(X, Y), meant.value(X, Y))


@every_divergence
def test_parameters_cannot_be_changed(divergence: Divergence) -> None:
    for name in divergence.parameters():
        with pytest.raises(AttributeError):
            setattr(divergence, name, 1.0)


# Names


def test_names_are_the_ten_of_the_tables() -> None:
    assert set(PAPERS) <= set(divergences.names())
    assert divergences.names() == sorted(divergences.names())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kl", KullbackLeibler()),
        ("is", ItakuraSaito()),
        ("beta:1.5", Beta(1.5)),
        ("beta:-1e-3", Beta(-0.001)),
        ("alpha:0", Alpha(0.0)),
        ("huber", Huber()),
        ("huber:0.1", Huber(0.1)),
        ("frobenius", SquaredL2()),
        ("euclidean", SquaredL2()),
        ("squared_l2", SquaredL2()),
        ("kullback-leibler", KullbackLeibler()),
        ("itakura-saito", ItakuraSaito()),
        ("KL", KullbackLeibler()),
        ("Kullback_Leibler", KullbackLeibler()),
        ("Itakura Saito", ItakuraSaito()),
        ("Squared-L2", SquaredL2()),
        ("squared l2", SquaredL2()),
        ("SquaredL2", SquaredL2()),
        ("Huber:0.1", Huber(0.1)),
        ("BETA:1.5", Beta(1.5)),
    ],
)
def test_a_string_means_a_divergence(text: str, expected: Divergence) -> None:
    assert get(text) == expected


special_cases = pytest.mark.parametrize(
    ("text", "member", "expected"),
    [
        ("beta:2", Beta(2.0), SquaredL2()),
        ("beta:1", Beta(1.0), KullbackLeibler()),
        ("beta:0", Beta(0.0), ItakuraSaito()),
        ("beta:-0.0", Beta(-0.0), ItakuraSaito()),
        ("alpha:1", Alpha(1.0), KullbackLeibler()),
        ("alpha:0.5", Alpha(0.5), Hellinger()),
    ],
)


@special_cases
def test_a_special_case_of_a_family_goes_by_its_own_name(text: str, member: Divergence, expected: Divergence) -> None:
    assert get(text) == get(member) == restore(member.name, member.parameters()) == expected
    assert type(member) in {Alpha, Beta}  # made directly, it remains a member of its family


@special_cases
def test_a_special_case_has_the_formulas_of_its_family(
    text: str, member: Separable, expected: Separable, rng: np.random.Generator
) -> None:
    X, Y = rng.uniform(0.2, 2, (2, 20, F))
    ratio = rng.uniform(0.5, 2, (3, F))
    assert (member.domain, member.convex, member.degree) == (expected.domain, expected.convex, expected.degree)
    np.testing.assert_allclose(scales(member, Samples(X)), scales(expected, Samples(X)), rtol=1e-12)
    np.testing.assert_allclose(member.curvature(np, X, Y), expected.curvature(np, X, Y), rtol=1e-12)
    np.testing.assert_allclose(member.multiplicative_factor(ratio), expected.multiplicative_factor(ratio), rtol=1e-12)
    for one, other in zip(member.multiplicative_parts(X, Y), expected.multiplicative_parts(X, Y), strict=True):
        np.testing.assert_allclose(np.ones_like(X) if one is None else one, 1.0 if other is None else other, rtol=1e-12)


@pytest.mark.parametrize("divergence", [Beta(1.5), Beta(1 + 1e-8), Alpha(1 + 1e-8), Alpha(0.0), Huber(), L1()])
def test_any_other_object_means_itself(divergence: Divergence) -> None:
    assert get(divergence) is divergence


def test_a_class_derived_from_a_family_keeps_its_special_cases() -> None:
    derived = type("Derived", (Beta,), {})(2.0)
    assert get(derived) is derived


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine", "unknown divergence 'cosine'; choose one of alpha, beta, hellinger, huber, is, kl, l1, l"),
        ("euclid", r"unknown divergence 'euclid' \(did you mean 'euclidean'\?\); choose one of alpha, beta, hell"),
        ("Kulback-Leibler:1", r"unknown divergence 'Kulback-Leibler' \(did you mean 'kullback-leibler'\?\); choose"),
        ("", "unknown divergence '';"),
        ("beta", "'beta' needs a parameter; write beta:BETA"),
        ("alpha", "'alpha' needs a parameter; write alpha:ALPHA"),
        ("mahalanobis", "'mahalanobis' needs a parameter; write mahalanobis:A.npy"),
        ("beta:x", "cannot read beta:x: beta takes 1 number; write beta:BETA"),
        ("beta:", "write beta:BETA"),
        ("beta:1,2", "write beta:BETA"),
        ("kl:1", "cannot read kl:1.*write kl"),
        ("beta:nan", "must be a finite number"),
        ("alpha:inf", "must be a finite number"),
        ("huber:-1", "delta must be positive"),
        ("huber:0", "delta must be positive"),
    ],
)
def test_a_string_that_means_nothing_raises_an_error_with_the_cure(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get(text)


def test_anything_but_a_name_or_a_divergence_raises_an_error() -> None:
    with pytest.raises(TypeError, match="must be a name or a Divergence, not list"):
        get([3])  # type: ignore[arg-type]


@pytest.mark.parametrize("family", [Alpha, Beta, Huber])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, "1", True, 1j])
def test_parameters_that_are_not_finite_numbers_raise_an_error(family: type[Divergence], bad: object) -> None:
    with pytest.raises(ValueError, match="must be a finite number"):
        family(bad)


@pytest.mark.parametrize("delta", [0.0, -0.1])
def test_huber_raises_an_error_for_a_delta_that_is_not_positive(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must be positive"):
        Huber(delta)


def test_mahalanobis_reads_its_matrix_from_a_file(tmp_path) -> None:
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.save(tmp_path / "A.npy", A)
    np.testing.assert_array_equal(get(f"mahalanobis:{tmp_path / 'A.npy'}").A, A)


@pytest.mark.parametrize("kind", ["missing", "empty", "text", "npz", "folder"])
def test_mahalanobis_raises_an_error_for_a_file_without_a_matrix_by_its_name(kind: str, tmp_path) -> None:
    path = tmp_path / "A.npy"
    if kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("1 0\n0 1\n")
    elif kind == "npz":
        with path.open("wb") as file:
            np.savez(file, A=np.eye(2))
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(ValueError, match=r"cannot read the matrix of mahalanobis from '.*A.npy'"):
        get(f"mahalanobis:{path}")


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (np.ones((2, 3)), r"must be a square matrix with one row per feature; got shape \(2, 3\)"),
        (np.ones(4), "must be a square matrix"),
        (np.ones((0, 0)), "must be a square matrix"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), "NaN or infinite"),
        (np.array([[np.inf, 0.0], [0.0, 1.0]]), "NaN or infinite"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), r"must be symmetric; use \(A \+ A.T\) / 2"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "must be positive definite; add a multiple of the identity"),
        (np.zeros((2, 2)), "must be positive definite"),
    ],
)
def test_mahalanobis_raises_an_error_for_what_is_no_inner_product(A: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Mahalanobis(A)


def test_mahalanobis_does_not_share_its_matrix_with_the_caller() -> None:
    A = np.eye(2)
    divergence = Mahalanobis(A)
    A[0, 0] = 7
    assert divergence.A[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        divergence.A[0, 0] = 7


def test_mahalanobis_distances_are_equal_if_their_matrices_are() -> None:
    A = np.array([[1.0, 0.0], [0.0, 2.0]])
    B = np.array([[1.0, -0.0], [-0.0, 2.0]])
    assert Mahalanobis(A) == Mahalanobis(B)
    assert hash(Mahalanobis(A)) == hash(Mahalanobis(B))
    assert Mahalanobis(A) != Mahalanobis(2 * A)
    assert Mahalanobis(np.eye(2)) != Mahalanobis(np.eye(3))
    assert Mahalanobis(np.eye(2)) != SquaredL2()
    assert len({Mahalanobis(A), Mahalanobis(B), Mahalanobis(2 * A)}) == 2


# Registration


@pytest.fixture
def registry() -> Iterator[dict[str, type[Divergence]]]:
    known = Divergence._classes
    before = dict(known)
    yield known
    known.clear()
    known.update(before)


@pytest.mark.usefixtures("registry")
def test_a_new_class_is_found_by_its_name_and_aliases() -> None:
    @dataclass(frozen=True)
    class Power(Separable, name="power", aliases=("pow",)):
        p: float = 4.0

        def d(self, xp, x, y):
            return xp.abs(x - y) ** self.p

        def dy(self, xp, x, y):
            return self.p * xp.abs(x - y) ** (self.p - 1) * xp.sign(y - x)

    assert "power" in divergences.names()
    assert "pow" not in divergences.names()
    assert get("power") == Power(4.0)
    assert get("pow:3") == Power(3.0) == restore("power", {"p": 3.0})
    assert Power.usage() == "power:P"


@pytest.mark.parametrize(("name", "aliases"), [("kl", ()), ("frobenius", ()), ("other", ("kl",)), ("K-L", ())])
def test_a_name_already_taken_raises_an_error_and_nothing_is_registered(
    name: str, aliases: tuple[str, ...], registry: dict[str, type[Divergence]]
) -> None:
    before = dict(registry)
    with pytest.raises(ValueError, match="is taken by"):
        type("Other", (LogCosh,), {}, name=name, aliases=aliases)
    assert registry == before


def test_a_class_of_the_same_name_from_elsewhere_does_not_take_over(registry: dict[str, type[Divergence]]) -> None:
    with pytest.raises(ValueError, match="is taken by"):
        type("Huber", (LogCosh,), {"__module__": "elsewhere"}, name="huber")
    assert registry["huber"] is Huber


@every_property
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_far_beyond_its_sample_costs_infinitely_much_at_most(divergence: Divergence, dtype: type) -> None:
    """A line search may try one; in single precision its loss may be beyond the range, which is no reason to warn."""
    X, Y = np.full((3, F), 1e-9, dtype=dtype), np.full((3, F), 7e7, dtype=dtype)
    assert (divergence.value(X, Y) >= 0).all()
    assert (divergence.value(Y, X) >= 0).all()


def test_a_loss_beyond_the_range_of_single_precision_is_infinite() -> None:
    X, Y = np.full((1, F), 1e-9, dtype=np.float32), np.full((1, F), 7e7, dtype=np.float32)
    assert Alpha(-2.0).value(X, Y) == np.inf
