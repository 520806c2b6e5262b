"""Ways to learn the dictionary W from samples and their coefficients."""

from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.dictionary.coupled import CoupledSurrogate
from onmf.dictionary.gradient import ProjectedSubgradient
from onmf.dictionary.guan import Guan
from onmf.dictionary.lefevre import Lefevre
from onmf.dictionary.multiplicative import OnlineEM
from onmf.dictionary.surrogate import Floor, Surrogate
from onmf.dictionary.wang import Wang

__all__ = [
    "CoupledSurrogate",
    "DictionaryUpdate",
    "Floor",
    "Guan",
    "Lefevre",
    "OnlineEM",
    "ProjectedSubgradient",
    "State",
    "Statistics",
    "Surrogate",
    "Wang",
]
