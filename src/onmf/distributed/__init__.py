"""Learning on many machines with Dask (``onmf[dask]``): data in partitions, learnt from in rounds.

``OnlineNMF.fit`` takes dask arrays and data frames as they are; ``partitioned("parquet:folder")`` makes partitions of
files that the workers read themselves.
"""

from onmf.distributed.partitions import Partitions, partitioned

__all__ = ["Partitions", "partitioned"]
