"""Choices before learning: the rank, the divergence, and the components that several fits agree on."""
