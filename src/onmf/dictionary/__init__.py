"""Ways to learn the dictionary W from samples and their coefficients."""

from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.dictionary.coupled import CoupledSurrogate
from onmf.dictionary.gradient import ProjectedSubgradient
from onmf.dictionary.multiplicative import OnlineEM
from onmf.dictionary.surrogate import Floor, Surrogate

__all__ = [
    "CoupledSurrogate",
    "DictionaryUpdate",
    "Floor",
    "OnlineEM",
    "ProjectedSubgradient",
    "State",
    "Statistics",
    "Surrogate",
]
