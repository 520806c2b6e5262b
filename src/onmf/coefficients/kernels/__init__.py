"""Compiled solvers of the small K x K problems, and sparse products. Shapes are checked before every call."""
