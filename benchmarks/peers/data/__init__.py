"""All data sets by name; a new one is one file and one entry here."""

from benchmarks.peers.data import bbc, cells, newsgroups, piano, samson, spectrogram_like, synthetic, text_like, yaleb
from benchmarks.peers.data.base import STARTS, Samples, Source

_FILES = (synthetic, text_like, spectrogram_like, cells, bbc, newsgroups, yaleb, piano, samson)
SOURCES: dict[str, Source] = {source.name: source for file in _FILES for source in file.SETS}

__all__ = ["SOURCES", "STARTS", "Samples", "Source"]
