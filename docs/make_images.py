"""Make the pictures and sounds of the pages by running the code they show, and those of the demo, all small files.

``python docs/make_images.py [PAGE ...] [demo]`` writes to docs/images and docs/audio. A block of code that saves
``name.png`` or ``name.mp3`` makes the picture or the sound of that name on its page; one that saves ``name.html`` makes
a picture of the top of that page, by Chromium. Pictures have twice the resolution of a screen.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
from PIL import Image, ImageChops

from onmf.cli import demo
from onmf.cli.main import app

DOCS = Path(__file__).parent.resolve()
MARGIN = 15  # pixels around a picture, about what Matplotlib leaves at the sides
COLOURS = 128  # in a file: no difference to the eye, half the bytes
TOP = 1120, 2060  # of a page, in its pixels
WIDEST = 1400  # pixels of a photograph: twice what a page has room for


def made_by(page: Path) -> dict[str, Path]:
    """The pictures and sounds that a page shows and its code may save: their names, and where they belong."""
    text, code = page.read_text(), "".join(blocks(page))
    shown = re.findall(r"\]\(([^)]+\.png)\)|src=\"([^\"]+\.mp3)\"", text)
    # src= counts from the built page, which lies in the folder of its source.
    found = {Path(target).name: (page.parent / target).resolve() for each in shown for target in each if target}
    return {
        name: place
        for name, place in found.items()
        if any(saved in code for saved in (name, re.sub(r"-\d\.", "-{k}.", name), page_of(name)))
    }


def page_of(picture: str) -> str:
    """The name of the page whose top is this picture."""
    return Path(picture).stem + ".html"


def photograph(page: Path, picture: Path) -> None:
    """Write a picture of the top of a page in HTML."""
    width, height = TOP
    subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--window-size={width},{height}", "--force-device-scale-factor=2"),
            *(f"--screenshot={picture.resolve()}", page.resolve().as_uri()),
        ],
        check=True,
        capture_output=True,
    )


def titled(page: Path) -> list[tuple[str, str]]:
    """The code of a page, with the names of the files that it is in."""
    found = re.findall(r"```python(?: title=\"(\S+)\")?\n(.*?)```", page.read_text(), re.DOTALL)
    return [(title or "code.py", code) for title, code in found]


def blocks(page: Path) -> list[str]:
    """The code of a page."""
    return [code for _, code in titled(page)]


def cropped(image: Image.Image) -> Image.Image:
    """A picture without the empty bands that Matplotlib leaves where axes keep their shape."""
    empty = Image.new("RGB", image.size, image.convert("RGB").getpixel((0, 0)))
    left, top, right, bottom = ImageChops.difference(image.convert("RGB"), empty).getbbox() or (0, 0, *image.size)
    width, height = image.size
    box = max(left - MARGIN, 0), max(top - MARGIN, 0), min(right + MARGIN, width), min(bottom + MARGIN, height)
    return image.crop(box)


def save(picture: Path, place: Path) -> None:
    """Write a picture with few colours and no empty bands; a sound as it is."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.suffix == ".mp3":
        shutil.copy(picture, place)
        return
    with Image.open(picture) as large:
        small = cropped(large).convert("RGB")
        if place.name == "demo.png":  # grain does not pack
            small.thumbnail((WIDEST, WIDEST), Image.Resampling.LANCZOS)
        if place.name != "abundances.png":  # whose colours blend
            small = small.quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(place, optimize=True)
    print(f"{place.relative_to(DOCS)}: {place.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Those of the pages that are named, or of all, and of the demo."""
    mpl.rcParams["savefig.dpi"] = 200
    named = sys.argv[1:]
    pages = [Path(name).resolve() for name in named if name != "demo"]
    for page in pages if named else [page for page in sorted(DOCS.rglob("*.md")) if made_by(page)]:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sys.path.insert(0, folder)
            for title, code in titled(page):
                (Path(folder) / title).write_text(code)
                if title == "code.py" or "savefig" in code:  # others are imported
                    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})  # noqa: S102
            sys.path.remove(folder)
            for name, place in made_by(page).items():
                if not Path(name).exists():
                    photograph(Path(page_of(name)), Path(name))
                save(Path(name), place)
            os.chdir(DOCS)
    if not named or "demo" in named:
        demo.DPI = 160
        with tempfile.TemporaryDirectory() as folder:
            app(["demo", "--out", f"{folder}/demo.png"], standalone_mode=False)
            for path in Path(folder).glob("*.png"):
                save(path, DOCS / "images" / path.name)


if __name__ == "__main__":
    main()
