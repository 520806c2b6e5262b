"""Components in words: their leading features, and how often these occur together.

With p_kf = W_kf / sum_f W_kf, the shares of the features in component k, and u_k its share of a sample's fit, on
average, features are ranked by

- *weight*: p_kf;
- *lift*: p_kf / (p_f + 1/F), p_f = sum_k u_k p_kf being the feature's share over all components. The mean share 1/F is
  added since a feature that is rare everywhere may have a large quotient by chance alone: a feature as frequent as the
  mean one has half its lift, a frequent one nearly all, a rare one nearly none;
- *relevance*: p_kf / (p_f + 1/F)^(1 - lambda), weight for lambda = 1 and lift for 0, and for 0.4 a blend of both
  (Sievert and Shirley, ACL workshop on interactive language learning, 2014);
- *specificity*: p log(p / q) + q - p, the Kullback-Leibler divergence of p = p_kf from q, the largest p_jf of another
  component j; with a minus if p < q. Large for features that are both frequent in the component and absent elsewhere,
  as marker genes are (Dey, Hsiao and Stephens, PLoS Genetics 13(3), 2017). q is a tenth of 1/F at least.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from onmf._support.arrays import Array, Data, dense
from onmf.data import Spec

__all__ = [
    "RANKINGS",
    "Coherence",
    "coherence",
    "leading",
    "leading_features",
    "ranked",
    "relevance",
    "suited_ranking",
]

LAMBDA = 0.4  # of relevance
LEAST = 0.1  # of the mean share of a feature: a next best component with less of it does not have it at all


def _specificity(P: Array, usage: Array) -> Array:
    next_best = np.zeros_like(P)
    if len(P) > 1:
        second, first = np.partition(P, len(P) - 2, axis=0)[-2:]
        next_best = np.where(np.arange(len(P))[:, None] == P.argmax(axis=0), second, first)
    q = np.maximum(next_best, LEAST / P.shape[1])
    tiny = float(np.finfo(P.dtype).tiny)
    return np.sign(P - q) * (P * np.log(np.maximum(P, tiny) / q) + q - P)


def relevance(P: Array, usage: Array, blend: float = LAMBDA) -> Array:
    """Return the relevance of every feature to every component, given their shares P and the components' usage.

    Parameters
    ----------
    P : array (K, F)
        The share of each feature in each component.
    usage : array (K,)
        Each component's share of a sample's fit, on average.
    blend : float, default 0.4
        1 gives the weight, 0 the lift.

    Returns
    -------
    array (K, F)
        The relevance.

    Examples
    --------
    >>> P = model.components_ / model.components_.sum(axis=1, keepdims=True)
    >>> onmf.topics.relevance(P, model.usage_).shape
    (3, 30)
    """
    return P / (usage @ P + 1 / P.shape[1]) ** (1 - blend)


RANKINGS: dict[str, Callable[[Array, Array], Array]] = {
    "relevance": relevance,
    "weight": lambda P, usage: P,
    "lift": lambda P, usage: relevance(P, usage, 0.0),
    "specificity": _specificity,
}


def suited_ranking(source: Spec) -> str:
    """Return what ranks features best: specificity for genes, lift for texts with stop words, else relevance.

    Parameters
    ----------
    source : Spec
        How the features were made: ``model.source_``.

    Returns
    -------
    str
        What ``top_features``, the command line, plots and reports use unless you choose.

    Examples
    --------
    >>> onmf.topics.suited_ranking(model.source_)
    'relevance'
    """
    if source.scheme in ("h5ad", "10x"):
        return "specificity"
    options = source.options
    if "ngrams" in options and not options.get("stop") and not options.get("tfidf"):
        return "lift"
    return "relevance"


def ranked(W: Array, usage: Array, by: str = "relevance") -> Array:
    """Return the values (K, F) by which the features of every component are ranked.

    Parameters
    ----------
    W : array (K, F)
        The components.
    usage : array (K,)
        Each component's share of a sample's fit, on average.
    by : {"relevance", "weight", "lift", "specificity"}
        What ranks the features.

    Returns
    -------
    array (K, F)
        The larger, the earlier.

    Examples
    --------
    >>> onmf.topics.ranked(model.components_, model.usage_, by="lift").shape
    (3, 30)
    """
    if not isinstance(by, str) or by not in RANKINGS:
        raise ValueError(f"by must be one of {', '.join(RANKINGS)}, got {by!r}.")
    P = W.astype(np.float64)
    for size in (np.max, np.sum):  # the sum of large numbers may be beyond the range of numbers
        whole = size(P, axis=1, keepdims=True)
        P = P / np.where(whole > 0, whole, 1)
    return RANKINGS[by](P, usage)


def leading(values: Array, n: int) -> list[list[int]]:
    """Return the indices of the n largest values of each row, largest first; of equal ones, the first.

    Parameters
    ----------
    values : array (K, F)
        What ranks the features.
    n : int
        How many of each row.

    Returns
    -------
    list of K lists of int
        Numbers of columns.

    Examples
    --------
    >>> onmf.topics.leading(np.array([[0.1, 0.7, 0.2]]), 2)
    [[1, 2]]
    """
    return np.argsort(-values, axis=1, kind="stable")[:, :n].tolist()


def leading_features(values: Array, n: int, names: Sequence[str] | None = None) -> list[list[tuple[str, float]]]:
    """Return the names and values of the n leading features of each row; "feature 0", ... where they have no names.

    Parameters
    ----------
    values : array (K, F)
        What ranks the features.
    n : int
        How many of each row.
    names : sequence of str or None
        The names of the features.

    Returns
    -------
    list of K lists of (name, value)
        The largest value first.

    Examples
    --------
    >>> components = np.array([[0.1, 0.7, 0.2]])
    >>> onmf.topics.leading_features(components, 1, ["a", "b", "c"])
    [[('b', 0.7)]]
    """
    if names is not None and len(names) != values.shape[1]:
        raise ValueError(f"names has {len(names)} entries, but a component has {values.shape[1]} features.")
    return [
        [(f"feature {f}" if names is None else names[f], float(row[f])) for f in features]
        for row, features in zip(values, leading(values, n), strict=True)
    ]


class Representatives:
    """The samples, batch by batch, that show each component best: by its share, less for those of a small fit."""

    def __init__(self, n: int, n_components: int) -> None:
        self.n, self.size = n, 0.0
        self.best: list[list[tuple[float, float, Any]]] = [[] for _ in range(n_components)]

    def add(self, rows: Sequence[Any], parts: Array) -> None:
        """Take samples of these numbers or names, whose fits the components have these parts (n, K) in."""
        total = parts.sum(axis=1, keepdims=True)
        self.size = self.size or float(total.mean()) or 1.0
        scores = parts / (total + self.size)
        for k, leaders in enumerate(leading(scores.T, self.n)):
            news = [(float(scores[i, k]), float(parts[i, k] / total[i, 0]), rows[i]) for i in leaders]
            self.best[k] = sorted(self.best[k] + news, key=lambda each: -each[0])[: self.n]

    @property
    def leading(self) -> list[list[tuple[Any, float]]]:
        """The samples of each component, and its share in each."""
        return [[(row, share) for _, share, row in best] for best in self.best]


class Coherence:
    """Counts, batch by batch, of the documents in which pairs of a topic's words meet.

    Parameters
    ----------
    topics : sequence of sequences of int
        The features of each topic, by their numbers.

    Examples
    --------
    >>> found = onmf.topics.Coherence([[0, 1, 2]])
    >>> for batch in np.array_split(X, 3):
    ...     found.add(batch)
    >>> found.values().shape
    (1,)
    """

    def __init__(self, topics: Sequence[Sequence[int]]) -> None:
        self.words = np.unique(np.concatenate([np.asarray(topic, dtype=np.intp) for topic in topics]))
        self._places = [np.searchsorted(self.words, topic) for topic in topics]
        self._meet = [np.zeros((len(topic), len(topic))) for topic in topics]
        self.documents = 0

    def add(self, counts: Data) -> None:
        """Count documents, one per row of a sparse or dense matrix.

        Parameters
        ----------
        counts : array or sparse matrix (documents, words)
            A batch of documents.
        """
        there = np.asarray(dense(counts[:, self.words]) > 0, dtype=np.float64)
        for meet, places in zip(self._meet, self._places, strict=True):
            meet += there[:, places].T @ there[:, places]
        self.documents += len(there)

    def values(self) -> Array:
        """Return, for each topic, the mean normalised pointwise mutual information of pairs of its words.

        log(p_ij / (p_i p_j)) / -log p_ij, where p are the shares of documents that contain a word, or both. It lies
        between -1, for a pair that never meets, and 1; a pair that is in every document gets 1. One word alone is NaN.

        Returns
        -------
        array (K,)
            A number per topic.
        """
        return np.array([_mutual_information(meet / self.documents) for meet in self._meet])


def coherence(counts: Data, topics: Sequence[Sequence[int]]) -> Array:
    """Return the coherence (K,) of topics, each a list of features by their numbers, in counts (documents, words).

    Parameters
    ----------
    counts : array or sparse matrix (documents, words)
        The documents.
    topics : sequence of sequences of int
        The features of each topic, by their numbers.

    Returns
    -------
    array (K,)
        The mean normalised pointwise mutual information of pairs of words.

    Examples
    --------
    >>> onmf.topics.coherence(X, [[0, 1, 2], [3, 4, 5]]).shape
    (2,)
    """
    found = Coherence(topics)
    found.add(counts)
    return found.values()


def _mutual_information(p: Array) -> float:
    values = [
        2.0 * p[i, j] - 1.0 if p[i, j] in (0.0, 1.0) else np.log(p[i, j] / (p[i, i] * p[j, j])) / -np.log(p[i, j])
        for i, j in combinations(range(len(p)), 2)
    ]
    return float(np.mean(values)) if values else np.nan
