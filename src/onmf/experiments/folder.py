"""The folder of a run keeps what is finished, so that an interrupted run continues where it stopped."""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from onmf._support.arrays import Array
from onmf.persistence.file import replacing


@dataclass(frozen=True)
class Result:
    """What one part of an experiment found: numbers and texts that JSON can hold, and arrays."""

    facts: dict[str, Any]
    arrays: dict[str, Array]


class Folder:
    """Settings, tables, pictures, and for each finished part one file of facts and one of arrays."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = path, dict(settings)
        self._parts = path / "parts"
        known = path / "settings.json"
        if known.exists():
            _require_same(path, json.loads(known.read_text()), self.settings)
        elif path.is_dir() and any(path.iterdir()):
            raise ValueError(
                f"{path} is not empty and holds no run of an experiment; give --out a new or an empty folder."
            )

    def _begin(self) -> None:
        """Called when there is something to keep; removes what a killed run left half done."""
        known = self.path / "settings.json"
        if not known.exists():
            self._parts.mkdir(parents=True, exist_ok=True)
            with replacing(known) as temporary:
                temporary.write_text(json.dumps(self.settings, indent=2) + "\n")
        for litter in self.path.glob(".scratch-*"):
            shutil.rmtree(litter, ignore_errors=True)

    def part(self, name: str, find: Callable[[], Result]) -> Result:
        """The part of that name, read from here or found now. The facts are written last: with them it is complete."""
        facts, arrays = (self._parts / f"{name}.{suffix}" for suffix in ("json", "safetensors"))
        if not facts.exists():
            result = find()
            self._begin()
            content = {key: np.ascontiguousarray(array) for key, array in result.arrays.items()}
            with replacing(arrays) as temporary:
                temporary.write_bytes(safetensors.numpy.save(content))
            with replacing(facts) as temporary:
                temporary.write_text(json.dumps(result.facts) + "\n")
        return Result(json.loads(facts.read_text()), safetensors.numpy.load_file(arrays))

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary folder beside the results for what is too large for memory."""
        self._begin()
        with tempfile.TemporaryDirectory(dir=self.path, prefix=".scratch-") as name:
            yield Path(name)

    def table(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows as NAME.csv; a column that a row lacks stays empty."""
        self._begin()
        rows = list(rows)
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with (
            replacing(self.path / f"{name}.csv") as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)

    def picture(self, name: str, figure: Any) -> Path:
        """A Matplotlib figure as NAME.png and NAME.svg; the path of the former."""
        for suffix in ("svg", "png"):
            with replacing(self.path / f"{name}.{suffix}") as temporary:
                figure.savefig(temporary, format=suffix, dpi=80)
            figure.set_layout_engine("none")  # computed once: it takes as long as drawing
        return self.path / f"{name}.png"


def _require_same(path: Path, known: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    same = json.loads(json.dumps(wanted))
    other = [key for key in dict.fromkeys([*known, *same]) if known.get(key) != same.get(key)]
    if other:
        listed = ", ".join(f"{key} {known.get(key)!r}, not {same.get(key)!r}" for key in other)
        raise ValueError(f"{path} holds a run with other settings ({listed}); give --out another folder.")
