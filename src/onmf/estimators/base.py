"""``NMF``: the parameters that both estimators share, and how a fitted model is used. Nothing here learns."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from onmf._support import threads
from onmf._support.arrays import Array, Data, is_dask, is_tensor
from onmf._support.checks import RandomState, generators, require_at_least, require_seed, require_whole
from onmf.data import Source, Spec, texts
from onmf.data.columns import Features
from onmf.data.in_memory import are_texts, as_stream, is_stream
from onmf.data.inputs import as_numpy, layer_of, matrix_of, require_same_features
from onmf.device.choose_device import device_of
from onmf.device.tensors import as_array, require_samples
from onmf.distributed import Partitions
from onmf.divergences import Divergence
from onmf.estimators import description, streaming
from onmf.estimators.attributes import FittedAttribute, constants_in, with_constants
from onmf.estimators.inference import Inference, like, on_host
from onmf.estimators.messages import NOTHING_IMPLICIT, NOTHING_IN_THEM, printer
from onmf.estimators.streaming import OnBad, PicklableModel, share_rows, solve_rows, usual_size, warning_once
from onmf.insight.features import source_of
from onmf.learner import Fitted, Progress
from onmf.model.sets import Sets
from onmf.model.units import checked_clip
from onmf.model.validation import require_finite_values, require_valid_entries
from onmf.samples import as_samples, checked_missing, given_rows, weighted
from onmf.topics import Representatives, leading_features, ranked, suited_ranking

if TYPE_CHECKING:
    from anndata import AnnData

PRECISIONS = (np.dtype(np.float64), np.dtype(np.float32))


def is_distributed(X: Data) -> bool:
    """Tell whether X lies, or is read, in partitions."""
    return isinstance(X, Partitions) or is_dask(X)


def _names(fitted: Fitted) -> Any:
    names = fitted.features.names
    return None if names is None else np.asarray(names, dtype=object)


class _Frames(TransformerMixin):
    """scikit-learn wraps ``transform``, so that it gives the data frame that a model's ``set_output`` asks for."""

    def transform(self: Any, X: Data, H: Array) -> Any:
        """Return H, which belongs to X."""
        return H


@dataclass(eq=False, repr=False)
class NMF(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[call-arg] # untyped there
    """The base of the estimators: it holds one ``Fitted``, shows it through attributes, and uses its dictionary.

    scikit-learn does not wrap its ``transform``, which may give an iterator: arrays become data frames by ``_Frames``.
    """

    n_components: int = 40
    _: KW_ONLY
    divergence: Divergence | str | float = "kl"
    init: str | ArrayLike | NMF = "kmeans++"
    n_init: int = 1
    fixed: ArrayLike | None = None
    coefficients: str = "nonnegative"
    clip: tuple[float, float] | None = None
    missing: str | None = None
    implicit: str = "zero"
    l1_coefficients: float = 0.0
    l2_coefficients: float = 0.0
    l1_dictionary: float = 0.0
    l2_dictionary: float = 0.0
    sets: Sets | None = None
    transform_tol: float = 1e-4
    transform_max_iter: int = 5000
    random_state: RandomState = None
    callbacks: Collection[Callable[[Progress], Any]] | None = None
    verbose: int = 0

    on_error: str = field(default="raise", init=False)  # a parameter of OnlineNMF, as is the device
    device: str | None = field(default=None, init=False)
    _learned: Fitted | None = field(default=None, init=False)

    components_ = FittedAttribute[Fitted, Array](lambda fitted: fitted.W)
    n_components_ = FittedAttribute[Fitted, int](lambda fitted: len(fitted.state.W))
    divergence_ = FittedAttribute[Fitted, Divergence](lambda fitted: fitted.divergence)
    scale_ = FittedAttribute[Fitted, float](lambda fitted: fitted.units.scale)
    n_samples_seen_ = FittedAttribute[Fitted, int](lambda fitted: fitted.history.samples)
    history_ = FittedAttribute[Fitted, dict[str, Array]](lambda fitted: fitted.history.columns())
    usage_ = FittedAttribute[Fitted, Array](lambda fitted: fitted.usage.shares)
    delta_ = FittedAttribute[Fitted, float](
        lambda fitted: getattr(fitted.divergence, "delta", None), "a fit with the divergence huber"
    )
    n_features_in_ = FittedAttribute[Fitted, int](lambda fitted: fitted.features.number)
    feature_names_in_ = FittedAttribute[Fitted, Any](_names, "a fit on data with names of features")

    # Parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; with ``deep``, also the constants of method, divergence and sets: ``method__tau``.

        Parameters
        ----------
        deep : bool, default True
            Whether to add the constants.

        Returns
        -------
        dict
            The values by their names.

        Examples
        --------
        >>> OnlineNMF(5, method="paper:tau=5").get_params()["method__tau"]
        5
        """
        params: dict[str, Any] = super().get_params(deep=False)
        return params | constants_in(params) if deep else params

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``method__tau=5`` replaces the method by one with that constant.

        Parameters
        ----------
        **params
            New values by their names.

        Returns
        -------
        OnlineNMF or BatchNMF
            The estimator itself.

        Examples
        --------
        >>> OnlineNMF(5, method="paper").set_params(method__tau=5).method.tau
        5
        """
        return super().set_params(**with_constants(params, self.get_params(deep=False)))

    # Coefficients, fits and losses

    def transform(self, X: Data, *, layer: str | None = None, weights: Data | None = None) -> Data:
        """Return the precise coefficients H (n, K) of X in the dictionary.

        X is an array, sparse matrix, data frame or AnnData object, of which ``layer`` is read if it is given; the genes
        of a model are found by their names, and those that X lacks count as zeros. A ``Source``, or an iterator of
        batches, gives an iterator of arrays, one per batch, in memory that does not grow; under ``on_error="skip"``
        their rows that cannot be read or transformed are logged and NaN, so that the others stay where they are.

        A dask array or data frame, or ``onmf.distributed.partitioned``, gives a dask array, which is computed on
        demand.

        Parameters
        ----------
        X : Data
            Samples with the features of the model.
        layer : str or None
            The layer of an AnnData object that is read instead of its ``X``.
        weights : array of the shape of X, or None
            The weight of each entry; an entry of weight zero is missing.

        Returns
        -------
        array (n, K), data frame, tensor, dask array, or iterator of arrays
            H, in the form that X has, or that ``set_output`` asks for.

        Examples
        --------
        >>> H = model.transform(X)
        >>> H.shape
        (60, 3)
        """
        if not isinstance(X, np.ndarray):
            if is_distributed(X):
                find, K = PicklableModel(self).coefficients, self.n_components_
                return streaming.map_partitions(self, X, find, K, "transform", weights=weights)
            given, X = X, layer_of(X, layer, None if self._learned is None else self._fitted.features)
            if isinstance(X, Source):
                parts = streaming.transform_source(self, X)
                return parts if X is given else np.concatenate(list(parts))
            if is_stream(X):
                return streaming.transform_batches(self, X)
        H = self._inference().coefficients(self._checked(X, weights))
        return H if is_tensor(H) else like(X, _Frames.transform(self, X, H))

    def _fit_best(self, X: Any, **given: Any) -> Self:
        """Fit models from ``n_init`` starts, and keep what the one with the lowest loss of these data has learnt."""
        if is_stream(X) or (isinstance(X, Source) and not X.rewinds):
            raise ValueError("n_init reads the data several times, and a stream gives them once: set n_init=1.")
        before, found, own = self._learned, [], (self.n_init, self.random_state)
        try:
            for seed in generators(self.random_state)[0].integers(2**53, size=self.n_init).tolist():
                self.n_init, self.random_state = 1, seed
                found.append((self.fit(X, **given).loss(X, **given), self._learned))
        except Exception:
            found = [(0.0, before)]
            raise
        finally:  # Ctrl-C keeps the best so far
            self.n_init, self.random_state = own
            self._learned = min(found, key=lambda each: each[0])[1] if found else self._learned
        return self

    def fit_transform(
        self, X: Data, y: Any = None, *, layer: str | None = None, weights: Data | None = None, **fit_params: Any
    ) -> Data:
        """Call ``fit``, and then ``transform`` of the same X with the same ``layer`` and ``weights`` of its entries.

        Parameters
        ----------
        X : Data
            Samples, one per row.
        y : None
            Ignored; scikit-learn passes it.
        layer : str or None
            The layer of an AnnData object that is read instead of its ``X``.
        weights : array of the shape of X, or None
            The weight of each entry.
        **fit_params
            Other arguments of ``fit``.

        Returns
        -------
        array (n, K) or data frame
            H, as ``transform`` gives it.

        Examples
        --------
        >>> OnlineNMF(3, random_state=0).fit_transform(X).shape
        (60, 3)
        """
        return self.fit(X, y, layer=layer, weights=weights, **fit_params).transform(X, layer=layer, weights=weights)

    def proportions(self, X: Data, *, layer: str | None = None) -> Data:
        """Return the share of every component in the fit of each sample (n, K): rows sum to one.

        Component k contributes h_k sum_f W_kf, and components have maximum 1, not sum 1, so that H alone does not tell.
        Coefficients on the simplex are shares already, but of the sample's contents: bright components carry more of
        its fit. A sample without any entry above zero, such as a text of unknown words, has no shares: its row is NaN.

        Parameters
        ----------
        X : Data
            Samples with the features of the model; a ``Source`` gives an iterator, as for ``transform``.
        layer : str or None
            The layer of an AnnData object that is read instead of its ``X``.

        Returns
        -------
        array (n, K) or data frame
            Shares that sum to one in each row.

        Examples
        --------
        >>> shares = model.proportions(X)
        >>> bool(np.allclose(shares.sum(axis=1), 1))
        True
        """
        if is_distributed(X):
            return streaming.map_partitions(
                self, X, PicklableModel(self).proportions, self.n_components_, "proportions"
            )
        given, X = X, layer_of(X, layer, None if self._learned is None else self._fitted.features)
        if isinstance(X, Source):
            parts = streaming.transform_source(self, X, shares=True)
            return parts if X is given else np.concatenate(list(parts))
        checked = self._checked(X)
        shares = streaming.shares_of(self, checked, on_host(self._inference().coefficients(checked)))
        if blank := int(np.isnan(shares[:, 0]).sum()):
            warnings.warn(f"{blank} of {len(shares)} samples {NOTHING_IN_THEM}.", UserWarning, stacklevel=2)
        return like(X, shares)

    def inverse_transform(self, X: Data) -> Data:
        """Return the fit H @ W of coefficients H (n, K).

        Parameters
        ----------
        X : array (n, K), data frame or dask array
            Coefficients, as ``transform`` gives them.

        Returns
        -------
        array (n, F), data frame or dask array
            The fit, in the units of the data.

        Examples
        --------
        >>> model.inverse_transform(model.transform(X)).shape
        (60, 30)
        """
        if is_distributed(X):
            find, F = PicklableModel(self).fit, self.n_features_in_
            return streaming.map_partitions(self, X, find, F, "inverse", coefficients=True)
        W, H = self._fitted.W, np.asarray(as_numpy(on_host(X)))
        if H.dtype.kind not in "buif":
            raise ValueError(f"inverse_transform takes coefficients that are real numbers, got {H.dtype}.")
        if H.ndim != 2 or H.shape[1] != len(W):
            raise ValueError(f"inverse_transform takes coefficients of shape (n, {len(W)}), got {H.shape}.")
        require_valid_entries(H)
        with threads.own_threads():
            fit = H @ (W.astype(H.dtype, copy=False) if H.dtype == np.float32 else W)
        require_finite_values(fit, H, self._fitted.units.mean)
        return like(X, fit)

    def complete(self, X: Data, *, weights: Data | None = None) -> Data:
        """Return X (n, F) with its missing entries filled by the fit; all other entries stay as they are.

        An entry is missing if it is NaN, of weight zero or, with ``implicit="missing"``, not stored in a sparse X. A
        sample whose entries are all missing is filled with zeros.

        Parameters
        ----------
        X : array (n, F), sparse matrix or data frame
            Samples with missing entries.
        weights : array of the shape of X, or None
            The weight of each entry; an entry of weight zero is missing.

        Returns
        -------
        array (n, F) or data frame
            X without missing entries.

        Examples
        --------
        >>> known = X.copy()
        >>> known[0, 5] = np.nan
        >>> tolerant = OnlineNMF(3, missing="nan", random_state=0).fit(known)
        >>> filled = tolerant.complete(known)
        >>> bool(np.isfinite(filled).all()), bool((filled[1:] == X[1:]).all())
        (True, True)
        """
        samples = self._checked(on_host(X), weights)
        if not samples.masked:
            cure = NOTHING_IMPLICIT if self.implicit == "missing" else "set missing='nan', or implicit='missing'"
            raise ValueError(f"complete needs to know what is missing: {cure}.")
        fit = self.inverse_transform(self._inference().coefficients(samples)).astype(samples.dtype, copy=False)
        dense = samples.densified()
        return like(X, np.where(dense.entry_weights > 0, dense.matrix, fit))

    def loss(self, X: Data, *, sample_weight: ArrayLike | None = None, weights: Data | None = None) -> float:
        """Return the mean divergence per sample at the precise coefficients, in the data's units.

        Entries that are not missing count, by their weights; penalties are no part of it. X is whatever ``fit`` takes;
        sources and iterators of batches are read once, in memory that does not grow.

        Parameters
        ----------
        X : Data
            Samples with the features of the model.
        sample_weight : array (n,) or None
            How often each sample counts.
        weights : array of the shape of X, or None
            The weight of each entry.

        Returns
        -------
        float
            The mean of d(x || hW) over the samples.

        Examples
        --------
        >>> model.loss(X) < OnlineNMF(1, random_state=0).fit(X).loss(X)
        True
        """
        if is_distributed(X):
            return streaming.loss_of_partitions(self, X, sample_weight, weights)
        if (source := as_stream(X)) is not None:
            streaming.require_no_weights(sample_weight, weights)
            return streaming.loss_of_source(self, source)
        return self._inference().loss(self._checked(X, weights, sample_weight))

    def score(
        self, X: Data, y: Any = None, *, sample_weight: ArrayLike | None = None, weights: Data | None = None
    ) -> float:
        """Return minus the loss: higher is better.

        Parameters
        ----------
        X : Data
            Samples with the features of the model.
        y : None
            Ignored; scikit-learn passes it.
        sample_weight : array (n,) or None
            How often each sample counts.
        weights : array of the shape of X, or None
            The weight of each entry.

        Returns
        -------
        float
            -loss(X).

        Examples
        --------
        >>> model.score(X) == -model.loss(X)
        True
        """
        return -self.loss(X, sample_weight=sample_weight, weights=weights)

    def stationarity(self, X: Data) -> float:
        """Return ||W - P_C(W - grad f(W))||_F in internal units, f being the mean loss over X with all penalties.

        It measures the distance from the critical points that the theorem is about; outside class D2 it only indicates
        it.

        Parameters
        ----------
        X : array (n, F), sparse matrix or data frame
            The samples of the mean loss.

        Returns
        -------
        float
            Zero at a critical point.

        Examples
        --------
        >>> longer = OnlineNMF(3, max_passes=50, random_state=0).fit(X)
        >>> longer.stationarity(X) < model.stationarity(X)
        True
        """
        return self._inference().stationarity(self._checked(on_host(X)))

    def served(
        self, source: Source, size: int, on_bad: OnBad | None = None, shares: bool = False
    ) -> Iterator[tuple[Any, Array]]:
        """Yield the coefficients of a source's batches of ``size`` rows, with the numbers or names of the rows.

        With ``shares`` they are proportions.

        Rows that cannot be read or solved raise an error, unless ``on_bad`` is given: it is called with the error, and
        the rows are NaN, so that the others stay where they are. Rows that the source leaves out are left out here too
        where rows have names, and where the source does not give them in the order of their numbers.
        """
        with warning_once(self) as inference:
            solve, width = partial(share_rows if shares else solve_rows, self, inference), self.n_components_
            yield from streaming.solve_source_rows(source, size, on_bad, solve, width, self.components_.dtype)

    def reconstructed(
        self, source: Source, size: int, on_bad: OnBad | None = None, coefficients: bool = False
    ) -> Iterator[tuple[Any, Array]]:
        """Yield the fits H @ W of a source's batches, which hold samples or, if ``coefficients``, H.

        Bad rows are treated as by ``served``.
        """

        def fit(rows: Any, X: Data) -> Array:
            if coefficients:
                X = as_samples(X).densified().matrix
                require_valid_entries(X, rows)
            return np.asarray(self.inverse_transform(X if coefficients else solve_rows(self, inference, rows, X)))

        with warning_once(self) as inference:
            width = self.n_features_in_
            yield from streaming.solve_source_rows(source, size, on_bad, fit, width, self.components_.dtype)

    # What the components are

    def top_features(self, n: int = 10, by: str | None = None) -> list[list[tuple[str, float]]]:
        """Return for every component its n leading features, the largest first: their names and their values.

        ``by="weight"``: the feature's share of the component. ``"lift"``: that share over the feature's share in all
        data, to which the mean feature's is added, so that rare ones do not win by chance. ``"relevance"``: a blend of
        both. ``"specificity"``: how far that share is above the next best component's, as a Kullback-Leibler
        divergence; for marker genes. The formulas are in ``onmf.topics``. Features without names are "feature 0",
        "feature 1", ...

        Parameters
        ----------
        n : int, default 10
            How many features of each component.
        by : {None, "relevance", "weight", "lift", "specificity"}
            What ranks them. None: lift for texts with their stop words, specificity for the genes of cells, relevance
            for other features.

        Returns
        -------
        list of K lists of (name, value)
            The largest value first.

        Examples
        --------
        >>> leading = model.top_features(4)
        >>> len(leading), len(leading[0])
        (3, 4)
        """
        fitted = self._fitted
        require_whole(1, n=n)
        by = suited_ranking(source_of(self)) if by is None else by
        return leading_features(ranked(fitted.W, fitted.usage.shares, by), n, fitted.features.names)

    def representative_samples(self, X: Data, n: int = 3) -> list[list[tuple[Any, float]]]:
        """Return for every component the n samples that show it best: their rows in X, and its share in each.

        X is a ``Source`` or what ``transform`` takes. A sample whose fit is as large as the mean one counts with half
        of the share: one of a few words may have all of it by chance.

        Parameters
        ----------
        X : Data
            Samples with the features of the model.
        n : int, default 3
            How many samples of each component.

        Returns
        -------
        list of K lists of (row, share)
            The best sample first.

        Examples
        --------
        >>> [len(samples) for samples in model.representative_samples(X, n=2)]
        [2, 2, 2]
        """
        require_whole(1, n=n)
        found, mass = Representatives(n, self.n_components_), self.components_.sum(axis=1)
        read = self.served(X, usual_size(X)) if isinstance(X, Source) else [(None, np.asarray(self.transform(X)))]
        for rows, H in read:
            found.add(range(len(H)) if rows is None else rows, H * mass)
        return found.leading

    def with_feature_names(self, names: Sequence[str]) -> Self:
        """Return the model with names for its features, such as ``pipeline[:-1].get_feature_names_out()``.

        Parameters
        ----------
        names : sequence of F str
            The names of the features, in the order of the columns.

        Returns
        -------
        OnlineNMF or BatchNMF
            A copy; the model itself keeps its names.

        Examples
        --------
        >>> model.with_feature_names(cells.genes).feature_names_in_[0]
        'gene00'
        """
        named = copy.copy(self)
        named._learned = replace(self._fitted, features=Features.of(self.n_features_in_, names))
        return named

    def for_pyldavis(self, X: Data) -> dict[str, Any]:
        """Return the arguments of ``pyLDAvis.prepare`` for a matrix of counts or texts, without blank ones.

        Parameters
        ----------
        X : array (n, F), sparse matrix, data frame or list of texts
            The counts of words in each document.

        Returns
        -------
        dict
            For ``pyLDAvis.prepare(**model.for_pyldavis(X))``.

        Examples
        --------
        >>> sorted(model.for_pyldavis(X))[:2]
        ['doc_lengths', 'doc_topic_dists']
        """
        return description.for_pyldavis(self, *self._validated(X, reset=False))

    def annotate(self, adata: AnnData, key: str = "onmf", layer: str | None = None) -> AnnData:
        """Write coefficients, components and settings into an AnnData object, in place, and return it.

        The coefficients of the cells go to ``obsm[f"X_{key}"]`` (cells, K), their shares of each cell's fit to
        ``obsm[f"X_{key}_shares"]``, the dictionary to ``varm[key]`` (genes, K), z-scores of the genes to
        ``varm[f"{key}_scores"]``, and the settings to ``uns[key]``. The genes are found by their names: those that the
        object lacks count as zeros, and those that the model lacks get the weights that fit them best beside these
        coefficients. ``layer`` is read instead of ``X``.

        Parameters
        ----------
        adata : AnnData
            Cells x genes; it is changed.
        key : str, default "onmf"
            The name under which the results are stored.
        layer : str or None
            The layer that is read instead of ``adata.X``.

        Returns
        -------
        AnnData
            The same object.

        Examples
        --------
        >>> adata = cells.anndata()
        >>> model = OnlineNMF(3, random_state=0).fit(adata)
        >>> model.annotate(adata).obsm["X_onmf"].shape
        (60, 3)
        """
        return description.annotate(self, adata, key, layer)

    def report(self, X: Data | None = None, path: str | Path = "report.html", *, title: str | None = None) -> Path:
        """Write a page about the model: components, convergence and warnings; with X, how it fits them.

        The page is one HTML file that needs no network. X is whatever ``transform`` takes: an array, sparse matrix,
        data frame, AnnData object, ``Source`` or iterator of batches; it is read once, in memory that does not grow.
        Rows of X that cannot be used are counted on the page. Needs ``onmf[report]``.

        Parameters
        ----------
        X : Data or None
            Samples to judge the fit by; None leaves that part out.
        path : str or Path, default "report.html"
            The file to write.
        title : str or None
            The heading of the page.

        Returns
        -------
        Path
            The file that was written.

        Examples
        --------
        >>> model.report(X, "report.html", title="Three programmes").name
        'report.html'
        """
        usual = f"{type(self).__name__} with {self.n_components_} components"
        description.write_report(self, X, path, title or usual)
        return Path(path)

    # What was learnt

    @property
    def _fitted(self) -> Fitted:
        if self._learned is None:
            check_is_fitted(self)
            raise AttributeError("nothing has been learnt yet.")
        return self._learned

    @property
    def _spec(self) -> Spec:
        """Return how the features of the model were made."""
        return getattr(self._fitted, "source", None) or Spec(names=self._fitted.features.names)

    def _inference(self) -> Inference:
        fitted = self._fitted
        device = None if fitted.divergence.absolute_deviations else self._device()  # those are linear programmes
        return Inference(fitted, self.sets, self.transform_tol, self.transform_max_iter, device)

    def _device(self) -> str | None:
        """Return the device that the setting means, if any."""
        return None if self.device is None else device_of(self.device)

    # Checks

    def _check_settings(self) -> None:
        """Raise an error for settings that no data could make work; the learner checks its own."""
        require_whole(1, n_components=self.n_components, n_init=self.n_init, transform_max_iter=self.transform_max_iter)
        require_at_least(0, transform_tol=self.transform_tol)
        if not isinstance(self.sets, (Sets, type(None))):
            raise TypeError(f"sets must be an onmf.Sets, as in Sets(eps=1e-8), got {self.sets!r}.")
        callbacks = () if self.callbacks is None else self.callbacks
        if not isinstance(callbacks, Collection) or not all(map(callable, callbacks)):
            raise ValueError(f"callbacks must be a list of functions that take a Progress, got {self.callbacks!r}.")
        require_whole(0, verbose=int(self.verbose) if isinstance(self.verbose, (bool, np.bool_)) else self.verbose)
        checked_clip(self.clip)
        checked_missing(self.missing, self.implicit)
        require_seed(self.random_state)

    def _listeners(self) -> list[Callable[[Progress], Any]]:
        """Return the user's callbacks, and the printer that ``verbose`` asks for."""
        listeners = [] if self.callbacks is None else list(self.callbacks)
        return [*listeners, printer(int(self.verbose))] if self.verbose else listeners

    def _checked(self, X: Any, weights: Any = None, sample_weight: Any = None) -> Any:
        """Return samples to use the model on, with their weights; bad ones raise an error."""
        learnt = self._fitted.features
        if is_tensor(X):
            device = self._device()
            require_samples(X, device, learnt.number)
            if device is not None and weights is None and sample_weight is None and self.missing is None:
                low, high = (float(each) for each in X.detach().aminmax())
                if not (low >= 0 and high < np.inf):
                    require_valid_entries(as_array(X))
                return X.detach()
            X = as_array(X)
        X, features = self._validated(X, reset=False)
        return self._as_samples(X, features, sample_weight, weights)

    def _as_samples(self, X: Any, features: Features, sample_weight: Any, weights: Any) -> Any:
        """Return ``Samples``: X with its weights, ``missing`` and ``implicit`` applied; bad entries raise an error."""
        missing, implicit = checked_missing(self.missing, self.implicit)
        X = as_samples(weighted(X, sample_weight, weights, implicit), missing, implicit)
        require_valid_entries(X, given_rows(sample_weight), features.names)
        return X

    def _validated(self, X: Any, *, reset: bool, grow: bool = False, learning: bool = False) -> tuple[Any, Features]:
        """Check shape, type and feature names by scikit-learn's rules; ``_as_samples`` checks the entries."""
        learnt = None if reset else self._fitted.features
        if type(X) is np.ndarray and X.ndim == 2 and X.size and X.dtype in PRECISIONS:  # scikit-learn takes it as it is
            if learnt is None:
                return X, Features(X.shape[1])
            if learnt.names is None and learnt.number == X.shape[1]:
                return X, learnt
        if are_texts(X):
            source: Any = texts(X, None if reset and not grow else self._spec, grow)
            found = Features.of(source.n_features, source.feature_names)
            if learnt is not None and not grow:
                require_same_features(found, learnt, "a list of texts")
            return source.X, found
        X, named = matrix_of(X, learnt, learning)
        options = {"accept_sparse": "csr", "dtype": list(PRECISIONS), "ensure_all_finite": False}
        if named is not None:
            if learnt is not None:
                require_same_features(named, learnt)
            return check_array(X, estimator=self, **options), named
        if learnt is not None:
            if learnt.names is None or learnt.of_frame or hasattr(X, "columns"):
                return validate_data(self, X, reset=False, **options), learnt
            X = check_array(X, estimator=self, **options)  # the names are of a file, or were given afterwards
            require_same_features(Features(X.shape[1]), learnt)
            return X, learnt
        # scikit-learn writes down the features that it finds: on a stand-in, so that a bad X changes nothing here.
        found = type(type(self).__name__, (BaseEstimator,), {})()
        X = validate_data(found, X, reset=True, **options)
        return X, replace(Features.of(found.n_features_in_, getattr(found, "feature_names_in_", None)), of_frame=True)

    def _warn_if_nothing_is_missing(self, X: Any, weights: Any, stacklevel: int) -> None:
        """Warn that ``implicit="missing"`` marks nothing in a dense X, unless something else marks missing entries."""
        if self.implicit == "missing" and self.missing is None and weights is None and isinstance(X, np.ndarray):
            warnings.warn(f"{NOTHING_IMPLICIT}.", UserWarning, stacklevel=stacklevel)

    # scikit-learn's conventions

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Any:
        """Return the names of the columns of H: component_0, component_1, ...

        Parameters
        ----------
        input_features : None
            Ignored; scikit-learn passes it.

        Returns
        -------
        array (K,) of str
            The names.

        Examples
        --------
        >>> list(model.get_feature_names_out())
        ['component_0', 'component_1', 'component_2']
        """
        return np.asarray([f"component_{k}" for k in range(self._fitted.state.W.shape[0])], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return self._learned is not None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = isinstance(self.missing, str) and self.missing == "nan"
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
