"""One line to the log when kernels must be compiled: the first fit on a machine, or after an update."""

from __future__ import annotations

import logging
from typing import Any

from numba.core import event


class _Announcement(event.Listener):
    """Numba's event of a compilation; kernels found in its cache on disk cause none."""

    said = False

    def on_start(self, event: Any) -> None:
        """Say it for the first kernel of ours."""
        kernel = event.data["dispatcher"].py_func
        if not self.said and kernel.__module__.startswith("onmf."):
            self.said = True
            logging.getLogger("onmf").warning("Compiling, which takes some seconds; later runs find it done.")

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


event.register("numba:compile", _Announcement())  # type: ignore[no-untyped-call]
