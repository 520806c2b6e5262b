"""Multiplicative updates on all samples at once: ``factorise`` repeats what ``updates_of`` chooses for the samples."""
