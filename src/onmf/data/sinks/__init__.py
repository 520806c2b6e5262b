"""Where coefficients and fits are written, row by row: CSV, JSON Lines, Parquet, NumPy, AnnData."""

import importlib
import pkgutil

from onmf.data.sinks.base import Heading, Origin, Output, kind_of, suffixes

# An output registers itself when its module is imported, so a new file in this folder is all it takes.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Heading", "Origin", "Output", "kind_of", "suffixes"]
