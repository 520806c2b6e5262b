"""Compiled functions that check their arrays before every call: a wrong shape would read or write out of bounds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numba.core import event

from onmf.coefficients.kernels.cache import CURE, cached_njit, folder

Kernel = TypeVar("Kernel", bound=Callable[..., None])
CSR: TypeAlias = Any  # a matrix for the caller, (indptr, indices, data, columns) for the kernel
FACTS = attrgetter("shape", "dtype", "flags.carray")
WHOLE = np.dtype(np.int64)
VECTOR_SUMS = {"reassoc", "contract", "nsz"}  # sums in any order: lets the compiler use the vector unit for them


def kernel(shapes: str, **options: Any) -> Callable[[Kernel], Kernel]:
    """Compile a function whose first arguments are arrays of these shapes, e.g. ``"nK KF* 4n"``.

    A letter is a length, the same wherever it occurs, and P = K (K + 1) / 2 is that of a packed matrix; the third
    letter of a CSR matrix is the number of its entries. An array with a star is overwritten and has to be writeable
    and C-contiguous; others are copied if they are not: for each layout the function would be compiled once more.

    Floating-point arrays share one precision, and arguments annotated as ``float`` are converted to it: a double among
    floats would make the function compute in double precision.
    """
    overwritten = [shape.endswith("*") for shape in shapes.split()]
    specs, count = [shape.rstrip("*") for shape in shapes.split()], len(overwritten)

    def decorated(function: Kernel) -> Kernel:
        compiled = cached_njit(**options)(function)
        names, kinds = list(function.__annotations__), list(function.__annotations__.values())
        csr, arrays, floats = ([i for i, kind in enumerate(kinds) if kind == one] for one in ("CSR", "Array", "float"))
        facts = [_csr_facts if i in csr else FACTS for i in range(count)]

        @lru_cache(maxsize=8)  # small problems come by the thousand, and all alike; chunks are looked at several times
        def sound(*found: tuple[tuple[int, ...], Any, bool]) -> bool:
            """Return whether arrays of these shapes, types and layouts can be used as they are."""
            shapes, types, layouts = zip(*found, strict=True)
            dtype = types[arrays[0]]
            alike = all(types[i] == dtype for i in arrays) and all(types[i] in (dtype, WHOLE) for i in csr)
            return alike and all(layouts) and _fit(specs, shapes)

        def prepare(given: list[Any], found: list[tuple[tuple[int, ...], Any, bool]]) -> None:
            """Copy dense arrays that have another layout; what does not fit raises an error."""
            if not sound(*((shape, dtype, True) for shape, dtype, _ in found)):
                what = ", ".join(f"{names[i]} {shape} {dtype}" for i, (shape, dtype, _) in enumerate(found))
                raise ValueError(f"{function.__name__}: shapes or types do not fit: {what}.")
            for i in range(count):
                if not found[i][2]:  # C-contiguous, aligned and writeable
                    if overwritten[i]:
                        raise ValueError(
                            f"{function.__name__} overwrites {names[i]}, which must be writeable and C-contiguous."
                        )
                    given[i] = given[i].copy()

        @wraps(function)
        def checked(*arguments: Any) -> None:
            given = list(arguments)
            found = [fact(array) for fact, array in zip(facts, arguments, strict=False)]
            for i in csr:
                X = given[i]
                given[i] = X.indptr, X.indices, X.data, X.shape[1]
            if not sound(*found):
                prepare(given, found)
            dtype = found[arrays[0]][1]
            number = float if dtype.char == "d" else dtype.type
            for i in floats:
                given[i] = number(given[i])
            compiled(*given)

        checked.compiled = compiled  # type: ignore[attr-defined]
        return cast("Kernel", checked)

    return decorated


def _csr_facts(X: CSR) -> tuple[tuple[int, ...], Any, bool]:
    """Return the facts about a CSR matrix; places in another array, whole numbers, fit every precision."""
    return (*X.shape, len(X.data)), WHOLE if X.dtype.kind == "i" else X.dtype, True


def _fit(specs: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether the shapes have these letters' lengths."""
    if any(len(spec) != len(shape) for spec, shape in zip(specs, shapes, strict=True)):
        return False
    lengths: dict[str, int] = {digit: int(digit) for digit in "245"}
    pairs = [pair for spec, shape in zip(specs, shapes, strict=True) for pair in zip(spec, shape, strict=True)]
    agree = all(lengths.setdefault(letter, length) == length for letter, length in pairs)
    return agree and ("P" not in lengths or 2 * lengths["P"] == lengths["K"] * (lengths["K"] + 1))


SENTENCE = "Compiling for this machine, which takes a few seconds; later runs reuse the result."
EVERY_RUN = f"Compiling, which takes a few seconds in every run, as no folder of yours can keep the result; {CURE}."


class _Announcement(event.Listener):
    """A listener to Numba's compilations; kernels found on disk cause none."""

    said = False

    def on_start(self, event: Any) -> None:
        """Log a sentence for the first kernel of ours."""
        kernel = event.data["dispatcher"].py_func
        if not self.said and str(kernel.__module__).startswith("onmf."):
            self.said = True
            logging.getLogger("onmf").warning(SENTENCE if folder() else EVERY_RUN)

    def on_end(self, event: Any) -> None:
        """Do nothing."""


event.register("numba:compile", _Announcement())  # type: ignore[no-untyped-call]
