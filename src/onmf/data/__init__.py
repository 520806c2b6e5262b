"""Sources of samples, read in batches, tools that combine them, and outputs for results.

``open_source("audio:song.wav?window=2048")`` opens what ``onmf fit`` can open; ``Rows`` takes arrays, ``Batches`` any
iterable of batches. All can be passed to ``OnlineNMF.fit``.
"""

import importlib
import pkgutil

from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError
from onmf.data.registry import Spec, open_source, register
from onmf.data.registry import path_of as path_of  # for the commands
from onmf.data.registry import schemes as schemes

# Sources and outputs register themselves when their module is imported, so a new file in this folder is all it takes.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

from onmf.data.in_memory import Batches, Rows  # noqa: E402
from onmf.data.text import texts  # noqa: E402
from onmf.data.tools import prefetch, rebatch, repeat, scale, shuffle, take  # noqa: E402

__all__ = [
    "Batches",
    "Numbered",
    "OnBad",
    "Rows",
    "Sequential",
    "Source",
    "SourceError",
    "Spec",
    "open_source",
    "prefetch",
    "rebatch",
    "register",
    "repeat",
    "scale",
    "shuffle",
    "take",
    "texts",
]
