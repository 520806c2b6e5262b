"""Threads of the library for blocks of rows or features, with BLAS held to one thread meanwhile.

The blocks depend on the shapes alone, never on the number of threads, so that any number of threads gives the same
bits. Kernels, BLAS and NumPy's larger loops let other Python threads run while they work; nothing else is needed, and
nothing breaks when a process forks or several threads learn at once.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Part = TypeVar("Part")
Result = TypeVar("Result")
Value = TypeVar("Value")

SMALL = 2**15  # multiplications

_lock = Lock()
_users = 0  # blocks running now, in any thread: the first takes the threads from BLAS, the last returns them
_before: list[tuple[Any, int]] = []  # BLAS libraries, and the threads that they had
_allowed = 1
_pool: ThreadPoolExecutor | None = None
_size = max(1, (os.cpu_count() or 1) - 1)  # threads of the pool
_busy = 0  # those that have been given work
_learning: dict[int, int] = {}  # the models that learn now, and the block of each, by their identities


@cache
def _controller() -> "ThreadpoolController":
    from threadpoolctl import ThreadpoolController  # both are needed by the first computation, not by ``import onmf``

    return ThreadpoolController()


def own_threads(work: float = math.inf) -> AbstractContextManager[None]:
    """Take as many threads as BLAS was allowed to use (OMP_NUM_THREADS, threadpoolctl), and leave it one.

    ``work`` is the number of multiplications in the largest product: BLAS makes small ones with one thread anyway.
    """
    return nullcontext() if work < SMALL else _taken()


@contextmanager
def _taken() -> Iterator[None]:
    global _users, _before, _allowed
    with _lock:
        if _users == 0:
            libraries = _controller().select(user_api="blas").lib_controllers
            _before = [(library, number) for library in libraries if (number := library.num_threads)]
            _allowed = max((number for _, number in _before), default=1)
            _set_blas([(library, 1) for library, _ in _before])
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _set_blas(_before)
                _allowed = 1


def _set_blas(numbers: list[tuple[Any, int]]) -> None:
    """Set numbers of threads as ``threadpoolctl.threadpool_limits`` does, but from any thread.

    Since threadpoolctl 3.8 OpenBLAS listens to the first thread alone that sets a number, until it gives up control.
    """
    for library, number in numbers:
        give_up = getattr(library, "clear_controlling_thread", lambda **_: None)
        give_up(force=True)
        library.set_num_threads(number)
        give_up(force=True)


def each(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """Return [function(part) for part in parts], shared out among the threads; the caller works, too.

    Only idle threads help. Work that waited in the queue of the pool, as that of nested blocks would, might never be
    needed, and would keep its arrays alive.
    """
    if len(parts) == 1:
        return [function(parts[0])]
    helpers = _hired(min(_allowed, len(parts)) - 1)
    if not helpers:
        return [function(part) for part in parts]
    results: list[Any] = [None] * len(parts)
    numbers = iter(range(len(parts)))
    taking = Lock()

    def work() -> None:
        while True:
            with taking:
                number = next(numbers, None)
            if number is None:
                return
            results[number] = function(parts[number])

    def help_out() -> None:
        try:
            work()
        finally:
            _released()

    running = [pool.submit(help_out) for pool in helpers]
    try:
        work()
    finally:  # after an error, too: no further part is started, and none is still running when this function returns
        with taking:
            list(numbers)
        wait(running)
    for helper in running:
        helper.result()
    return results


def blocks(n: int, size: int) -> list[slice]:
    """Return 0..n in blocks of nearly equal length, at most ``size`` each."""
    if n <= size:
        return [slice(0, n)]
    count = -(-n // size)
    edges = [n * i // count for i in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def by_work(n: int, work: float, enough: float) -> list[slice]:
    """Return 0..n in up to sixteen blocks, a power of two, of at least ``enough`` work if an item costs ``work``."""
    count = max(1, min(16, n, int(n * work / enough)))
    if count == 1:
        return [slice(0, n)]
    return blocks(n, max(1, -(-n // (1 << (count.bit_length() - 1)))))


def _hired(wanted: int) -> list[ThreadPoolExecutor]:
    """Take up to ``wanted`` idle threads, and return the pool once for each of them."""
    global _pool, _busy
    if wanted < 1:
        return []
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_size, thread_name_prefix="onmf")
        number = max(0, min(wanted, _size - _busy))
        _busy += number
        return [_pool] * number


def _released() -> None:
    global _busy
    with _lock:
        _busy -= 1


class learning_alone:
    """A block in which a model learns: it raises an error if the model is in another such block.

    The blocks are recorded here, not in the model, which can be pickled and copied meanwhile.
    """

    __slots__ = ("model",)

    def __init__(self, model: object) -> None:
        self.model = id(model)

    def __enter__(self) -> None:
        if _learning.setdefault(self.model, id(self)) != id(self):  # one step, which no other thread can cut in two
            raise RuntimeError(
                "This model is learning already, and a model learns in one thread at a time: hold a lock of your own "
                "around fit and partial_fit, or give every thread a model of its own."
            )

    def __exit__(self, *error: object) -> None:
        self.__del__()

    def __del__(self) -> None:  # Ctrl-C on the way in or out leaves a block without its exit
        if _learning.get(self.model) == id(self):
            del _learning[self.model]


def _forget_threads() -> None:
    """Start anew in a forked child, which has none of its parent's threads and may have inherited a held lock."""
    global _pool, _lock, _busy
    _pool, _lock, _busy = None, Lock(), 0
    _learning.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


class cached_property(Generic[Value]):
    """A property that is computed at its first use, and then an attribute, without a lock.

    That of Python 3.11 has one, which a process that forks may inherit held. Threads that use the property first at the
    same time may each compute it, and get the same.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self.function, self.name, self.__doc__ = function, function.__name__, function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value
