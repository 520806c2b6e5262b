"""Both distributions, each in a fresh environment: installed from the file alone, and put to the tests that come along.

    python tests/distribution.py DIST BUILD

The tests are those of the source distribution, run away from any checkout, so that nothing but the installed package
can be what they test.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from pathlib import Path

TESTS = ["tests/test_estimator.py", "tests/test_cli.py", "tests/test_model_files.py", "tests/test_divergences.py"]


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
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"onmf[dev] @ {package.as_uri()}")
        found = run(python, "-c", "import onmf; print(onmf.__version__, onmf.__file__)", cwd=tests)
        assert str(place) in found, found
        print(package.name, found.strip())
        print(run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, cwd=tests).splitlines()[-1])
        run(str(place / "bin" / "onmf"), "--help")


def run(*command: str, cwd: Path | None = None) -> str:
    """What a command prints; its failure is ours."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
