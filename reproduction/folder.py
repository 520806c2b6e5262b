"""The folder of a run keeps what is finished, so an interrupted run resumes where it stopped."""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from reproduction.arrays import Array
from reproduction.report import Block, picture, replacing, table


@dataclass(frozen=True)
class Result:
    """What one part of an experiment found: facts that fit into JSON, and arrays."""

    facts: dict[str, Any]
    arrays: dict[str, Array]


class Folder:
    """Settings, tables, pictures, and for each finished part one file of facts and one of arrays."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path, self.settings = path, dict(settings)
        self._parts, self._known = path / "parts", path / "settings.json"
        if self._known.exists():
            there, wanted = json.loads(self._known.read_text()), json.loads(json.dumps(self.settings))
            if other := [key for key in there | wanted if there.get(key) != wanted.get(key)]:
                listed = ", ".join(f"{key} {there.get(key)!r}, not {wanted.get(key)!r}" for key in other)
                raise ValueError(f"{path} holds a run with other settings ({listed}); give --out another folder.")
        elif path.is_dir() and any(path.iterdir()):
            raise ValueError(f"{path} is not empty and holds no experiment; give --out a new or an empty folder.")

    def _begin(self) -> None:
        """Prepare the folder for writing, and remove what a killed run left half done."""
        if not self._known.exists():
            self._parts.mkdir(parents=True, exist_ok=True)
            with replacing(self._known) as temporary:
                temporary.write_text(json.dumps(self.settings, indent=2) + "\n")
        for litter in self.path.glob(".scratch-*"):
            shutil.rmtree(litter, ignore_errors=True)

    def part(self, name: str, find: Callable[[Path], Result]) -> dict[str, Any]:
        """Return the facts of a part, read from here or found now.

        ``find`` is given a temporary folder for what is too large for memory. The facts are written last: a part that
        has them is complete.
        """
        facts = self._parts / f"{name}.json"
        if not facts.exists():
            self._begin()
            with tempfile.TemporaryDirectory(dir=self.path, prefix=".scratch-") as scratch:
                result = find(Path(scratch))
            content = {key: np.ascontiguousarray(array) for key, array in result.arrays.items()}
            with replacing(self._parts / f"{name}.safetensors") as temporary:
                temporary.write_bytes(safetensors.numpy.save(content))
            with replacing(facts) as temporary:
                temporary.write_text(json.dumps(result.facts) + "\n")
        return json.loads(facts.read_text())

    def arrays(self, name: str) -> dict[str, Array]:
        """Read the arrays of a finished part."""
        return safetensors.numpy.load_file(self._parts / f"{name}.safetensors")

    def table(self, name: str, rows: Sequence[Mapping[str, Any]], caption: str = "") -> Block:
        """Write rows as NAME.csv, and give them as a block of the report; missing cells are left empty."""
        self._begin()
        columns = list(dict.fromkeys(key for row in rows for key in row))
        with (
            replacing(self.path / f"{name}.csv") as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        return table(caption, rows)

    def picture(self, name: str, figure: Any, caption: str) -> Block:
        """Write a Matplotlib figure as NAME.png and NAME.svg, and give it as a block of the report."""
        for suffix in ("svg", "png"):
            with replacing(self.path / f"{name}.{suffix}") as temporary:
                figure.savefig(temporary, format=suffix, dpi=80)
            figure.set_layout_engine("none")  # computed once: it takes as long as drawing
        return picture(self.path / f"{name}.png", caption)
