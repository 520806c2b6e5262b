"""Make the pictures that the pages show by running the code they show, and those of the demo, all of them small files.

``python docs/make_images.py [PAGE ...]`` writes to docs/images. A block of code that saves ``name.png`` makes the
picture of that name on its page.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image

from onmf.cli.main import app

DOCS = Path(__file__).parent.resolve()
COLOURS = 128  # in a file: no difference to the eye, half the bytes


def made_by(page: Path) -> dict[str, Path]:
    """The pictures that a page shows and its code saves: their names, and where they belong."""
    text = page.read_text()
    shown = {Path(target).name: (page.parent / target).resolve() for target in re.findall(r"\]\(([^)]+\.png)\)", text)}
    saved = re.findall(r"savefig\(\s*[\"']([\w.-]+\.png)", "".join(blocks(page)))
    return {name: shown[name] for name in saved if name in shown}


def blocks(page: Path) -> list[str]:
    """The code of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def save(picture: Path, place: Path) -> None:
    """Write a picture with few colours."""
    with Image.open(picture) as large:
        small = large.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    place.parent.mkdir(parents=True, exist_ok=True)
    small.save(place, optimize=True)
    print(f"{place.relative_to(DOCS)}: {place.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Those of the pages that are named, or of all, and of the demo."""
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    for page in pages or [page for page in sorted(DOCS.rglob("*.md")) if made_by(page)]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            for code in blocks(page):
                exec(compile(code, str(page), "exec"), {"__name__": "__main__"})  # noqa: S102
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
