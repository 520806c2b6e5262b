"""``OnlineNMF``: the scikit-learn skin of the learner. No mathematics here."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from onmf import learner, methods
from onmf._support import threads
from onmf._support.arrays import Data, is_tensor
from onmf._support.checks import generators, require_whole
from onmf.data import Batches, Rows, Source, Spec, texts
from onmf.data.columns import Features
from onmf.data.in_memory import are_texts, is_stream
from onmf.data.inputs import cure_by_like, layer_of, require_same_features
from onmf.data.pipes import ended_by_interrupts
from onmf.data.tools import with_columns, with_features
from onmf.device.tensors import as_array, dtype_of, require_samples
from onmf.distributed import Partitions
from onmf.divergences import Divergence
from onmf.estimators.attributes import FittedAttribute
from onmf.estimators.base import NMF, is_distributed
from onmf.estimators.messages import warn_of_too_many, warn_raised
from onmf.estimators.streaming import partitions_of, require_no_weights
from onmf.learner import Learned, Progress, Reading, Recipe, Skipped
from onmf.learner.growth import grown, may_grow, next_features
from onmf.learner.rounds import require_shards
from onmf.methods import Choice
from onmf.model.settings import ONLINE
from onmf.model.validation import DataError, require_valid_entries
from onmf.persistence import model as model_file
from onmf.persistence.checkpoint import Checkpoint, Keeper
from onmf.samples import Samples, as_samples, given_rows, weighted

log = logging.getLogger("onmf")

NAMES = [each.name for each in ONLINE]
Weights = tuple[Any, Any]  # sample_weight and weights, as the user gave them


@dataclass
class _Configured:
    """The settings as the learner takes them, and the model that was learnt with them last."""

    given: list[Any]  # the values of the settings
    recipe: Recipe
    reading: Reading
    learned: Learned | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class OnlineNMF(NMF):
    """Online nonnegative matrix factorization with general divergences: X (n, F) ~ H (n, K) @ W (K, F).

    **Samples are rows.** ``components_`` is W, ``transform`` gives H. One pass over the samples, in memory that does
    not grow with their number.

    Parameters
    ----------
    n_components : int, default 40
        K, the number of components of the dictionary.
    divergence : str or Divergence, default "kl"
        The loss d(x || hW): a name (``onmf.divergences.names()``), a name with parameters (``"beta:1.5"``,
        ``"huber:0.1"``), or an object (``Beta(1.5)``).
    method : str or method, default "auto"
        A name (``onmf.methods.names()``), a name with constants (``"paper:tau=5"``), or an object (``Paper(tau=5)``).
        "auto": surrogate; where they apply, sparse_surrogate if less than 15 % of the first batch's entries are not
        zero, em below 3 %; ``method_`` says which. "surrogate": an averaged quadratic model per feature, Newton's
        coefficients: few samples to a good W. "sparse_surrogate": the same at the non-zeros, for kl, hellinger and
        alpha > 0. "em": accumulated multiplicative statistics for the same, O(nnz K). "paper": Algorithms 1 to 3,
        stochastic projected subgradient steps, with a theorem. surrogate and em have one with ``certified``, as in
        "auto:certified=20000"; sparse_surrogate has none.
    batch_size : int or None, default None
        Samples read at a time by ``fit``; None means max(5 K, 200), or more once the method's chunks are larger; on a
        device max(5 K, 1024), later up to three times the samples seen. The first batch sets the scale and the start.
    max_passes : int, default 1
        Passes of ``fit`` over the data.
    shuffle : bool, default True
        Whether ``fit`` shuffles the samples in each pass.
    init : {"kmeans++", "uniform", "samples", "nndsvda"} or array (K, F), default "kmeans++"
        The initial dictionary; with ``fixed`` an array (K - J, F), of the components that are learnt. An array outside
        the set C is brought in by a change of units; on the simplex it is in the data's units, and ``fixed`` too.
    n_init : int, default 1
        Starts, drawn by ``random_state``: ``fit`` learns from each and keeps the model with the lowest ``loss(X)``.
    fixed : array (J, F) or None, default None
        Fixed components: the first J of the K stay as they are, bit for bit, and the other K - J are learnt beside
        them. Those with entries above 1 are divided by their largest; their coefficients take up the scale. With all
        components fixed, ``fit`` learns the scale and shows in ``history_`` how well they fit.
    scale : {"mean", "none"}, default "mean"
        "mean": compute on X divided by the mean of the first batch, the reading of the paper that converges.
        "none": the literal reading.
    clip : (low, high) or None, default None
        Clip the data first: the paper's compact set V, in the data's units.
    missing : {None, "nan"}, default None
        "nan": entries that are NaN are missing, and everything is learnt from the others; None: they raise an error.
    implicit : {"zero", "missing"}, default "zero"
        Entries that a sparse X does not store: zeros, or missing, as in ratings.
    coefficients : {"nonnegative", "simplex"}, default "nonnegative"
        "simplex": they sum to one in every sample, as the abundances of unmixing do. W is then in the data's units,
        with no upper bound, and X * c gives W * c with the same H. By methods surrogate and paper; "auto" takes the
        first.
    l1_coefficients : float, default 0
        Penalty on ||h||_1, which makes coefficients sparse. Penalties are added to the mean loss, with W <= 1, in
        internal units (X divided by the mean of the first batch): X times a constant gives the same W.
    l2_coefficients : float, default 0
        Penalty on ||h||^2 / 2, which keeps coefficients small. The theorem needs one above 0.
    l1_dictionary : float, default 0
        Penalty on ||W||_1, which makes components sparse. It needs one on the coefficients, or the simplex.
    l2_dictionary : float, default 0
        Penalty on ||W||_F^2 / 2, which keeps weights small. It needs one on the coefficients, or the simplex.
    sets : Sets or None, default None
        The constants of the paper's sets C and H, in internal units; None: Sets(eps=1e-8, eps_prime=1e-8, U=1e8).
    reservoir : int, default 0
        For streams in temporal order: how many samples are remembered, drawn evenly from all seen; three of them are
        mixed with every new one. Some hundreds suffice; a sample then costs four times as much.
    features : {"auto", "fixed", "grow"}, default "auto"
        Whether learning that continues (``partial_fit``, ``resume_from``) adds features that the model does not have,
        by their names: "grow" does, "fixed" raises an error, or leaves unknown words out; "auto" adds words of texts
        where the method can. A new feature begins with its share of the batch, as if no sample before had had it;
        columns that are gone count as zeros or, with ``missing="nan"``, as missing.
    max_features : int, default 20000
        The most that a model grows to. Under ``forgetting``, features that next to nothing is left of make room.
    transform_tol : float, default 1e-4
        In ``transform``, ``loss``, ``score`` and ``stationarity``, the coefficients of a sample have converged once no
        more than this share of d(x || 2x) is left to gain.
    transform_max_iter : int, default 5000
        Iterations of them at most.
    on_error : {"raise", "skip"}, default "raise"
        "skip" leaves out, counts in ``n_skipped_`` and logs what cannot be learnt from: ``fit`` each bad row (NaN,
        infinite, negative or unreadable) and batches of too large numbers, ``partial_fit`` the batch that it was given.
        ``transform`` of a stream gives rows of NaN for them.
    shards : int or None, default None
        How many pieces of partitioned data (dask arrays and data frames, ``onmf.distributed.partitioned``) are learnt
        from at the same time at most, whatever the number of workers; None: one per partition, up to 64.
    device : {None, "auto", "cuda", "cuda:NUMBER", "cpu"}, default None
        Where to compute. None: on the processor, by compiled code. "cuda": on a GPU, by PyTorch (``onmf[gpu]``);
        "auto": on a GPU if there is one that can be used, else as None. "cpu": by PyTorch on the processor, to try what
        a GPU would do; slower than None. On a device, separable divergences are learnt by method surrogate or em;
        tensors are taken as they are, and ``transform`` gives a tensor where X is one. Data in single precision are
        faster.
    random_state : int, RandomState, Generator or None, default None
        Seeds the initial dictionary and the shuffling.
    callbacks : list of callables or None
        Each is called with a ``Progress`` after every batch; one that returns True ends ``fit``.
    verbose : int, default 0
        1 prints a line of progress every second, 2 after every batch.

    Attributes
    ----------
    components_ : array (K, F)
        The dictionary W, entries in [0, 1]; every component's largest is 1 under the default methods. With
        ``coefficients="simplex"``, in the data's units.
    divergence_ : Divergence
        The divergence in the data's units, with all its parameters.
    method_ : Method
        The method in use, with all its constants: the one that "auto" has chosen.
    scale_ : float
        The internal unit: the mean of the first batch, or 1.
    delta_ : float
        Huber's delta. If none was given, the fast methods let it follow the residuals: 1.345 times their running
        median absolute value.
    n_components_ : int
        K.
    n_samples_seen_ : int
        Samples learnt from.
    n_steps_ : int
        Updates of the dictionary.
    n_iter_ : int
        Passes.
    usage_ : array (K,)
        Each component's share of all that was fitted: the mean of the samples' ``proportions`` while learning.
    n_skipped_ : int
        Samples and batches left out under ``on_error="skip"``.
    skipped_ : list of str
        The reasons for the last hundred of them.
    drift_ : float
        In the last batch: from 0, new samples are fitted as earlier ones were, to 1, the stream has changed.
    n_changes_ : int
        How often the stream has changed.
    n_lines_consumed_ : int
        After ``fit`` of a pipe: the lines (of arrays, the rows) from the first one on that a producer need not send
        again; blank and skipped ones count, the one that names the columns does not.
    guarantee_ : str
        What [the theorem](../explanation/guarantees.md) promises for this model, or which of its assumptions this run
        does not meet.
    reconstruction_err_ : float
        sqrt(2 sum of d(x || hW)) over the samples of the last pass, as in scikit-learn, estimated from the losses that
        they had just before they were learnt from. ``loss(X)`` gives the precise one.
    history_ : dict of arrays "samples", "seconds", "loss"
        After every batch: the samples and seconds so far, and the mean loss of its samples, each just before it was
        learnt from. A long run keeps every second, fourth, ... entry of the past, some thousands in all.
    source_ : onmf.data.Spec
        How the features were made, for ``open_source(text, like=model.source_)``: other data are then read alike.
    n_features_in_ : int
        F, the number of features.
    feature_names_in_ : array (F,) of str
        The names of the features, where they have some.

    Examples
    --------
    >>> model = OnlineNMF(3, divergence="kl", random_state=0).fit(X)
    >>> model.components_.shape, model.transform(X).shape
    ((3, 30), (60, 3))
    """

    method: Choice | str = "auto"
    batch_size: int | None = None
    max_passes: int = 1
    shuffle: bool = True
    scale: str = "mean"
    reservoir: int = 0
    features: str = "auto"
    max_features: int = 20_000
    on_error: str = "raise"
    shards: int | None = None
    device: str | None = None

    _learned: Learned | None = field(default=None, init=False)
    _unlearned: Skipped = field(default=Skipped(), init=False)  # batches skipped before anything was learnt
    _configuration: _Configured | None = field(default=None, init=False)

    method_ = FittedAttribute[Learned, methods.Method](lambda learned: learned.method)
    guarantee_ = FittedAttribute[Learned, str](learner.guarantee)
    n_steps_ = FittedAttribute[Learned, int](lambda learned: learned.state.steps)
    n_iter_ = FittedAttribute[Learned, int](lambda learned: learned.passes)
    drift_ = FittedAttribute[Learned, float](lambda learned: learned.drift.statistic)
    n_changes_ = FittedAttribute[Learned, int](lambda learned: learned.drift.changes)
    n_lines_consumed_ = FittedAttribute[Learned, int](
        lambda learned: getattr(learned.position, "lines", None), "fit of a pipe"
    )
    source_ = FittedAttribute[Learned, Spec](lambda learned: learned.source or Spec(names=learned.features.names))
    reconstruction_err_ = FittedAttribute[Learned, float](lambda learned: learned.reconstruction_error)

    @property
    def n_skipped_(self) -> int:
        """Samples and batches left out under ``on_error="skip"``."""
        return self._skipped.count

    @property
    def skipped_(self) -> list[str]:
        """The reasons why the last hundred samples or batches were left out."""
        return list(self._skipped.reasons)

    # Learning

    def fit(
        self,
        X: Data,
        y: Any = None,
        *,
        layer: str | None = None,
        sample_weight: ArrayLike | None = None,
        weights: Data | None = None,
        checkpoint: Checkpoint | str | Path | None = None,
        resume: bool = False,
        resume_from: OnlineNMF | str | Path | None = None,
    ) -> Self:
        """Learn the dictionary from X afresh: an array, sparse matrix, data frame, ``Source`` or iterator of batches.

        A list of texts is read as ``onmf.data.texts`` does, into counts of words.

        From an AnnData object it learns ``adata.X``, or a ``layer``, with the names of the genes; one
        that is backed by a file is read in pieces. A dask array or data frame, or ``onmf.distributed.partitioned``, is
        learnt from on Dask's workers, in rounds.

        With a ``checkpoint`` (a file name, or an ``onmf.Checkpoint``) the state of the run is written to that file
        every thirty seconds and at the end, be it an error or Ctrl-C. With ``resume`` too, learning continues where the
        run in that file stopped in the same data, if there is one: the result is that of one uninterrupted ``fit``, bit
        for bit. Files that were added to a folder since are learnt after those that were there, and what a pipe brings
        is taken for what follows ``n_lines_consumed_``.

        A sample counts as often as its ``sample_weight`` says, and not at all if that is zero. ``weights``, of the
        shape of X, weigh its entries: an entry of weight zero is missing. Both belong to arrays; a table in a file has
        its own: ``?weight=COLUMN``.

        With ``resume_from``, a fitted model or its file, learning is not begun afresh: X are new data for that model.

        Parameters
        ----------
        X : Data
            The samples, one per row.
        y : None
            Ignored; scikit-learn passes it.
        layer : str or None
            The layer of an AnnData object that is read instead of its ``X``.
        sample_weight : array (n,) or None
            How often each sample counts.
        weights : array of the shape of X, or None
            The weight of each entry.
        checkpoint : Checkpoint, str, Path or None
            The file that keeps the state of the run.
        resume : bool, default False
            Whether to continue the run in that file.
        resume_from : OnlineNMF, str, Path or None
            A fitted model, or its file, that learns from X in addition.

        Returns
        -------
        OnlineNMF
            The fitted estimator itself.

        Examples
        --------
        >>> model = OnlineNMF(3, random_state=0).fit(X)
        >>> more = OnlineNMF(3, random_state=0).fit(X[:20], resume_from=model)
        >>> model.n_samples_seen_, more.n_samples_seen_
        (60, 80)
        """
        self._check_settings()
        if self.n_init > 1:
            if checkpoint is not None or resume or resume_from is not None:
                raise ValueError("n_init fits several models; a checkpoint or resume_from is of one: set n_init=1.")
            return self._fit_best(X, sample_weight=sample_weight, weights=weights)
        with threads.learning_alone(self):
            X, configured = layer_of(X, layer), self._configured()
            if checkpoint is None and resume:
                raise ValueError(
                    "resume=True continues the run in a checkpoint; pass checkpoint= as well. "
                    "To continue a finished model with new data, use resume_from=."
                )
            keep = None if checkpoint is None else Checkpoint.of(checkpoint)
            with nullcontext() if keep is None else keep.locked():
                return self._fit(X, (sample_weight, weights), configured, keep, resume, resume_from)

    def _fit(
        self,
        X: Data,
        weights: Weights,
        configured: _Configured,
        keep: Checkpoint | None,
        resume: bool,
        resume_from: Any,
    ) -> Self:
        """Learn, and write checkpoints to a file that no other run writes."""
        recipe, reading, configured.learned = configured.recipe, configured.reading, None
        settings, begun = self.get_params(deep=False), None
        if keep is not None:
            reading = replace(reading, keeps_digests=True, verify=keep.verify)
            settings["divergence"] = model_file.lasting(self.divergence, recipe.divergence)
            begun = keep.opened(settings, resume)  # before the data are touched
        same_data = begun is not None or resume_from is None  # a run in the checkpoint comes before its first model
        if not same_data:
            begun = _learned_by(resume_from, recipe.divergence)
        grows = False
        if begun is not None and resume_from is not None:
            grows = may_grow(recipe, begun, self.features, is_distributed(X))
        if are_texts(X):
            like = None if begun is None else begun.source or Spec(names=begun.features.names)
            X = texts(X, like, grows and not same_data)
        source, features = self._source(X, weights, recipe.device)
        if begun is not None and grows and isinstance(source, Source) and features.names is not None:
            features = begun.features if same_data else next_features(begun, features, self.max_features)
            source = with_features(source, features.names or (), np.nan if begun.masked else 0.0)
        elif begun is not None and not same_data:
            require_same_features(features, begun.features, "the input", cure=cure_by_like(source, begun.source))
        if begun is not None:
            forget = keep is not None and keep.forget_removed
            begun = _resumed(recipe, begun, same_data, source, features, forget)
        elif self.n_components > features.number:
            warn_of_too_many(self.n_components, features.number, vars(self))
        before, learned, raised, samples = self._learned, begun, 0, 0
        if same_data:
            self._learned = begun or before
        listeners = self._listeners()
        try:
            with ended_by_interrupts(), nullcontext() if keep is None else Keeper(keep, settings, begun) as keeper:
                for learned, progress in self._run(recipe, source, reading, features, begun):
                    self._learned = learned
                    if keeper is not None:
                        keeper.learned = learned
                    ended = False
                    if progress is not None:
                        if learned.passes == 1:
                            raised, samples = raised + progress.raised, samples + progress.new
                        ended = self._notify(progress, listeners)
                    if keeper is not None:
                        keeper.write_if_due()
                    if ended:
                        break
            _warn_if_raised(learned, begun, raised, samples)
            if learned is not None and (advice := learned.advice()):
                warnings.warn(advice, ConvergenceWarning, stacklevel=2)
            if learned is not None and learned.coverage and (found := learned.coverage.findings(features.names)):
                warnings.warn(" ".join(found.values()), UserWarning, stacklevel=3)
        except Exception:
            self._learned = before  # an error leaves the model as it was, Ctrl-C keeps what was learnt
            raise
        return self

    def partial_fit(
        self, X: Data, y: Any = None, *, sample_weight: ArrayLike | None = None, weights: Data | None = None
    ) -> Self:
        """Learn from one more batch, or in one pass over data of Dask. An error leaves the model as it was.

        A model learns in one thread at a time, while any number of threads may use what it has learnt so far.

        Parameters
        ----------
        X : Data
            A batch of samples, one per row.
        y : None
            Ignored; scikit-learn passes it.
        sample_weight : array (n,) or None
            How often each sample counts.
        weights : array of the shape of X, or None
            The weight of each entry.

        Returns
        -------
        OnlineNMF
            The estimator itself.

        Examples
        --------
        >>> stream = OnlineNMF(3, random_state=0)
        >>> for batch in np.array_split(X, 4):
        ...     stream = stream.partial_fit(batch)
        >>> stream.n_samples_seen_
        60
        """
        with threads.learning_alone(self):
            configured, before = self._configured(), self._learned
            if self.n_init > 1:
                raise ValueError("partial_fit continues one model, and n_init fits several: set n_init=1, or call fit.")
            begun = before
            if before is not None and configured.learned is not before:  # else it was learnt with these settings
                begun = learner.continued(configured.recipe, before)
            try:
                if type(X) is not np.ndarray and is_distributed(X):
                    self._learn_partitions(X, (sample_weight, weights), configured, begun)
                else:
                    self._learn_batch(X, (sample_weight, weights), configured.recipe, begun)
            except Exception:
                self._learned = before  # as in fit: an interrupt keeps what was learnt, an error does not
                raise
            configured.learned = self._learned
            return self

    def _learn_partitions(self, X: Any, weights: Weights, configured: _Configured, begun: Learned | None) -> None:
        recipe, reading = configured.recipe, replace(configured.reading, max_passes=1, shuffle=False)
        data, features = self._source(X, weights, recipe.device)
        if begun is not None:
            require_same_features(features, begun.features)
            begun = replace(begun, position=None)
        unlearned, raised, samples = self._unlearned if begun is None else Skipped(), 0, 0
        for learned, progress in self._run(recipe, data, reading, features, begun):
            self._learned = replace(learned, position=None, skipped=unlearned + learned.skipped)
            if progress is not None:
                raised, samples = raised + progress.raised, samples + progress.new
                self._notify(progress, self._listeners())
        _warn_if_raised(self._learned, begun, raised, samples)

    def _learn_batch(self, X: Any, weights: Weights, recipe: Recipe, begun: Learned | None) -> None:
        rows, first = given_rows(weights[0]), begun is None
        try:
            batch, features = self._batch(X, weights, recipe, begun)
        except ValueError as error:
            if first or self.on_error == "raise":
                raise
            self._skip(error)
            return
        try:
            if begun is None:
                host = batch.on_host()
                require_valid_entries(host, rows, features.names)
                warn_of_too_many(self.n_components, features.number, vars(self))
                begun = learner.begin(recipe, host, features, generators(self.random_state)[0], rows)
                begun = replace(begun, source=Spec("text", {"ngrams": 1}, features.names) if are_texts(X) else None)
            else:
                begun = grown(begun, features, batch)
            learned, progress = learner.step(recipe, begun, batch, rows)
        except DataError as error:
            if self.on_error == "raise":
                raise
            self._skip(error)
            return
        self._learned = replace(learned, skipped=self._unlearned) if first else learned
        _warn_if_raised(learned, begun, progress.raised, progress.new)
        self._notify(progress, self._listeners())

    def _run(
        self, recipe: Recipe, data: Source | Partitions, reading: Reading, features: Features, begun: Learned | None
    ) -> Iterator[tuple[Learned, Progress | None]]:
        """Learn batch by batch or, from partitions, round by round."""
        given = reading, features, generators(self.random_state), begun
        if isinstance(data, Source):
            return learner.run(recipe, data, *given)
        require_shards(recipe)
        from onmf.distributed.driver import Driver  # an optional dependency

        return Driver(recipe, data, *given, self.shards).run()

    def _notify(self, progress: Progress, listeners: list[Callable[[Progress], Any]]) -> bool:
        """Call every listener; tell whether one of them wishes to end the fit."""
        wishes = [listener(progress) for listener in listeners]  # every one is called
        return any(wishes)

    # What cannot be learnt from

    @property
    def _skipped(self) -> Skipped:
        return self._unlearned if self._learned is None else self._learned.skipped

    def _skip(self, error: Exception) -> None:
        log.warning("Skipped a batch: %s", error)
        skipped = self._skipped.and_also(error)
        if self._learned is None:
            self._unlearned = skipped
        else:
            self._learned = replace(self._learned, skipped=skipped)

    # Settings

    def _configured(self) -> _Configured:
        """Check the settings and return them as the learner needs them; they are cached until one is replaced."""
        given = [getattr(self, name) for name in NAMES]
        found = self._configuration
        if found is not None and all(map(operator.is_, given, found.given)):
            return found
        self._check_settings()
        if not isinstance(self.features, str) or self.features not in ("auto", "fixed", "grow"):
            raise ValueError(f"features must be 'auto', 'fixed' or 'grow', got {self.features!r}.")
        require_whole(1, max_features=self.max_features)
        if self.shards is not None:
            require_whole(1, shards=self.shards)
        settings = dict(zip(NAMES, given, strict=True)) | {"device": self._device()}
        reading = Reading.of(settings)
        found = _Configured(given, Recipe.of(settings), reading)
        if isinstance(self.init, str) and self.fixed is None:  # arrays may be changed in place
            self._configuration = found
        return found

    def __getstate__(self) -> Any:
        """Leave out the configuration: the device that "auto" means is another one elsewhere."""
        return {**super().__getstate__(), "_configuration": None}

    # Data

    def _source(self, X: Any, weights: Weights, device: str | None) -> tuple[Source | Partitions, Features]:
        """Return X as a source of batches, or as partitions, and its features."""
        if is_distributed(X):
            partitions = partitions_of(X, *weights, self.implicit)
            return partitions, Features.of(partitions.n_features, partitions.feature_names)
        if isinstance(X, Source) or is_stream(X):
            require_no_weights(*weights)
            source = X if isinstance(X, Source) else Batches(X)
            return source, Features.of(source.n_features, source.feature_names)
        if is_tensor(X):
            require_samples(X, device)
            if device is not None and X.is_cuda and self._can_stay_on_device(weights):
                return _on_device(X, device, dtype_of(X)), Features(X.shape[1])
            X = as_array(X)
        X, features = self._validated(X, reset=True)
        self._warn_if_nothing_is_missing(X, weights[1], stacklevel=5)
        if device is not None and self._can_stay_on_device(weights):
            from onmf.device.transfer import fits  # an optional dependency

            if fits(X, device):
                return _on_device(X, device, X.dtype), features
        X = weighted(X, *weights, self.implicit)
        if self.on_error == "raise" and self.missing is None:
            require_valid_entries(X, given_rows(weights[0]), features.names)
        rows = Rows(X)
        rows.feature_names = None if features.names is None else list(features.names)
        return rows, features

    def _batch(self, X: Any, weights: Weights, recipe: Recipe, begun: Learned | None) -> tuple[Samples, Features]:
        """Return one batch to learn from, a tensor on the device, and its features."""
        device, grows = recipe.device, begun is not None and may_grow(recipe, begun, self.features)
        if is_tensor(X):
            require_samples(X, device, None if begun is None else begun.state.W.shape[1])
            if device is not None and self._can_stay_on_device(weights):
                _, batch = next(iter(_on_device(X, device, dtype_of(X)).batches(len(X))))
                return Samples(batch), Features(X.shape[1])
            X = as_array(X)
        X, features = self._validated(X, reset=begun is None or grows, grow=grows, learning=True)
        samples = weighted(X, *weights, self.implicit)
        if begun is not None and grows and features.names is not None:
            found, features = features.names, next_features(begun, features, self.max_features)
            samples = with_columns(as_samples(samples), found, features.names or (), np.nan if begun.masked else 0.0)
        elif grows and begun is not None:
            require_same_features(features, begun.features)
        return as_samples(samples, self.missing, self.implicit, learning=True), features

    def _can_stay_on_device(self, weights: Weights) -> bool:
        """Tell whether data can stay on the device: no weights, missing or skipped entries need the host."""
        plain = all(each is None for each in weights) and self.missing is None and self.implicit == "zero"
        return plain and self.on_error == "raise"


def _warn_if_raised(learned: Learned | None, begun: Learned | None, count: int, samples: int) -> None:
    """Warn of entries of these samples that were raised, unless the model that was ``begun`` has been warned of."""
    if learned is not None and count and not (begun is not None and begun.raised):
        warn_raised(learned.divergence, count, 0 if learned.masked else samples * learned.features.number)


def _on_device(X: Any, device: str, dtype: Any) -> Source:
    """Return X as a source that stays on a device over all passes."""
    from onmf.device.transfer import DeviceSource, moved

    there = moved(X, device)
    there = there if is_tensor(X) else replace(there, given=X)  # which the host holds anyway
    if not there.sound:
        require_valid_entries(as_array(X) if is_tensor(X) else X)
    return DeviceSource(there, dtype)


def _learned_by(resume_from: Any, own: Divergence) -> Learned:
    """Return the learnt part of the model that ``resume_from`` names."""
    if isinstance(resume_from, (str, Path)):
        return model_file.read(resume_from, own)[1]
    learned = getattr(resume_from, "_learned", None)
    if not isinstance(learned, Learned):
        what = "a model that has learnt nothing" if hasattr(resume_from, "fit") else type(resume_from).__name__
        raise TypeError(f"resume_from takes the file of a model, or a fitted OnlineNMF; got {what}.")
    return learned


def _resumed(
    recipe: Recipe, learned: Learned, same_data: bool, source: Source | Partitions, features: Features, forget: bool
) -> Learned:
    """Return the learnt model, ready to continue with these settings in these data, or raise an error."""
    if not same_data:
        return replace(learner.continued(recipe, learned), position=None, passes=0)
    data = source if isinstance(source, Source) else len(source)
    learned = learner.settled(learned, data, forget)
    learner.require_position(learned, data, features)
    return learner.continued(recipe, learned)
