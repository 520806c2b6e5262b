"""Watching a run: lines in logs, JSON Lines and Prometheus' figures, none of which can end it; facts for programs."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

import onmf
from onmf.cli import main as cli
from onmf.cli import progress as watching
from onmf.cli import terminal
from onmf.cli.progress import JsonLog, Watch, watched
from tests import processes

from .conftest import limited

FIELDS = {
    *("time", "samples", "total", "seconds", "samples_per_second", "loss", "drift", "changes", "skipped"),
    *("memory_bytes", "checkpoint_age_seconds", "phases"),
}
LINE = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [\d,]+ of 6,000 samples · [\d,]+/s · loss [\d.]+ · 0 skipped · [\d,]+ MiB$"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).gamma(1.0, 1.0, (6000, 8)))
    return tmp_path


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def fit(folder: Path, *more: object) -> Any:
    out = folder / "m.safetensors"
    return run("fit", folder / "x.npy", "-k", 3, "--batch-size", 60, "--seed", 0, "--out", out, *more)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def progress(samples: int = 10, **more: Any) -> onmf.Progress:
    return onmf.Progress(samples, 100, 1, 1.0, 2.5, np.ones((2, 3)), **more)


def test_outside_a_terminal_a_line_is_written_every_interval(folder: Path) -> None:
    said = unannounced(fit(folder, "--log-every", "0.02s").stderr)
    assert len(said) >= 2
    assert all(LINE.match(line) for line in said), said


def unannounced(said: str) -> list[str]:
    """The lines without that on what has begun, which a slow machine writes."""
    return [line for line in said.splitlines() if not line.startswith("Learning K = 3 components")]


@pytest.mark.parametrize("every", ["never", "0", "0s", "30s"])
def test_no_line_before_the_interval_has_passed(folder: Path, every: str) -> None:
    result = fit(folder, "--log-every", every)
    assert (result.exit_code, unannounced(result.stderr)) == (0, [])


def test_in_a_terminal_the_bar_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal.errors, "_force_terminal", True)
    with terminal.errors.capture() as captured, watched("0.01s", None, None) as show:
        show(progress())
        time.sleep(0.05)
    assert "skipped" not in captured.get()
    assert "10 samples" in captured.get()


def test_the_figures_of_a_run_are_appended_as_json_lines(folder: Path) -> None:
    log = folder / "run.jsonl"
    for _ in range(2):
        assert fit(folder, "--log-every", "0.02s", "--log-json", log).exit_code == 0
    lines = lines_of(log)
    assert all(line.keys() == FIELDS for line in lines)
    ends = [i for i, line in enumerate(lines) if line["samples"] == 6000]
    assert ends[-1] == len(lines) - 1
    assert (lines[0]["samples"], lines[0]["total"]) == (60, 6000)  # first and last, whatever the interval
    assert len(ends) >= 2
    assert all(line["memory_bytes"] > 2**20 and line["seconds"] >= 0 and line["loss"] > 0 for line in lines)


def test_without_lines_the_first_and_the_last_figures_are_written(folder: Path) -> None:
    log = folder / "run.jsonl"
    fit(folder, "--log-every", "never", "--log-json", log)
    assert [line["samples"] for line in lines_of(log)] == [60, 6000]


def test_transform_is_watched_too(folder: Path) -> None:
    fit(folder)
    log, out = folder / "t.jsonl", folder / "h.npy"
    result = run("transform", folder / "m.safetensors", folder / "x.npy", "--out", out, "--log-json", log)
    assert result.exit_code == 0, result.stderr
    assert [line["samples"] for line in lines_of(log)] == [1024, 6000]
    assert lines_of(log)[0]["loss"] is None


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_costs_lines_and_one_warning_not_the_run(folder: Path) -> None:
    result = fit(folder, "--log-every", "0.02s", "--log-json", "/dev/full")
    assert result.exit_code == 0
    assert (folder / "m.safetensors").exists()
    assert result.stderr.count("cannot write /dev/full: No space left on device; the run continues") == 1


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_a_log_that_is_rotated_is_opened_anew(how: str, tmp_path: Path) -> None:
    log, old = tmp_path / "run.jsonl", tmp_path / "run.jsonl.1"
    with JsonLog(log, ()) as journal:
        journal.write({"line": 1})
        log.rename(old)
        if how == "removed":
            old.unlink()
        journal.write({"line": 2})
        journal.write({"line": 3})
    assert lines_of(log) == [{"line": 2}, {"line": 3}]
    assert how == "removed" or lines_of(old) == [{"line": 1}]


def test_a_reader_who_goes_away_does_not_end_the_run(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with terminal.errors.capture() as captured, watched("never", pipe, None) as show:
        show(progress())
        os.close(reader)
    assert captured.get().count("Broken pipe") == 1


@pytest.mark.parametrize("command", ["fit", "transform"])
def test_a_reader_of_standard_error_who_goes_away_costs_no_results(folder: Path, command: str) -> None:
    """A real pipe whose other end is closed from the beginning."""
    assert fit(folder).exit_code == 0
    model, out = folder / "m.safetensors", folder / "again.safetensors"
    ways = {
        "fit": ["fit", folder / "x.npy", "-k", 3, "--metrics", 0, "--out", out],
        "transform": ["transform", model, folder / "x.npy", "--batch-size", 20, "--out", "-"],
    }
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = processes.run("-m", "onmf", *ways[command], "--log-every", "0.01s", stderr=writing, text=True)
    finally:
        os.close(writing)
    assert done.returncode == 0
    if command == "fit":
        assert onmf.load(out).n_samples_seen_ == 6000
    else:
        assert done.stdout.count("\n") == 6001


def test_a_line_that_was_cut_short_does_not_spoil_the_next(tmp_path: Path) -> None:
    watch = Watch()
    watch(progress())
    figures = watch.figures()
    assert figures is not None
    with JsonLog(tmp_path / "run.jsonl", ()) as journal:
        honest = journal.file

        class Short:  # as a disk that has room for a few bytes
            def write(self, content: bytes) -> int:
                return honest.write(content[:5])

            def fileno(self) -> int:
                return honest.fileno()

        journal.file = Short()  # type: ignore[assignment]
        with terminal.errors.capture():
            journal.write(figures)
        journal.file = honest
        journal.write(figures)
        journal.write(figures)
    torn, *lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert torn == '{"tim'
    assert [json.loads(line)["samples"] for line in lines] == [10, 10]


REFUSED = {
    "an interval without a unit": (
        ["--log-every", "30"],
        "--log-every 30: write a number and ms, s, m or h, as in",
    ),
    "words for an interval": (["--log-every", "often"], "write a number and ms, s, m or h"),
    "a log in no folder": (["--log-json", "absent/run.jsonl"], "cannot write absent/run.jsonl: No such file"),
    "a folder as log": (["--log-json", "."], "cannot write .: Is a directory"),
    "the data as log": (["--log-json", "x.npy"], "x.npy is a file of the run itself"),
    "the model as log": (["--log-json", "m.safetensors"], "m.safetensors is a file of the run itself"),
    "no port": (["--metrics", "here"], "--metrics here: write a port, or HOST:PORT"),
    "no such port": (["--metrics", "65536"], "--metrics 65536: write a port, or HOST:PORT"),
}


@pytest.mark.parametrize(
    ("text", "seconds"), [("300ms", 0.3), ("1.5s", 1.5), (".5m", 30.0), ("2h", 7200.0), ("0s", 0.0)]
)
def test_durations_have_units_from_milliseconds_to_hours(text: str, seconds: float) -> None:
    assert watching.seconds_of(text, "--every") == pytest.approx(seconds)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_watched_is_refused_before_learning(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, message = REFUSED[case]
    monkeypatch.chdir(folder)
    before = (folder / "x.npy").read_bytes()
    result = run("fit", "x.npy", "--out", "m.safetensors", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (folder / "m.safetensors").exists()
    assert (folder / "x.npy").read_bytes() == before


def test_the_model_to_go_on_from_is_no_log(folder: Path) -> None:
    assert fit(folder).exit_code == 0
    model = folder / "m.safetensors"
    before = model.read_bytes()
    result = run("fit", folder / "x.npy", "--from", model, "--log-json", model, "--out", folder / "next.safetensors")
    assert result.exit_code == 2
    assert "m.safetensors is a file of the run itself" in result.stderr
    assert model.read_bytes() == before


def test_a_taken_port_is_refused_before_learning(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = fit(folder, "--metrics", port)
    assert result.exit_code == 2
    assert f"--metrics {port}: cannot listen on 127.0.0.1, port {port}: Address already in use" in result.stderr
    assert not (folder / "m.safetensors").exists()


def scraped(said: str) -> dict[str, float]:
    """The figures at the address that was printed."""
    address = re.search(r"Metrics at (http://127\.0\.0\.1:\d+/metrics)\.", said)
    assert address is not None, said
    with urllib.request.urlopen(address[1], timeout=10) as answer:  # noqa: S310
        families = text_string_to_metric_families(answer.read().decode())
        return {sample.name: sample.value for family in families for sample in family.samples}


def test_prometheus_finds_all_figures_while_the_run_goes_on() -> None:
    names = {"onmf_loss", "onmf_drift", "onmf_memory_bytes", "onmf_samples_per_second"}
    names |= {"onmf_samples_total", "onmf_skipped_total", "onmf_changes_total"}
    with terminal.errors.capture() as captured:  # on this machine alone, at any free port
        run_of = watched("never", None, "0")
        show = run_of.__enter__()
    said = captured.get()
    assert scraped(said) == {}
    show(progress(10, skipped=2, drift=0.5))
    show(progress(30, skipped=3, drift=1.0, drifted=True))
    found = scraped(said)
    assert found.keys() == names
    assert (found["onmf_samples_total"], found["onmf_skipped_total"], found["onmf_loss"]) == (30, 3, 2.5)
    assert (found["onmf_drift"], found["onmf_changes_total"]) == (1, 1)
    assert found["onmf_samples_per_second"] > 0
    run_of.__exit__(None, None, None)
    with pytest.raises(OSError):
        scraped(said)
    assert not [thread for thread in threading.enumerate() if thread.name == "onmf-watch"]


def test_the_age_of_the_checkpoint_is_a_figure(tmp_path: Path) -> None:
    run = onmf.Checkpoint(tmp_path / "run")
    with terminal.errors.capture() as captured:
        run_of = watched("never", None, "0", keep=run)
        show = run_of.__enter__()
    show(progress())
    assert "onmf_checkpoint_age_seconds" not in scraped(captured.get())  # there is none
    onmf.OnlineNMF(2).fit(np.ones((20, 3)), checkpoint=run)
    os.utime(tmp_path / "run", (time.time() - 100, time.time() - 100))
    assert 99 < scraped(captured.get())["onmf_checkpoint_age_seconds"] < 160
    run_of.__exit__(None, None, None)


def address_of(said: str) -> tuple[str, int]:
    found = re.search(r"127\.0\.0\.1:(\d+)", said)
    assert found is not None
    return "127.0.0.1", int(found[1])


def test_silent_connections_take_few_descriptors_and_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE", 0.3)
    before = threading.active_count()
    with terminal.errors.capture() as captured:
        run_of = watched("never", None, "0")
        show = run_of.__enter__()
    silent = [socket.create_connection(address_of(captured.get()), timeout=10) for _ in range(65)]
    for each in silent[watching.MOST_CLIENTS :]:
        assert each.recv(1) == b""  # there was no place for it
    assert threading.active_count() <= before + 2 + watching.MOST_CLIENTS
    show(progress(10))
    for each in silent[: watching.MOST_CLIENTS]:
        assert each.recv(1) == b""  # its time was over
        each.close()
    assert scraped(captured.get())["onmf_samples_total"] == 10
    run_of.__exit__(None, None, None)
    for each in silent:
        each.close()


def test_a_server_without_descriptors_waits_and_the_run_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "AT_ONCE", 0.1)
    with terminal.errors.capture() as captured:
        run_of = watched("never", None, "0")
        show = run_of.__enter__()
    with socket.socket() as client, terminal.errors.capture() as faults:
        with limited(resource.RLIMIT_NOFILE, 3):
            client.connect(address_of(captured.get()))
            began = time.process_time()
            show(progress(10))
            time.sleep(0.5)
            spent = time.process_time() - began
        assert spent < 0.25  # an accept loop that spins takes all of the time
    assert scraped(captured.get())["onmf_samples_total"] == 10
    run_of.__exit__(None, None, None)
    assert faults.get() == ""


def test_metrics_without_their_library_name_the_cure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    result = fit(folder, "--metrics", 0)
    assert result.exit_code == 2
    assert "--metrics needs prometheus_client; install onmf[metrics]." in result.stderr


def test_a_stream_that_falls_silent_is_seen_to(tmp_path: Path) -> None:
    """Lines come while no batch does, with a rate that falls to zero."""
    command = ["-m", "onmf", "fit", "-", "-k", "2", "--batch-size", "20", "--log-every", "0.1s"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with processes.start(*command, "--out", tmp_path / "m.safetensors", text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        for _ in range(65):
            process.stdin.write("a stream of words and words\n")
        process.stdin.flush()
        said = ""
        while " 0/s " not in said:
            said = process.stderr.readline()
            assert said, "it ended"
        assert re.search(r"Z \d+ samples · 0/s · loss", said)
        process.stdin.close()
        process.stderr.read()
        assert process.wait(30) == 0


def test_the_rate_of_a_run_that_goes_on_counts_its_own_samples() -> None:
    watch = Watch()
    watch(progress(1_000_020, H=np.ones((20, 2)), new=20))
    time.sleep(0.01)
    figures = watch.figures()
    assert figures is not None
    assert figures["samples_per_second"] <= 20 / 0.01


def test_skipped_samples_are_told_to_callbacks() -> None:
    X = np.random.default_rng(0).gamma(1.0, 1.0, (100, 5))
    X[25] = np.nan
    told: list[int] = []
    model = onmf.OnlineNMF(2, batch_size=20, shuffle=False, on_error="skip", random_state=0)
    model.set_params(callbacks=[lambda progress: told.append(progress.skipped)]).fit(onmf.data.Rows(X))
    assert told == [0, 1, 1, 1, 1]


# Facts


def test_info_as_json_holds_all_that_the_table_shows(folder: Path) -> None:
    fit(folder, "--divergence", "huber")
    model = onmf.load(folder / "m.safetensors")
    said = run("info", folder / "m.safetensors", "--json").stdout
    facts = json.loads(said)
    assert said.count("\n") == 1
    table = run("info", folder / "m.safetensors").stdout
    names = [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]
    assert [name.partition(" (")[0].replace(" ", "_") for name in names if name] == list(facts)
    assert facts["other_settings"] == {"batch_size": 60, "random_state": 0}
    assert (facts["components"], facts["features"], facts["samples_seen"]) == (3, 8, 6000)
    assert facts["loss_of_the_last_batch"] == model.history_["loss"][-1]
    assert facts["seconds"] == model.history_["seconds"][-1]
    assert facts["drift"] == model._learned.drift.statistic
