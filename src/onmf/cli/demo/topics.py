"""Draw the second page of the demo: topics of the docstrings of Python's standard library, and of each package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from onmf import OnlineNMF
from onmf._support.arrays import Array
from onmf.cli.terminal import console
from onmf.data import examples
from onmf.data.examples import Texts
from onmf.plots import new_figure
from onmf.plots.dictionary import bars
from onmf.plots.drawing import HEAT, bare
from onmf.topics import leading_features

COMPONENTS = 10
PASSES = 20
WORDS = 8  # of a topic


@dataclass(frozen=True, eq=False)
class TopicsPage:
    """Topics (K, words) over the words of the texts, and the mean share (packages, K) of every topic in a package."""

    texts: Texts
    topics: Array
    shares: Array


def learn(seed: int) -> TopicsPage:
    """Learn topics under Kullback-Leibler, in the order of the packages that speak of them most."""
    texts = examples.docstrings()
    model = OnlineNMF(COMPONENTS, divergence="kl", max_passes=PASSES, random_state=seed).fit(texts.counts)
    proportions = model.proportions(texts.counts)
    shares = np.array([proportions[texts.labels == label].mean(axis=0) for label in range(len(texts.label_names))])
    order = np.lexsort([-shares.max(axis=0), shares.argmax(axis=0)])
    return TopicsPage(texts, model.components_[order], shares[:, order])


def figure(learnt: TopicsPage) -> Any:
    """Draw the leading words of the topics, and below how much of each package's docstrings they make up."""
    drawn = new_figure(10.5, 7.6)
    above, below = drawn.subplots(2, 1, height_ratios=(7, 2))
    bars(above, leading_features(learnt.topics, WORDS, learnt.texts.words), WORDS, title="topic")
    n = f"{learnt.texts.counts.shape[0]:,} docstrings of Python's standard library"
    above.set_title(f"{n}: {len(learnt.topics)} topics, learnt under Kullback–Leibler", fontsize=12, pad=10)
    below.imshow(learnt.shares, cmap=HEAT, vmin=0, vmax=learnt.shares.max(), aspect="auto")
    below.set_yticks(range(len(learnt.shares)), learnt.texts.label_names)
    below.set_xticks(range(len(learnt.topics)), [f"topic {k}" for k in range(len(learnt.topics))])
    bare(below)
    below.tick_params(labelcolor="black")
    below.set_title("what each package's docstrings are made of", fontsize=10)
    for (package, topic), share in np.ndenumerate(learnt.shares):
        colour = "white" if share > 0.6 * learnt.shares.max() else "black"
        below.text(topic, package, f"{share:.0%}", ha="center", va="center", fontsize=8, color=colour)
    return drawn


def draw(seed: int) -> Any:
    """Learn the topics, say so, and return their picture."""
    learnt = learn(seed)
    n, words = learnt.texts.counts.shape
    console.print(f"{n} docstrings of Python's standard library, {words} words: {COMPONENTS} topics.")
    return figure(learnt)
