"""Do the lower bounds in pyproject.toml hold? ``make lowest`` installs just those versions and runs this file there.

With ``--list`` it prints them as requirements. It is a script, not a test: its environment has no pytest.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def lower_bounds() -> list[tuple[str, str]]:
    """Pairs (package, lowest version) of the core dependencies and of the plots extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["plots"]
    return [(match[1], match[2]) for line in lines if (match := re.fullmatch(r"([\w-]+)>=([\d.]+)", line))]


def main() -> None:
    """List the bounds, or check that a small job runs with them."""
    if "--list" in sys.argv:
        print("\n".join(f"{package}=={version}" for package, version in lower_bounds()))
        return
    import numpy as np
    import scipy.sparse

    import onmf

    for package, version in lower_bounds():
        installed = importlib.metadata.version(package)
        if not (installed + ".").startswith(version + "."):
            sys.exit(f"{package} is {installed}, not the lower bound {version}")
    X = np.random.default_rng(0).gamma(1.0, 1.0, (200, 12))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", X)
        scipy.sparse.save_npz(f"{folder}/x.npz", scipy.sparse.csr_matrix(np.floor(X)))
        np.save(f"{folder}/A.npy", np.eye(12))
        tool = str(Path(sys.executable).with_name("onmf"))
        names = set(onmf.divergences.names()) - {"alpha", "beta", "mahalanobis"}
        names |= {"alpha:0.3", "beta:1.5", f"mahalanobis:{folder}/A.npy"}
        runs = [("x.npy", name, method) for name in sorted(names) for method in ("auto", "paper")]
        runs += [("x.npz", name, "auto") for name in ("kl", "squared_l2", "huber")]
        model = f"{folder}/model.safetensors"
        for data, divergence, method in runs:
            arguments = ["fit", f"{folder}/{data}", "-k", "3", "-d", divergence, "--method", method, "--out", model]
            subprocess.run([tool, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if not np.isfinite(onmf.load(model).components_).all():
                sys.exit(f"{divergence}, {method}, {data}: the dictionary is not finite")
        subprocess.run([tool, "info", model], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [tool, "transform", model, f"{folder}/x.npy", "--out", f"{folder}/h.npy"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    from onmf import plots

    with tempfile.TemporaryDirectory() as folder:
        plots.components(X / X.max()).figure.savefig(f"{folder}/x.png")
    print("the lowest versions work:", ", ".join(f"{p} {v}" for p, v in lower_bounds()))


if __name__ == "__main__":
    main()
