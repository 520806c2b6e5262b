"""Sources of samples, read in batches."""

from onmf.streams.base import Source, SourceError
from onmf.streams.files import open_file
from onmf.streams.rows import Rows

__all__ = ["Rows", "Source", "SourceError", "open_file"]
