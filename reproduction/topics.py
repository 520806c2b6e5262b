"""The topics experiment (Tables 5 to 7): keywords, clusterings and times of OL, Batch and ours on two collections.

The paper's steps from counts to samples: TF-IDF; the 1000 words of largest l1 norm; a scale l at which Poisson noise is
at 30 dB; the noise; clipping to [0, 2 l max]; copies up to N samples, in random order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from reproduction.claims import ByMethod, Claim, Facts, Results
from reproduction.contest import TITLES
from reproduction.datasets import texts
from reproduction.datasets.texts import leading_words, tfidf
from reproduction.experiment import Experiment, file_name
from reproduction.judge import Scorer
from reproduction.report import Block, Folder, heading, paragraph
from reproduction.trial import Benchmark, Copies, Result, Trial

SNR = 30.0  # dB
NOISE, ORDER = 4, 5  # keys of independent random numbers
HELD_OUT = 0.1  # of the documents; the paper learns from all of them


def all_newsgroups(folder: Path | None) -> Texts:
    """Read both parts of 20 Newsgroups, 18774 posts."""
    train, test = texts.load_newsgroups(folder)
    labels = np.concatenate([train.labels, test.labels])
    counts = scipy.sparse.vstack([train.counts, test.counts], format="csr")
    return Texts(counts, train.words, labels, train.label_names[: labels.max() + 1])


CORPORA: dict[str, Callable[[Path | None], Texts]] = {"BBC News": texts.load_bbc, "20 Newsgroups": all_newsgroups}
STAND_IN = "Stand-in: standard library docstrings"
# The categories as the paper names them, by collection, and how the collection's own names for them begin.
NAMED: dict[str, dict[str, tuple[str, ...]]] = {
    "BBC News": {
        "Business": ("business",),
        "Sports": ("sport",),
        "Technology": ("tech",),
        "Entertainment": ("entertainment",),
        "Politics": ("politics",),
    },
    "20 Newsgroups": {
        "Space": ("sci.space",),
        "Sports": ("rec.sport",),
        "Religion": ("soc.religion", "talk.religion", "alt.atheism"),
        "Hardware": ("comp.sys",),
        "Sale": ("misc.forsale",),
    },
}

# The leading words of OL's and of Batch's topic of each category, from the paper's Tables 5 and 6.
PAPERS_WORDS: dict[str, dict[str, str]] = {
    "BBC News": {
        "Business": "compani,firm,market,2004,share,price,growth,economi,bank,profit",
        "Sports": "game,plai,win,against,player,england,club,team,match,champion",
        "Technology": "peopl,servic,technolog,user,net,phone,mobil,comput,softwar,network,internet",
        "Entertainment": "film,show,best,music,star,award,tv,band,actor,album",
        "Politics": "govern,elect,minist,labour,parti,blair,tori,campaign,law",
    },
    "20 Newsgroups": {
        "Space": "nasa,gov,look,usa,test,engineering,space,sun,dod,earth,washington,season,show",
        "Sports": "games,players,hockey,season,team,fans,league,month,game,baseball,play",
        "Religion": "jesus,jewish,god,israel,christians,bible,believe,who,state,christian,religion",
        "Hardware": "drive,vga,computer,disks,dx,machine,port,system,hard,scsi,use,server,drives",
        "Sale": "sale,condition,buy,excellent,original,fax,pay,mail,price,offer,shipping,sell,interested",
    },
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


def leading(components: Array, n: int) -> list[list[int]]:
    """Return the n words of most weight of every topic; among words of equal weight, those of which it has most.

    Under the paper's constraint many words of a topic have the largest weight that is allowed.
    """
    share = components / np.maximum(components.sum(axis=0), np.finfo(components.dtype).tiny)
    return np.lexsort((-share, -components))[:, :n].tolist()


def cluster(masses: Array, labels: Counts, n_labels: int) -> dict[str, Any]:
    """Measure how well topics match categories, from the mass of each document that each topic carries.

    Documents go to the topic that carries most of their mass, and topics are matched to categories one to one.
    *accuracy* is the share of documents whose topic is matched to their category, *nmi* the normalised mutual
    information, and *documents* their number by topic and category.
    """
    topic = masses.argmax(axis=1)
    table = np.zeros((masses.shape[1], n_labels))
    np.add.at(table, (topic, labels), 1)
    rows, columns = linear_sum_assignment(-table)
    accuracy = float(table[rows, columns].sum() / len(labels))
    nmi = float(normalized_mutual_info_score(labels, topic))
    return {"accuracy": accuracy, "nmi": nmi, "documents": table.astype(int).tolist()}


def topics_of(documents: Any, labels: Sequence[str], named: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return the topic of each category that has one, given documents by topic and label.

    A topic belongs to the category of the label that most of its documents have; of several topics, the one with most
    documents of the category is taken.
    """
    table, found = np.asarray(documents), {}
    for category, beginnings in named.items():
        inside = np.array([label.startswith(beginnings) for label in labels])
        own = table[:, inside].sum(axis=1) * (table.any(axis=1) & inside[table.argmax(axis=1)])
        if own.any():
            found[category] = int(own.argmax())
    return found


# Words, N, the most documents, and samples that dictionaries are judged on.
SIZES = {"small": (300, 2000, 900, 200), "paper": (1000, 100_000, 10**6, 1000)}
PAPER = {"BBC News": "7.1", "20 Newsgroups": "4.3"}  # Batch's time / OL's, from the paper's Table 7
KEYWORDS = 8
PASSES = 5  # of ours, which still take a fraction of OL's time for one
COMPARABLE = 0.05  # of accuracy and of coherence
IN_COMMON = 2  # of the eight leading words of a topic, at least, are among the paper's for its category
QUALITY = ("accuracy", "npmi")


@dataclass(frozen=True)
class Topics(Experiment):
    """The experiment on text collections, or on a stand-in for them."""

    TITLE, EACH = "Topics", "collection"
    MEASURES = ("seconds", "train", "held_out", "npmi", "accuracy", "nmi")
    STARTS: ClassVar = {"small": 1, "paper": 10}

    methods: tuple[str, ...] = ("ol", "ol-exact", "ol-mean", "ol-adaptive", "batch", "ours")
    stand_in: bool = False

    @cached_property
    def sets(self) -> Mapping[str, Documents]:
        found = {STAND_IN: lambda _: examples.docstrings()} if self.stand_in else CORPORA
        return {title: documents(load(self.data), *SIZES[self.size], self.seed) for title, load in found.items()}

    def described(self, data: Documents) -> Facts:
        found = data.texts
        return {
            "documents": len(found.labels),
            "labels": list(found.label_names),
            "words": len(found.words),
            "learnt": len(data.learnt),
            "N": data.source.n_samples,
        } | {name: getattr(data, name) for name in ("K", "copies", "scale", "snr")}

    def trial(self, data: Documents, who: Any, start: int) -> Trial:
        return Trial(data, who, start, PASSES if who == "ours" else 1)

    def judged(self, data: Documents, result: Result) -> dict[str, Any]:
        H, components = data.everything.solved(result.W)
        words = leading(components, KEYWORDS)
        quality = cluster(H * components.sum(axis=1), data.texts.labels, data.K) | {
            "keywords": [[data.texts.words[place] for place in topic] for topic in words],
            "npmi": float(topics.coherence(data.texts.counts, words).mean()),
        }
        return result.facts | quality

    def blocks(self, folder: Folder, results: Results, about: Mapping[str, Facts]) -> list[Block]:
        blocks = []
        for title, found in results.items():
            data, keywords = about[title], keyword_rows(title, found, about[title]["labels"])
            figure = charts.panels({title: claims.lines(found, "train")}, "seconds", "training loss")
            blocks += [
                heading(title),
                paragraph(
                    f"{data['documents']} documents, {data['words']} words, K = {data['K']}. TF-IDF, scaled by "
                    f"{data['scale']:.4g}, Poisson noise: signal-to-noise ratio {data['snr']:.1f} dB. {data['learnt']} "
                    f"documents, {data['copies']} copies of each in random order: N = {data['N']}. The other "
                    f"{data['documents'] - data['learnt']} are held out, which the paper did not do. "
                    f"{claims.how_batch_stopped({title: found})} {claims.OF_COPIES} Nobody has to pay for "
                    f"that: on one copy Batch takes 1 / {data['copies']} of the time. onmf makes {PASSES} passes, the "
                    "other online methods one. All start from the same random dictionaries. "
                    f"{claims.steps(data['N'], self.methods)}"
                ),
                folder.table(
                    file_name(title, "keywords"),
                    keywords,
                    "The eight leading words of the topic of each category, as the paper names it (first start).",
                ),
                folder.picture(file_name(title, "curves"), figure, "Training loss against time, from the first start."),
            ]
        return blocks

    def claims(self, results: Results, about: Mapping[str, Facts]) -> Iterator[Claim]:
        for title, by_method in results.items():
            yield from corpus_claims(title, by_method, about[title]["labels"])


def categories(title: str, labels: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the categories of a collection: the paper's, or else its labels."""
    return NAMED.get(title, {label: (label,) for label in labels})


def keyword_rows(title: str, by_method: ByMethod, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return one row per category: the words of each method's topic, first initial dictionary."""
    named = categories(title, labels)
    rows: dict[str, dict[str, Any]] = {category: {"category": category} for category in named}
    for method, (facts, *_) in by_method.items():
        places = topics_of(facts["documents"], labels, named)
        for category, row in rows.items():
            row[TITLES[method]] = ", ".join(facts["keywords"][places[category]]) if category in places else "(no topic)"
    return [*rows.values()]


def words_in_common(title: str, facts: Facts, labels: Sequence[str]) -> dict[str, int]:
    """Return by category how many leading words of its topic are among the paper's; 0 without a topic."""
    places = topics_of(facts["documents"], labels, categories(title, labels))
    papers = {category: set(words.split(",")) for category, words in PAPERS_WORDS[title].items()}
    return {
        category: len(words & set(facts["keywords"][places[category]])) if category in places else 0
        for category, words in papers.items()
    }


def corpus_claims(title: str, by_method: ByMethod, labels: Sequence[str]) -> Iterator[Claim]:
    """Yield the paper's claims about a collection."""
    named = categories(title, labels)
    sentence = f"{{}} learns {len(named)} distinct topics that coincide with the categories, by their documents"
    if title == "20 Newsgroups":  # whose categories, the paper says, are too much alike for that
        sentence = "the topics of {} correspond to the general categories, by their documents"
    for method, found in by_method.items():
        distinct = [len(topics_of(facts["documents"], labels, named)) for facts in found]
        good = [number == len(named) for number in distinct]
        yield Claim(
            sentence,
            f"of the categories {', '.join(named)}, those that have a topic, by start: {', '.join(map(str, distinct))}",
            good,
            claims.failing_early(good, [[facts] for facts in found]),
            method,
            f"{claims.span(distinct)} of {len(named)} categories; all in {_starts(good)}",
            title,
        )
    for method, found in by_method.items() if title in PAPERS_WORDS else ():
        shared = [words_in_common(title, facts, labels) for facts in found]
        least = [min(each.values()) for each in shared]
        good = [number >= IN_COMMON for number in least]
        means = ", ".join(f"{name} {np.mean([each[name] for each in shared]):.1f}" for name in named)
        yield Claim(
            f"leading words of {{}} name the categories: {IN_COMMON} of {KEYWORDS} or more are the paper's",
            f"leading words among the paper's, means over the starts: {means}",
            good,
            claims.failing_early(good, [[facts] for facts in found]),
            method,
            f"{claims.span(least)} in the worst category; {IN_COMMON} or more in {_starts(good)}",
            title,
        )
    for method, found in by_method.items():
        if len(found) > 1:
            spans = {each: [claims.measured(facts, each) for facts in found] for each in QUALITY}
            figure = ", ".join(f"{each} {claims.span(values, '.2f')}" for each, values in spans.items())
            good = [max(values) - min(values) <= COMPARABLE for values in spans.values()]
            measured = f"from {len(found)} starts: {figure}"
            sentence = "different initialisations of {} lead to similar results"
            yield Claim(sentence, measured, [all(good)], (), method, f"{figure}, {len(found)} starts", title)
    for method in [name for name in by_method if name != "batch" and claims.paired(by_method, name)]:
        pairs = claims.paired(by_method, method)
        good = [min(one[each] - other[each] for each in QUALITY) >= -COMPARABLE for one, other in pairs]
        levels = {each: [claims.mean([pair[side] for pair in pairs], each) for side in (0, 1)] for each in QUALITY}
        yield Claim(
            "the topics of {} are of comparable quality to Batch's",
            ", ".join(f"mean {each} {mine:.3f} / {batch:.3f}" for each, (mine, batch) in levels.items()),
            good,
            [not fine and claims.undecided(*pair) for fine, pair in zip(good, pairs, strict=True)],
            method,
            ", ".join(f"{each} {mine:.2f} / {batch:.2f}" for each, (mine, batch) in levels.items()),
            title,
        )
        one = {title: by_method}
        yield claims.shorter_run(one, method, PAPER.get(title, "-"), title)
        sentence = "{} achieves Batch's results with much greater efficiency: time to its training loss"
        yield claims.faster_than_batch(sentence, one, method, title)


def _starts(good: Sequence[bool]) -> str:
    return f"{sum(good)} of {len(good)} starts"
