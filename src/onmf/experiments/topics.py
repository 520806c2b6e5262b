"""The topics experiment (Tables 5 to 7): keywords, clusterings and times of OL, Batch and ours on two collections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from onmf.experiments.comparison import OF_COPIES, ByMethod, Results, about, faster_than_batch, lines, mean
from onmf.experiments.contestants import TITLES
from onmf.experiments.corpora import CORPORA, Documents, documents, mean_sample
from onmf.experiments.experiment import Experiment, file_name
from onmf.experiments.folder import Folder, Result
from onmf.experiments.judge import Scorer
from onmf.experiments.report import Block, Claim, Heading, Picture, Table, Text
from onmf.experiments.topic_quality import cluster, coherence, leading
from onmf.experiments.trial import Trial
from onmf.plots import panels

WORDS = {"small": 300, "paper": 1000}
SAMPLES = {"small": 2000, "paper": 100_000}
DOCUMENTS = {"small": 900, "paper": None}
JUDGED = {"small": 200, "paper": 1000}
PAPER = {"BBC News": 7.1, "20 Newsgroups": 4.3}  # Batch's time / OL's, from the paper's Table 7
NOISE = 4  # key of the random numbers of the noise
PASSES = 5  # of ours, which still take a fraction of OL's time for one
COMPARABLE = 0.05  # of accuracy and of coherence
QUALITY = ("accuracy", "npmi")


@dataclass(frozen=True)
class Topics(Experiment):
    """``corpora`` are the collections to learn from."""

    TITLE: ClassVar = "Topics"
    EACH: ClassVar = "collection"
    MEASURES: ClassVar = ("seconds", "train", "held_out", "npmi", "accuracy", "nmi")
    STARTS: ClassVar = {"small": 1, "paper": 10}

    methods: tuple[str, ...] = ("ol", "ol-short", "batch", "ours")
    corpora: tuple[str, ...] = ("bbc", "20newsgroups")

    @cached_property
    def sets(self) -> Mapping[str, Documents]:
        sizes = (WORDS[self.size], SAMPLES[self.size], DOCUMENTS[self.size])
        chosen = [CORPORA[name] for name in self.corpora]
        return {
            title: documents(load(self.data), *sizes, np.random.default_rng([self.seed, NOISE]))
            for title, load in chosen
        }

    def compete(self, data: Documents, who: Any, start: int, step: Callable[[float], None], scratch: Path) -> Result:
        V, K = data.V, len(data.categories)
        typical = mean_sample(V[data.train])
        judged = JUDGED[self.size]
        train, held_out = (Scorer("kl", typical, V[rows[:judged]]) for rows in (data.train, data.held_out))
        passes = PASSES if who == "ours" else 1
        result = Trial(data.source(self.seed), "kl", K, start, train, held_out, passes).compete(who, scratch, step)
        W = result.arrays["W"]
        H, atoms = Scorer("kl", typical, V).solved(W)
        words = leading(atoms)
        quality = vars(cluster(H * atoms.sum(axis=1), data.labels, K)) | {
            "keywords": [[data.words[place] for place in topic] for topic in words],
            "npmi": coherence(data.counts, words),
        }
        return Result(result.facts | quality, {"W": W})

    def blocks(self, folder: Folder, results: Results) -> list[Block]:
        blocks: list[Block] = []
        for title, data in self.sets.items():
            name, keywords = file_name(title), keyword_rows(results[title], data.categories)
            folder.table(f"{name}-keywords", keywords)
            charts = {title: lines(results[title], "train")}
            picture = folder.picture(f"{name}-curves", panels(charts, "seconds", "training loss"))
            blocks += [
                Heading(title),
                Text(
                    f"{len(data.labels)} documents, {len(data.words)} words, K = {len(data.categories)}. TF-IDF, "
                    f"scaled by {data.scale:.4g}, Poisson noise: signal-to-noise ratio {data.snr:.1f} dB. "
                    f"{len(data.train)} documents, {data.copies} copies of each in random order: "
                    f"N = {data.copies * len(data.train)}. The other {len(data.held_out)} are held out, which the "
                    f"paper did not do. {OF_COPIES} Nobody has to pay for that: on one copy Batch takes "
                    f"1 / {data.copies} of the time. onmf makes {PASSES} passes, OL one. All start from the same "
                    "random dictionaries."
                ),
                Table("The eight leading words of the topic matched to each category.", keywords),
                Picture(picture, "Training loss at the best coefficients against time, first initial dictionary."),
            ]
        return blocks

    def claims(self, results: Results) -> Iterator[Claim]:
        for title, by_method in results.items():
            yield from corpus_claims(title, by_method, self.sets[title].categories)


def keyword_rows(by_method: ByMethod, categories: list[str]) -> list[dict[str, Any]]:
    """One row per category: the words of each method's topic, first initial dictionary."""
    matched = {
        TITLES[method]: dict(zip(f[0]["category"], f[0]["keywords"], strict=True)) for method, f in by_method.items()
    }
    return [
        {"category": category}
        | {title: ", ".join(words.get(number, ["(no topic)"])) for title, words in matched.items()}
        for number, category in enumerate(categories)
    ]


def corpus_claims(title: str, by_method: ByMethod, categories: list[str]) -> Iterator[Claim]:
    """What the paper says of a collection."""
    text, measured = f" learns {len(categories)} distinct topics that coincide with the categories", "categories"
    names = categories
    if title == "20 Newsgroups":  # whose categories, the paper says, are too much alike for that
        names = [name.split(".")[0] for name in categories]
        text, measured = "'s topics correspond to the general categories", "general categories"
    for method, found in by_method.items():
        distinct = [len({names[place] for place in facts["majority"] if place >= 0}) for facts in found]
        yield Claim(
            about(method, f"{title}: {TITLES[method]}{text}"),
            f"of {len(set(names))} {measured}, those that most documents of some topic have, by start: "
            f"{', '.join(map(str, distinct))}",
            [number == len(set(names)) for number in distinct],
        )
    batch = by_method.get("batch", [])
    for method, mine in by_method.items():
        if method == "batch" or not batch:
            continue
        yield Claim(
            about(method, f"{title}: {TITLES[method]}'s topics are of comparable quality to Batch's"),
            ", ".join(f"mean {each} {mean(mine, each):.3f} / {mean(batch, each):.3f}" for each in QUALITY),
            [
                min(one[each] - other[each] for each in QUALITY) >= -COMPARABLE
                for one, other in zip(mine, batch, strict=True)
            ],
        )
        paper = f" (the paper: {PAPER[title]:g})" if title in PAPER and method == "ol" else ""
        yield faster_than_batch(title, by_method, method, paper)
