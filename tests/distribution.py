"""Both distributions, each in a fresh environment: installed from the file alone, and put to the tests that come along.

    python tests/distribution.py DIST BUILD

First without any extra, as ``pip install onmf`` does it: help, a fit, coefficients, and a sentence where an extra is
missing. Then with all that the tests need: those of the source distribution, run away from any checkout, so that
nothing but the installed package can be what they test.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from pathlib import Path

FILES = ["estimator", "cli", "model_files", "divergences", "release"]
TESTS = [f"tests/test_{name}.py" for name in FILES]
MISSING = {  # what needs an extra
    "demo --out demo.png": "plots",
    "report model x.csv --out report.html": "report",
    "fit x.parquet -k 2 --out none": "parquet",
    "transform model x.csv --out h.parquet": "parquet",
}


def main() -> None:
    """Install and test."""
    dist, build = (Path(argument).resolve() for argument in sys.argv[1:])
    (archive,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    build.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        tar.extractall(build, filter="data")
    tests = build / archive.name.removesuffix(".tar.gz")
    (tests / "src").rename(build / "not-this-one")
    for package in (wheel, archive):
        place = build / package.suffix.removeprefix(".")
        venv.create(place, with_pip=True, clear=True)
        python = str(place / "bin" / "python")
        install = (python, "-m", "pip", "install", "-q", "--disable-pip-version-check")
        run(*install, str(package))
        work_without_extras(place)
        run(*install, f"onmf[dev] @ {package.as_uri()}")
        found = run(python, "-c", "import onmf; print(onmf.__version__, onmf.__file__)", cwd=tests)
        assert str(place) in found, found
        print(package.name, found.strip())
        print(run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, cwd=tests).splitlines()[-1])


def work_without_extras(place: Path) -> None:
    """What the command does in an environment that has nothing but the core dependencies."""
    onmf, folder = str(place / "bin" / "onmf"), place / "work"
    folder.mkdir()
    (folder / "x.csv").write_text("a,b,c\n" + "".join(f"{i % 7},{i % 5},{i % 3}\n" for i in range(1, 301)))
    (folder / "x.parquet").touch()
    assert "onmf fit" in run(onmf, "--help", cwd=folder)
    run(onmf, "fit", "x.csv", "-k", "2", "--out", "model", cwd=folder)
    run(onmf, "transform", "model", "x.csv", "--out", "h.csv", cwd=folder)
    assert len((folder / "h.csv").read_text().splitlines()) == 301
    for arguments, extra in MISSING.items():
        done = subprocess.run([onmf, *arguments.split()], cwd=folder, capture_output=True, text=True)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert done.stderr.rstrip().endswith(f"; install onmf[{extra}]."), done.stderr


def run(*command: str, cwd: Path | None = None) -> str:
    """What a command prints; its failure is ours."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
