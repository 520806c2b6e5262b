"""``OnlineNMF``: the scikit-learn skin. No mathematics here, and no learning: see ``learning`` and ``online``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from onmf import divergences
from onmf._support.checks import require_at_least, require_whole
from onmf._support.seeds import generators, require_seed
from onmf.estimators.base import Progress
from onmf.learning import LearningNMF
from onmf.streams import Batches, Rows, Source
from onmf.units import DataError, checked_clip, refuse_bad_entries


@runtime_checkable
class Keeper(Protocol):
    """A checkpoint that can be written now."""

    def write(self, model: Any) -> bool:
        """Keep the model."""

    def require_new(self) -> None:
        """Refuse to begin anew over a run that was begun before."""


def is_stream(X: Any) -> bool:
    """An iterator, or what can be iterated over but is no sequence and no array, such as a data loader."""
    plain = hasattr(X, "__getitem__") or hasattr(X, "shape") or hasattr(X, "__array__")
    return hasattr(X, "__next__") or (hasattr(X, "__iter__") and not plain)


class OnlineNMF(LearningNMF):
    """Online nonnegative matrix factorization with general divergences: X (n, F) ~ H (n, K) @ W (K, F).

    **Samples are rows.** ``components_`` is W, ``transform`` gives H. One pass over the samples, in memory that does
    not grow with their number.

    Parameters
    ----------
    n_components : int, default 40
        K, the number of atoms of the dictionary.
    divergence : str or Divergence, default "kl"
        The loss d(x || hW): a name (``onmf.divergences.names()``), a name with parameters (``"beta:1.5"``,
        ``"huber:0.1"``), or an object (``Beta(1.5)``).
    method : {"auto", "surrogate", "em", "paper", "lefevre", "guan", "wang"}, default "auto"
        "auto": em where it applies and fewer than 15 % of the first batch's entries are not zero, else surrogate;
        ``method_`` says which.
        "surrogate": an averaged quadratic model per feature, Newton's coefficients: few samples to a good W.
        "em": accumulated multiplicative statistics, for kl, hellinger and alpha > 0, O(nnz K) on sparse data.
        "paper": Algorithms 1 to 3, stochastic projected subgradient steps for W: the one with a theorem.
        "lefevre", "guan", "wang": earlier methods, for is, squared_l2 and huber alone, to compare with.
    batch_size : int or None, default None
        Samples read at a time by ``fit``; None means max(5 K, 200). The first batch sets the scale and the start.
    max_passes : int, default 1
        Passes of ``fit`` over the data.
    shuffle : bool, default True
        Whether ``fit`` shuffles the samples in each pass.
    init : {"kmeans++", "uniform", "samples", "nndsvda"} or array (K, F), default "kmeans++"
        The initial dictionary. An array outside the set C is brought in by a change of units.
    scale : {"mean", "none"}, default "mean"
        "mean": compute on X divided by the mean of the first batch, the reading of the paper that converges.
        "none": the literal reading.
    clip : (low, high) or None, default None
        Clip the data first: the paper's compact set V, in the data's units.
    ridge : float, default 0
        m of the Tikhonov term (m/2) ||h||^2, in internal units. The theorem needs m > 0.
    solver : {"auto", "armijo", "armijo-literal", "constant", "polyak"}, default "auto"
        The coefficient solver of method "paper". "auto" is the paper's choice for each divergence.
    tol, max_iter : float and int or None, default 1e-3 and None
        When the coefficients count as found while learning: see ``onmf.coefficients.base``. None means 300 iterations
        for the constant step of method "paper" and 100 for its others; a few for the fast methods.
    transform_tol, transform_max_iter : float and int, default 1e-4 and 5000
        The same for ``transform``, ``loss``, ``score`` and ``stationarity``.
    delta_tol : float, default 0.01
        Tolerance of Polyak's step, relative to a sample's mean entry.
    tau : int or None, default None
        Samples per dictionary update; larger batches are split. None: 10 for "paper" and "guan", 30 for
        "surrogate", 200 for "em", 1000 (or the batch, if it is smaller) for "lefevre", 5 for "wang".
    a, b, power : float, default 2e4, 2e4, 1
        The step size a / (samples + b)^power of method "paper".
    any_power : bool, default False
        Allow powers outside (1/2, 1], which break the Robbins-Monro conditions.
    eps, eps_prime, U : float, default 1e-8, 1e-8, 1e8
        The constants of the sets C and H, in internal units.
    forgetting : float, default 0
        For "surrogate" and "em": a floor in [0, 1) under the weight of a new chunk, for streams that drift.
    reservoir : int, default 0
        For "surrogate" and "em" on streams in temporal order: so many samples are remembered, drawn evenly from all
        seen, and three of them are mixed with every new one. Some hundreds serve; a sample then costs four times as
        much.
    max_memory : float, default 2**30
        For "surrogate": bytes that its statistics of all features may take while learning; beyond, it keeps their
        diagonals and one correlation matrix, F K numbers instead of F K^2 / 2.
    options : dict or None, default None
        Constants of the earlier methods by name. "lefevre": r (0.7), N (the length of the data that ``fit`` gets);
        "guan": theta (0.1), buffer (20), steps (50), seed (0); "wang": eta (0.2), rho (0.99), gamma (0).
    on_error : {"raise", "skip"}, default "raise"
        What is done with a batch that cannot be learnt from (NaN, infinite or negative entries, another number of
        features, numbers too large): "skip" leaves it out, counts it in ``n_skipped_``, and keeps and logs the reason.
    random_state : int, RandomState, Generator or None, default None
        Seeds the initial dictionary and the shuffling.
    callbacks : iterable of callables or None
        Each is called with a ``Progress`` after every batch; one that returns True ends ``fit``.

    Attributes
    ----------
    components_ : array (K, F)
        The dictionary W, entries in [0, 1].
    divergence_ : Divergence
        The divergence in the data's units, with all parameters known.
    scale_ : float
        The internal unit: the mean of the first batch, or 1.
    n_samples_seen_, n_steps_ : int
        Samples learnt from and dictionary updates.
    method_ : str
        The method in use: what "auto" has chosen.
    delta_ : float
        Huber's delta. If none was given, the fast methods let it follow the residuals: 1.345 times their running
        median absolute value.
    n_iter_ : int
        Passes that ``fit`` has begun; 1 after ``partial_fit``.
    n_skipped_, skipped_ : int, list of str
        Batches that ``on_error="skip"`` has left out, and the reasons for the last hundred.
    history_ : dict of arrays "samples", "seconds", "loss"
        After every batch: the samples and seconds so far, and the mean loss of its samples, each just before it was
        learnt from. Of a long run every second, fourth, ... entry of the past is kept, some thousands in all.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        n_components: int = 40,
        *,
        divergence: divergences.Divergence | str = "kl",
        method: str = "auto",
        batch_size: int | None = None,
        max_passes: int = 1,
        shuffle: bool = True,
        init: Any = "kmeans++",
        scale: str = "mean",
        clip: tuple[float, float] | None = None,
        ridge: float = 0.0,
        solver: str = "auto",
        tol: float = 1e-3,
        max_iter: int | None = None,
        transform_tol: float = 1e-4,
        transform_max_iter: int = 5000,
        delta_tol: float = 0.01,
        tau: int | None = None,
        a: float = 2e4,
        b: float = 2e4,
        power: float = 1.0,
        any_power: bool = False,
        eps: float = 1e-8,
        eps_prime: float = 1e-8,
        U: float = 1e8,
        forgetting: float = 0.0,
        reservoir: int = 0,
        max_memory: float = 2.0**30,
        options: Mapping[str, Any] | None = None,
        on_error: str = "raise",
        random_state: Any = None,
        callbacks: Iterable[Callable[[Progress], Any]] | None = None,
    ) -> None:
        self.n_components = n_components
        self.divergence = divergence
        self.method = method
        self.batch_size = batch_size
        self.max_passes = max_passes
        self.shuffle = shuffle
        self.init = init
        self.scale = scale
        self.clip = clip
        self.ridge = ridge
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.transform_tol = transform_tol
        self.transform_max_iter = transform_max_iter
        self.delta_tol = delta_tol
        self.tau = tau
        self.a = a
        self.b = b
        self.power = power
        self.any_power = any_power
        self.eps = eps
        self.eps_prime = eps_prime
        self.U = U
        self.forgetting = forgetting
        self.reservoir = reservoir
        self.max_memory = max_memory
        self.options = options
        self.on_error = on_error
        self.random_state = random_state
        self.callbacks = callbacks

    # Learning

    def fit(
        self, X: Any, y: Any = None, *, checkpoint: Callable[[Self], None] | None = None, resume: bool = False
    ) -> Self:
        """Learn the dictionary from X afresh: an array, sparse matrix, data frame, ``Source``, iterator of batches.

        ``checkpoint`` (an ``onmf.Checkpoint``) is called with the model after every batch. With ``resume``, learning
        goes on where the model, read from a checkpoint, stopped in the same data; the result is then that of one
        uninterrupted ``fit``, to the bit.
        """
        with self._unchanged_by_errors():
            self._check_settings()
            if checkpoint is not None and not callable(checkpoint):
                raise TypeError(f"checkpoint takes an onmf.Checkpoint: checkpoint=Checkpoint({str(checkpoint)!r}).")
            if isinstance(checkpoint, Keeper) and not resume:
                checkpoint.require_new()
            if isinstance(X, Source) or is_stream(X):
                source = X if isinstance(X, Source) else Batches(X)
                if not resume:
                    self._take_features_of(source)
            else:
                X = self._validated(X, reset=not resume)
                if self.on_error == "raise":
                    refuse_bad_entries(X)
                source = Rows(X)
            if resume:
                self._require_position(source)
            else:
                self.__dict__.pop("components_", None)
                self.n_skipped_, self.skipped_ = 0, []
            try:
                self._learn_from(source, checkpoint, resume)
            except BaseException:  # an interrupt too
                if isinstance(checkpoint, Keeper) and hasattr(self, "components_"):
                    checkpoint.write(self)  # what was learnt before the error is not lost
                raise
            if not hasattr(self, "components_"):
                reason = self.skipped_[-1] if self.skipped_ else "there are no batches"
                raise DataError(f"No batch could be learnt from. {reason}")
        late = float(np.median([entry[2] for entry in self._history][-10:]))
        eta = (self.options or {}).get("eta", 0.2)
        step = {"paper": f"a ({self.a:g})", "wang": f"options={{'eta': ...}} ({eta})"}.get(self.method_)
        if step is not None and not late <= 2 * self._loss_to_beat:
            warnings.warn(
                f"The loss, {late:.4g}, is far above what it was at the start or with a single atom, the mean sample: "
                f"the steps are too long for these data. Take {step} ten times smaller.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Go on learning from one more batch. An error leaves the model as it was."""
        first = not hasattr(self, "components_")
        with self._unchanged_by_errors():
            if first:
                self._check_settings()
                self.n_skipped_, self.skipped_ = getattr(self, "n_skipped_", 0), getattr(self, "skipped_", [])
            try:
                X = self._validated(X, reset=first)
            except ValueError as error:
                if first or self.on_error == "raise":
                    raise
                self._leave_out(error)
                return self
            self._learn_or_skip(X, None, None, generators(self.random_state)[0] if first else None, None)
        return self

    # Plumbing

    def _check_settings(self) -> None:
        """Refuse settings that no data could make work; the solvers, sets and schedules check their own."""
        require_whole(1, n_components=self.n_components, max_passes=self.max_passes)
        if self.batch_size is not None:
            require_whole(1, batch_size=self.batch_size)
        if self.scale not in ("mean", "none"):
            raise ValueError(f"scale must be 'mean' or 'none', got {self.scale!r}.")
        if self.on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', got {self.on_error!r}.")
        for name in ("shuffle", "any_power"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        self._check_callbacks()
        checked_clip(self.clip)
        require_at_least(0, transform_tol=self.transform_tol)
        require_whole(1, transform_max_iter=self.transform_max_iter)
        require_seed(self.random_state)

    def _take_features_of(self, source: Source) -> None:
        self.n_features_in_ = source.n_features
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        if source.feature_names is not None:
            self.feature_names_in_ = np.asarray(source.feature_names, dtype=object)
