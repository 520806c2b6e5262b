"""The paper's experiments, as a program that uses the library's public interface: its figures and tables.

Each is a subclass of ``Experiment`` whose fields are its settings, such as ``Topics(size="paper", seed=1)``; its
``run(out)`` writes tables, pictures and a report to a folder.
"""
