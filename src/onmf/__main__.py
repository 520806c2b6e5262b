"""``onmf`` and ``python -m onmf``: the command line, which may be interrupted from its first import on."""

import os
import signal
import sys


def main() -> None:
    """Run the command line, without a traceback whenever and however often Ctrl-C is pressed.

    Until all is imported, it ends the process as it ends any other. Then the first one stops the command, which saves
    what it has learnt; the second one stops that, and a third one ends the process at once.
    """
    _open_what_is_closed()
    watched = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, as in the background
    if watched:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from onmf.cli.main import main as run

    try:
        if watched:
            signal.signal(signal.SIGINT, _interrupt)
        try:
            run()
        finally:
            if watched:
                signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is done but for leaving
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGINT, _interrupt_again)
    raise KeyboardInterrupt


def _interrupt_again(*_: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt


def _open_what_is_closed() -> None:
    """Open the null device in place of standard streams that the caller has closed (``<&-``).

    Otherwise the next file to be opened would take their place.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


if __name__ == "__main__":
    main()
