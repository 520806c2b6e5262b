"""What a GPU is worth: against one thread of the processor, against other GPU libraries, and against the chip itself.

    python -m benchmarks.gpu.reference            # on the processor, quiet: benchmarks/gpu/reference.json
    python -m benchmarks.gpu --out FOLDER         # on a machine with a GPU: tables, FOLDER/figures.json

Both draw the same planted dictionaries and held-out samples. Every contestant is scored alike: the mean loss of the
held-out samples at their precise coefficients in the contestant's dictionary, found by ``onmf.device``.
"""
