"""Public data sets, read in their public formats from a folder that the user names.

Each of ``bbc``, ``newsgroups``, ``piano``, ``samson``, ``yaleb`` and ``movielens`` is a module with a ``load``.
"""
