"""The topics experiment (Tables 5 to 7): keywords, clusterings and times of OL, Batch and ours on two collections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from onmf.experiments import comparison
from onmf.experiments.comparison import ADDED, OF_COPIES, ByMethod, RepeatedSettings, course, mean
from onmf.experiments.contest import Task
from onmf.experiments.contestants import TITLES
from onmf.experiments.corpora import CORPORA, Documents, documents, mean_sample
from onmf.experiments.folder import Folder, Result
from onmf.experiments.judge import Scorer
from onmf.experiments.report import Block, Claim, Heading, Picture, Report, Table, Text, verdict
from onmf.experiments.topic_quality import cluster, coherence, keywords
from onmf.experiments.trial import Trial
from onmf.experiments.watch import Watch
from onmf.plots import panels

METHODS = ("ol", "ol-short", "batch", "ours")
WORDS = {"small": 300, "paper": 1000}
SAMPLES = {"small": 2000, "paper": 100_000}
DOCUMENTS = {"small": 900, "paper": None}
JUDGED = {"small": 200, "paper": 1000}
PAPER = {"bbc": 7.1, "20newsgroups": 4.3}  # Batch's time / OL's, from the paper's Table 7
NOISE = 4  # key of the random numbers of the noise
PASSES = 5  # of ours, which still take a fraction of OL's time for one
NAMES = {"bbc": "BBC News", "20newsgroups": "20 Newsgroups", "stand-in": "stand-in"}
COMPARABLE = 0.05  # of accuracy and of coherence


@dataclass(frozen=True)
class Settings(RepeatedSettings):
    """Which collections, and how many initial dictionaries."""

    INITIALISATIONS: ClassVar = {"small": 1, "paper": 10}

    methods: tuple[str, ...] = METHODS
    corpora: tuple[str, ...] = ("bbc", "20newsgroups")


def run(settings: Settings, folder: Folder, watch: Watch) -> Report:
    """Every collection, initialisation and contestant; the tables and the verdicts."""
    prepared: dict[str, Documents] = {}
    for name in settings.corpora:
        corpus = CORPORA[name](settings.data)
        rng = np.random.default_rng([settings.seed, NOISE])
        prepared[name] = documents(corpus, WORDS[settings.size], SAMPLES[settings.size], DOCUMENTS[settings.size], rng)
        watch.say(f"{corpus.title}: signal-to-noise ratio {prepared[name].snr:.1f} dB")
    titles = {name: NAMES[name] for name in prepared}
    results = comparison.repeated(settings, titles, partial(_one, settings, prepared, folder, watch), folder, watch)
    return _report(settings, folder, prepared, comparison.facts_of(results))


def _one(
    settings: Settings, prepared: dict[str, Documents], folder: Folder, watch: Watch, name: str, method: str, start: int
) -> Result:
    """One contestant from one initial dictionary, and how good its topics are."""
    texts = prepared[name]
    V, K = texts.V, len(texts.corpus.categories)
    typical = mean_sample(V[texts.train])
    judged = JUDGED[settings.size]
    train, held_out = (Scorer("kl", typical, V[rows[:judged]]) for rows in (texts.train, texts.held_out))
    task = Task(texts.source(settings.seed), "kl", K, comparison.uniform_start(K, V.shape[1], start), start)
    result = Trial(task, train, held_out, PASSES if method == "ours" else 1).compete(method, folder, watch)
    W = result.arrays["W"]
    H, atoms = Scorer("kl", typical, V).solved(W)
    words = keywords(atoms, texts.words)
    places = {word: place for place, word in enumerate(texts.words)}
    quality = vars(cluster(H * atoms.sum(axis=1), texts.labels, K)) | {
        "keywords": words,
        "npmi": coherence(texts.counts, [[places[word] for word in topic] for topic in words]),
    }
    return Result(result.facts | quality, {"W": W})


def _report(
    settings: Settings, folder: Folder, prepared: dict[str, Documents], results: Mapping[str, ByMethod]
) -> Report:
    blocks: list[Block] = []
    claims: list[Claim] = []
    for name, texts in prepared.items():
        by_method = results[name]
        rows = summary(by_method)
        folder.table(f"{name}-summary", rows)
        folder.table(f"{name}-keywords", keyword_rows(by_method, texts.corpus.categories))
        folder.table(f"{name}-curves", comparison.curve_rows(by_method, settings.starts))
        lines = {TITLES[method]: course(found[0], "train") for method, found in by_method.items()}
        picture = folder.picture(f"{name}-curves", panels({texts.corpus.title: lines}, "seconds", "training loss"))
        blocks += [
            Heading(texts.corpus.title),
            Text(
                f"{len(texts.labels)} documents, {len(texts.words)} words, K = {len(texts.corpus.categories)}. TF-IDF, "
                f"scaled by {texts.scale:.4g}, Poisson noise: signal-to-noise ratio {texts.snr:.1f} dB. "
                f"{len(texts.train)} documents, {texts.copies} copies of each in random order: "
                f"N = {texts.copies * len(texts.train)}. The other {len(texts.held_out)} are held out, which the paper "
                f"did not do. {OF_COPIES} Nobody has to pay for that: on one copy Batch takes 1 / {texts.copies} of "
                f"the time. onmf makes {PASSES} passes, OL one. All start from the same random dictionaries."
            ),
            Table(
                "The eight leading words of the topic matched to each category.",
                keyword_rows(by_method, texts.corpus.categories),
            ),
            Table(f"Means (and standard deviations) over {len(settings.starts)} initial dictionaries.", rows),
            Picture(picture, "Training loss at the best coefficients against time, first initial dictionary."),
        ]
        claims += corpus_claims(name, by_method, texts.corpus.categories)
    return Report("Topics", blocks, claims)


def keyword_rows(by_method: ByMethod, categories: list[str]) -> list[dict[str, Any]]:
    """One row per category: the words of each method's topic, first initial dictionary."""
    rows = []
    for number, category in enumerate(categories):
        row = {"category": category}
        for method, found in by_method.items():
            matched = dict(zip(found[0]["category"], found[0]["keywords"], strict=True))
            row[TITLES[method]] = ", ".join(matched.get(number, ["(no topic)"]))
        rows.append(row)
    return rows


def summary(by_method: ByMethod) -> list[dict[str, Any]]:
    """One row per contestant: means and standard deviations over the initial dictionaries."""
    return [
        {"method": TITLES[method]}
        | comparison.means(found, ["seconds"])
        | comparison.speedup_cells(by_method, method)
        | {measure: comparison.mean_final(found, measure) for measure in ("train", "held_out")}
        | comparison.means(found, ["npmi", "accuracy", "nmi"])
        for method, found in by_method.items()
    ]


def corpus_claims(name: str, by_method: ByMethod, categories: list[str]) -> list[Claim]:
    """What the paper says of a collection."""
    title, K = NAMES[name], len(categories)
    found = []
    for method, facts in by_method.items():
        note = "" if method in ("ol", "batch") else ADDED
        text = f"{note}{title}: {TITLES[method]}"
        if name != "20newsgroups":
            distinct = [len(set(each["majority"]) - {-1}) for each in facts]
            text += f" learns {K} distinct topics that coincide with the categories"
            measured = f"categories that most documents of some topic have, by start: {', '.join(map(str, distinct))}"
            found.append(Claim(text, measured, verdict([number == K for number in distinct])))
        else:  # whose categories, the paper says, are too much alike for that
            general = {name.split(".")[0] for name in categories}
            matched = [{categories[m].split(".")[0] for m in each["majority"] if m >= 0} for each in facts]
            text += "'s topics correspond to the general categories"
            listed = ", ".join(str(len(each)) for each in matched)
            measured = f"of {len(general)} general categories, those that most documents of some topic have: {listed}"
            found.append(Claim(text, measured, verdict([each == general for each in matched])))
    if "batch" not in by_method:
        return found
    for method in (each for each in by_method if each != "batch"):
        mine, batch = by_method[method], by_method["batch"]
        gaps = [
            min(one[measure] - other[measure] for measure in ("accuracy", "npmi"))
            for one, other in zip(mine, batch, strict=True)
        ]
        measured = ", ".join(f"mean {m} {mean(mine, m):.3f} / {mean(batch, m):.3f}" for m in ("accuracy", "npmi"))
        note = "" if method == "ol" else ADDED
        text = f"{note}{title}: {TITLES[method]}'s topics are of comparable quality to Batch's"
        found.append(Claim(text, measured, verdict([gap >= -COMPARABLE for gap in gaps])))
        paper = f" (the paper: {PAPER[name]:g})" if name in PAPER and method == "ol" else ""
        found.append(comparison.faster_than_batch(title, by_method, method, paper))
    return found
