"""The next batch is read and sent to the device while this one is learnt from."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from queue import Empty, Full, Queue
from typing import Any

import numpy as np
import torch

from onmf._support.device_rows import Resident
from onmf.device.samples import moved
from onmf.samples import Samples

PATIENCE = 0.1  # seconds between looks whether anybody still waits

Cut = tuple[Any, Any, int | None]


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


def sent_ahead(batches: Iterator[Cut], device: str) -> Generator[Cut, None, None]:
    """The same batches, one of them ahead, read and moved by a thread of its own; its copies overlap with the work."""
    ready: Queue[Any] = Queue(maxsize=1)
    over = threading.Event()

    def put(item: Any) -> None:
        while not over.is_set():
            with suppress(Full):
                ready.put(item, timeout=PATIENCE)
                return

    def work() -> None:
        gpu = torch.device(device).type == "cuda"
        stream = torch.cuda.Stream(device) if gpu else None
        try:
            with torch.cuda.stream(stream) if gpu else nullcontext():
                for rows, batch, place in batches:
                    sent = _sent(batch, device)
                    if stream is not None:
                        stream.synchronize()
                    put((rows, sent, place))
                    if over.is_set():
                        return
            put(None)
        except BaseException as error:  # whatever it is, it is the reader's
            put(_Failed(error))

    thread = threading.Thread(target=work, name="onmf-ahead", daemon=True)
    thread.start()
    try:
        while (item := _next(ready, thread)) is not None:
            if isinstance(item, _Failed):
                raise item.error
            _claim(item[1])
            yield item
    finally:
        over.set()
        thread.join()


def _next(ready: Queue[Any], thread: threading.Thread) -> Any:
    """What comes; by looks, so that an interrupt is seen to."""
    while True:
        try:
            return ready.get(timeout=PATIENCE)
        except Empty:
            if not thread.is_alive() and ready.empty():
                return None


def _sent(batch: Samples, device: str) -> Samples:
    """The batch on the device; one with weights is sent when it is learnt from, as more is to be seen to."""
    if batch.masked or batch.sample_weight is not None or isinstance(batch.matrix, Resident):
        return batch
    there = replace(moved(batch, device), given=batch.matrix)
    return Samples(Resident(there, np.arange(len(batch)), batch.dtype))


def _claim(batch: Samples) -> None:
    """Tell the allocator that the tensors are in use by this thread, too."""
    if isinstance(batch.matrix, Resident):
        there = batch.matrix.data
        for tensor in (there.values, there.starts, there.columns):
            if tensor is not None and tensor.is_cuda:
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
