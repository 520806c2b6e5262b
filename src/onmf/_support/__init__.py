"""Helpers of every part of the library: array types, checks of settings, random numbers, threads, the version."""
