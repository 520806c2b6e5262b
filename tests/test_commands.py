"""What the commands have in common: results for other programs, completion, and files of the user's own."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import onmf
from onmf import OnlineNMF, coefficients, divergences
from onmf import data as streams
from onmf.cli import PANELS
from onmf.cli import main as cli
from onmf.cli import options as cli_options
from onmf.cli.formats import OPTIONS
from onmf.cli.terminal import print_json
from onmf.data import registry as sources
from onmf.divergences import Divergence
from onmf.methods import Choice
from onmf.model.validation import DataError
from tests.conftest import Run

ONMF = Path(sys.executable).with_name("onmf")
GUIDES = Path(__file__).parent.parent / "docs" / "guides"
NAMES = ["plain", 'with "quotes", and a comma', "100 %", "component_name", "ünï"]
ROWS = [f"component_{k}" for k in range(3)]
X = np.random.default_rng(0).gamma(2.0, 1.0, (60, 3)) @ np.random.default_rng(1).random((3, 5))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and models of them in both precisions, with names and without."""
    folder = tmp_path_factory.mktemp("models")
    np.save(folder / "x.npy", X)
    for dtype in (np.float32, np.float64):
        named = pd.DataFrame(X.astype(dtype), columns=NAMES)
        onmf.save(OnlineNMF(3, random_state=0).fit(named), folder / np.dtype(dtype).name)
    onmf.save(OnlineNMF(3, random_state=0).fit(X), folder / "unnamed")
    return folder


@pytest.fixture
def here(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with copies of them."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONMF_MODULE", raising=False)
    return tmp_path


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets, when called and after the test, what files of the user's own have registered."""
    kept = {family: dict(family._classes) for family in (Divergence, Choice, coefficients.CoefficientSolver)}
    monkeypatch.setattr(sources, "_registry", dict(sources._registry))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(cli_options, "_executed", [])

    def forget() -> None:
        for family, classes in kept.items():
            monkeypatch.setattr(family, "_classes", dict(classes))

    forget()
    return forget


def said(run: Run, *arguments: object) -> str:
    """Standard output of a command that must succeed."""
    status, output, error = run(*arguments)
    assert status == 0, error
    return output


def refused(run: Run, *arguments: object) -> str:
    """The one sentence of a command that must fail, with nothing on standard output."""
    status, output, error = run(*arguments)
    assert (status, output) == (2, "")
    (line,) = [line for line in error.splitlines() if not line.startswith(("Learning K", "Finding coefficients"))]
    assert line.startswith("onmf: ")
    return line.removeprefix("onmf: ")


# Convert

READ: dict[str, Callable[[str], pd.DataFrame]] = {
    ".csv": lambda path: pd.read_csv(path, index_col=0, float_precision="round_trip"),
    ".tsv": lambda path: pd.read_csv(path, index_col=0, sep="\t", float_precision="round_trip"),
    ".parquet": lambda path: pd.read_parquet(path).pipe(lambda table: table.set_index(table.columns[0])),
    ".jsonl": lambda path: pd.DataFrame(map(json.loads, Path(path).read_text().splitlines())).pipe(
        lambda table: table.set_index(table.columns[0])
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("suffix", READ)
def test_a_dictionary_comes_back_from_a_file_as_it_was_with_its_names(
    suffix: str, dtype: str, here: Path, run_main: Run
) -> None:
    assert said(run_main, "convert", dtype, f"W{suffix}") == f"W{suffix}: 3 components of 5 features.\n"
    table, W = READ[suffix](f"W{suffix}"), onmf.load(dtype).components_
    assert W.dtype == dtype
    assert np.array_equal(table.to_numpy().astype(dtype), W)
    assert (list(table.index), list(table.columns)) == (ROWS, NAMES)
    assert table.index.name == "component_name_"  # since a feature has its usual name
    if suffix == ".parquet":
        assert set(table.dtypes) == {np.dtype(dtype)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_dictionary_as_npy_keeps_its_precision(dtype: str, here: Path, run_main: Run) -> None:
    said(run_main, "convert", dtype, "W.npy")
    W = np.load("W.npy")
    assert W.dtype == dtype
    assert np.array_equal(W, onmf.load(dtype).components_)


def test_features_without_names_have_those_of_scikit_learn_and_csv_goes_to_standard_output(
    here: Path, run_main: Run
) -> None:
    status, output, error = run_main("convert", "unnamed", "-")
    assert (status, error) == (0, "standard output: 3 components of 5 features.\n")
    lines = output.splitlines()
    assert lines[0] == "component_name,x0,x1,x2,x3,x4"
    assert [line.partition(",")[0] for line in lines[1:]] == ROWS


def test_convert_writes_coefficients_of_data_too(here: Path, run_main: Run) -> None:
    arguments = "convert", "unnamed", "W.npy", "--data", "x.npy", "--coefficients", "H.npy"
    assert "W.npy: 3 components of 5 features. H.npy: coefficients of 60 samples." in said(run_main, *arguments)
    assert np.array_equal(np.load("H.npy"), onmf.load("unnamed").transform(X))
    told = json.loads(said(run_main, *arguments, "--json"))
    del told["seconds"]
    shape = {"components": 3, "features": 5, "type": "float64"}
    assert told == shape | {"dictionary": "W.npy", "coefficients": "H.npy", "samples": 60, "skipped": 0, "unread": 0}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["unnamed", "W.h5ad"],
            "cannot write a dictionary to W.h5ad: use .csv, .jsonl, .npy, .parquet, .tsv, or -",
        ),
        (["unnamed", "W"], "cannot write a dictionary to W: use .csv"),
        (["unnamed", "W.npy", "--data", "x.npy"], "give both or neither"),
        (["unnamed", "W.npy", "--coefficients", "H.npy"], "give both or neither"),
        (["unnamed", "x.npy", "--data", "x.npy", "--coefficients", "H.npy"], "x.npy is an input"),
        (["unnamed", "W.npy", "--data", "x.npy", "--coefficients", "./W.npy"], "cannot hold both W and H"),
        (["unnamed", "W.npy", "--data", "x.npy", "--coefficients", "-"], "--coefficients is the name of a file"),
        (["unnamed", "-", "--json"], "give OUT the name of a file"),
        (["nothing", "W.npy"], "nothing"),
        (["unnamed", "no/W.npy"], "there is no folder no"),
    ],
)
def test_convert_refuses_what_it_cannot_do_and_writes_nothing(
    arguments: list[str], words: str, here: Path, run_main: Run
) -> None:
    before = sorted(path.name for path in here.iterdir())
    assert words in refused(run_main, "convert", *arguments)
    assert sorted(path.name for path in here.iterdir()) == before


def test_names_that_occur_twice_are_refused_where_they_would_be_lost(here: Path, run_main: Run) -> None:
    Path("x.csv").write_text("a,b,a\n" + "1,2,3\n2,1,1\n" * 5)
    said(run_main, "fit", "x.csv?header=yes", "-k", 2, "--out", "m")
    for name in ("W.jsonl", "W.parquet"):
        assert "several features of m are called 'a'" in refused(run_main, "convert", "m", name)
    said(run_main, "convert", "m", "W.csv")


# JSON


def test_fit_and_transform_tell_programs_what_they_did(here: Path, run_main: Run) -> None:
    options = "-k", 3, "--seed", 0, "--passes", 2
    told = json.loads(said(run_main, "fit", "x.npy", *options, "--out", "m", "--json"))
    model = onmf.load("m")
    assert told == {
        "model": "m",
        "components": 3,
        "features": 5,
        "samples": 120,
        "passes": 2,
        "loss": model.history_["loss"][-1],
        "seconds": model.history_["seconds"][-1],
        "skipped": 0,
        "guarantee": model.guarantee_,
    }
    bad = X.copy()
    bad[7, 2] = np.nan
    np.save("bad.npy", bad)
    told = json.loads(said(run_main, "transform", "m", "bad.npy", "--on-error", "skip", "--out", "h.npy", "--json"))
    assert told.pop("seconds") > 0
    assert told == {"coefficients": "h.npy", "samples": 60, "components": 3, "skipped": 1, "unread": 0}
    said_of = json.loads(said(run_main, "fit", "bad.npy", *options, "--on-error", "skip", "--out", "m", "--json"))
    assert (said_of["samples"], said_of["skipped"]) == (118, 2)


@pytest.mark.parametrize("arguments", [["fit", "x.npy"], ["transform", "unnamed", "x.npy"]])
def test_the_result_and_what_is_said_of_it_do_not_go_to_the_same_place(
    arguments: list[str], here: Path, run_main: Run
) -> None:
    assert "give --out the name of a file" in refused(run_main, *arguments, "--out", "-", "--json")


def test_json_is_plain_and_finite(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"nan": math.nan, "inf": np.float32(np.inf), "array": np.array([[1, 2]]), "tuple": (np.int64(3), None)}
    print_json(facts | {"path": Path("a") / "b", "flag": np.True_, "deep": {"x": [np.float64(0.5), -math.inf]}})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "nan": None,
        "inf": None,
        "array": [[1, 2]],
        "tuple": [3, None],
        "path": "a/b",
        "flag": True,
        "deep": {"x": [0.5, None]},
    }


def test_info_spells_the_method_as_the_command_line_does(here: Path, run_main: Run) -> None:
    spelt = "paper:tau=20,tol=1e-09"
    said(run_main, "fit", "x.npy", "-k", 2, "--method", spelt, "--out", "m")
    assert json.loads(said(run_main, "info", "m", "--json"))["method"] == spelt


# Completion


def completed(run: Run, monkeypatch: pytest.MonkeyPatch, shell: str, line: str, **more: str) -> tuple[int, str]:
    """Exit status and answer to what a shell asks when Tab is pressed at the end of the line."""
    words = line.split(" ")
    asked = {"_ONMF_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)} | more
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    status, output, error = run()
    assert error == ""
    return status, output


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("onmf tr", ["transform"]),
        ("onmf fit x.npy --div", ["--divergence"]),
        ("onmf fit x.npy --divergence h", ["hellinger", "huber"]),
        ("onmf rank x.npy -d k", ["kl"]),
        ("onmf fit x.npy --method sp", ["sparse_surrogate"]),
        ("onmf fit x.npy --init km", ["kmeans++"]),
        ("onmf fit x.npy --implicit ", ["zero", "missing"]),
        ("onmf rank x.npy --coefficients s", ["simplex"]),
        ("onmf transform m x.npy --on-error ", ["raise", "skip"]),
        ("onmf fit x", []),  # which a shell takes for: complete files
        ("onmf info m", []),
        ("onmf fit x --module my", []),
    ],
)
def test_tab_completes_commands_options_and_names_and_leaves_files_to_the_shell(
    line: str, answers: list[str], run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(run_main, monkeypatch, "bash", line) == (0, "\n".join(answers) + "\n")


def test_zsh_and_fish_are_answered_in_their_own_way(run_main: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names, files = "onmf fit x.npy --divergence h", "onmf info m"
    assert completed(run_main, monkeypatch, "zsh", names) == (0, '_arguments \'*: :(("hellinger"\n"huber"))\'\n')
    assert completed(run_main, monkeypatch, "zsh", files) == (0, "_files\n")
    asks = "_TYPER_COMPLETE_FISH_ACTION"
    assert completed(run_main, monkeypatch, "fish", names, **{asks: "get-args"}) == (0, "hellinger\nhuber\n")
    assert completed(run_main, monkeypatch, "fish", names, **{asks: "is-args"})[0] == 0
    assert completed(run_main, monkeypatch, "fish", files, **{asks: "is-args"})[0] == 1  # so that it completes files


def test_completing_executes_no_file(here: Path, run_main: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.py").write_text("raise SystemExit('executed')")
    line = "onmf fit x.npy --module mine.py --divergence h"
    assert completed(run_main, monkeypatch, "bash", line) == (0, "hellinger\nhuber\n")
    monkeypatch.setenv("ONMF_MODULE", "mine.py")
    assert completed(run_main, monkeypatch, "bash", "onmf fit x.npy --divergence h") == (0, "hellinger\nhuber\n")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_by_the_script_that_onmf_shows() -> None:
    """The program is asked once for the script and once by it."""
    script = f"""
    PATH={shlex.quote(str(ONMF.parent))}:$PATH
    eval "$(_ONMF_COMPLETE=source_bash onmf)"
    COMP_WORDS=(onmf fit x.npy --divergence h) COMP_CWORD=4
    _onmf_completion onmf
    printf '%s\\n' "${{COMPREPLY[@]}}"
    complete -p onmf
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)  # noqa: S607
    found = done.stdout.splitlines()
    assert (found[:2], done.stderr) == (["hellinger", "huber"], "")
    assert found[2] == "complete -o default -F _onmf_completion onmf"


def test_the_script_is_for_onmf_however_it_was_called(run_main: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda *_: ("zsh", "/bin/zsh"))
    assert "compdef _onmf_completion onmf" in said(run_main, "--show-completion")


# Files of the user's own

LOSS = """
from dataclasses import dataclass, fields
from onmf.divergences import Separable

@dataclass(frozen=True)
class Half(Separable, name="half"):
    c: float = 1.0
    def d(self, xp, x, y):
        return self.c * (x - y) ** 2
    def dy(self, xp, x, y):
        return 2 * self.c * (y - x)

assert fields(Half)[0].type is float  # its annotations are not turned into texts on the way
"""


def test_commands_that_load_a_model_or_name_a_divergence_take_a_module() -> None:
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    options = {name: {each.name for each in command.params} for name, command in commands.items()}
    needing = {name for name, names in options.items() if names & {"model", "divergence", "method"}}
    assert {"fit", "transform", "info", "convert", "rank"} <= needing
    assert {name for name in needing if "module" not in options[name]} == set()


def test_a_model_of_ones_own_loss_needs_its_file_again_and_says_so(
    here: Path, run_main: Run, fresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.py").write_text(LOSS)
    given = "--module", "mine.py"
    said(run_main, "fit", "x.npy", "-k", 2, "-d", "half:3", "--out", "m", *given)
    assert b"mine" not in Path("m").read_bytes()
    fresh()
    needs = "m was learnt with the divergence 'half', unknown here; .* or give its file to the command: --module FILE"
    for command in ("info m", "transform m x.npy --out h.npy", "convert m W.npy", "fit x.npy --from m --out n"):
        assert re.match(needs, refused(run_main, *command.split()))
        said(run_main, *command.split(), *given)
        fresh()
    monkeypatch.setenv("ONMF_MODULE", "mine.py")
    assert json.loads(said(run_main, "info", "m", "--json"))["divergence"] == "half c=3"


def test_a_solver_of_ones_own_is_missed_by_its_name_too(here: Path, run_main: Run, fresh: Callable[[], None]) -> None:
    Path("mine.py").write_text(
        "from onmf.coefficients.newton import Newton\nclass Mine(Newton, name='mine'):\n    'The same.'\n"
    )
    said(run_main, "fit", "x.npy", "-k", 2, "--method", "paper:solver=mine", "--out", "m", "--module", "mine.py")
    fresh()
    assert "'mine', unknown here" in refused(run_main, "info", "m")
    said(run_main, "info", "m", "--module", "mine.py")


def test_a_module_may_be_called_like_one_of_pythons_import_its_neighbours_and_define_a_source(
    here: Path, run_main: Run
) -> None:
    Path("neighbour.py").write_text("WIDTH = 5\n")
    Path("json.py").write_text(
        "from neighbour import WIDTH\n"
        "import numpy as np\nfrom onmf.data import Rows, register\n"
        "@register('raw', ['.f64'])\ndef raw(path):\n    return Rows(np.fromfile(path).reshape(-1, WIDTH))\n"
    )
    X.tofile("x.f64")
    told = json.loads(said(run_main, "fit", "x.f64", "-k", 2, "--out", "m", "--module", "json.py", "--json"))
    assert told["features"] == 5
    assert sys.modules["json"] is json
    sys.modules.pop("neighbour")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("\n1 / 0\n", "mine.py, line 2: ZeroDivisionError: division by zero."),
        ("def f(:\n", "mine.py, line 1: SyntaxError: invalid syntax."),
        ("import sys\nsys.exit(3)\n", "mine.py, line 2: SystemExit: 3."),
        ("import no_such_thing\n", "mine.py, line 1: ModuleNotFoundError: No module named 'no_such_thing'."),
        ("raise ValueError('a\\nb')\n", "mine.py, line 1: ValueError: a b."),
        (LOSS.replace('"half"', '"kl"'), "mine.py, line 6: ValueError: the divergence name 'kl' is taken by onmf"),
        (LOSS.replace("return 2 * self.c", "return 2 * self.d.e"), "mine.py, line 11: AttributeError: "),  # in a fit
        (LOSS.replace("return 2 *", "return xp.ones(7) *"), "mine.py, line 11: ValueError: operands could not"),
        (LOSS.replace("return 2 *", "return two *"), "mine.py, line 11: NameError: name 'two' is not defined."),
    ],
)
def test_errors_of_a_module_are_one_sentence_with_its_line(code: str, words: str, here: Path, run_main: Run) -> None:
    Path("mine.py").write_text(code)
    sentence = refused(run_main, "fit", "x.npy", "-k", 2, "-d", "half", "--module", "mine.py", "--out", "m")
    assert sentence.startswith(words)
    assert not Path("m").exists()


def test_a_module_that_is_not_there_is_missed(here: Path, run_main: Run) -> None:
    message = "--module no.py: no such file; name a Python file, such as my_losses.py."
    assert refused(run_main, "info", "unnamed", "--module", "no.py") == message


def test_a_module_that_the_environment_names_is_missed_by_that_name(
    here: Path, run_main: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONMF_MODULE", "no.py")
    message = "ONMF_MODULE=no.py: no such file; name a Python file, such as my_losses.py."
    assert refused(run_main, "info", "unnamed") == message


def test_an_unknown_divergence_or_method_says_how_one_of_your_own_is_given(here: Path, run_main: Run) -> None:
    for setting in (("--divergence", "expectile:0.02"), ("--method", "mine")):
        sentence = refused(run_main, "fit", "x.npy", "-k", 2, *setting, "--out", "m")
        assert sentence.endswith("; for one of your own, give --module FILE.")
    with pytest.raises(ValueError, match="unknown divergence 'expectile'; ") as caught:
        OnlineNMF(2, divergence="expectile:0.02").fit(X)
    assert "--module" not in str(caught.value)  # which Python does not have


def test_the_guide_to_a_loss_of_ones_own_runs_as_it_is_written(
    tmp_path: Path, run_main: Run, fresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks with a title are files, which run in their order; below commands stands what they say."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    said, answers = "", 0
    page = (GUIDES / "own-divergence.md").read_text()
    for kind, title, code in re.findall(
        r'^```(python|sh|)(?: title="(\S+)")?\n(.*?)^```', page, re.DOTALL | re.MULTILINE
    ):
        fresh()
        if kind == "python":
            Path(title).write_text(code)
            sys.modules.pop("my_losses", None)
            exec(compile(code, title, "exec", dont_inherit=True), {"__name__": title.removesuffix(".py")})  # noqa: S102
            continue
        if kind == "":
            for answer in re.split(r"\n(?=\w+\.\w+: )", code):
                masked = [re.sub(r"\d[\d.e+-]*", "#", " ".join(text.split())) for text in (answer, said)]
                assert masked[0] in masked[1]
                answers += 1
            continue
        said = ""
        for command in code.replace("\\\n", "").splitlines():
            fresh()
            name, *arguments = shlex.split(command)
            if name == "export":
                monkeypatch.setenv(*arguments[0].split("="))
                continue
            assert name == "onmf"
            said += "".join(map(str, run_main(*arguments)[1:]))
    assert answers == 4
    sys.modules.pop("my_losses", None)


# What else the commands share


def test_rank_takes_penalties_the_simplex_and_known_components(here: Path, run_main: Run) -> None:
    quick = "--ranks", "2,4", "--seeds", 2, "--passes", 1, "--seed", 0, "--json"
    losses = set()
    for options in (
        "",
        "--l1-coefficients 0.1",
        "--l2-coefficients 0.5",
        "--l2-coefficients 0.5 --l1-dictionary 1",
        "--l2-coefficients 0.5 --l2-dictionary 1",
        "--coefficients simplex",
        "--fixed unnamed --ranks 4,5",  # of which three are known
    ):
        losses.add(tuple(json.loads(said(run_main, "rank", "x.npy", *quick, *options.split()))["loss"]))
    assert len(losses) == 7  # each option makes a difference


def test_ranks_beyond_the_number_of_features_are_warned_of_unless_something_keeps_components_small() -> None:
    quick: dict[str, Any] = {"n_seeds": 2, "max_passes": 1, "random_state": 0}
    with pytest.warns(UserWarning, match=r"Rank 6 is more than the data have features \(5\).*try ranks up to 5"):
        onmf.select_rank(X, [2, 6], **quick)
    onmf.select_rank(X, [2, 6], l1_coefficients=0.1, **quick)  # where a warning is an error
    onmf.select_rank(X, [2, 6], coefficients="simplex", **quick)


def test_a_bad_entry_is_named_by_the_name_of_its_column(here: Path, run_main: Run) -> None:
    bad = pd.DataFrame(X, columns=NAMES)
    bad.loc[7, "100 %"] = np.nan
    bad.to_csv("bad.csv", index=False)
    named = re.escape("NaN in the data at row 7, column 2 named '100 %' (counted from 0)")
    model = onmf.load("float64")
    for refuse in (
        lambda: OnlineNMF(2).fit(bad),
        lambda: OnlineNMF(2).partial_fit(bad),
        lambda: onmf.BatchNMF(2).fit(bad),
        lambda: onmf.load("float64").partial_fit(bad),
        lambda: model.transform(bad),
        lambda: list(model.transform(streams.open_source("bad.csv"))),
        lambda: onmf.suggest_divergence(streams.open_source("bad.csv")),
        lambda: onmf.select_rank(streams.open_source("bad.csv"), [1, 2]),
        lambda: OnlineNMF(2).fit(streams.open_source("bad.csv")),
    ):
        with pytest.raises(DataError, match=named):
            refuse()
    _, _, error = run_main("fit", "bad.csv", "-k", 2, "--on-error", "skip", "--out", "m")
    assert re.search(named, error)


def test_a_shell_without_arguments_gets_the_help_and_its_help_has_examples(run_main: Run) -> None:
    status, output, _ = run_main()
    commands = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]
    assert status == 2
    assert all(re.search(rf"^\W+{name} ", output, re.MULTILINE) for name in commands)
    places = [(PANELS.index(command.rich_help_panel), name) for name, command in commands.items()]
    assert places == sorted(places)
    for name, command in commands.items():
        assert re.match(rf"Examples?:\n\n`(\w+ \| )?onmf {name}", command.epilog or ""), name
        assert len(command.epilog.split("\n\n")) <= 1 + 5


@pytest.mark.parametrize("width", ["80", "100"])
def test_the_help_names_arguments_and_values_and_explains_formats_in_one_place(width: str) -> None:
    runner = CliRunner()
    for each in ("", *typer.main.get_command(cli.app).commands):  # type: ignore[attr-defined]
        said = runner.invoke(cli.app, [*filter(None, [each]), "--help"], env={"COLUMNS": width}).stdout
        assert not re.search(r"<(bool|list|int|float|str|path)|\{", said), each
        assert "max_df" not in said  # an option of a format
        assert max(map(len, said.splitlines())) <= int(width)


def test_formats_explains_every_scheme_and_option_of_data() -> None:
    said = CliRunner().invoke(cli.app, ["formats"], env={"COLUMNS": "100"}).stdout
    ours = [each for each in streams.schemes() if each.opener.__module__.startswith("onmf.")]
    assert all(re.search(rf"^{re.escape(each.name)} ", said, re.MULTILINE) for each in ours)
    assert {option for each in ours for option in each.options} == set(OPTIONS)
    assert all(re.search(rf"^{name} ", said, re.MULTILINE) for name in OPTIONS)


def test_python_m_onmf_is_the_same_program() -> None:
    environment = os.environ | {"COLUMNS": "200"}
    called = [sys.executable, "-m", "onmf", "xyzzy"]
    done = subprocess.run(called, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "onmf: No such command 'xyzzy'. See onmf --help.\n"


def test_a_name_that_is_unknown_stays_a_value_error_that_can_be_pickled() -> None:
    import pickle

    with pytest.raises(ValueError, match="unknown divergence 'hubert'") as caught:
        divergences.get("hubert")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(copy), copy.name, copy.kind) == (str(caught.value), "hubert", "divergence")
