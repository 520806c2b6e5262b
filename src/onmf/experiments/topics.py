"""The topics experiment (Tables 5 to 7): keywords, clusterings and times of OL, Batch and ours on two collections."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from onmf.experiments.comparison import (
    ADDED,
    NEAR_BATCH,
    OF_COPIES,
    TO_BATCH,
    faster_than_batch,
    last,
    mean,
    mean_and_deviation,
    speedup_cell,
)
from onmf.experiments.contest import NEARLY, TITLES, Task, compete
from onmf.experiments.corpora import CORPORA, Documents, documents, mean_sample
from onmf.experiments.folder import Folder, Result
from onmf.experiments.judge import Scorer
from onmf.experiments.report import Block, Claim, Heading, Picture, Report, Table, Text, verdict
from onmf.experiments.topic_quality import cluster, coherence, keywords
from onmf.experiments.watch import Watch
from onmf.plots import panels
from onmf.streams import Source, repeat

METHODS = ("ol", "ol-short", "batch", "ours")
WORDS = {"small": 300, "paper": 1000}
SAMPLES = {"small": 2000, "paper": 100_000}
DOCUMENTS = {"small": 900, "paper": None}
INITIALISATIONS = {"small": 1, "paper": 10}
JUDGED = {"small": 200, "paper": 1000}
PAPER = {"bbc": 7.1, "20newsgroups": 4.3}  # Batch's time / OL's, from the paper's Table 7
START, NOISE = 3, 4  # keys of independent random numbers
PASSES = 5  # of ours, which are still a fraction of one of OL
NAMES = {"bbc": "BBC News", "20newsgroups": "20 Newsgroups", "stand-in": "stand-in"}
COMPARABLE = 0.05  # of accuracy and of coherence


@dataclass(frozen=True)
class Settings:
    """Which collections, from which folder, and how many initial dictionaries."""

    size: str = "small"
    seed: int = 0
    methods: tuple[str, ...] = METHODS
    corpora: tuple[str, ...] = ("bbc", "20newsgroups")
    data: Path | None = None
    initialisations: int | None = None

    @property
    def starts(self) -> range:
        """Their seeds."""
        return range(self.seed, self.seed + (self.initialisations or INITIALISATIONS[self.size]))


Results = dict[str, list[dict[str, Any]]]  # the facts of every initialisation, by contestant


def run(settings: Settings, folder: Folder, watch: Watch) -> Report:
    """Every collection, initialisation and contestant; the tables and the verdicts."""
    prepared: dict[str, Documents] = {}
    for name in settings.corpora:
        corpus = CORPORA[name](settings.data)
        rng = np.random.default_rng([settings.seed, NOISE])
        prepared[name] = documents(corpus, WORDS[settings.size], SAMPLES[settings.size], DOCUMENTS[settings.size], rng)
        watch.say(f"{corpus.title}: signal-to-noise ratio {prepared[name].snr:.1f} dB")
    watch.begin(len(prepared) * len(settings.starts) * len(settings.methods))
    results: dict[str, Results] = {}
    for name, texts in prepared.items():
        by_method: Results = {method: [] for method in settings.methods}
        for start in settings.starts:
            for method in settings.methods:
                watch.part(f"{NAMES[name]}, {TITLES[method]}, start {start}")
                find = partial(_one, method, texts, start, settings, folder, watch)
                by_method[method].append(folder.part(f"{name}-{method}-{start}", find).facts)
        results[name] = by_method
    return _report(settings, folder, prepared, results)


def _one(method: str, texts: Documents, start: int, settings: Settings, folder: Folder, watch: Watch) -> Result:
    """One contestant from one initial dictionary, and how good its topics are."""
    V, K = texts.V, len(texts.corpus.categories)
    typical = mean_sample(V[texts.train])
    judged = JUDGED[settings.size]
    W0 = 1.0 - np.random.default_rng([start, START]).random((K, V.shape[1]))
    train, held_out = (Scorer("kl", typical, V[rows[:judged]]) for rows in (texts.train, texts.held_out))
    source: Source = texts.source(settings.seed)
    if method == "ours":
        source = repeat(source, PASSES)
    task = Task(source, "kl", W0, train, held_out, start)
    with folder.scratch() as scratch:
        result = compete(method, task, scratch, watch.step)
    W = result.arrays["W"]
    H, atoms = Scorer("kl", typical, V).solved(W)
    found = cluster(H * atoms.sum(axis=1), texts.labels, K)
    words = keywords(atoms, texts.words)
    places = {word: place for place, word in enumerate(texts.words)}
    quality = {
        "accuracy": found.accuracy,
        "nmi": found.nmi,
        "category": found.category,
        "majority": found.majority,
        "keywords": words,
        "npmi": coherence(texts.counts, [[places[word] for word in topic] for topic in words]),
    }
    return Result(result.facts | quality, {"W": W})


def _report(settings: Settings, folder: Folder, prepared: dict[str, Documents], results: dict[str, Results]) -> Report:
    blocks: list[Block] = []
    claims: list[Claim] = []
    for name, texts in prepared.items():
        by_method = results[name]
        rows = summary(by_method)
        folder.table(f"{name}-summary", rows)
        folder.table(f"{name}-keywords", keyword_rows(by_method, texts.corpus.categories))
        folder.table(
            f"{name}-curves",
            (
                {"method": TITLES[method], "start": start} | point
                for method, found in by_method.items()
                for start, facts in zip(settings.starts, found, strict=True)
                for point in facts["points"]
            ),
        )
        lines = {
            TITLES[method]: ([p["seconds"] for p in found[0]["points"]], [p["train"] for p in found[0]["points"]])
            for method, found in by_method.items()
        }
        picture = folder.picture(f"{name}-curves", panels({texts.corpus.title: lines}, "seconds", "training loss"))
        blocks += [
            Heading(texts.corpus.title),
            Text(
                f"{len(texts.labels)} documents, {len(texts.words)} words, K = {len(texts.corpus.categories)}. TF-IDF, "
                f"scaled by {texts.scale:.4g}, Poisson noise: signal-to-noise ratio {texts.snr:.1f} dB. "
                f"{len(texts.train)} documents, {texts.copies} copies of each in random order: "
                f"N = {texts.copies * len(texts.train)}. The other {len(texts.held_out)} are held out, which the paper "
                f"did not do. {OF_COPIES} Nobody needs to pay for that: from one copy Batch takes 1 / {texts.copies} "
                f"of the time. onmf makes {PASSES} passes, OL one. All start from the same random dictionaries."
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


def keyword_rows(by_method: Results, categories: list[str]) -> list[dict[str, Any]]:
    """One row a category: the words of each method's topic, first initial dictionary."""
    rows = []
    for number, category in enumerate(categories):
        row = {"category": category}
        for method, found in by_method.items():
            matched = dict(zip(found[0]["category"], found[0]["keywords"], strict=True))
            row[TITLES[method]] = ", ".join(matched.get(number, ["(no topic)"]))
        rows.append(row)
    return rows


def summary(by_method: Results) -> list[dict[str, Any]]:
    """One row a contestant: means and standard deviations over the initial dictionaries."""
    rows = []
    for method, found in by_method.items():
        row: dict[str, Any] = {"method": TITLES[method]}
        row["seconds"] = mean_and_deviation([facts["seconds"] for facts in found])
        if "batch" in by_method and method != "batch":
            row[TO_BATCH] = speedup_cell(by_method, method)
            row[NEAR_BATCH] = speedup_cell(by_method, method, NEARLY)
        row |= {measure: last(found, measure) for measure in ("train", "held_out")}
        row |= {m: mean_and_deviation([facts[m] for facts in found]) for m in ("npmi", "accuracy", "nmi")}
        rows.append(row)
    return rows


def corpus_claims(name: str, by_method: Results, categories: list[str]) -> list[Claim]:
    """What the paper says of a collection."""
    title, K = NAMES[name], len(categories)
    found = []
    if name != "20newsgroups":  # of which the paper says that its categories are too much alike for that
        for method, facts in by_method.items():
            distinct = [len(set(each["majority"]) - {-1}) for each in facts]
            note = "" if method in ("ol", "batch") else ADDED
            text = f"{note}{title}: {TITLES[method]} learns {K} distinct topics that coincide with the categories"
            measured = f"categories that most documents of some topic have, by start: {', '.join(map(str, distinct))}"
            found.append(Claim(text, measured, verdict([number == K for number in distinct])))
    else:
        for method, facts in by_method.items():
            general = {name.split(".")[0] for name in categories}
            matched = [{categories[m].split(".")[0] for m in each["majority"] if m >= 0} for each in facts]
            note = "" if method in ("ol", "batch") else ADDED
            text = f"{note}{title}: {TITLES[method]}'s topics correspond to the general categories"
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
        found.append(faster_than_batch(title, by_method, method, paper))
    return found
