"""The referee judges a change of the library: what is learnt stays the same, and nothing becomes slower.

    python -m benchmarks.referee compare              # against record.json: bits of W and H, losses, counts
    python -m benchmarks.referee times                # CPU times, interleaved with those of the baseline commit
    python -m benchmarks.referee record [--only ...]  # write record.json anew, or the results of some cases

It uses the public interface alone, so that it survives moves within the library. Names of that interface that may
change stand in library.py.
"""
