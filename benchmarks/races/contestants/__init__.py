"""All contestants by name; a new one is one file and one entry here."""

from benchmarks.races.contestants.base import Contestant, Task
from benchmarks.races.contestants.batch_nmf import Batch
from benchmarks.races.contestants.dictionary_learning import DictionaryLearning
from benchmarks.races.contestants.earlier import Guan, Lefevre, OurBatch, Wang
from benchmarks.races.contestants.gensim_nmf import Gensim
from benchmarks.races.contestants.minibatch_nmf import Fit, PartialFit
from benchmarks.races.contestants.ours import EM, Auto, Paper, Single, Surrogate, WithReservoir
from benchmarks.races.contestants.spams import Spams

_OURS = (Auto, Surrogate, EM, Single, WithReservoir, Paper, Lefevre, Guan, Wang, OurBatch)
_ALL = (*_OURS, PartialFit, Fit, DictionaryLearning, Gensim, Spams, Batch)
CONTESTANTS: dict[str, type[Contestant]] = {contestant.name: contestant for contestant in _ALL}

__all__ = ["CONTESTANTS", "Contestant", "Task"]
