"""Ways to learn the dictionary W from samples and their coefficients."""

from onmf.dictionary.base import DictionaryUpdate, State, Statistics
from onmf.dictionary.gradient import ProjectedSubgradient

__all__ = ["DictionaryUpdate", "ProjectedSubgradient", "State", "Statistics"]
