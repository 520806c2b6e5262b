"""The cluster that a command runs on, as ``--dask`` names it."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

import typer

from onmf._support.wording import counted
from onmf.cli.terminal import errors, fail

LOCAL = "local"
PATIENCE = 10  # seconds, for a scheduler to answer
IGNORE_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"  # the command ends its workers


Dask: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Run on Dask: the address of a scheduler, such as tcp://10.0.0.1:8786, or local for this machine's "
        "processors. Workers read the files themselves, under the same names. Use a cluster that you trust: it can run "
        "code here, and you can run code there.",
        rich_help_panel="Machines",
        show_default=False,
    ),
]


@contextmanager
def running_on(address: str) -> Iterator[Any]:
    """Give a client of the cluster, to which Dask sends all its computations meanwhile."""
    if not address:
        fail("--dask needs the address of a scheduler, such as tcp://10.0.0.1:8786, or local.")
    if any(importlib.util.find_spec(each) is None for each in ("dask", "distributed")):
        raise ModuleNotFoundError("--dask needs dask; install onmf[dask].")
    import dask
    import distributed

    from onmf.distributed.cluster import SCHEDULER_LOST

    for name in ("distributed", "distributed.client", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is told in one sentence, without its trace
    _send_modules()
    # Otherwise a worker that dies while the cluster looks after an earlier one is never restarted.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "365 days"})
    try:
        if address == LOCAL:
            settings = {"processes": True, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
            settings["preload"] = IGNORE_CTRL_C
            cluster = distributed.LocalCluster(threads_per_worker=1, **settings)
            client = distributed.Client(cluster)
        else:
            asyncio.run(_require_answer(address))
            cluster, client = None, distributed.Client(address, timeout=PATIENCE)
    except AssertionError as error:  # which Dask raises on Ctrl-C while processes start
        raise KeyboardInterrupt from error
    except (OSError, ValueError, TypeError) as error:
        cause = " ".join(str(error).split()).rstrip(".") or f"it was silent for {PATIENCE} seconds"
        fail(f"--dask {address}: no scheduler answers there ({cause}); give its address, or local.")
    try:
        workers = counted(len(client.nthreads()), "worker")
        seen = f", dashboard at {client.dashboard_link}" if importlib.util.find_spec("bokeh") else ""
        errors.print(f"Dask: {workers} at {client.scheduler.address}{seen}.")
        yield client
    except distributed.comm.CommClosedError as error:
        raise ConnectionError(SCHEDULER_LOST) from error
    finally:
        client.close()
        if cluster is not None:
            close(cluster)


def close(cluster: Any) -> None:
    """Close a cluster of this machine.

    Where a worker has died, Dask's record of the workers may fail at the very end, when all processes are gone.
    """
    import distributed

    try:
        cluster.close()
    except KeyError:
        cluster.status = distributed.Status.closed


async def _require_answer(address: str) -> None:
    """Raise an error if nothing at this address speaks as Dask does: its client would wait without end."""
    import distributed

    security = distributed.Security().get_connection_args("client")
    found = await asyncio.wait_for(distributed.comm.connect(address, timeout=PATIENCE, **security), PATIENCE)
    await found.close()


def _send_modules() -> None:
    """Send the classes of a file of --module by value, since no worker could import them."""
    import cloudpickle

    for name, module in list(sys.modules.items()):
        if name.startswith("onmf_module_"):
            cloudpickle.register_pickle_by_value(module)
