"""All entries by name; a new contestant is one file and one line here."""

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.peers.contestants.base import Entry
from benchmarks.peers.contestants.batch_nmf import BatchNMF, Multiplicative, SklearnBatch
from benchmarks.peers.contestants.dictionary_learning import DictionaryLearning
from benchmarks.peers.contestants.gensim_nmf import Gensim
from benchmarks.peers.contestants.minibatch_nmf import FORGET_FACTORS, Fit, PartialFit
from benchmarks.peers.contestants.nmf_rs import NmfRs
from benchmarks.peers.contestants.spams import Spams
from onmf.data import Rows
from reproduction.contest import Online, Task


class Single(Online):
    """In single precision."""

    def __init__(self, task: Task, variant: Any = None) -> None:
        super().__init__(replace(task, source=Rows(task.source.X.astype(np.float32))), variant)


# Batch methods make no passes over a stream: each has one result.
BATCH: dict[str, Any] = {"from_scratch": True, "most_passes": 1, "threaded": False}
SMALL = ("synthetic", "spectrogram_like", "yaleb", "piano", "piano_ordered", "samson")
SLOW: dict[str, Any] = {"starts": ("uniform",), "first_seed_only": True}
ENTRIES = (
    Entry("onmf", Online),
    Entry("onmf-float32", Single, threaded=False, only_on=("synthetic_wide",)),
    Entry("onmf-reservoir", Online, {"": {"reservoir": 256}}, threaded=False, only_on=("piano_ordered",)),
    Entry("onmf-batch", BatchNMF, **BATCH, starts=("uniform", "own"), sparse=True),
    Entry("onmf-multiplicative", Multiplicative, **BATCH, **SLOW, sparse=True),
    Entry("sklearn-partial_fit", PartialFit, FORGET_FACTORS),
    Entry("sklearn-fit", Fit, FORGET_FACTORS, from_scratch=True),
    Entry("sklearn-batch", SklearnBatch, **BATCH, **SLOW, only_on=("cells", "bbc", "news_counts", *SMALL)),
    Entry("sklearn-dictionary", DictionaryLearning, threaded=False, **SLOW),
    Entry("gensim", Gensim, package="gensim", from_scratch=True, threaded=False, **SLOW),
    Entry("spams", Spams, package="spams", from_scratch=True),
    Entry("nmf-rs", NmfRs, package="nmf_rs", **BATCH, **SLOW, only_on=("cells", "bbc", *SMALL)),
)
CONTESTANTS = {entry.name: entry for entry in ENTRIES}

__all__ = ["CONTESTANTS", "Entry"]
