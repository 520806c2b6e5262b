"""All entries by name; a new contestant is one file and one line here."""

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.peers.contestants.base import Entry
from benchmarks.peers.contestants.batch_nmf import BatchNMF, SklearnBatch, iterations
from benchmarks.peers.contestants.dictionary_learning import DictionaryLearning
from benchmarks.peers.contestants.gensim_nmf import Gensim
from benchmarks.peers.contestants.minibatch_nmf import FORGET_FACTORS, Fit, PartialFit
from benchmarks.peers.contestants.spams import Spams
from onmf.data import Rows
from reproduction.contest import OL, Guan, Lefevre, Online, Task, Wang


class Single(Online):
    """In single precision."""

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(replace(task, source=Rows(task.source.X.astype(np.float32))), variant)


class Paper(OL):
    """With the canonical ratios for small n too: tau may be 1."""

    least_tau = 1


EM = ("kl", "hellinger")  # where "auto" takes em on sparse data
ONCE = {"starts": ("uniform",), "threaded": False}
ENTRIES = (
    Entry("onmf", Online),
    Entry("onmf-surrogate", Online, {"": {"method": "surrogate"}}, divergences=EM, sparse=True, threaded=False,
          only_on=("text_like", "bbc", "news_tfidf")),
    Entry("onmf-em", Online, {"": {"method": "em"}}, divergences=EM, sparse=False, threaded=False),
    Entry("onmf-float32", Single, threaded=False, only_on=("synthetic_wide",)),
    Entry("onmf-reservoir", Online, {"": {"reservoir": 256}}, threaded=False, only_on=("piano_ordered",)),
    # One pass on the data it was made for: elsewhere it takes minutes, and nobody doubts the outcome.
    Entry("onmf-paper", Paper, most_passes=1, only_on=("synthetic", "yaleb_salt", "yaleb_salt_stream"), **ONCE),
    Entry("onmf-lefevre", Lefevre, **ONCE),
    Entry("onmf-guan", Guan, only_on=("synthetic", "yaleb", "samson"), **ONCE),  # it would make sparse data dense
    Entry("onmf-wang", Wang, **ONCE),
    Entry("onmf-batch", BatchNMF, from_scratch=True, most_passes=1, starts=("uniform", "own"), threaded=False),
    Entry("sklearn-partial_fit", PartialFit, FORGET_FACTORS),
    Entry("sklearn-fit", Fit, FORGET_FACTORS, from_scratch=True),
    Entry("sklearn-dictionary", DictionaryLearning, threaded=False),
    Entry("gensim", Gensim, package="gensim", from_scratch=True, threaded=False),
    Entry("spams", Spams, package="spams", from_scratch=True),
    # Its iterations are no passes of a stream: it has one point.
    Entry("batch", SklearnBatch, from_scratch=True, most_passes=1, starts=("uniform", "own"), threaded=False),
)  # fmt: skip
CONTESTANTS = {entry.name: entry for entry in ENTRIES}

__all__ = ["CONTESTANTS", "Entry", "iterations"]
