"""``OnlineNMF``: the scikit-learn skin of the learner. No mathematics here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

from onmf.divergences import Divergence
from onmf.estimators.fitting import Fitting
from onmf.estimators.resume import kept_in
from onmf.learner import Progress
from onmf.methods import Choice
from onmf.model.sets import Sets
from onmf.persistence.checkpoint import Checkpoint


class OnlineNMF(Fitting):
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
    method : str or method, default "auto"
        A name (``onmf.methods.names()``), a name with constants (``"paper:tau=5"``), or an object (``Paper(tau=5)``).
        "auto": surrogate; where they apply, sparse_surrogate if less than 15 % of the first batch's entries are not
        zero, em below 3 %; ``method_`` says which. "surrogate": an averaged quadratic model per feature, Newton's
        coefficients: few samples to a good W. "sparse_surrogate": the same at the non-zeros, for kl, hellinger and
        alpha > 0. "em": accumulated multiplicative statistics for the same, O(nnz K). "paper": Algorithms 1 to 3,
        stochastic projected subgradient steps: the one with a theorem. "lefevre", "guan", "wang": earlier methods, for
        is, squared_l2 and huber alone, to compare with.
    batch_size : int or None, default None
        Samples read at a time by ``fit``; None means max(5 K, 200), or more once the method's chunks are larger. The
        first batch sets the scale and the start.
    max_passes : int, default 1
        Passes of ``fit`` over the data.
    shuffle : bool, default True
        Whether ``fit`` shuffles the samples in each pass.
    init : {"kmeans++", "uniform", "samples", "nndsvda"} or array (K, F), default "kmeans++"
        The initial dictionary; with ``fixed`` an array (K - J, F), of the atoms that are learnt. An array outside the
        set C is brought in by a change of units; on the simplex it is in the data's units, and ``fixed`` too.
    fixed : array (J, F) or None, default None
        Atoms that are known: the first J of the K stay as they are, to the bit, and the other K - J are learnt beside
        them. Those with entries above 1 are divided by their largest; their coefficients take up the scale. With all
        atoms known, ``fit`` learns the scale and shows in ``history_`` how well they fit.
    scale : {"mean", "none"}, default "mean"
        "mean": compute on X divided by the mean of the first batch, the reading of the paper that converges.
        "none": the literal reading.
    clip : (low, high) or None, default None
        Clip the data first: the paper's compact set V, in the data's units.
    missing : {None, "nan"}, default None
        "nan": entries that are NaN are unknown, and everything is learnt from the others; None: they are an error.
    implicit : {"zero", "missing"}, default "zero"
        What a sparse X does not store: zeros, or entries that are unknown, as in ratings.
    coefficients : {"nonnegative", "simplex"}, default "nonnegative"
        "simplex": those of a sample sum to one, as the abundances of unmixing do. W is then in the data's units, with
        no upper bound, and X * c gives W * c with the same H. By methods surrogate and paper; "auto" takes the first.
    l1_coefficients, l2_coefficients, l1_dictionary, l2_dictionary : float, default 0
        Prices of ||h||_1, ||h||^2 / 2, ||W||_1 and ||W||_F^2 / 2 on top of the mean loss, with W <= 1. They are in
        internal units (X divided by the mean of the first batch), so that X times a constant gives the same W. l1 makes
        sparse, l2 small; a price on the dictionary needs one on the coefficients. The theorem needs l2_coefficients.
    sets : Sets or None, default None
        The constants of the paper's sets C and H, in internal units; None: Sets(eps=1e-8, eps_prime=1e-8, U=1e8).
    reservoir : int, default 0
        For streams in temporal order: so many samples are remembered, drawn evenly from all seen, and three of them are
        mixed with every new one. Some hundreds suffice; a sample then costs four times as much.
    transform_tol, transform_max_iter : float and int, default 1e-4 and 5000
        When coefficients count as found in ``transform``, ``loss``, ``score`` and ``stationarity``: see
        ``onmf.coefficients.base``.
    on_error : {"raise", "skip"}, default "raise"
        "skip" leaves out, counts in ``n_skipped_`` and logs what cannot be learnt from: ``fit`` each bad row (NaN,
        infinite, negative or unreadable) and batches of too large numbers, ``partial_fit`` the batch that it was given.
        ``transform`` of a stream gives rows of NaN for them.
    shards : int or None, default None
        Of data in partitions (dask arrays and data frames, ``onmf.distributed.partitioned``), how many pieces are
        learnt from at the same time at most, whatever the number of workers; None: one per partition, up to 64.
    device : {None, "auto", "cuda", "cuda:NUMBER", "cpu"}, default None
        Where to compute. None: on the processor, by compiled code. "cuda": on a GPU, by PyTorch (``onmf[gpu]``);
        "auto": on a GPU if there is one that can be used, else as None. "cpu": by PyTorch on the processor, to try what
        a GPU would do; slower than None. On a device, separable divergences are learnt by method surrogate; tensors are
        taken as they are, and ``transform`` gives a tensor where X is one. Data in single precision are faster.
    random_state : int, RandomState, Generator or None, default None
        Seeds the initial dictionary and the shuffling.
    callbacks : list of callables or None
        Each is called with a ``Progress`` after every batch; one that returns True ends ``fit``.
    verbose : int, default 0
        1 prints a line of progress every second, 2 after every batch.

    Attributes
    ----------
    components_ : array (K, F)
        The dictionary W, entries in [0, 1]; every atom's largest is 1 under the default methods. With
        ``coefficients="simplex"``, in the data's units.
    divergence_ : Divergence
        The divergence in the data's units, with all parameters known.
    method_ : Method
        The method in use, with all constants known: what "auto" has chosen.
    scale_ : float
        The internal unit: the mean of the first batch, or 1.
    delta_ : float
        Huber's delta. If none was given, the fast methods let it follow the residuals: 1.345 times their running
        median absolute value.
    n_components_, n_samples_seen_, n_steps_, n_iter_ : int
        K, samples learnt from, dictionary updates, passes.
    usage_ : array (K,)
        Each atom's share of all that was fitted: the mean of the samples' ``proportions`` as they were learnt from.
    n_skipped_, skipped_ : int and list of str
        Samples and batches left out under ``on_error="skip"``, and the reasons of the last hundred.
    guarantee_ : str
        What the paper's theorem promises for this model, and which of its assumptions this run does not meet.
    reconstruction_err_ : float
        sqrt(2 sum of d(x || hW)) over the samples of the last pass, as in scikit-learn, estimated from the losses that
        they had just before they were learnt from. ``loss(X)`` measures precisely.
    history_ : dict of arrays "samples", "seconds", "loss"
        After every batch: the samples and seconds so far, and the mean loss of its samples, each just before it was
        learnt from. Of a long run every second, fourth, ... entry of the past is kept, some thousands in all.
    source_ : onmf.data.Spec
        How the features were made, for ``open_source(text, like=model.source_)``: other data are then read alike.
    n_features_in_, feature_names_in_
        As in scikit-learn.
    """

    def __init__(
        self,
        n_components: int = 40,
        *,
        divergence: Divergence | str = "kl",
        method: Choice | str = "auto",
        batch_size: int | None = None,
        max_passes: int = 1,
        shuffle: bool = True,
        init: Any = "kmeans++",
        fixed: Any = None,
        scale: str = "mean",
        clip: tuple[float, float] | None = None,
        missing: str | None = None,
        implicit: str = "zero",
        coefficients: str = "nonnegative",
        l1_coefficients: float = 0.0,
        l2_coefficients: float = 0.0,
        l1_dictionary: float = 0.0,
        l2_dictionary: float = 0.0,
        sets: Sets | None = None,
        reservoir: int = 0,
        transform_tol: float = 1e-4,
        transform_max_iter: int = 5000,
        on_error: str = "raise",
        shards: int | None = None,
        device: str | None = None,
        random_state: Any = None,
        callbacks: Collection[Callable[[Progress], Any]] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.divergence = divergence
        self.method = method
        self.batch_size = batch_size
        self.max_passes = max_passes
        self.shuffle = shuffle
        self.init = init
        self.fixed = fixed
        self.scale = scale
        self.clip = clip
        self.missing = missing
        self.implicit = implicit
        self.coefficients = coefficients
        self.l1_coefficients = l1_coefficients
        self.l2_coefficients = l2_coefficients
        self.l1_dictionary = l1_dictionary
        self.l2_dictionary = l2_dictionary
        self.sets = sets
        self.reservoir = reservoir
        self.transform_tol = transform_tol
        self.transform_max_iter = transform_max_iter
        self.on_error = on_error
        self.shards = shards
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    # Learning

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        weights: Any = None,
        checkpoint: Checkpoint | str | Path | None = None,
        resume: bool = False,
        resume_from: OnlineNMF | str | Path | None = None,
    ) -> Self:
        """Learn the dictionary from X afresh: an array, sparse matrix, data frame, ``Source``, iterator of batches.

        Of an AnnData object it is ``adata.X``, with the names of the genes; pass a layer as ``adata.layers[...]``.
        A dask array or data frame, or ``onmf.distributed.partitioned``, is learnt from on Dask's workers, in rounds.

        With a ``checkpoint`` (a file name, or an ``onmf.Checkpoint``) the state of the run is written to that file
        every thirty seconds and at the end, be it an error or Ctrl-C. With ``resume`` too, learning continues where the
        run in that file stopped in the same data, if there is one: the result is that of one uninterrupted ``fit``, to
        the bit. Files that were added to a folder since are learnt after those that were there.

        A sample counts as often as its ``sample_weight`` says, and not at all if that is zero. ``weights``, of the
        shape of X, weigh its entries: an entry of weight zero is missing. Both belong to arrays; a table in a file has
        its own: ``?weight=COLUMN``.

        With ``resume_from``, a fitted model or its file, learning is not begun afresh: X are new data for that model.
        """
        recipe, keep = self._recipe(), kept_in(checkpoint, resume)
        with keep.alone() if keep is not None else nullcontext():
            return self._fit(X, (sample_weight, weights), recipe, keep, resume, resume_from)

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, weights: Any = None) -> Self:
        """Go on learning from one more batch, or in one pass over data of Dask. An error leaves the model as it was."""
        return self._fit_more(X, (sample_weight, weights), self._recipe())
