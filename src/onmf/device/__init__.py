"""Learning and solving with PyTorch on a GPU, by the methods surrogate and em, with kernels in Triton.

Only ``choose_device`` and ``tensors`` can be imported without PyTorch.
"""
