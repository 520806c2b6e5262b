"""Figures of a run for Prometheus, in its text format, through its client library."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from onmf.cli.terminal import errors, fail

LOOPBACK = "127.0.0.1"
GAUGES = {
    "loss": "Mean loss of the last batch before it was learnt from",
    "drift": "Are new samples fitted worse than those before? From 0, no, to 1, the stream has changed",
    "memory_bytes": "Resident memory",
    "samples_per_second": "Samples per second since the last line of the log",
}
COUNTERS = {
    "samples": "Samples learnt from, or transformed",
    "skipped": "Samples or batches left out",
    "changes": "Changes of the stream that were found",
}


@contextlib.contextmanager
def serving(address: str, figures: Callable[[], Any]) -> Iterator[None]:
    """Serve the figures at this [HOST:]PORT, as they are when somebody asks."""
    host, port = _parsed(address)
    try:
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ModuleNotFoundError:
        fail("--metrics needs prometheus_client; install onmf[metrics].")

    class Run:
        """What the library asks for the figures."""

        def collect(self) -> Iterator[Any]:
            now = figures()
            for kinds, family in ((GAUGES, GaugeMetricFamily), (COUNTERS, CounterMetricFamily)):
                for name, meaning in kinds.items():
                    value = None if now is None else getattr(now, name)
                    if value is not None:  # there is no loss before the first batch, and none of a transform
                        yield family(f"onmf_{name}", meaning, value=value)

    registry = CollectorRegistry()
    registry.register(Run())
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        fail(f"--metrics {address}: cannot listen on {host}, port {port}: {error.strerror}; give another one.")
    shown = f"[{host}]" if ":" in host else host
    errors.print(f"Metrics at http://{shown}:{server.server_port}/metrics.")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _parsed(address: str) -> tuple[str, int]:
    """Host and port: ``9100``, ``0.0.0.0:9100`` or ``[::]:9100``."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        fail(f"--metrics {address}: write a port, or HOST:PORT, as in 9100 or 0.0.0.0:9100.")
    return host.strip("[]") or LOOPBACK, int(port)
