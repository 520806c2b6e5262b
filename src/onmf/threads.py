"""How many threads BLAS may use: small products in long loops are faster with one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

LARGE = 20_000_000  # multiplications in one product, from which on a second thread is worth waking

_lock = Lock()
_users = 0  # blocks that are running now, in whichever thread: the first sets the limit, the last lifts it
_limit: Any = None


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def suited_to(multiplications: int) -> Iterator[None]:
    """Give BLAS one thread while products of this size are computed, unless they are large."""
    global _users, _limit
    if multiplications >= LARGE:
        yield
        return
    with _lock:
        if _users == 0:
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _limit.restore_original_limits()
