"""Make the pictures of docs/guides/plots.md by running its code, and those of the demo, all of them small files.

``python docs/make_images.py`` writes to docs/images; ``python docs/make_images.py FOLDER`` elsewhere.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from PIL import Image

from onmf.cli.main import app

PAGE = Path(__file__).parent / "guides" / "plots.md"
COLOURS = 128  # in a file: no difference to the eye, half the bytes


def main(folder: Path) -> None:
    """Write all pictures into the folder and its folder ``plots``."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    os.chdir(folder / "plots")
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})  # noqa: S102
    os.chdir(folder)
    app(["demo", "--out", "demo.png"], standalone_mode=False)
    for path in [*Path("plots").glob("*.png"), *Path().glob("demo*.png")]:
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parent / "images").resolve())
