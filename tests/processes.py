"""Processes of their own for tests: copies of one Python that has imported what takes a second and a half to import.

Each is a real process with pipes, signals and an exit status of its own, in which all of ``onmf`` is imported anew;
only the start of Python and the libraries that it imports are shared.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import types
from typing import Any

LIBRARIES = (
    *("cffi", "numba.core.registry", "numba.np.arrayobj", "numba.typed", "pandas", "pydantic", "rich.progress"),
    *("rich.traceback", "safetensors.numpy", "scipy.optimize", "scipy.sparse", "sklearn.preprocessing", "typer"),
    *("typer.core", "xxhash"),
)
ADOPT = 36  # PR_SET_CHILD_SUBREAPER of Linux: copies, whose parent ends at once, become children of this process


class Copy(subprocess.Popen[Any]):
    """``python`` with the arguments of a module or a program: ``-m onmf ...`` or ``-c CODE ...``."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *others: Any) -> None:
        assert preexec_fn is None
        _, _, folder, environment, _, _, _, *pipes = others
        theirs = pipes[0], pipes[3], pipes[5]  # -1: the same as ours
        request = [[*map(str, args)], str(folder or os.getcwd()), dict(environment or os.environ)]
        given = [usual if end == -1 else end for usual, end in enumerate(theirs)]
        socket.send_fds(original(), [json.dumps(request).encode()], given)
        self.pid = int(original().recv(100))
        self._child_created = True
        self._close_pipe_fds(*pipes[:6])  # type: ignore[attr-defined]


def start(*arguments: object, **options: Any) -> subprocess.Popen[Any]:
    """``python`` with these arguments in a process of its own, which Ctrl-C interrupts."""
    if sys.platform == "linux":
        return Copy(arguments, **options)  # type: ignore[arg-type]
    interrupted = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen([sys.executable, *map(str, arguments)], preexec_fn=interrupted, **options)


def run(*arguments: object, given: Any = None, **options: Any) -> subprocess.CompletedProcess[Any]:
    """The same, and wait for its end; what it writes is captured, unless it is told where to write."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    with start(*arguments, **pipes) as process:
        try:
            output = process.communicate(given, timeout=120)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(arguments, process.returncode, *output)


@functools.cache
def original() -> socket.socket:
    """The process that is copied; it ends with this one."""
    ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"PYTHONUNBUFFERED": "", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", __file__]
    process = subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, cwd="/")  # neither is a file
    process.returncode = 0  # nobody waits for it
    theirs.close()
    ours.settimeout(60)
    atexit.register(ours.close)
    return ours


def copied(channel: socket.socket) -> list[str]:
    """The arguments, in every copy that is asked for; the process itself never comes back from here."""
    while True:
        request, ends, _, _ = socket.recv_fds(channel, 2**20, 3)
        if not request:
            os._exit(0)
        between = os.fork()
        if not between:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            break
        os.waitpid(between, 0)
        for end in ends:
            os.close(end)
    while os.getppid() == between:
        time.sleep(1e-4)
    for usual, end in enumerate(ends):
        os.dup2(end, usual)
        os.close(end)
    arguments, folder, environment = json.loads(request)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    channel.send(str(os.getpid()).encode())
    channel.close()
    return arguments  # type: ignore[no-any-return]


if __name__ == "__main__":
    for library in LIBRARIES:
        importlib.import_module(library)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even where pytest ignores it
    gc.freeze()  # copies neither look through what they share with the others nor copy it to do so
    way, what, *sys.argv[1:] = copied(socket.socket(fileno=os.dup(0)))
    sys.path.insert(0, "")
    if way == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        program = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(what, program.__dict__)  # noqa: S102
