"""Measurements behind the figures in the docs; see each module's docstring for its command."""
