"""Benchmarks against other libraries: one file per contestant, one per data set, one scorer.

``make bench`` runs them all; ``python -m benchmarks.peers.run --help`` says how to run some.
"""
