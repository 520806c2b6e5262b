"""``BatchNMF``: updates by all samples at once, behind the same conventions as ``OnlineNMF``."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from onmf import divergences
from onmf._support import threads
from onmf._support.arrays import Array, Data
from onmf._support.checks import generators, require_at_least, require_whole
from onmf.data.columns import Features
from onmf.data.inputs import layer_of, require_same_features
from onmf.divergences import Divergence
from onmf.estimators.attributes import FittedAttribute
from onmf.estimators.base import NMF
from onmf.estimators.messages import warn_of_too_many, warn_raised
from onmf.learner import Coverage, Fitted, Progress, Recipe, Usage, begin
from onmf.learner.initialise import initial_dictionary, require_weighs_entries
from onmf.learner.update import learn_batch
from onmf.methods.batch import Iterate, Updates, factorise, updates_of
from onmf.methods.batch_descent import CoordinateUpdates, SurrogateUpdates
from onmf.model.penalty import Penalties
from onmf.model.sets import DictionarySet, Sets, Simplex, beside, count, fixed_weights, require_fittable, require_fixed
from onmf.model.settings import BATCH, ONLINE
from onmf.model.state import State
from onmf.model.units import Units, checked_clip
from onmf.model.validation import DataError, require_finite_values
from onmf.samples import Samples

SOLVERS = next(each.choices for each in BATCH if each.name == "solver")
FIRST_SAMPLES = 5000  # that other than multiplicative updates begin with, online
MOST_COMPONENTS, MOST_MEMORY = 80, 2.0**30  # of second-order steps, whose models have K x K matrices
PSEUDO_COUNTS = 0.01  # of every feature in every component
FINE, ROUGH = 1e-5, 3e-2  # tolerances, without and with pseudo-counts


@dataclass(frozen=True, kw_only=True)
class Factorised(Fitted):
    """The model that ``BatchNMF`` has learnt, with the final coefficients."""

    H: Array  # in the data's units
    weight: float  # of all samples
    converged: bool

    @property
    def reconstruction_error(self) -> float:
        """sqrt(2 sum of d(x || hW)) at the last iteration."""
        return float(np.sqrt(2 * self.weight) * np.sqrt(self.history.entries[-1][2]))


@dataclass(eq=False, repr=False, kw_only=True)
class BatchNMF(NMF):
    """Nonnegative matrix factorization, X (n, F) ~ H (n, K) @ W (K, F), by all samples at once, for every divergence.

    **Samples are rows.** All of them are in memory, and every iteration goes over all. Under the library's own
    divergences the loss cannot rise: multiplicative updates minimise a majorant of it (for l1, of a version rounded at
    the kink by a thousandth of each sample's mean), coordinate descent lowers it with every step, and second-order
    steps are made only where it falls. For data that come as a stream, or are many, see ``OnlineNMF``, which needs
    fewer passes.

    Parameters
    ----------
    n_components : int, default 40
        K, the number of components of the dictionary.
    divergence : str or Divergence, default "kl"
        The loss d(x || hW), as in ``OnlineNMF``. Huber's delta, if not given, is a tenth of the data's mean.
    init : {"kmeans++", "uniform", "samples", "nndsvda"}, array (K, F) or fitted model, default "kmeans++"
        The initial dictionary; with ``fixed`` an array (K - J, F), of the components that are learnt. Zeros
        in it stay zeros under multiplicative updates, which never leave them. Other solvers begin with an online pass
        over up to 5,000 samples from there. A fitted ``OnlineNMF`` gives its components, and needs no such pass.
    n_init : int, default 1
        Starts, drawn by ``random_state``: ``fit`` learns from each and keeps the model with the lowest ``loss(X)``.
    fixed : array (J, F) or None, default None
        Fixed components, as in ``OnlineNMF``: the first J stay as they are. With J = K only coefficients are found.
    solver : {"auto", "multiplicative", "coordinate", "surrogate"}, default "auto"
        "coordinate" is for sparse counts, text and cells: a sweep of coordinate descent over the coefficients and one
        over the weights in turn, at the non-zeros, under kl, hellinger and alpha > 0 without penalties or missing
        entries. "surrogate" is for dense data: Newton's step for the coefficients and the minimum of quadratic models
        of all samples for the weights, under smooth separable divergences, likewise. "auto" takes "coordinate" where
        less than 15 % of the entries are not zero, "surrogate" for up to 80 components where more are and the
        divergence is convex and admits zeros (kl, hellinger, squared_l2, beta from 1 to 2, alpha > 0), and
        "multiplicative" elsewhere. "surrogate" keeps data and K (K + 1) / 2 numbers per feature dense in memory.
    pseudo_counts : float or None, default None
        A Dirichlet prior on the components, for solver "coordinate" under kl: every feature counts in every component
        as if it had been seen this often, in the data's units. None: 0.01, which lowers the loss of samples that were
        not learnt from; 0 leads to the lowest loss of those that were.
    max_iter : int, default 1000
        Iterations at most.
    tol : float or None, default None
        The loss, with penalties and pseudo-counts, has converged when it falls by less than this share of itself over
        ten multiplicative iterations, or three of other solvers; 0: never. None: 1e-5, and 0.03 with pseudo-counts, as
        later iterations hardly lower the loss of other samples.
    coefficients : {"nonnegative"}, default "nonnegative"
        No solver can keep them on the simplex; ``OnlineNMF(coefficients="simplex")`` can.
    clip : (low, high) or None, default None
        Clip the data first, in their units.
    missing : {None, "nan"}, default None
        "nan": entries that are NaN are missing, and everything is learnt from the others; None: they raise an error.
    implicit : {"zero", "missing"}, default "zero"
        Entries that a sparse X does not store: zeros, or missing, as in ratings.
    l1_coefficients : float, default 0
        Penalty on ||h||_1, which makes coefficients sparse. The units of penalties are those of ``OnlineNMF``.
    l2_coefficients : float, default 0
        Penalty on ||h||^2 / 2, which keeps coefficients small.
    l1_dictionary : float, default 0
        Penalty on ||W||_1, which makes components sparse. It needs one on the coefficients.
    l2_dictionary : float, default 0
        Penalty on ||W||_F^2 / 2, which keeps weights small. It needs one on the coefficients.
    sets : Sets or None, default None
        The constants of the sets C and H, in internal units; None: Sets(eps=1e-8, eps_prime=1e-8, U=1e8).
    transform_tol : float, default 1e-4
        In ``transform``, ``loss``, ``score`` and ``stationarity``, the coefficients of a sample have converged once no
        more than this share of d(x || 2x) is left to gain.
    transform_max_iter : int, default 5000
        Iterations of them at most.
    random_state : int, RandomState, Generator or None, default None
        Seeds the initial dictionary.
    callbacks : list of callables or None
        Each is called with a ``Progress`` at the start and after every iteration; one that returns True ends ``fit``.
    verbose : int, default 0
        1 prints a line of progress every second, 2 after every iteration.

    Attributes
    ----------
    components_ : array (K, F)
        The dictionary W, entries in [0, 1].
    coefficients_ : array (n, K)
        The H of the last iteration, for the samples that have a weight. ``transform`` finds precise ones.
    divergence_ : Divergence
        The divergence in the data's units, with all its parameters.
    scale_ : float
        The internal unit: the mean of the data.
    n_components_ : int
        K.
    n_iter_ : int
        The iterations made.
    reconstruction_err_ : float
        sqrt(2 sum of d(x || hW)) over the samples, at the last iteration's coefficients, as in scikit-learn.
    converged_ : bool
        Whether ``tol`` was reached.
    usage_ : array (K,)
        Each component's share of all that is fitted: the mean of the samples' ``proportions`` at ``coefficients_``.
    history_ : dict of arrays "samples", "seconds", "loss"
        At the start and after every iteration: samples read so far, seconds, and the mean loss of a sample.
    n_features_in_ : int
        F, the number of features.
    feature_names_in_ : array (F,) of str
        The names of the features, where they have some.

    Examples
    --------
    >>> batch = onmf.BatchNMF(3, divergence="kl", random_state=0).fit(X)
    >>> batch.converged_, batch.coefficients_.shape
    (True, (60, 3))
    """

    solver: str = "auto"
    pseudo_counts: float | None = None
    max_iter: int = 1000
    tol: float | None = None

    _learned: Factorised | None = field(default=None, init=False)

    coefficients_ = FittedAttribute[Factorised, Array](lambda factorised: factorised.H)
    n_iter_ = FittedAttribute[Factorised, int](lambda factorised: factorised.state.steps)
    converged_ = FittedAttribute[Factorised, bool](lambda factorised: factorised.converged)
    reconstruction_err_ = FittedAttribute[Factorised, float](lambda factorised: factorised.reconstruction_error)

    def fit(
        self,
        X: Data,
        y: Any = None,
        *,
        layer: str | None = None,
        sample_weight: ArrayLike | None = None,
        weights: Data | None = None,
    ) -> Self:
        """Learn the dictionary from X, an array, sparse matrix or data frame. An error leaves the model as it was.

        It reads X, or a ``layer``, of an AnnData object.

        A sample counts as often as its ``sample_weight`` says, and not at all if that is zero. ``weights``, of the
        shape of X, weigh its entries: an entry of weight zero is missing.

        Parameters
        ----------
        X : Data
            All samples, one per row.
        y : None
            Ignored; scikit-learn passes it.
        layer : str or None
            The layer of an AnnData object that is read instead of its ``X``.
        sample_weight : array (n,) or None
            How often each sample counts.
        weights : array of the shape of X, or None
            The weight of each entry.

        Returns
        -------
        BatchNMF
            The fitted estimator itself.

        Examples
        --------
        >>> onmf.BatchNMF(3, solver="multiplicative").fit(X).n_components_
        3
        """
        self._check_batch_settings()
        X = layer_of(X, layer)
        if self.n_init > 1:
            return self._fit_best(X, sample_weight=sample_weight, weights=weights)
        X, features = self._validated(X, reset=True)
        self._warn_if_nothing_is_missing(X, weights, stacklevel=3)
        X = self._as_samples(X, features, sample_weight, weights)
        warn_of_too_many(self.n_components, features.number, vars(self))
        divergence = divergences.get(self.divergence)
        units = Units.of_first_batch(X, checked_clip(self.clip), rescale=divergence.degree is not None)
        divergence = divergence.for_data(units.mean, X.shape[1])
        if X.masked:
            require_weighs_entries(divergence)
        sets, penalties = self.sets or Sets(), Penalties.of(vars(self))
        sets.require_positive_fit(divergence)
        penalties.require_effect(coefficients_bounded=False)
        if penalties and divergence.multiplicative_slope is None:
            raise ValueError(f"BatchNMF has no penalties under {divergence.name} with its parameter; use OnlineNMF.")
        C = replace(sets.dictionaries, fixed=count(self.fixed))
        solver = self._chosen_solver(X, divergence, penalties)
        prior = self._prior(solver, divergence)
        tol = self.tol if self.tol is not None else ROUGH if prior else FINE
        with threads.learning_alone(self):
            before, started = self._learned, time.perf_counter()
            try:
                with threads.own_threads():
                    updates, W, raised = self._begin(X, units, divergence, features, C, solver, prior)
                    updates.penalties, state = penalties, State(C.rescale_into(W), C, penalties=penalties)
                    fitted = Fitted(
                        state=state, divergence=divergence, units=units, features=features, raised=raised > 0
                    )
                    self._factorise(X, updates, fitted, tol, started)
                if raised:
                    warn_raised(divergence, raised, 0 if X.masked else X.shape[0] * X.shape[1])
                self._warn_unless_converged(tol, updates.patience)
                if X.masked and (found := Coverage.of(X).findings(features.names)):
                    warnings.warn(" ".join(found.values()), UserWarning, stacklevel=2)
            except Exception:
                self._learned = before
                raise
        return self

    def _check_batch_settings(self) -> None:
        self._check_settings()
        require_whole(1, max_iter=self.max_iter)
        optional = {"tol": self.tol, "pseudo_counts": self.pseudo_counts}
        require_at_least(0, **{name: value for name, value in optional.items() if value is not None})
        require_fixed(self.fixed, self.n_components)
        if not isinstance(self.solver, str) or self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}; got {self.solver!r}.")
        if isinstance((self.sets or Sets()).where(self.coefficients)[1], Simplex):
            raise ValueError(
                "BatchNMF cannot keep coefficients on the simplex, as its updates change their sum; use "
                "OnlineNMF(coefficients='simplex'), with as many max_passes as it takes."
            )

    def _chosen_solver(self, X: Samples, divergence: Divergence, penalties: Penalties) -> str:
        """Return the solver that is asked for, or one that suits the data; raise an error if it does not serve them."""
        both = {"penalties": bool(penalties), "missing or weighted entries": X.masked}
        smooth = divergence.smooth and divergence.separable and not divergence.robust
        unserved = {
            "coordinate": both | {f"{divergence.name}, only kl and alpha > 0": divergence.alpha_order is None},
            "surrogate": both | {f"{divergence.name}, only smooth sums over the entries": not smooth},
        }
        reasons = {solver: [why for why, there in each.items() if there] for solver, each in unserved.items()}
        if reasons.get(self.solver):
            raise ValueError(f"solver={self.solver!r} takes no {reasons[self.solver][0]}; use 'multiplicative'.")
        if self.solver != "auto":
            return self.solver
        if not reasons["coordinate"] and X.mostly_zeros():
            return "coordinate"
        packed = 4 * self.n_components * (self.n_components + 1) * X.shape[1]
        few = self.n_components <= MOST_COMPONENTS and packed <= MOST_MEMORY
        convex = divergence.convex and divergence.domain.x.includes_zero  # else there are minima to get stuck in
        suits = convex and not reasons["surrogate"] and not X.mostly_zeros()
        return "surrogate" if suits and (few or divergence.curvature_per_sample) else "multiplicative"

    def _prior(self, solver: str, divergence: Divergence) -> float:
        """Return the pseudo-counts of coordinate descent, zero for other solvers, or raise an error."""
        counts = solver == "coordinate" and divergence.alpha_order == 1
        if self.pseudo_counts and not counts:
            raise ValueError("pseudo_counts are for solver='coordinate' under kl, without penalties; leave them out.")
        return PSEUDO_COUNTS if counts and self.pseudo_counts is None else self.pseudo_counts or 0.0

    def _warn_unless_converged(self, tol: float, patience: int) -> None:
        if tol > 0 and not self.converged_ and self.n_iter_ == self.max_iter:
            still = f"The loss still falls by more than tol={tol:g} of itself over {patience} iterations"
            unclear = f"Fewer than {patience} iterations do not show whether the loss has converged"
            warnings.warn(
                f"{still if self.max_iter >= patience else unclear}; raise max_iter ({self.max_iter}) or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _begin(
        self,
        X: Samples,
        units: Units,
        divergence: Divergence,
        features: Features,
        C: DictionarySet,
        solver: str,
        prior: float,
    ) -> tuple[Updates, Array, int]:
        """Return the updates, the first dictionary, and how many entries were raised."""
        inside, rng, init = divergence.in_units(units.scale), generators(self.random_state)[0], self.init
        fixed = fixed_weights(self.fixed, X.shape[1], X.dtype)
        require_fittable(fixed, self.n_components, C, inside)
        if isinstance(init, NMF):
            require_same_features(features, init._fitted.features, model="the model in init")
            init = init.components_[C.fixed :]
        box = (self.sets or Sets()).coefficients
        if solver == "coordinate":
            shown, raised = units.inside(X.sparsified(), divergence)
            updates: Updates = CoordinateUpdates(inside, shown, box, C, prior / units.scale)
        else:
            X = X.densified() if solver == "surrogate" else X
            updates, shown, raised = updates_of(X, units, divergence, inside)
            if solver == "surrogate":
                updates = SurrogateUpdates(inside, shown, box, C, updates)
            shown = Samples(shown.completed(), None, shown.sample_weight)
        if solver != "multiplicative" and not isinstance(self.init, NMF) and C.fixed < self.n_components:
            return updates, self._learnt_online(X, features, rng), raised
        K, ratios = self.n_components - C.fixed, not divergence.domain.x.includes_zero
        first = initial_dictionary(init, shown, K, rng, ratios, fixed)
        return updates, beside(fixed, first.astype(X.dtype, copy=False)), raised

    def _learnt_online(self, X: Samples, features: Features, rng: np.random.Generator) -> Array:
        """Return the dictionary after an online pass over some samples: sweeps from other starts take far longer."""
        given = self.get_params(deep=False)
        recipe = Recipe.of({each.name: given.get(each.name, each.default) for each in ONLINE})
        some = X[rng.permutation(np.flatnonzero(X.sum(axis=1)))[:FIRST_SAMPLES]]
        return learn_batch(recipe, begin(recipe, some, features, rng), some).state.W

    def _factorise(self, X: Samples, updates: Updates, fitted: Fitted, tol: float, started: float) -> None:
        n, weight, W, C = X.shape[0], X.weight, fitted.state.W, fitted.state.C
        unit = fitted.divergence.loss_unit(fitted.units.scale) / weight
        listeners, now, seconds, waited = self._listeners(), None, 0.0, 0.0  # callbacks' time is theirs
        try:
            for now in factorise(updates, updates.start(W), W, self.max_iter, tol, C.fixed):
                reached = time.perf_counter()
                if not (np.isfinite(now.loss * unit) and np.isfinite(now.W).all()):
                    raise DataError(
                        "The loss of these data is beyond the range of numbers: they are too large or too unequal for "
                        "this divergence; rescale or clip them."
                    )
                spent, seconds = reached - started - waited - seconds, reached - started - waited
                fitted = replace(fitted, history=fitted.history.after(n if now.number else 0, spent, now.loss * unit))
                reading = fitted.history.samples, n * self.max_iter, now.number, seconds, now.loss * unit, now.W
                wishes = [listener(Progress(*reading)) for listener in listeners]  # every one is called
                if any(wishes):
                    break
                waited += time.perf_counter() - reached
        finally:  # an interrupt leaves the last iteration; the caller undoes it after an error
            if now is not None:
                self._learned = self._kept(fitted, now, weight, X.sample_weight)
        require_finite_values(self.coefficients_, X, fitted.units.mean)

    def _kept(self, fitted: Fitted, now: Iterate, weight: float, samples: Array | None) -> Factorised:
        """Return an iterate as the result; without penalties, learnt components are divided by their maxima."""
        size = np.ones(len(now.W), dtype=now.W.dtype)
        if not fitted.state.penalties:
            size = np.maximum(now.W.max(axis=1), np.finfo(now.W.dtype).tiny)
        size[: fitted.state.C.fixed] = 1
        W = fitted.state.C.project(now.W / size[:, None])
        H = now.H * (size * now.H.dtype.type(fitted.units.scale))
        state = replace(fitted.state, W=W, samples=fitted.history.samples, steps=now.number)
        reached = {"state": state, "usage": Usage.of(H, W, samples)}
        return Factorised(**(vars(fitted) | reached), H=H, weight=weight, converged=now.converged)
