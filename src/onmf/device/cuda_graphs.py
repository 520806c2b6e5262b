"""Functions of tensors, recorded once as a CUDA graph: what would be two hundred launches is one.

On the host a launch takes as long as a small matrix product takes on the device, and a step of a chunk has hundreds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch

WARM_UP = 2  # runs before one is recorded, in which libraries allocate what they need
MOST = 24  # recordings that are kept


class Recorded:
    """A function of tensors of fixed shapes, which must not wait for the device.

    The last ``fed_back`` of its outputs take the place of its last inputs after every run.
    """

    def __init__(self, function: Callable[..., Sequence[Any]], inputs: Sequence[Any], fed_back: int = 0) -> None:
        self.inputs = [each.clone() for each in inputs]
        device = self.inputs[0].device
        with torch.cuda.device(device):
            here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(here)
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP):
                    function(*self.inputs)
            here.wait_stream(aside)
            self.graph = torch.cuda.CUDAGraph()
            # By this thread alone: another may be reading ahead.
            with torch.cuda.graph(self.graph, stream=aside, capture_error_mode="thread_local"):
                self.outputs = list(function(*self.inputs))
                if fed_back:
                    for place, output in zip(self.inputs[-fed_back:], self.outputs[-fed_back:], strict=True):
                        place.copy_(output)

    def load(self, first: int, inputs: Sequence[Any]) -> None:
        """Copy values to the inputs, beginning with the one at this position."""
        for place, given in zip(self.inputs[first:], inputs, strict=False):
            place.copy_(given)

    def run(self) -> list[Any]:
        """Return the outputs, which the next run overwrites."""
        self.graph.replay()
        return self.outputs


recordings: OrderedDict[Hashable, Recorded] = OrderedDict()  # by what they depend on, the one used last at the end


def recorded(key: Hashable, make: Callable[[], Recorded]) -> Recorded:
    """Return the recording, made if there is none; of too many, the least recently used one is dropped."""
    if key not in recordings:
        if len(recordings) >= MOST:
            recordings.popitem(last=False)
        recordings[key] = make()
    recordings.move_to_end(key)
    return recordings[key]
