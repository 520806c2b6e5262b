"""The topics experiment (Tables 5 to 7): keywords, clusterings and times of OL, Batch and ours on two collections.

The paper's steps from counts to samples: TF-IDF; the 1000 words of largest l1 norm; a scale l at which Poisson noise is
at 30 dB; the noise; clipping to [0, 2 l max]; copies up to N samples, in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import normalized_mutual_info_score

from onmf import topics
from onmf.data import examples
from onmf.data.examples import Texts
from reproduction import charts, claims
from reproduction.arrays import Array, Counts
from reproduction.claims import ByMethod, Claim, Results
from reproduction.contest import TITLES
from reproduction.datasets import texts
from reproduction.datasets.texts import leading_words, tfidf
from reproduction.experiment import Experiment, file_name
from reproduction.judge import Scorer
from reproduction.report import Block, Folder, Result, heading, paragraph
from reproduction.trial import Benchmark, Copies, Trial

SNR = 30.0  # dB
NOISE, ORDER = 4, 5  # keys of independent random numbers
HELD_OUT = 0.1  # of the documents; the paper learns from all of them


def all_newsgroups(folder: Path | None) -> Texts:
    """Read both parts of 20 Newsgroups, 18774 posts."""
    train, test = texts.load_newsgroups(folder)
    labels = np.concatenate([train.labels, test.labels])
    counts = scipy.sparse.vstack([train.counts, test.counts], format="csr")
    return Texts(counts, train.words, labels, train.label_names[: labels.max() + 1])


CORPORA: dict[str, tuple[str, Callable[[Path | None], Texts]]] = {  # titles, and how they are loaded
    "bbc": ("BBC News", texts.load_bbc),
    "20newsgroups": ("20 Newsgroups", all_newsgroups),
    "stand-in": ("Stand-in: standard library docstrings", lambda folder: examples.docstrings()),
}


@dataclass(frozen=True, eq=False)
class Documents(Benchmark):
    """A collection as noisy samples, one per document; the source holds copies of the training documents."""

    texts: Texts  # the documents and words that remain, without noise
    everything: Scorer  # judges dictionaries on all of them
    learnt: Counts  # indices of the documents to learn from
    copies: int
    scale: float  # l
    snr: float


def documents(texts: Texts, n_words: int, n_samples: int, most: int, judged: int, seed: int) -> Documents:
    """Take the paper's steps with at most ``most`` documents, chosen at random; ``judged`` of them judge."""
    rng = np.random.default_rng([seed, NOISE])
    rows = np.arange(texts.counts.shape[0])
    if most < len(rows):
        rows = np.sort(rng.permutation(rows)[:most])
    counts = scipy.sparse.csr_array(texts.counts)[rows]
    weights = tfidf(counts)
    chosen = np.sort(leading_words(weights, n_words))
    clean = scipy.sparse.csr_array(weights[:, chosen])
    filled = np.flatnonzero(np.diff(clean.indptr))
    clean = clean[filled]
    scale = 10 ** (SNR / 10) * float(clean.data.sum() / np.square(clean.data).sum())
    V = clean * scale
    noisy = V.copy()
    noisy.data = np.minimum(rng.poisson(V.data).astype(np.float64), 2 * scale * clean.data.max())
    snr = 20 * np.log10(np.linalg.norm(V.data) / np.linalg.norm(noisy.data - V.data))
    noisy.eliminate_zeros()
    noisy.sort_indices()
    samples = scipy.sparse.csr_matrix(noisy)
    kept_back, learnt = map(np.sort, np.split(rng.permutation(len(filled)), [round(HELD_OUT * len(filled))]))
    copies = max(1, round(n_samples / len(learnt)))
    order = np.random.default_rng([seed, ORDER]).permutation(np.tile(learnt, copies))
    mean = np.asarray(samples[learnt].mean(axis=0)).ravel()
    places = (learnt[:judged], kept_back[:judged], slice(None))
    train, held_out, everything = (Scorer("kl", mean, samples[each]) for each in places)
    texts = Texts(
        scipy.sparse.csr_array(counts[:, chosen])[filled],
        [texts.words[place] for place in chosen],
        texts.labels[rows][filled],
        texts.label_names,
    )
    K = len(texts.label_names)
    source = Copies(samples, order)
    return Documents(source, "kl", K, train, held_out, texts, everything, learnt, copies, scale, float(snr))


def cluster(masses: Array, labels: Counts, n_labels: int) -> dict[str, Any]:
    """Measure how well topics match categories, from the mass of each document that each topic carries.

    Documents go to the topic that carries most of their mass, and topics are matched to categories one to one.
    *accuracy* is the share of documents whose topic is matched to their category, *nmi* the normalised mutual
    information, *category* the category of each topic (-1: none was left), and *majority* the most frequent one among
    its documents (-1: it has none).
    """
    topic = masses.argmax(axis=1)
    table = np.zeros((masses.shape[1], n_labels))
    np.add.at(table, (topic, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    category = np.full(len(table), -1)
    category[rows] = columns
    majority = np.where(table.any(axis=1), table.argmax(axis=1), -1)
    accuracy = float(table[rows, columns].sum() / len(labels))
    nmi = float(normalized_mutual_info_score(labels, topic))
    return {"accuracy": accuracy, "nmi": nmi, "category": category.tolist(), "majority": majority.tolist()}


# Words, N, the most documents, and samples that dictionaries are judged on.
SIZES = {"small": (300, 2000, 900, 200), "paper": (1000, 100_000, 10**6, 1000)}
PAPER = {"BBC News": 7.1, "20 Newsgroups": 4.3}  # Batch's time / OL's, from the paper's Table 7
KEYWORDS = 8
PASSES = 5  # of ours, which still take a fraction of OL's time for one
COMPARABLE = 0.05  # of accuracy and of coherence
QUALITY = ("accuracy", "npmi")


@dataclass(frozen=True)
class Topics(Experiment):
    """The experiment on text collections, or on a stand-in for them."""

    TITLE, EACH = "Topics", "collection"
    MEASURES = ("seconds", "train", "held_out", "npmi", "accuracy", "nmi")
    STARTS: ClassVar = {"small": 1, "paper": 10}

    methods: tuple[str, ...] = ("ol", "ol-adaptive", "batch", "ours")
    collections: tuple[str, ...] = ("bbc", "20newsgroups")
    stand_in: bool = False

    @cached_property
    def sets(self) -> Mapping[str, Documents]:
        chosen = [CORPORA[name] for name in (("stand-in",) if self.stand_in else self.collections)]
        return {title: documents(load(self.data), *SIZES[self.size], self.seed) for title, load in chosen}

    def trial(self, data: Documents, who: Any, start: int) -> Trial:
        return Trial(data, who, start, PASSES if who == "ours" else 1)

    def judged(self, data: Documents, result: Result) -> Result:
        W = result.arrays["W"]
        H, components = data.everything.solved(W)
        words = topics.leading(components, KEYWORDS)
        quality = cluster(H * components.sum(axis=1), data.texts.labels, data.K) | {
            "keywords": [[data.texts.words[place] for place in topic] for topic in words],
            "npmi": float(topics.coherence(data.texts.counts, words).mean()),
        }
        return Result(result.facts | quality, {"W": W})

    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        blocks = []
        for title, data in self.sets.items():
            n, keywords = len(data.texts.labels), keyword_rows(results[title], data.texts.label_names)
            figure = charts.panels({title: claims.lines(results[title], "train")}, "seconds", "training loss")
            blocks += [
                heading(title),
                paragraph(
                    f"{n} documents, {len(data.texts.words)} words, K = {data.K}. TF-IDF, scaled by {data.scale:.4g}, "
                    f"Poisson noise: signal-to-noise ratio {data.snr:.1f} dB. {len(data.learnt)} documents, "
                    f"{data.copies} copies of each in random order: N = {data.source.n_samples}. The other "
                    f"{n - len(data.learnt)} are held out, which the paper did not do. {claims.OF_COPIES} Nobody has "
                    f"to pay for that: on one copy Batch takes 1 / {data.copies} of the time. onmf makes {PASSES} "
                    "passes, the other online methods one. All start from the same random dictionaries. "
                    f"{claims.steps(data.source.n_samples or 0, self.methods)}"
                ),
                folder.table(
                    file_name(title, "keywords"), keywords, "The eight leading words of each category's topic."
                ),
                folder.picture(file_name(title, "curves"), figure, "Training loss against time, from the first start."),
            ]
        return blocks

    def claims(self, results: Results) -> Iterator[Claim]:
        for title, by_method in results.items():
            yield from corpus_claims(title, by_method, self.sets[title].texts.label_names)


def keyword_rows(by_method: ByMethod, categories: list[str]) -> list[dict[str, Any]]:
    """Return one row per category: the words of each method's topic, first initial dictionary."""
    matched = {
        TITLES[method]: dict(zip(f[0]["category"], f[0]["keywords"], strict=True)) for method, f in by_method.items()
    }
    return [
        {"category": category}
        | {title: ", ".join(words.get(number, ["(no topic)"])) for title, words in matched.items()}
        for number, category in enumerate(categories)
    ]


def corpus_claims(title: str, by_method: ByMethod, categories: list[str]) -> Iterator[Claim]:
    """Yield the paper's claims about a collection."""
    text, measured = f"{{}} learns {len(categories)} distinct topics that coincide with the categories", "categories"
    names = categories
    if title == "20 Newsgroups":  # whose categories, the paper says, are too much alike for that
        names = [name.split(".")[0] for name in categories]
        text, measured = "the topics of {} correspond to the general categories", "general categories"
    for method, found in by_method.items():
        distinct = [len({names[place] for place in facts["majority"] if place >= 0}) for facts in found]
        good = [number == len(set(names)) for number in distinct]
        yield Claim(
            claims.about(method, f"{title}: {text.format(claims.IN_WORDS[method])}"),
            f"of {len(set(names))} {measured}, those that most documents of some topic have, by start: "
            f"{', '.join(map(str, distinct))}",
            good,
            claims.failing_early(good, [[facts] for facts in found]),
        )
    batch = by_method.get("batch", [])
    for method, mine in by_method.items():
        if method == "batch" or not batch:
            continue
        good = [
            min(one[each] - other[each] for each in QUALITY) >= -COMPARABLE
            for one, other in zip(mine, batch, strict=True)
        ]
        yield Claim(
            claims.about(
                method, f"{title}: the topics of {claims.IN_WORDS[method]} are of comparable quality to Batch's"
            ),
            ", ".join(
                f"mean {each} {claims.mean(mine, each):.3f} / {claims.mean(batch, each):.3f}" for each in QUALITY
            ),
            good,
            [not fine and claims.undecided(*pair) for fine, *pair in zip(good, mine, batch, strict=True)],
        )
        paper = f" (the paper: {PAPER[title]:g})" if title in PAPER and method == "ol" else ""
        yield claims.faster_than_batch(title, by_method, method, paper)
