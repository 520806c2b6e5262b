"""One page about a model: what was run, what was learnt, how it fits data, and what to be careful about."""
