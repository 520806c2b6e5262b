"""One line in the log when kernels have to be compiled: at the first fit on a machine, or after an update."""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event

SENTENCE = "Compiling for this machine, which takes a few seconds; later runs reuse the result."


class _Announcement(event.Listener):
    """Listens to Numba's compilations; kernels found in its disk cache cause none."""

    said = False

    def on_start(self, event: Any) -> None:
        """Say it for the first kernel of ours."""
        kernel = event.data["dispatcher"].py_func
        if not self.said and str(kernel.__module__).startswith("onmf."):
            self.said = True
            logging.getLogger("onmf").warning(SENTENCE)

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


event.register("numba:compile", _Announcement())  # type: ignore[no-untyped-call]
