"""Sources of samples, read in batches, and tools to put them together.

``open_source("audio:song.wav?window=2048")`` opens what ``onmf fit`` can open; ``Rows`` takes arrays, ``Batches`` any
iterable of batches. All are passed to ``OnlineNMF.fit``.
"""

from onmf.streams.base import Source, SourceError
from onmf.streams.iterable import Batches
from onmf.streams.opening import SCHEMES, open_source, path_of
from onmf.streams.rows import Rows
from onmf.streams.tools import prefetch, rebatch, repeat, scale, shuffle, take

__all__ = [
    "SCHEMES",
    "Batches",
    "Rows",
    "Source",
    "SourceError",
    "open_source",
    "path_of",
    "prefetch",
    "rebatch",
    "repeat",
    "scale",
    "shuffle",
    "take",
]
