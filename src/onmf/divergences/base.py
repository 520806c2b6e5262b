"""What a divergence d(x || y) is, and how one is found by its name.

A new divergence is one class in one file of this folder: giving the class a ``name`` registers it, and the
estimator, the command line and the tests find it.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse

from onmf._support.arrays import Array
from onmf._support.checks import is_number

TINY = 1e-30  # a fit of zero is outside most domains; in internal units this is zero to all others

_registry: dict[str, type[Divergence]] = {}


@dataclass(frozen=True)
class Interval:
    """The half-line of admissible numbers: [0, inf) if closed, (0, inf) if not."""

    closed: bool = True

    def outside(self, x: Array) -> Any:
        """Elementwise: is x below the interval?"""
        return x < 0 if self.closed else x <= 0


@dataclass(frozen=True)
class Domain:
    """Where d(x || y) is finite and has a derivative in y: one interval for the data, one for the fit."""

    x: Interval = Interval()
    y: Interval = Interval()


class Divergence(ABC):
    """d(x || y) between a sample x and its fit y = hW, summed over the features.

    Subclasses are frozen dataclasses whose fields are the parameters. The flags are those of the paper's
    Remark 1, and instances may override them where they depend on a parameter.
    """

    name: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()

    @property
    def domain(self) -> Domain:
        """Where the divergence is defined; data outside are raised (see ``onmf.units``)."""
        return Domain()

    @property
    def smooth(self) -> bool:
        """Class D1: differentiable in y, with a Lipschitz gradient on compact sets of positive y."""
        return True

    @property
    def smooth_unless_exact(self) -> bool:
        """Differentiable wherever y != x: enough for a line search (the l2 distance)."""
        return self.smooth

    @property
    def convex(self) -> bool:
        """Class D2: convex in y. The paper's theorem speaks of this class only."""
        return False

    @property
    def robust(self) -> bool:
        """Does an entry far off weigh less than in least squares? Then least squares are no start for h."""
        return False

    @property
    def slope_at_zero(self) -> float | None:
        """s if the divergence is a sum over entries with d(0, y) = s y, so that sparse data cost O(nnz); else None."""
        return None

    @property
    def alpha_order(self) -> float | None:
        """Its alpha, if it belongs to the alpha family and alpha is clearly positive; else None."""
        return None

    @property
    def sees_ratios(self) -> bool:
        """Does d depend on x / y alone (Itakura-Saito)?"""
        return False

    @property
    def quadratic(self) -> bool:
        """Is the derivative in y linear in y?"""
        return False

    @property
    def metric(self) -> Array | None:
        """The matrix A of (x - y)' A (x - y) / 2, which couples the features; None where no such matrix does."""
        return None

    @property
    def least_squares(self) -> Divergence | None:
        """A quadratic divergence with the same minimising coefficients, where no penalty is added; or None."""
        return self if self.quadratic else None

    @property
    def absolute_deviations(self) -> bool:
        """Is d the sum of |x - y|, for which linear programming finds the coefficients?"""
        return False

    @property
    def curvature_per_sample(self) -> bool:
        """Is the curvature of ``model`` one number per sample, so that all features share their statistics?"""
        return False

    @property
    def averaging_exponent(self) -> float:
        """How fast the weights of old quadratic models fall; a model that is (nearly) exact may be kept longer."""
        return 0.6

    @property
    def adaptive(self) -> bool:
        """Has it a parameter that the user left to the data, and that ``adapted`` may follow while learning?"""
        return False

    def adapted(self, X: Array, Y: Array, weight: float) -> Divergence:
        """The divergence with its parameter moved by ``weight`` towards what samples X and fits Y suggest."""
        return self

    @property
    def lipschitz(self) -> float | None:
        """A global Lipschitz constant of the gradient in y, or None if there is none."""
        return None

    @property
    def degree(self) -> float | None:
        """The p of d(c x || c y) = c^p d(x || y), parameters in data units scaling along; None if there is none."""
        return None

    @abstractmethod
    def value(self, X: Array, Y: Array) -> Array:
        """d(x_n || y_n) for every row n: shape (n,)."""

    def scale(self, X: Any) -> Array:
        """d(x || 2x) per sample, the loss of a fit that is off by a factor of two; X may be sparse."""
        X = X.toarray() if scipy.sparse.issparse(X) else X
        return self.value(X, np.maximum(2 * X, TINY))

    @abstractmethod
    def grad(self, X: Array, Y: Array) -> Array:
        """The derivative of d(x_n || y_n) in y_n, an element of the subdifferential at kinks: shape (n, F)."""

    def model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """The local quadratic model in the fit that the dictionary step averages: derivative and positive curvature.

        By default the curvature is that of the chord from y to its minimum x, dy / (y - x): iteratively reweighted
        least squares, whose stationary points are those of the loss.
        """
        slope = self.grad(X, Y)
        return slope, chord(self, X, Y, slope)

    def newton_model(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """The same for the coefficient step, which is followed by a line search and may use sharper curvature."""
        return self.model(X, Y)

    def multiplicative_parts(self, X: Array, Y: Array) -> tuple[Array, Array | None]:
        """P and N, the multiplicative update of W being W o factor(H'P / H'N), and alike for H; None stands for ones.

        By default those of least squares reweighted by the model's curvature: c x and c y where its slope is c (y - x).
        """
        slope, curvature = self.model(X, Y)
        N: Array = curvature * Y
        return np.maximum(N - slope, 0.0), N

    def multiplicative_factor(self, ratio: Array) -> Array:
        """What the update multiplies by: the ratio, or the power of it with which the loss cannot rise."""
        return ratio

    def loss_of_samples(self, X: Array) -> float:
        """What the summed loss has of X alone: batch updates find it once."""
        return 0.0

    def loss_of_fits(self, X: Array, Y: Array, P: Array, N: Array | None) -> float:
        """The rest of it, by the parts of the update where that is cheaper; a nearly exact fit may lose digits."""
        return float(self.value(X, Y).sum(dtype=np.float64))

    def in_units(self, unit: float) -> Divergence:
        """The same divergence for data divided by ``unit``, up to the factor ``loss_unit(unit)``.

        A homogeneous divergence is its own; one with a parameter in data units overrides this.
        """
        return self if self.degree is not None else InUnits(self, unit)

    def loss_unit(self, unit: float) -> float:
        """d(x || y) divided by the value of ``in_units(unit)`` at x/unit, y/unit."""
        if self.degree is None:
            return 1.0
        with np.errstate(over="ignore", under="ignore"):  # a loss beyond the range of doubles is infinite
            return float(np.float64(unit) ** self.degree)

    def for_data(self, mean: float, n_features: int) -> Self:
        """The divergence with what it takes from the data filled in, checked against the number of features."""
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """The instance that ``"name:text"`` means; by default, numbers separated by commas."""
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        parts = text.split(",")
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if not fields or len(numbers) != len(fields):
            what = f"takes {len(fields)} number{'s' * (len(fields) > 1)}" if fields else "takes no parameter"
            raise ValueError(f"cannot read {cls.name}:{text}: {cls.name} {what}; write {cls.usage()}.")
        return cls(*numbers)

    @classmethod
    def usage(cls) -> str:
        """How the divergence is written as a string, e.g. ``beta:1.5``."""
        fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()
        return ":".join([cls.name, *([",".join(f.name.upper() for f in fields)] if fields else [])])

    @classmethod
    def examples(cls, n_features: int) -> Iterator[Self]:
        """Instances that stand for the whole family in the tests, for data with ``n_features`` features."""
        yield cls()

    def parameters(self) -> dict[str, Any]:
        """The parameters by name: numbers and arrays, all that a model file needs to store."""
        if not dataclasses.is_dataclass(self):
            return {}
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __init_subclass__(cls, name: str = "", aliases: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not name:
            return
        for key in (name, *aliases):
            known = _registry.get(key, cls)
            # The same class once more is a notebook cell run again or a module reloaded: the newer one counts.
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ValueError(
                    f"the divergence name {key!r} is taken by {known.__module__}.{known.__qualname__}; take another."
                )
        cls.name, cls.aliases = name, aliases
        _registry.update(dict.fromkeys((name, *aliases), cls))


def total(*factors: Array) -> float:
    """The sum of all entries of the product of arrays, by rows in their own type, then in double precision."""
    rows = np.einsum("nf,nf->n", *factors) if len(factors) == 2 else factors[0].sum(axis=1)
    return float(rows.sum(dtype=np.float64))


def chord(divergence: Divergence, X: Array, Y: Array, slope: Array) -> Array:
    """dy(x, y) / (y - x), by a difference quotient where y is too near x; at least a hundredth of its row's mean."""
    near = np.abs(Y - X) <= 1e-4 * (X + Y)
    if near.any():
        Z = np.where(near, 1.001 * np.maximum(X, Y) + 1e-12, Y)
        slope = np.where(near, divergence.grad(X, Z), slope)
        Y = Z
    curvature: Array = slope / (Y - X)
    # The sample's own mean: no answer may depend on the batch that a sample comes in.
    least = 0.01 * np.abs(curvature).mean(axis=1, keepdims=True) + np.finfo(X.dtype).tiny
    return np.maximum(curvature, least)


@dataclass(frozen=True)
class InUnits(Divergence):
    """d(unit x || unit y) / loss: a divergence that is not homogeneous, seen from data divided by ``unit``."""

    inner: Divergence
    unit: float
    loss: float = 1.0

    @property
    def domain(self) -> Domain:
        """As the inner one: zero is zero in any unit."""
        return self.inner.domain

    @property
    def smooth(self) -> bool:
        """As the inner one."""
        return self.inner.smooth

    @property
    def smooth_unless_exact(self) -> bool:
        """As the inner one."""
        return self.inner.smooth_unless_exact

    @property
    def convex(self) -> bool:
        """As the inner one."""
        return self.inner.convex

    def in_units(self, unit: float) -> Divergence:
        """Units of units are units."""
        return self.inner.in_units(self.unit * unit)

    def loss_unit(self, unit: float) -> float:
        """As for the inner one, but for the factor that this one has taken out."""
        return self.inner.loss_unit(self.unit * unit) / self.loss

    def value(self, X: Array, Y: Array) -> Array:
        """The inner value at the data's own units."""
        return self.inner.value(self.unit * X, self.unit * Y) / self.loss

    def grad(self, X: Array, Y: Array) -> Array:
        """The chain rule."""
        return self.unit / self.loss * self.inner.grad(self.unit * X, self.unit * Y)

    def multiplicative_parts(self, X: Array, Y: Array) -> tuple[Array, Array | None]:
        """The inner ones: their ratio has no unit."""
        return self.inner.multiplicative_parts(self.unit * X, self.unit * Y)

    def multiplicative_factor(self, ratio: Array) -> Array:
        """As for the inner one."""
        return self.inner.multiplicative_factor(ratio)


def names() -> list[str]:
    """The names of all divergences, in alphabetical order, without aliases."""
    return sorted({cls.name for cls in _registry.values()})


def find(name: str) -> type[Divergence]:
    """The class registered under a name or an alias."""
    if name not in _registry:
        raise ValueError(f"unknown divergence {name!r}; choose one of {', '.join(names())}.")
    return _registry[name]


def get(divergence: Divergence | str) -> Divergence:
    """The divergence meant by an object, a name (``"kl"``) or a name with parameters (``"beta:1.5"``)."""
    if isinstance(divergence, Divergence):
        return divergence
    if isinstance(divergence, type) and issubclass(divergence, Divergence):
        raise TypeError(
            f"divergence is the class {divergence.__name__}; write {divergence.__name__}(), with its parameters."
        )
    if not isinstance(divergence, str):
        raise TypeError(f"divergence must be a name or a Divergence, not {type(divergence).__name__}; see names().")
    name, colon, text = divergence.partition(":")
    cls = find(name)
    if colon:
        return cls.parse(text)
    try:
        return cls()
    except TypeError:
        raise ValueError(f"{name!r} needs a parameter; write {cls.usage()}.") from None


def restore(name: str, parameters: Mapping[str, Any]) -> Divergence:
    """The divergence that ``name`` and ``parameters()`` came from."""
    return find(name)(**parameters)


def finite_number(owner: str, field: str, value: float) -> float:
    """The parameter as a Python float, which leaves single precision single; refused if it is no finite number."""
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{owner}: {field} must be a finite number, got {value!r}.")
    return float(value)
