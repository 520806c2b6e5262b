"""Learning and solving with PyTorch, on a GPU: the surrogate's formulas on tensors, and one kernel in Triton.

Only ``choose_device`` and ``tensors`` can be imported without PyTorch.
"""
