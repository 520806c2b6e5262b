"""Make the pictures and sounds of the pages by running the code they show, and those of the demo, all small files.

``python docs/make_images.py [PAGE ...]`` writes to docs/images and docs/audio. A block of code that saves ``name.png``
or ``name.mp3`` makes the picture or the sound of that name on its page. Pictures have twice the resolution of a screen.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
from PIL import Image

from onmf.cli.main import app

DOCS = Path(__file__).parent.resolve()
COLOURS = 128  # in a file: no difference to the eye, half the bytes


def made_by(page: Path) -> dict[str, Path]:
    """The pictures and sounds that a page shows and its code may save: their names, and where they belong."""
    text, code = page.read_text(), "".join(blocks(page))
    shown = re.findall(r"\]\(([^)]+\.png)\)|src=\"([^\"]+\.mp3)\"", text)
    # src= counts from the built page, which lies in the folder of its source.
    found = {Path(target).name: (page.parent / target).resolve() for each in shown for target in each if target}
    return {name: place for name, place in found.items() if re.sub(r"-\d\.", "-{k}.", name) in code or name in code}


def titled(page: Path) -> list[tuple[str, str]]:
    """The code of a page, with the names of the files that it is in."""
    found = re.findall(r"```python(?: title=\"(\S+)\")?\n(.*?)```", page.read_text(), re.DOTALL)
    return [(title or "code.py", code) for title, code in found]


def blocks(page: Path) -> list[str]:
    """The code of a page."""
    return [code for _, code in titled(page)]


def save(picture: Path, place: Path) -> None:
    """Write a picture with few colours; a sound as it is."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.suffix == ".mp3":
        shutil.copy(picture, place)
        return
    with Image.open(picture) as large:
        small = large.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(place, optimize=True)
    print(f"{place.relative_to(DOCS)}: {place.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Those of the pages that are named, or of all, and of the demo."""
    mpl.rcParams["savefig.dpi"] = 200
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    for page in pages or [page for page in sorted(DOCS.rglob("*.md")) if made_by(page)]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sys.path.insert(0, folder)
            for title, code in titled(page):
                (Path(folder) / title).write_text(code)
                if title == "code.py" or "savefig" in code:  # others are imported
                    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})  # noqa: S102
            sys.path.remove(folder)
            for name, place in made_by(page).items():
                save(Path(name), place)
            os.chdir(DOCS)
    if not pages:
        with tempfile.TemporaryDirectory() as folder:
            app(["demo", "--out", f"{folder}/demo.png"], standalone_mode=False)
            for path in Path(folder).glob("*.png"):
                save(path, DOCS / "images" / path.name)


if __name__ == "__main__":
    main()
