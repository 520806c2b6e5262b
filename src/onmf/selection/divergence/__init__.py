"""Which divergence suits the data: a bounded sample, its low-rank mean, what is left of the noise, and a verdict."""
