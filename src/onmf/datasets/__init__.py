"""Data to try the library on.

``synthetic`` draws the paper's data. ``bbc``, ``newsgroups``, ``piano``, ``samson``, ``yaleb`` and ``movielens`` read
public data sets in their public formats from a folder that the user names; each is a module with a ``load``, imported
only when it is asked for. ``text`` weighs and selects words.
"""

from onmf.datasets.synthetic import Planted

__all__ = ["Planted"]
