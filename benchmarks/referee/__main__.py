"""The command line of the referee."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Record, compare, or take times."""
    import benchmarks.referee as referee

    parser = argparse.ArgumentParser(
        "python -m benchmarks.referee",
        description=referee.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "compare", "times"):
        command = commands.add_parser(name)
        command.add_argument("--only", help="cases whose names contain one of these texts, with commas between them")
        command.add_argument("--tree", type=Path, default=ROOT, help="the checkout to judge; this one by default")
        if name == "times":
            command.add_argument("--base", type=Path, help="a checkout of the baseline; made under build/ by default")
            command.add_argument("--repeats", type=int, default=25)
        else:
            command.add_argument("--out" if name == "record" else "--record", type=Path, dest="place")
        if name == "compare":
            command.add_argument(
                "--verbose", action="store_true", help="a line for every case, not only for differences"
            )
    given = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))  # before NumPy is imported
    if given.command == "times":
        from benchmarks.referee.times import times

        return times(given.tree, given.base, given.only, given.repeats)
    sys.path.insert(0, str(given.tree.resolve() / "src"))
    from benchmarks.referee import record

    place = given.place or record.PLACE
    if given.command == "record":
        return record.record(place, given.only)
    return record.compare(place, given.only, given.verbose)


if __name__ == "__main__":
    sys.exit(main())
