"""The paper's experiments: its figures and tables, one file each.

Each is a subclass of ``Experiment`` whose fields are its settings, such as ``Topics(size="paper", seed=1)``; its
``run(out)`` writes tables, pictures and a report to a folder.
"""
