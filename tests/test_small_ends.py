"""The ends of things: streams that are interrupted, messages that lead on, and what nobody can read any more."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import onmf
from onmf._support import atomic
from onmf.cli import main as cli
from onmf.cli import progress as watching
from onmf.cli.output import uninterrupted
from onmf.data import Rows, Source, SourceError, Spec, open_source, register, registry, text
from onmf.data.base import Numbered, OnBad, Sequential
from tests import processes

from .conftest import limited

K, F = 2, 4
X = np.random.default_rng(0).gamma(2.0, 1.0, (60, F)) + 0.1
NAMES = ["a", "b", "c", "d"]
ENVIRONMENT = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "", "COLUMNS": "200"}


def lines(rows: np.ndarray) -> str:
    return "".join(",".join(f"{x:.17g}" for x in row) + "\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model and its data."""
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text(lines(X))
    onmf.save(onmf.OnlineNMF(K, random_state=0).fit(X), "m")
    return tmp_path


def started(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return processes.start("-m", "onmf", *arguments, **pipes | {"text": True, "env": ENVIRONMENT} | options)


# What is said, and to whom


BEGUN = {
    "fit": (["fit", "x.csv", "-k", 1, "-o", "n"], "Learning K = 1 component under kl from x.csv."),
    "scale": (["fit", "x.csv", "-k", 2, "--fixed", "m", "-o", "n"], "Scaling 2 fixed components under kl to x.csv."),
    "transform": (
        ["transform", "m", "x.csv", "-o", "h.csv"],
        "Finding coefficients of x.csv in the 2 components of m.",
    ),
}


def test_a_silent_pipe_is_said_to_be_waited_for(folder: Path) -> None:
    with started("fit", "csv:-", "-k", 2, "-o", "n") as run:
        assert run.stderr is not None
        said = run.stderr.readline()  # while nothing has come
        _, rest = run.communicate(lines(X), timeout=60)
    assert said == "Learning K = 2 components under kl from csv:-.\n"
    assert run.returncode == 0
    assert said not in rest


@pytest.mark.parametrize("command", BEGUN)
def test_what_has_begun_is_said_once_or_never(folder: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "AT_ONCE", 0.0)
    arguments, line = BEGUN[command]
    assert invoke(*arguments).stderr == f"{line}\n"
    assert invoke(*arguments, "--log-every", "never").stderr == ""
    assert "'never' turns these lines off" in " ".join(invoke(arguments[0], "--help").output.replace("│", " ").split())


def invoke(*arguments: object) -> Any:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_standard_error_that_cannot_be_written_does_not_change_the_exit_status(folder: Path) -> None:
    ways = {0: ["transform", "m", "x.csv", "-o", "-", "--log-every", "0.01s"], 2: ["fit", "absent.csv", "-o", "n"]}
    for status, arguments in ways.items():
        with open("/dev/full", "w") as full, started(*arguments, stderr=full) as run:
            said, _ = run.communicate(timeout=60)
        assert run.returncode == status
        assert said.count("\n") == (61 if status == 0 else 0)


def test_one_is_not_spoken_of_as_many(folder: Path) -> None:
    Path("one.csv").write_text(lines(X[:1, :1]))
    said = invoke("fit", "one.csv", "-k", 1, "-o", "n").output
    assert "n: 1 component of 1 feature from 1 sample in " in said
    assert "Continuing n, which has learnt from 1 sample." in invoke("fit", "one.csv", "--from", "n", "-o", "o").output
    assert "h.csv: coefficients of 1 sample, 1 each." in invoke("transform", "n", "one.csv", "-o", "h.csv").output
    Path("bad.csv").write_text("1\nx\n")
    assert "1 sample or batch was skipped" in invoke("fit", "bad.csv", "-k", 1, "--on-error", "skip", "-o", "n").output
    skipping = ["transform", "n", "bad.csv", "--on-error", "skip", "-o", "h.csv"]
    assert "1 of the 2 rows is NaN" in invoke(*skipping).output


def test_a_column_of_texts_is_told_from_a_name_of_rows(folder: Path) -> None:
    Path("news.csv").write_text('id,body\n1,"the cat sat on a mat, and it sat there for many a long day"\n2,dogs\n')
    told = "'the cat sat on a mat, and it sat there f...' is not a number at row 0, column 1 (body) (counted from 0); "
    with pytest.raises(SourceError, match=re.escape(told) + "this looks like a column of texts, which onmf reads from"):
        list(open_source("news.csv").batches(5))
    Path("names.csv").write_text("id,body\n1,cat\n")
    with pytest.raises(SourceError, match=r"\?index=body takes this column for the names"):
        list(open_source("names.csv").batches(5))


def test_messages_end_with_a_cure_that_fits(folder: Path) -> None:
    for cells, cure in (
        (
            "-1",
            "NMF needs x >= 0. If these are logarithms or z-scores, give the counts instead; if it is noise around ",
        ),
        ("nan", r"learn from the rest with missing='nan' (--missing nan); a masked entry is NaN, too."),
    ):
        with pytest.raises(ValueError, match=re.escape(cure)):
            onmf.OnlineNMF(K).fit(np.array([[float(cells), 1.0]] * 5))
    Path("two.jsonl").write_text((json.dumps({"title": "many words here", "abstract": "many words here"}) + "\n") * 5)
    with pytest.raises(
        SourceError, match=r"choose one of title, abstract, as in 'two.jsonl\?field=(title|abstract)'\."
    ):
        open_source("two.jsonl")
    Path("news.jsonl").write_text('{"text": "cats"}\n' * 30)
    with pytest.raises(ValueError, match=r"^news.jsonl is damaged, or not a model of onmf\.$"):
        onmf.load("news.jsonl")


def test_a_model_of_texts_recommends_nothing(folder: Path) -> None:
    Path("news.txt").write_text("cats and dogs\nmice and men\n" * 30)
    Path("me.csv").write_text("who,film,stars\nme,x,5\n")
    assert invoke("fit", "news.txt", "-k", 2, "-o", "n").exit_code == 0
    said = invoke("recommend", "n", "me.csv?user=who&item=film&value=stars")
    assert (said.exit_code, "n was not learnt from ratings; " in " ".join(said.output.split())) == (2, True)


def test_a_model_that_is_continued_tells_its_passes(folder: Path) -> None:
    assert invoke("fit", "x.csv", "-k", K, "--passes", 2, "-o", "n").exit_code == 0
    said = invoke("fit", "x.csv", "--from", "n", "-o", "o").output
    assert "Continuing n, which has learnt from 2 passes over 60 samples." in said


def test_info_tells_a_method_that_was_chosen_for_the_data_from_one_that_was_asked_for(folder: Path) -> None:
    assert "auto (surrogate)" in invoke("info", "m").output
    assert json.loads(invoke("info", "m", "--json").output)["method"] == "surrogate"
    onmf.save(onmf.OnlineNMF(K, method="em").fit(X), "n")
    assert "auto (" not in invoke("info", "n").output


def test_help_tells_of_rows_of_nan_where_they_are_written(folder: Path) -> None:
    helps = {name: " ".join(invoke(name, "--help").output.split()) for name in ("fit", "transform", "inverse")}
    assert ["row of NaN" in helps[name] for name in helps] == [False, True, True]
    assert "For one command, run onmf COMMAND --help" in " ".join(invoke("--help").output.split())


def test_what_hashing_advises_works(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text._say_hashed.cache_clear()
    (tmp_path / "x.txt").write_text("apples and pears\npears\nplums\n" * 20)
    os.mkfifo(tmp_path / "pipe")

    def stream(like: Spec | None = None) -> Source:
        writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=["pears\nand plums\n" * 5])
        writer.start()
        source = open_source(f"text:{tmp_path}/pipe", like)
        assert sum(len(rows) for rows, _ in source.batches(4)) == 10
        writer.join(timeout=10)
        return source

    next(open_source(f"{tmp_path}/x.txt?hashed=64").batches(5))
    assert "without hashed= they are kept" in caplog.records[-1].message
    assert open_source(tmp_path / "x.txt").feature_names == ["and", "apples", "pears", "plums"]
    stream()
    assert "continue from it" in caplog.records[-1].message
    some = open_source(f"{tmp_path}/x.txt?words=3")
    assert stream(some.spec).feature_names == some.feature_names


def test_a_source_with_other_features_than_the_models_is_refused_with_the_cure(folder: Path) -> None:
    Path("named.csv").write_text("a,b,c,d\n" + lines(X))
    Path("other.csv").write_text("d,c,b,a,e\n" + lines(np.column_stack([X[:, ::-1], X[:, 0]])))
    model = onmf.OnlineNMF(K, shuffle=False, random_state=0).fit(open_source("named.csv"))
    for use in (model.transform, lambda source: onmf.OnlineNMF(K, shuffle=False).fit(source, resume_from=model)):
        with pytest.raises(
            ValueError, match=r"features.*; open it by open_source\(\.\.\., like=model.source_\), which"
        ):
            use(open_source("other.csv"))
    alike = np.concatenate(list(model.transform(open_source("other.csv", like=model.source_))))
    np.testing.assert_allclose(alike, np.concatenate(list(model.transform(open_source("named.csv")))), rtol=1e-6)
    with pytest.raises(ValueError, match=r"from 4\.$"):
        model.transform(Rows(X[:, :3]))  # which was not opened


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_of_rows_are_those_of_the_data_at_hand_not_of_the_model(folder: Path, kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(X, columns=NAMES, index=pandas.Index([f"row {k}" for k in range(len(X))], name="id"))
    table.to_csv("named.csv") if kind == "csv" else table.to_parquet("named.parquet")
    assert invoke("fit", f"named.{kind}?index=id", "-k", 1, "-o", "n").exit_code == 0
    for asked, names in (("", "component_0"), ("?index=id", "id,component_0")):
        assert invoke("transform", "n", f"named.{kind}{asked}", "-o", "h.csv").exit_code == 0
        assert Path("h.csv").read_text().splitlines()[0] == names


# Full disks


def kept_in(said: str) -> Path:
    """The file that a message names."""
    found = re.search(r"What was learnt is in (?:the checkpoint )?([^;,]+)[;,]", said)
    assert found is not None, said
    return Path(found[1])


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder with room for files, which the folder of results has not."""
    there = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setattr(tempfile, "tempdir", str(there))
    sync = os.fsync

    def full(handle: int) -> None:
        if "elsewhere" not in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(atomic.os, "fsync", full)
    return there


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux to know which disk a file is on")
@pytest.mark.parametrize("checkpoint", ["none", "with room", "without room"])
def test_a_model_without_room_is_kept_and_said_to_be_where_it_is(
    folder: Path, elsewhere: Path, checkpoint: str
) -> None:
    options = {"none": [], "with room": ["--checkpoint", elsewhere / "run"], "without room": ["--checkpoint", "run"]}
    fit = ["fit", "x.csv", "-k", 2, "--seed", 0, "-o"]
    assert invoke(*fit, elsewhere / "right").exit_code == 0
    result = invoke(*fit, "n", *options[checkpoint])
    assert result.exit_code == 2
    assert "onmf: cannot write n: No space left on device. What was learnt is in " in result.stderr
    place = kept_in(result.stderr)
    assert place.parent == elsewhere
    assert (place.name == "run") == (checkpoint == "with room")
    np.testing.assert_array_equal(onmf.load(place).components_, onmf.load(elsewhere / "right").components_)
    assert sorted(os.listdir()) == ["m", "x.csv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_model_for_standard_output_needs_no_other_file_unless_it_is_full(folder: Path) -> None:
    command = ["fit", "x.csv", "-k", 2, "--seed", 0, "-o", "-"]
    environment = ENVIRONMENT | {"TMPDIR": str(folder / "kept")}
    with started(*command, env=environment, text=False) as run:
        content, error = run.communicate(timeout=60)
    assert run.returncode == 0, error
    Path("kept").mkdir()
    with open("/dev/full", "w") as full, started(*command, stdout=full, env=environment) as run:
        _, said = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "cannot write standard output: No space left on device. What was learnt is in " in said
    Path("n").write_bytes(content)
    np.testing.assert_array_equal(onmf.load(kept_in(said)).components_, onmf.load("n").components_)


def test_room_for_the_result_is_looked_for_before_learning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited(resource.RLIMIT_FSIZE, 5000):
        late = invoke("fit", "x.csv", "-k", 20, "-o", "n")  # the dictionary has room, its statistics have not
        monkeypatch.setattr(onmf.OnlineNMF, "fit", None)
        early = invoke("fit", "x.csv", "-k", 400, "-o", "n")
    assert (late.exit_code, early.exit_code) == (2, 2)
    assert early.stderr == "onmf: cannot write n: File too large.\n"
    warning, end = late.stderr.splitlines()
    assert warning.startswith("onmf: cannot write n: File too large. The model takes 0.0 MiB; make room for it")
    assert end.startswith("onmf: cannot write n: File too large. It could be kept in no other folder either.")


FULL = {
    **{f"h.{end}": f"transform m long.npy -o h.{end}" for end in ("csv", "npy", "jsonl", "parquet")},
    "fits.tsv": "inverse m long.npy -o fits.tsv",
    "page.html": "report m -o page.html",
    "plot.png": "suggest wide.npy --plot plot.png",
}


@pytest.mark.parametrize("name", FULL)
def test_a_full_disk_names_the_file_and_leaves_nothing(folder: Path, name: str) -> None:
    np.save("long.npy", np.random.default_rng(0).gamma(2.0, 1.0, (1000, F)) + 0.1)
    np.save("wide.npy", np.random.default_rng(0).poisson(3.0, (100, 8)) + 1.0)
    with limited(resource.RLIMIT_FSIZE, 5000):
        result = CliRunner().invoke(cli.app, FULL[name].split())
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == f"cannot write {name}: File too large."
    assert sorted(os.listdir()) == ["long.npy", "m", "wide.npy", "x.csv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [["info", "m"], ["--version"], ["transform", "m", "x.csv", "-o", "-"]])
def test_standard_output_on_a_full_disk_is_named(folder: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full, started(*arguments, stdout=full) as run:
        _, said = run.communicate(timeout=60)
    assert (run.returncode, said) == (2, "onmf: cannot write standard output: No space left on device.\n")


# Interrupted streams


def rows_of(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".parquet":
        pandas = pytest.importorskip("pandas")
        return pandas.read_parquet(path).to_numpy()
    if path.suffix == ".jsonl":
        return np.array([list(json.loads(line).values()) for line in path.read_text().splitlines()])
    return np.loadtxt(path, delimiter="\t" if path.suffix == ".tsv" else ",", skiprows=1)


@pytest.mark.parametrize("out", ["h.csv", "h.tsv", "h.jsonl", "h.parquet", "h.npy"])
def test_what_was_written_of_a_stream_is_kept_when_it_is_interrupted(folder: Path, out: str, endless: Source) -> None:
    Path(out).write_text("what was there before")
    result = CliRunner().invoke(cli.app, ["transform", "m", "endless:x.csv", "--batch-size", "5", "--out", out])
    assert result.exit_code == 130
    assert f"Interrupted after 20 samples; their coefficients are in {out}." in result.stderr
    np.testing.assert_allclose(rows_of(Path(out)), onmf.load("m").transform(X[:20]), rtol=1e-6)
    assert sorted(os.listdir()) == sorted(["m", "x.csv", out])


def test_nothing_is_kept_of_what_can_be_read_again(folder: Path, endless: Source) -> None:
    endless.rewinds = True
    result = CliRunner().invoke(cli.app, ["transform", "m", "endless:x.csv", "--batch-size", "5", "--out", "h.csv"])
    assert result.exit_code == 130
    assert sorted(os.listdir()) == ["m", "x.csv"]


@pytest.fixture
def endless() -> Iterator[Source]:
    """What ``endless:PATH`` opens: a stream that falls silent after 23 rows, until Ctrl-C is pressed."""

    class Endless(Sequential):
        where, n_features, rewinds = "a stream", F, False

        def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
            yield np.arange(23), X[:23]
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.raise_signal(signal.SIGINT)

    source, before = Endless(), signal.getsignal(signal.SIGINT)

    @register("endless")
    def opened(path: Path) -> Source:
        return source

    yield source
    registry._registry.pop("endless")
    signal.signal(signal.SIGINT, before)


def test_signals_to_the_process_keep_what_came_through_a_pipe(folder: Path) -> None:
    with started("transform", "m", "csv:-", "--batch-size", 20, "--log-json", "log", "--out", "h.csv") as run:
        assert run.stdin is not None
        run.stdin.write(lines(X[:23]))
        run.stdin.flush()
        wait_for_a_batch(Path("log"))
        run.send_signal(signal.SIGTERM)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 143, error
    assert "Interrupted after 20 samples; their coefficients are in h.csv." in error
    assert "Traceback" not in error
    assert len(rows_of(Path("h.csv"))) == 20


def test_a_fit_that_is_stopped_has_learnt_what_came_through_a_slow_pipe(folder: Path) -> None:
    with started("fit", "csv:-", "-k", 2, "--batch-size", 20, "--log-json", "log", "--out", "n") as run:
        assert run.stdin is not None
        run.stdin.write(lines(X[:23]))
        run.stdin.flush()
        wait_for_a_batch(Path("log"))
        time.sleep(0.5)  # now it waits for more
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 130, error
    assert "Interrupted after 23 samples; what was learnt is in n; --from n continues it" in error
    assert "Traceback" not in error
    assert onmf.load("n").n_samples_seen_ == 23


def wait_for_a_batch(log: Path) -> None:
    deadline = time.monotonic() + 60
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_signals_wait_for_the_end_of_a_block_and_then_have_their_effect() -> None:
    done = []

    def handler(*_: object) -> None:
        done.append("stopped")
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():  # noqa: PT012
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            done.append("written")
        assert done == ["written", "stopped"]
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
