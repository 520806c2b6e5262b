"""The topics experiment (Tables 5 to 7): keywords, clusterings and times of OL, Batch and ours on two collections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from onmf import plots, topics
from reproduction.claims import (
    IN_WORDS,
    OF_COPIES,
    ByMethod,
    Claim,
    Results,
    about,
    failing_early,
    faster_than_batch,
    lines,
    mean,
    steps,
    undecided,
)
from reproduction.contestants import TITLES
from reproduction.documents import CORPORA, Documents, cluster, documents
from reproduction.experiment import Experiment, file_name
from reproduction.folder import Folder, Result
from reproduction.report import Block, heading, paragraph
from reproduction.trial import Trial

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
            figure = plots.panels({title: lines(results[title], "train")}, "seconds", "training loss")
            blocks += [
                heading(title),
                paragraph(
                    f"{n} documents, {len(data.texts.words)} words, K = {data.K}. TF-IDF, scaled by {data.scale:.4g}, "
                    f"Poisson noise: signal-to-noise ratio {data.snr:.1f} dB. {len(data.learnt)} documents, "
                    f"{data.copies} copies of each in random order: N = {data.source.n_samples}. The other "
                    f"{n - len(data.learnt)} are held out, which the paper did not do. {OF_COPIES} Nobody has to pay "
                    f"for that: on one copy Batch takes 1 / {data.copies} of the time. onmf makes {PASSES} passes, the "
                    "other online methods one. All start from the same random dictionaries. "
                    f"{steps(data.source.n_samples or 0, self.methods)}"
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
    """Yield what the paper says of a collection."""
    text, measured = f"{{}} learns {len(categories)} distinct topics that coincide with the categories", "categories"
    names = categories
    if title == "20 Newsgroups":  # whose categories, the paper says, are too much alike for that
        names = [name.split(".")[0] for name in categories]
        text, measured = "the topics of {} correspond to the general categories", "general categories"
    for method, found in by_method.items():
        distinct = [len({names[place] for place in facts["majority"] if place >= 0}) for facts in found]
        good = [number == len(set(names)) for number in distinct]
        yield Claim(
            about(method, f"{title}: {text.format(IN_WORDS[method])}"),
            f"of {len(set(names))} {measured}, those that most documents of some topic have, by start: "
            f"{', '.join(map(str, distinct))}",
            good,
            failing_early(good, [[facts] for facts in found]),
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
            about(method, f"{title}: the topics of {IN_WORDS[method]} are of comparable quality to Batch's"),
            ", ".join(f"mean {each} {mean(mine, each):.3f} / {mean(batch, each):.3f}" for each in QUALITY),
            good,
            [not fine and undecided(*pair) for fine, *pair in zip(good, mine, batch, strict=True)],
        )
        paper = f" (the paper: {PAPER[title]:g})" if title in PAPER and method == "ol" else ""
        yield faster_than_batch(title, by_method, method, paper)
