"""Tools that make a source from another: shuffled, repeated, cut off, scaled, or read ahead in a thread."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from onmf._support.arrays import taken
from onmf._support.checks import require_at_least, require_whole
from onmf.data.base import Numbered, OnBad, Source, SourceError, read_from, recut
from onmf.samples import Samples, stacked

Read = Callable[[int, np.random.Generator | None, OnBad | None, int], Numbered]
UNLIKE = {"resident", "checked", "edges", "chosen", "opened", "rows_in"}  # facts that are not those of the source
FACTS = Source.__annotations__.keys() - UNLIKE


class Derived(Source):
    """A source made of another: ``batches`` reads it, and the facts that are not given are those of the other.

    ``again`` makes the same of a source that has some of the other's files.
    """

    checked = True  # by ``read_from`` or ``recut``, through which every tool reads

    def __init__(self, source: Source, batches: Read, again: Callable[[Source], Source], **facts: Any) -> None:
        for fact in FACTS:
            setattr(self, fact, facts.get(fact, getattr(source, fact)))
        self._source, self._read, self._again = source, batches, again

    def batches(
        self, size: int, rng: np.random.Generator | None = None, on_bad: OnBad | None = None, first: int = 0
    ) -> Numbered:
        return self._read(size, rng, on_bad, first)

    def of_files(self, names: Sequence[str]) -> Source:
        return self._again(self._source.of_files(names))


def shuffle(source: Source, buffer: int = 10_000, seed: int = 0) -> Source:
    """Return rows in random order as far as a buffer allows: each batch is drawn from ``buffer`` rows that wait.

    ``OnlineNMF.fit`` with ``shuffle=True`` draws by its own ``random_state``, anew in every pass; otherwise the seed
    decides, and every pass is the same. Row numbers are those of the source.

    Parameters
    ----------
    source : Source
        The source that is read.
    buffer : int, default 10000
        Rows that wait.
    seed : int, default 0
        Decides the order where ``fit`` does not shuffle.

    Returns
    -------
    Source
        The new source; nothing is read yet.

    Examples
    --------
    >>> batches = onmf.data.Batches([X[:30], X[30:]])
    >>> source = onmf.data.shuffle(batches, buffer=50)
    >>> OnlineNMF(3, random_state=0).fit(source).n_samples_seen_
    60
    """
    _require(source, buffer=buffer)
    require_whole(0, seed=seed)

    def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
        rng, most = np.random.default_rng(seed) if rng is None else rng, source.fitting(buffer)
        pool, fresh = _Pool(), list[tuple[Any, Any]]()
        for block in read_from(source, size, None, on_bad, 0):
            fresh.append(block)
            if len(pool) + sum(len(rows) for rows, _ in fresh) >= most + size:
                pool.add(fresh)
                fresh = []
            while len(pool) >= most + size:
                yield pool.drawn(rng.permutation(len(pool)), size)
        pool.add(fresh)
        order = rng.permutation(len(pool))
        for start in range(0, len(order), size):
            chosen = pool.order[order[start : start + size]]
            yield pool.rows[chosen], pool.X[chosen]

    again = partial(shuffle, buffer=buffer, seed=seed)
    return Derived(source, batches, again, any_order=True, batch_size=None, seeks=False, pipe=None)


class _Pool:
    """Rows that wait in a buffer; new dense rows take the places of drawn ones, so that the others are not moved."""

    rows: npt.NDArray[Any]
    X: Any

    def __init__(self) -> None:
        self.order = self.free = np.empty(0, dtype=np.int64)  # places of the rows that wait, and of drawn ones

    def __len__(self) -> int:
        return len(self.order)

    def add(self, blocks: list[tuple[Any, Any]]) -> None:
        """Let these rows wait, too."""
        if not blocks:
            return
        rows, X = (stacked(list(part)) for part in zip(*blocks, strict=True))
        if isinstance(X, np.ndarray) and 0 < len(X) <= len(self.free) and X.dtype == self.X.dtype:
            places, self.free = np.split(self.free, [len(rows)])
            self.rows[places], self.X[places] = rows, X
            self.order = np.concatenate([self.order, places])
            return
        if len(self):
            rows, X = np.concatenate([self.rows[self.order], rows]), stacked([self.X[self.order], X])
        elif len(blocks) == 1 and isinstance(X, np.ndarray):
            rows, X = rows.copy(), X.copy()  # the source's own must not be written to
        self.rows, self.X, self.order, self.free = rows, X, np.arange(len(rows)), self.free[:0]

    def drawn(self, order: npt.NDArray[Any], size: int) -> tuple[npt.NDArray[Any], Any]:
        """Return the first rows of a permutation, which do not wait any more."""
        chosen = self.order[order[:size]]
        self.order, self.free = self.order[np.sort(order[size:])], np.concatenate([self.free, chosen])
        return self.rows[chosen], self.X[chosen]


def with_features(source: Source, names: Sequence[str], fill: float = 0.0) -> Source:
    """Return a source with the features of these names, in this order; ``fill`` stands where it has no such feature."""
    found = tuple(source.feature_names or ())
    if found == tuple(names):
        return source

    def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
        for rows, batch in read_from(source, size, rng, on_bad, first):
            yield rows, with_columns(batch, found, names, fill)

    spec = source.spec
    if spec is not None:
        idf = dict(zip(found, spec.options.get("idf", ()), strict=False))
        options = dict(spec.options) | ({"idf": [idf[name] for name in names]} if idf else {})
        spec = replace(spec, options=options, names=tuple(names))
    again = partial(with_features, names=names, fill=fill)
    return Derived(source, batches, again, n_features=len(names), feature_names=list(names), spec=spec)


def with_columns(X: Any, found: Sequence[str], names: Sequence[str], fill: float = 0.0) -> Any:
    """Return X, whose columns have the names ``found``, with those of these names; others hold ``fill``."""
    if isinstance(X, Samples):
        if X.entry_weight is not None:
            raise SourceError("features cannot be added to data whose entries weigh differently; use features='fixed'.")
        return Samples(with_columns(X.matrix, found, names, fill), None, X.sample_weight, X.absent)
    place = dict(zip(found, range(len(found)), strict=True))
    X = X if X.dtype.kind == "f" else X.astype(np.float64)
    return taken(X, np.array([place.get(name, -1) for name in names]), axis=1, fill=fill)


def repeat(source: Source, passes: int) -> Source:
    """Return several passes as one, each shuffled anew if at all.

    Parameters
    ----------
    source : Source
        The source that is read.
    passes : int
        How many passes become one.

    Returns
    -------
    Source
        The new source; nothing is read yet.

    Examples
    --------
    >>> onmf.data.repeat(onmf.data.Rows(X), 2).n_samples
    120
    """
    _require(source, passes=passes)
    if passes > 1 and not source.rewinds:
        raise SourceError("this source can be read only once, so it cannot be repeated; write it to a file first.")

    def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
        for _ in range(passes):
            yield from read_from(source, size, rng, on_bad, 0)

    n = None if source.n_samples is None else passes * source.n_samples
    return Derived(source, batches, partial(repeat, passes=passes), n_samples=n, seeks=False)


def take(source: Source, n: int) -> Source:
    """Return the first n rows.

    Parameters
    ----------
    source : Source
        The source that is read.
    n : int
        How many rows.

    Returns
    -------
    Source
        The new source; nothing is read yet.

    Examples
    --------
    >>> onmf.data.take(onmf.data.Rows(X), 10).n_samples
    10
    """
    _require(source, n=n)

    def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
        left = n
        for rows, batch in read_from(source, size, None, on_bad, 0):
            yield rows[:left], batch[:left]
            left -= len(rows)
            if left <= 0:
                return

    number = None if source.n_samples is None else min(n, source.n_samples)
    # Without files: those that the first n rows come from change when files are added.
    return Derived(source, batches, partial(take, n=n), n_samples=number, any_order=False, seeks=False, files=None)


def scale(source: Source, factor: float) -> Source:
    """Return the source with every entry multiplied by a factor.

    Parameters
    ----------
    source : Source
        The source that is read.
    factor : float
        The factor, zero or more.

    Returns
    -------
    Source
        The new source; nothing is read yet.

    Examples
    --------
    >>> _, batch = next(onmf.data.scale(onmf.data.Rows(X), 2.0).batches(60))
    >>> bool((batch == 2 * X).all())
    True
    """
    _require(source)
    require_at_least(0, factor=factor)

    def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
        for rows, batch in read_from(source, size, rng, on_bad, first):
            weighted = isinstance(batch, Samples)
            yield rows, batch.with_values(batch.values * float(factor)) if weighted else batch * float(factor)

    return Derived(source, batches, partial(scale, factor=factor))


def rebatch(source: Source, size: int) -> Source:
    """Return batches of one size, whatever is asked for; only the last may be shorter.

    Parameters
    ----------
    source : Source
        The source that is read.
    size : int
        Rows of a batch.

    Returns
    -------
    Source
        The new source; nothing is read yet.

    Examples
    --------
    >>> source = onmf.data.rebatch(onmf.data.Batches([X[:10], X[10:]]), 25)
    >>> [len(batch) for _, batch in source.batches(100)]
    [25, 25, 10]
    """
    _require(source, size=size)

    def batches(_: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
        return recut(source.batches(size, rng, on_bad), size, on_bad)

    return Derived(source, batches, partial(rebatch, size=size), batch_size=size, seeks=False)


def prefetch(source: Source, depth: int = 2) -> Source:
    """Return a source that reads up to ``depth`` batches ahead in a thread, while the last one is learnt from.

    Errors are raised where the batch is missing, and bad samples reported where they were among the batches.

    Parameters
    ----------
    source : Source
        The source that is read.
    depth : int, default 2
        Batches that wait at most.

    Returns
    -------
    Source
        The new source; nothing is read yet.

    Examples
    --------
    >>> source = onmf.data.prefetch(onmf.data.Batches([X[:30], X[30:]]))
    >>> OnlineNMF(3, shuffle=False, random_state=0).fit(source).n_samples_seen_
    60
    """
    _require(source, depth=depth)

    def batches(size: int, rng: np.random.Generator | None, on_bad: OnBad | None, first: int) -> Numbered:
        ready: queue.Queue[tuple[str, Any]] = queue.Queue(maxsize=depth)
        stop = threading.Event()

        def hand_over(what: str, item: Any) -> None:
            while not stop.is_set():
                with contextlib.suppress(queue.Full):
                    ready.put((what, item), timeout=0.1)
                    break

        def read() -> None:
            try:
                tell = on_bad and (lambda error: hand_over("bad", error))
                for item in read_from(source, size, rng, tell, first):
                    hand_over("batch", item)
                    if stop.is_set():
                        return
                hand_over("end", None)
            except BaseException as error:  # of whatever type, the caller must hear of it
                hand_over("error", error)

        thread = threading.Thread(target=read, daemon=True, name="onmf-prefetch")
        thread.start()
        try:
            while (found := ready.get())[0] != "end":
                what, item = found
                if what == "error":
                    raise item
                if what == "bad" and on_bad is not None:
                    on_bad(item)
                else:
                    yield item
        finally:
            stop.set()
            thread.join(timeout=5)

    return Derived(source, batches, partial(prefetch, depth=depth))


def _require(source: Source, **at_least_one: int) -> None:
    if not isinstance(source, Source):
        raise SourceError(
            f"this takes a source, not {type(source).__name__}; Rows makes one from an array, Batches from an iterable."
        )
    require_whole(1, **at_least_one)
