"""Data without download: the paper's planted dictionaries, simulated cells, docstrings of Python's library."""

import ast
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onmf._support.arrays import Array, Counts

if TYPE_CHECKING:
    from anndata import AnnData
    from scipy.sparse import csr_matrix

__all__ = ["Cells", "NoisySamples", "Planted", "Texts", "cells", "docstrings", "with_outliers"]

OFFSET, SIGMA = 1.0, 5.0  # the shifted half-normal distribution of W and H
GAMMA_SHAPE = 1000.0
GAUSSIAN_SIGMA = 30.0
OUTLIER_SHARE, OUTLIER_MAGNITUDE = 0.3, 2000.0
CLIP = (0.0, 4000.0)
NOISES = ("gamma", "poisson", "gaussian", "outliers")
NOISE_OF = {
    "is": "gamma",
    "kl": "poisson",
    "squared_l2": "gaussian",
    "huber": "outliers",
    "l1": "outliers",
    "l2": "outliers",
}


@dataclass(frozen=True)
class NoisySamples:
    """Noisy samples, and the same without noise.

    Attributes
    ----------
    V : array (n, F)
        The noisy samples.
    clean : array (n, F)
        The samples without noise.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> planted = onmf.data.examples.Planted.draw(20, 3, "gamma", rng)
    >>> found = planted.sample(100, rng)
    >>> bool(abs(found.V - found.clean).mean() < 0.1 * found.clean.mean())
    True
    """

    V: Array
    clean: Array


@dataclass(frozen=True)
class Planted:
    """A planted dictionary and an endless supply of noisy samples of it.

    Attributes
    ----------
    W : array (K, F)
        The dictionary.
    noise : str
        What is done to the samples.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> planted = onmf.data.examples.Planted.draw(20, 3, "poisson", rng)
    >>> planted.sample(100, rng).V.shape
    (100, 20)
    >>> [len(batch) for batch in planted.stream(100, 40, rng)]
    [40, 40, 20]
    """

    W: Array
    noise: str

    @classmethod
    def draw(cls, n_features: int, n_components: int, noise: str, rng: np.random.Generator) -> "Planted":
        """Draw W with entries from the shifted half-normal distribution.

        Parameters
        ----------
        n_features : int
            F.
        n_components : int
            K.
        noise : {"gamma", "poisson", "gaussian", "outliers"}
            What is done to the samples.
        rng : numpy.random.Generator
            Draws W.

        Returns
        -------
        Planted
            The dictionary.
        """
        if noise not in NOISES:
            raise ValueError(f"unknown noise {noise!r}; choose one of {', '.join(NOISES)}.")
        return cls(_half_normal(rng, (n_components, n_features)), noise)

    def sample(self, n: int, rng: np.random.Generator) -> NoisySamples:
        """Draw the next n samples, clipped to the paper's compact set [0, 4000].

        Parameters
        ----------
        n : int
            How many samples.
        rng : numpy.random.Generator
            Draws them.

        Returns
        -------
        NoisySamples
            The samples with and without noise.
        """
        clean = _half_normal(rng, (n, len(self.W))) @ self.W
        if self.noise == "outliers":
            V = with_outliers(clean, OUTLIER_MAGNITUDE, rng)
        elif self.noise == "gamma":
            V = rng.gamma(GAMMA_SHAPE, clean / GAMMA_SHAPE)
        elif self.noise == "poisson":
            V = rng.poisson(clean).astype(np.float64)
        else:
            V = rng.normal(clean, GAUSSIAN_SIGMA)
        return NoisySamples(np.clip(V, *CLIP), clean)

    def stream(self, n: int, batch_size: int, rng: np.random.Generator) -> Iterator[Array]:
        """Yield n samples in batches, never more than one batch in memory.

        Parameters
        ----------
        n : int
            How many samples.
        batch_size : int
            Samples of a batch.
        rng : numpy.random.Generator
            Draws them.

        Yields
        ------
        array (batch_size, F)
            The next noisy samples.
        """
        for first in range(0, n, batch_size):
            yield self.sample(min(batch_size, n - first), rng).V


def with_outliers(clean: Array, magnitude: float, rng: np.random.Generator) -> Array:
    """Add uniform noise from [-magnitude, magnitude] to 30 % of the entries of every sample.

    Parameters
    ----------
    clean : array (n, F)
        The samples.
    magnitude : float
        The largest outlier.
    rng : numpy.random.Generator
        Draws the outliers.

    Returns
    -------
    array (n, F)
        Noisy samples, some entries of which may be negative.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noisy = onmf.data.examples.with_outliers(X, 50.0, rng)
    >>> float((noisy != X).mean().round(2))
    0.3
    """
    n, F = clean.shape
    hit = rng.permuted(np.tile(np.arange(F) < round(OUTLIER_SHARE * F), (n, 1)), axis=1)
    return clean + hit * rng.uniform(-magnitude, magnitude, clean.shape)


def _half_normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return OFFSET + np.abs(rng.normal(0.0, SIGMA, shape))


MARKED = 0.1  # the share of genes that a programme raises
RAISED = 2.0  # by how much, on the scale of logarithms
LEVELS = 1.0  # how unequal genes are, on the same scale
USED, RAREST = 0.3, 0.2  # the Dirichlet distribution of usages: most cells use few programmes, some are used by few
DEPTHS = 0.4  # how unequal the cells' counts are, on the scale of logarithms


@dataclass(frozen=True)
class Cells:
    """Counts of cells x genes, and the programmes and usages that they were drawn from.

    Attributes
    ----------
    counts : csr_matrix
        (cells, genes).
    programmes : array
        (programmes, genes): the share of each gene, rows that sum to one.
    usages : array
        (cells, programmes): the share of each programme in the counts of a cell.
    markers : tuple[tuple[str, ...], ...]
        The genes that each programme raises.
    genes : tuple[str, ...]
        The names of the genes.
    cells : tuple[str, ...]
        The names of the cells.

    Examples
    --------
    >>> cells = onmf.data.examples.cells(n=60, genes=30, programmes=3)
    >>> cells.genes[:2], cells.anndata().shape
    (('gene00', 'gene01'), (60, 30))
    """

    counts: "csr_matrix"
    programmes: Array
    usages: Array
    markers: tuple[tuple[str, ...], ...]
    genes: tuple[str, ...]
    cells: tuple[str, ...]

    def anndata(self) -> "AnnData":
        """Return an AnnData object, with the true usages in ``obsm["usages"]``.

        Returns
        -------
        AnnData
            Cells x genes.
        """
        from anndata import AnnData

        obs, var = {"obs_names": list(self.cells)}, {"var_names": list(self.genes)}
        return AnnData(self.counts.copy(), obs=obs, var=var, obsm={"usages": self.usages})


def cells(
    n: int = 500, genes: int = 200, programmes: int = 5, depth: float = 500.0, seed: int | np.random.Generator = 0
) -> Cells:
    """Simulate Poisson counts, about ``depth`` per cell: the smaller, the more noise.

    All programmes express all genes, at levels that genes have in common; each raises a tenth of them about sevenfold,
    some of which others raise too. The first programme is the most used, the last the rarest.

    Parameters
    ----------
    n : int
        Cells.
    genes : int
        Genes.
    programmes : int
        Programmes, the components of the truth.
    depth : float
        Mean counts of a cell.
    seed : int or Generator
        Decides all numbers.

    Returns
    -------
    Cells
        Counts, and the truth behind them.

    Examples
    --------
    >>> onmf.data.examples.cells(n=100, genes=50, programmes=4).usages.shape
    (100, 4)
    """
    import scipy.sparse  # not needed for --help

    rng = np.random.default_rng(seed)
    raised = np.zeros((programmes, genes), dtype=bool)
    for programme in raised:
        programme[rng.choice(genes, max(1, round(MARKED * genes)), replace=False)] = True
    levels = rng.normal(0.0, LEVELS, genes) + raised * rng.normal(RAISED, 0.3, raised.shape)
    W = np.exp(levels)
    W /= W.sum(axis=1, keepdims=True)
    H = rng.dirichlet(USED * np.geomspace(1.0, RAREST, programmes), n)
    depths = depth * rng.lognormal(-(DEPTHS**2) / 2, DEPTHS, (n, 1))
    counts = scipy.sparse.csr_matrix(rng.poisson(depths * (H @ W)).astype(np.float32))
    names = tuple(f"gene{g:0{len(str(genes - 1))}d}" for g in range(genes))
    markers = tuple(tuple(names[g] for g in np.flatnonzero(row)) for row in raised)
    return Cells(counts, W, H, markers, names, tuple(f"cell{c:0{len(str(n - 1))}d}" for c in range(n)))


@dataclass(frozen=True, eq=False)
class Texts:
    """Documents as counts of words, with their labels.

    Attributes
    ----------
    counts : csr_matrix
        (documents, words).
    words : list[str]
        The words.
    labels : array of int
        (documents,): places in ``label_names``.
    label_names : list[str]
        The names of the labels.

    Examples
    --------
    >>> found = onmf.data.examples.docstrings()
    >>> found.counts.shape == (len(found.labels), len(found.words))
    True
    """

    counts: "csr_matrix"
    words: list[str]
    labels: Counts
    label_names: list[str]


PACKAGES = ("asyncio", "email", "multiprocessing", "unittest", "xml")
LEAST_WORDS = 8  # shorter texts say too little


def docstrings() -> Texts:
    """Return the docstrings of a few packages of Python's library, as counts of words of three or more letters.

    Returns
    -------
    Texts
        Documents with their labels.

    Examples
    --------
    >>> len(onmf.data.examples.docstrings().label_names)
    5
    """
    from sklearn.feature_extraction.text import CountVectorizer

    library = Path(sysconfig.get_path("stdlib"))
    found = [
        (label, text)
        for label, package in enumerate(PACKAGES)
        for path in sorted((library / package).rglob("*.py"))
        if "test" not in path.relative_to(library / package).parts
        for text in _texts(path)
    ]
    labels = [label for label, _ in found]
    if len(set(labels)) < len(PACKAGES):
        raise FileNotFoundError(
            f"the sources of Python's standard library are not in {library}: they are part of a full installation."
        )
    vectoriser = CountVectorizer(stop_words="english", token_pattern=r"(?u)\b[a-z]{3,}\b", min_df=3)  # noqa: S106
    counts = vectoriser.fit_transform(text for _, text in found)
    return Texts(counts, vectoriser.get_feature_names_out().tolist(), np.asarray(labels), list(PACKAGES))


def _texts(path: Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for text in found if text is not None and len(text.split()) >= LEAST_WORDS]
