"""Data to try the library on."""

from onmf.datasets.synthetic import Planted

__all__ = ["Planted"]
