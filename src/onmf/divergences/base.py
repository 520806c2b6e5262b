"""The interface of a divergence d(x || y), and of one that is a sum over the entries.

A new divergence is one class in one file of this folder: giving the class a ``name`` registers it, and the
estimator, the command line and the tests find it.
"""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from onmf._support.arrays import Array
from onmf._support.checks import is_number
from onmf._support.registry import Registered
from onmf._support.threads import cached_property

TINY = 1e-30  # stands for a fit of zero, which most domains exclude; in internal units it is as good as zero
LARGEST_ORDER = 100  # of a family: the power of a ratio of a thousand is 1e300


@dataclass(frozen=True)
class Interval:
    """The half-line of admissible numbers: [0, inf) if it includes zero, (0, inf) if not.

    Parameters
    ----------
    includes_zero : bool
        Whether zero is admissible.

    Examples
    --------
    >>> onmf.divergences.Interval(includes_zero=False).outside(np.zeros(1))
    array([ True])
    """

    includes_zero: bool = True

    def outside(self, x: Array) -> Any:
        """Return whether each entry of an array x lies below the interval."""
        return x < 0 if self.includes_zero else x <= 0


@dataclass(frozen=True)
class Domain:
    """The numbers x and y for which d(x || y) is finite and has a derivative in y.

    Parameters
    ----------
    x : Interval
        The interval of the data.
    y : Interval
        The interval of the fits.

    Examples
    --------
    >>> onmf.divergences.get("kl").domain.y.includes_zero
    False
    """

    x: Interval = Interval()
    y: Interval = Interval()


RowMean = Callable[[Any], Any]  # numbers of entries -> the mean over those of each sample, ready for broadcasting


def row_mean(values: Any) -> Any:
    """Return the mean of each row of a dense array, as a column."""
    return values.mean(axis=1, keepdims=True)


class Divergence(Registered, kind="divergence"):
    """d(x || y) between a sample x and its fit y = hW, summed over the features.

    Subclasses are frozen dataclasses whose fields are the parameters. The facts below tell solvers and methods what
    they may rely on (``smooth`` and ``convex`` are those of the paper's Remark 1); a subclass may make a property of
    one that depends on a parameter.

    Examples
    --------
    >>> kl = onmf.divergences.get("kl")
    >>> kl.convex, kl.degree, kl.value(X[:2] + 1, X[:2] + 1)
    (True, 1.0, array([0., 0.]...))
    """

    # Class D1: is it differentiable in y, with a Lipschitz gradient on compact sets of positive y?
    smooth: bool = True
    # Is the curvature of ``model``, one of its own, Lipschitz there, too, and all made of elementary functions?
    # ``certified`` asks.
    smooth_curvature: bool = False
    # Do outlying entries weigh less than in least squares? Then a least-squares fit is a poor start for h.
    robust: bool = False
    # Does the quadratic of ``model`` lie above the loss everywhere? Then no step leads up.
    majorised: bool = False
    # Is d = (x - y)' A (x - y) / 2 with a constant A, so that the derivative is linear in x and y?
    quadratic: bool = False
    # Is d the sum of |x - y|, so that linear programming finds the coefficients?
    absolute_deviations: bool = False
    # Is the curvature of ``model`` one number per sample, so that all features share their statistics?
    curvature_per_sample: bool = False
    # Is it a sum over the entries, so that each can be computed without the others of its sample?
    separable: bool = False
    # The rate at which the weights of old quadratic models decay; (nearly) exact models may be kept for longer.
    averaging_exponent: float = 0.65
    # Parameters in the data's units that formulas use as numbers only: a tensor of one entry would do.
    scaled_parameters: tuple[str, ...] = ()

    @property
    def domain(self) -> Domain:
        """The domain of the divergence; data outside it are raised into it, with a ``DomainWarning``."""
        return Domain()

    @property
    def smooth_unless_exact(self) -> bool:
        """Is it differentiable wherever y != x? That is enough for a line search (the l2 distance)."""
        return self.smooth

    @property
    def convex(self) -> bool:
        """Class D2: is it convex in y? The theorems cover this class only."""
        return False

    @property
    def slopes_known(self) -> bool:
        """Is it differentiable, or one whose slopes at kinks solvers find (l1, l2)? The theorems need these slopes."""
        return self.smooth or self.absolute_deviations or self.least_squares is not None

    @property
    def chords(self) -> bool:
        """Is the curvature of ``model`` that of the chord, which jumps where y comes close to x?"""
        return type(self).model is Divergence.model and not self.quadratic

    @property
    def slope_at_zero(self) -> float | None:
        """s if the divergence is a sum over entries with d(0, y) = s y, so that sparse data cost O(nnz); else None."""
        return None

    @property
    def alpha_order(self) -> float | None:
        """The alpha of the alpha-divergence that it equals, if that is clearly positive; else None."""
        return None

    @property
    def sees_ratios(self) -> bool:
        """Does d depend on x / y alone (Itakura-Saito)?"""
        return False

    @property
    def metric(self) -> Array | None:
        """The A of d = (x - y)' A (x - y) / 2 if it couples the features; else None."""
        return None

    @property
    def least_squares(self) -> Divergence | None:
        """A quadratic divergence with the same minimiser in h when there is no penalty; else None."""
        return self if self.quadratic else None

    @property
    def adaptive(self) -> bool:
        """Was a parameter left to the data, so that ``adapted`` should tune it while learning?"""
        return False

    def adapted(self, residuals: Array, weights: Array | None, mean: float, share: float) -> Divergence:
        """Return the divergence with its parameter moved by ``share`` towards what absolute residuals suggest.

        ``weights`` are those of the residuals, if they differ; ``mean`` is the mean of the data.
        """
        return self

    @property
    def weighs_entries(self) -> bool:
        """Can entries be missing, or weigh differently? Else it looks at all features of a sample together."""
        return self.separable

    @property
    def lipschitz(self) -> float | None:
        """A global Lipschitz constant of the gradient in y, or None if there is none."""
        return None

    @property
    def degree(self) -> float | None:
        """The p of d(c x || c y) = c^p d(x || y), where parameters in data units scale too; None if there is none.

        Without one, no other units have the same minimum: the data are learnt from as they are.
        """
        return None

    @property
    def loss_of_twice(self) -> float | None:
        """d(1 || 2), where d(x || 2x) is a sum over the entries of that times x^degree; else None."""
        return None

    @abstractmethod
    def value(self, X: Array, Y: Array) -> Array:
        """Return d(x_n || y_n) for every row n.

        Parameters
        ----------
        X : array (n, F)
            Samples.
        Y : array (n, F)
            Their fits.

        Returns
        -------
        array (n,)
            A loss for each sample.
        """

    @abstractmethod
    def grad(self, X: Array, Y: Array) -> Array:
        """Return the derivative of d(x_n || y_n) in y_n, at kinks a subgradient.

        Parameters
        ----------
        X : array (n, F)
            Samples.
        Y : array (n, F)
            Their fits.

        Returns
        -------
        array (n, F)
            The derivatives.
        """

    def model(self, xp: Any, X: Any, Y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        """Return slope and curvature of the local quadratic model in y, on an array namespace xp.

        The dictionary step averages models of positive curvature; with ``newton`` they are for the coefficients, and
        the curvature may be negative where the loss is not convex: samples that this does not help take the other.

        By default the curvature is that of the chord from y to the minimum at x, dy / (y - x): iteratively reweighted
        least squares, whose stationary points are those of the loss. ``mean`` is over the entries of each sample.
        """
        slope = self.grad(X, Y)
        return slope, chord(xp, self.grad, X, Y, slope, mean)

    def multiplicative_parts(self, X: Array, Y: Array, mean: RowMean = row_mean) -> tuple[Array, Array | None]:
        """Return P and N of the update W <- W factor(H'P / H'N), and likewise for H; N = None stands for ones.

        By default those of least squares reweighted by the curvature c of ``model``: c x and c y, as its slope is
        c (y - x). ``mean`` gives the mean over the entries of each sample.
        """
        slope, curvature = self.model(np, X, Y, mean=mean)
        N: Array = curvature * Y
        return np.maximum(N - slope, 0.0), N

    def multiplicative_factor(self, ratio: Array) -> Array:
        """Return the update's factor: the ratio, or the power of it that keeps the loss from rising."""
        return ratio

    @property
    def multiplicative_slope(self) -> float | None:
        """The c > 0 of d/dy = c (N - P), by which penalties enter the updates; None where the parts are not so."""
        return 1.0

    def loss_of_samples(self, X: Array) -> float:
        """Return the part of the summed loss that depends on X alone, which batch updates compute just once."""
        return 0.0

    def loss_of_fits(self, X: Array, Y: Array, P: Array, N: Array | None) -> float:
        """Return the rest of the loss, from the update's P and N where that is cheaper; exact fits may lose digits."""
        return float(self.value(X, Y).sum(dtype=np.float64))

    def in_units(self, unit: float) -> Divergence:
        """Return the same divergence for data divided by ``unit``, up to the factor ``loss_unit(unit)``.

        A homogeneous divergence returns itself; one with a parameter in data units overrides this. Data of a divergence
        without a degree are never divided.
        """
        return self

    def loss_unit(self, unit: float) -> float:
        """Return d(x || y) divided by the value of ``in_units(unit)`` at x/unit, y/unit."""
        if self.degree is None:
            return 1.0
        try:
            return float(unit) ** self.degree
        except OverflowError:
            return math.inf

    def for_data(self, mean: float, n_features: int) -> Self:
        """Return the divergence with its defaults taken from the data, checked against the number of features."""
        return self

    def special_case(self) -> Divergence:
        """Return the divergence by its own name and with its own fast path, if this is a family's special case."""
        return self

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the instance that ``"name:text"`` stands for; by default, numbers separated by commas."""
        count = len(cls._parameter_names())
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if not count or len(numbers) != count:
            what = f"takes {count} number{'s' * (count > 1)}" if count else "takes no parameter"
            raise ValueError(f"cannot read {cls.name}:{text}: {cls.name} {what}; write {cls.usage()}.")
        return cls(*numbers)

    @classmethod
    def usage(cls) -> str:
        """Return how the divergence is written as a string, e.g. ``beta:1.5``."""
        names = cls._parameter_names()
        return f"{cls.name}:{','.join(names).upper()}" if names else cls.name

    def __getstate__(self) -> dict[str, Any]:
        """Return its parameters alone: what it has cached is neither pickled nor hashed."""
        fields = {field.name for field in dataclasses.fields(self)} if dataclasses.is_dataclass(self) else vars(self)
        return {name: value for name, value in vars(self).items() if name in fields}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name: numbers and arrays, all that a model file has to store."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []


class Separable(Divergence):
    """d(x || y) = sum_f d(x_f, y_f): a subclass writes ``d`` and ``dy`` elementwise on an array namespace xp.

    ``curvature`` and ``newton_curvature`` are optional: second-order weights for the fast method, the former positive,
    and the latter if the divergence is convex. With a ``slope_at_zero``, which makes sparse data cheap,
    ``newton_curvature`` is needed.

    Examples
    --------
    >>> class Cosh(onmf.divergences.Separable):
    ...     def d(self, xp, x, y):
    ...         return xp.cosh(x - y) - 1
    ...     def dy(self, xp, x, y):
    ...         return xp.sinh(y - x)
    >>> OnlineNMF(3, divergence=Cosh()).fit(X / 10).n_components_
    3
    """

    separable = True

    @abstractmethod
    def d(self, xp: Any, x: Any, y: Any) -> Any:
        """Return the divergence of each entry.

        Parameters
        ----------
        xp : module
            The functions to compute with: NumPy, or its like for PyTorch.
        x : array
            Entries of samples.
        y : array
            Their fits, of the same shape.

        Returns
        -------
        array
            The losses.
        """

    @abstractmethod
    def dy(self, xp: Any, x: Any, y: Any) -> Any:
        """Return the derivative of each entry in y.

        Parameters
        ----------
        xp : module
            The functions to compute with.
        x : array
            Entries of samples.
        y : array
            Their fits, of the same shape.

        Returns
        -------
        array
            The derivatives.
        """

    def curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """Return the positive weight of each entry's model in y, for the dictionary; None: that of the chord.

        Parameters
        ----------
        xp : module
            The functions to compute with.
        x : array
            Entries of samples.
        y : array
            Their fits, of the same shape.

        Returns
        -------
        array or None
            The curvatures.
        """
        return None

    def newton_curvature(self, xp: Any, x: Any, y: Any) -> Any:
        """Return the weight for the coefficients, negative where not convex; by default that for the dictionary.

        Parameters
        ----------
        xp : module
            The functions to compute with.
        x : array
            Entries of samples.
        y : array
            Their fits, of the same shape.

        Returns
        -------
        array or None
            The curvatures.
        """
        return self.curvature(xp, x, y)

    @property
    def chords(self) -> bool:
        given = type(self).model is not Separable.model or type(self).curvature is not Separable.curvature
        return not (given or self.quadratic)

    def model(self, xp: Any, X: Any, Y: Any, newton: bool = False, mean: RowMean = row_mean) -> tuple[Any, Any]:
        """Return ``dy`` with ``curvature``, or with ``newton_curvature``."""
        slope = self.dy(xp, X, Y)
        weight = (self.newton_curvature if newton else self.curvature)(xp, X, Y)
        return slope, chord(xp, lambda x, y: self.dy(xp, x, y), X, Y, slope, mean) if weight is None else weight

    def value(self, X: Array, Y: Array) -> Array:
        with np.errstate(over="ignore"):  # a loss beyond the range of the dtype is infinite: no step will end there
            return self.d(np, X, Y).sum(axis=1)

    def grad(self, X: Array, Y: Array) -> Array:
        return self.dy(np, X, Y)

    @cached_property
    def loss_of_twice(self) -> float | None:
        """d(1 || 2), where d(x || 2x) is that times x^degree; else None."""
        if self.degree is None or self.in_units(2.0) is not self:
            return None
        return float(self.d(np, np.float64(1.0), np.float64(2.0)))


def total(*factors: Array) -> float:
    """Return the sum over all entries of the factors' product: rows in their own precision, then in double."""
    rows = np.einsum("nf,nf->n", *factors) if len(factors) == 2 else factors[0].sum(axis=1)
    return float(rows.sum(dtype=np.float64))


def chord(xp: Any, grad: Callable[[Any, Any], Any], X: Any, Y: Any, slope: Any, mean: RowMean) -> Any:
    """Return dy / (y - x), from a y farther off where y is close to x; at least a hundredth of its sample's mean."""
    near = xp.abs(Y - X) <= 1e-4 * (X + Y)
    if near.any():
        apart = 1e-12 * mean(X + Y) + xp.finfo(X.dtype).tiny
        Z = xp.where(near, 1.001 * xp.maximum(X, Y) + apart, Y)
        slope = xp.where(near, grad(X, Z), slope)
        Y = Z
    curvature = slope / (Y - X)
    # The sample's own mean: no result may depend on which batch a sample comes in.
    least = 0.01 * mean(xp.abs(curvature)) + xp.finfo(X.dtype).tiny
    return xp.maximum(curvature, least)


def order(owner: str, value: float) -> float:
    """Return the order of a family, its exponent; raise an error for one whose powers cannot be computed."""
    order = finite_number(owner, owner, value)
    if abs(order) > LARGEST_ORDER:
        raise ValueError(f"{owner}: {owner} must lie between -{LARGEST_ORDER} and {LARGEST_ORDER}, got {value!r}.")
    return order


def finite_number(owner: str, field: str, value: float) -> float:
    """Return the parameter as a Python float, which keeps single precision single; raise an error if not finite."""
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{owner}: {field} must be a finite number, got {value!r}.")
    return float(value)
