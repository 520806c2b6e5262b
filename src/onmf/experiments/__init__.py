"""The paper's experiments: its figures and tables, one file each.

Every experiment is a module with ``Settings`` and ``run(settings, folder, watch)``, which gives a ``Report``.
"""
