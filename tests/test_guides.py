"""The guides: their commands parse and, where that takes seconds, run as they are written, on small files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import typer.main

from onmf.cli import main as cli
from onmf.data import examples
from tests.conftest import Run

GUIDES = Path(__file__).parent.parent / "docs" / "guides"
FENCE = re.compile(r'^```(\w*)(?: title="(\S+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
NOT_RUN = {"gpu", "many-machines", "streams"}  # need a GPU, a cluster, a producer of events
ELSEWHERE = "own-divergence"  # test_commands.py runs it and compares what it prints, too


def blocks(guide: str) -> list[tuple[str, str, str]]:
    """The language, the title and the text of every block of code."""
    return FENCE.findall((GUIDES / f"{guide}.md").read_text())


def commands(code: str) -> list[list[str]]:
    """The arguments of every ``onmf`` in a block for the shell, whatever pipes are around it."""
    found: list[list[str]] = [[]]
    for line in code.replace("\\\n", "").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars="|")
        words.whitespace_split = True
        found.append([])
        for word in words:
            if word == "|":
                found.append([])
            else:
                found[-1].append(word)
    return [words[1:] for words in found if words[:1] == ["onmf"]]


COMMANDS = {
    guide.stem: [each for kind, _, code in blocks(guide.stem) if kind == "sh" for each in commands(code)]
    for guide in sorted(GUIDES.glob("*.md"))
    if guide.stem != ELSEWHERE
}
group: Any = typer.main.get_command(cli.app)


@pytest.mark.parametrize("guide", [guide for guide, found in COMMANDS.items() if found])
def test_the_commands_of_a_guide_parse(guide: str) -> None:
    for name, *arguments in COMMANDS[guide]:
        if not name.startswith("--"):
            group.commands[name].make_context(name, arguments)


def test_the_options_that_guides_name_between_their_blocks_exist() -> None:
    found = 0
    for guide in GUIDES.glob("*.md"):
        text = " ".join(FENCE.sub("", guide.read_text()).split())
        for name, rest in re.findall(r"`onmf ([a-z]+) ([^`]*)`", text):
            given = set(re.findall(r"(?<=\s)--?[a-z][-a-z]*", f" {rest}")) - {"--help"}
            known = {option for each in group.commands[name].params for option in [*each.opts, *each.secondary_opts]}
            assert given <= known, f"{guide.name}: onmf {name} {rest}"
            found += len(given)
    assert found > 15


@pytest.mark.parametrize(
    "page", [*sorted(GUIDES.glob("*.md")), GUIDES.parent / "gallery.md"], ids=lambda page: page.stem
)
def test_a_page_whose_code_draws_names_the_extra_before_the_code(page: Path) -> None:
    text = page.read_text()
    drawing = [found for found in FENCE.finditer(text) if "savefig" in found[3]]
    assert not drawing or re.search(r"onmf\[(\w+,)*plots\]", text[: drawing[0].start()])


# Small files under the names that the guides give to theirs


def counts(rows: int = 60, columns: int = 8) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.poisson(rng.gamma(0.5, 10, (rows, 3)) @ rng.gamma(0.5, 1, (3, columns)))


def frame(rows: int = 60) -> Any:
    return pytest.importorskip("pandas").DataFrame(counts(rows), columns=list("abcdefgh"))


def texts(name: str, number: int, words: str) -> None:
    rng, each = np.random.default_rng(0), words.split()
    lines = (json.dumps({"body": " ".join(rng.choice(each, 12))}) for _ in range(number))
    Path(name).write_text("\n".join(lines))


def pictures(folder: str) -> None:
    image = pytest.importorskip("PIL.Image")
    Path(folder).mkdir()
    for number, picture in enumerate(counts(30, 256).reshape(30, 16, 16)):
        image.fromarray(np.minimum(20 * picture, 255).astype(np.uint8)).save(f"{folder}/{number}.png")


def sound(name: str, *pitches: float) -> None:
    soundfile = pytest.importorskip("soundfile")
    t = np.arange(16000) / 16000
    notes = [np.sin(2 * np.pi * pitch * k * t) / k * np.exp(-3 * t) for pitch in pitches for k in (1, 2)]
    noise = np.random.default_rng(0).normal(0, 1e-3, t.size)
    soundfile.write(name, 0.2 * np.sum(notes, axis=0) + noise, 16000)


def for_cells(run: Run) -> None:
    pytest.importorskip("anndata")
    examples.cells(n=80, genes=30, programmes=3).anndata().write_h5ad("x.h5ad")


def for_commands(run: Run) -> None:
    scipy.sparse.save_npz("counts.npz", scipy.sparse.csr_matrix(counts()))
    run("fit", "counts.npz", "-k", "3", "--out", "topics.safetensors")


def for_pictures(run: Run) -> None:
    pictures("faces")
    pictures("noisy")
    frame().to_csv("readings.csv", index=False)
    run("fit", "readings.csv", "-k", "3", "--out", "plant.safetensors")


def for_ratings(run: Run) -> None:
    rng = np.random.default_rng(0)
    known = dict(re.findall(r"^me,(\"?)(.+?)\1,\d", (GUIDES / "ratings.md").read_text(), re.MULTILINE)).values()
    titles = [*known, *(f"Film {number}" for number in range(40))]
    Path("movies.csv").write_text(
        "movieId,title\n" + "".join(f'{number},"{title}"\n' for number, title in enumerate(titles))
    )
    lines = (f"{user},{item},{rng.integers(1, 6)}\n" for user in range(40) for item in rng.permutation(40)[:12])
    Path("ratings.csv").write_text("userId,movieId,rating\n" + "".join(lines))


def for_report(run: Run) -> None:
    frame().to_csv("sales.csv", index=False)
    frame().to_parquet("today.parquet")
    run("fit", "sales.csv", "-k", "3", "--out", "model.safetensors")


def for_sound(run: Run) -> None:
    sound("song.ogg", 262, 294, 330)
    for name in ("solo", "piano"):
        sound(f"{name}.flac", 262, 294)
    sound("voice.flac", 440, 500)
    sound("mixture.flac", 262, 294, 440)


def for_topics(run: Run) -> None:
    texts("news.jsonl", 120, "gun car disk mail bike space engine moon orbit floppy drive phone")
    texts("new.jsonl", 20, "gun car disk unknown")
    texts("november.jsonl", 200, "gun car disk sun comet")
    run("fit", "news.jsonl", "-k", "3", "--out", "october.safetensors")


FILES: dict[str, Callable[[Run], object]] = {
    "cells": for_cells,
    "checkpoints": lambda run: frame().to_parquet("data.parquet"),
    "commands": for_commands,
    "fixed-components": for_sound,
    "hyperspectral": lambda run: scipy.io.savemat("samson_1.mat", {"V": counts(156, 95 * 95).astype(float)}),
    "pictures": for_pictures,
    "plots": lambda run: frame(300).to_csv("spectra.csv", index=False),
    "ranks": lambda run: scipy.sparse.save_npz("counts.npz", scipy.sparse.csr_matrix(counts())),
    "ratings": for_ratings,
    "report": for_report,
    "sound": for_sound,
    "topics": for_topics,
}


@pytest.mark.filterwarnings("ignore::onmf.model.units.DomainWarning")  # of silence, which the guide to sound explains
@pytest.mark.parametrize("guide", FILES)
def test_the_commands_of_a_guide_run(
    guide: str, run_main: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks in their order; those with ``python`` are run by test_docs.py."""
    monkeypatch.chdir(tmp_path)
    FILES[guide](run_main)
    for kind, title, code in blocks(guide):
        if title:
            Path(title).write_text(code)
        elif kind == "py" and "scanpy" not in code:
            exec(compile(code, guide, "exec"), {})  # noqa: S102
        for arguments in commands(code) if kind == "sh" else ():
            if arguments[0].startswith("--") or "_ONMF" in code:  # completion
                continue
            if "--jobs" in arguments:  # processes take seconds to start
                arguments[arguments.index("--jobs") + 1] = "1"
            status, _, error = run_main(*arguments)
            assert status == 0, error
            for option in ("--out", "--plot", "--coefficients"):
                if option in arguments and arguments[0] != "inverse":
                    assert Path(arguments[arguments.index(option) + 1]).exists(), arguments


def test_all_guides_with_commands_are_among_those_that_run_or_say_why_not() -> None:
    assert {guide for guide, found in COMMANDS.items() if found} == {*FILES, *NOT_RUN}
