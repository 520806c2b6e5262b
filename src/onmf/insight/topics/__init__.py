"""Atoms in words: their leading features, and how well these go together. Nothing here learns."""

from onmf.insight.topics.coherence import Coherence, coherence
from onmf.insight.topics.ranking import RANKINGS, leading, ranked

__all__ = ["RANKINGS", "Coherence", "coherence", "leading", "ranked"]
