"""How many threads BLAS may use: small products in long loops are faster with one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

LARGE = 20_000_000  # multiplications in one product, from which on two threads are worth waking


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def suited_to(multiplications: int) -> Iterator[None]:
    """Give BLAS one thread while products of this size are computed, unless they are large."""
    if multiplications >= LARGE:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
