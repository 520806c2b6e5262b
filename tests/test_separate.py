"""Sound in parts: they sum to the recording, each has what its components have, and their files appear whole or not."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.signal
from typer.testing import CliRunner

import onmf
from onmf import BatchNMF, OnlineNMF, Sets, separate
from onmf.cli import main as cli
from onmf.data import open_source
from onmf.insight import recordings as files
from onmf.insight import separation as frames
from onmf.insight.separation import Separation

soundfile = pytest.importorskip("soundfile")
RATE = 8000
LENGTHS = (1, 7, 15, 16, 17, 40, 333)


def random_model(window: int, K: int = 3) -> OnlineNMF:
    """Of spectra that are not those of any sound."""
    X = np.random.default_rng(0).gamma(0.5, 1.0, (40, window // 2 + 1)) + 1e-3
    return OnlineNMF(K, divergence="is", random_state=0, transform_max_iter=50, transform_tol=1e-3).fit(X)


def note(pitch: float, seconds: float, fades: float, odd: bool) -> np.ndarray:
    """Harmonics; of a plucked string, or of a pipe with odd ones."""
    t = np.arange(int(seconds * RATE)) / RATE
    numbers = [k for k in range(1, 12) if k * pitch < RATE / 2 and (k % 2 or not odd)]
    sound = sum(np.sin(2 * np.pi * k * pitch * t + k * k) * np.exp(-fades * k * t) / k for k in numbers)
    return sound * np.minimum(1, np.minimum(t, seconds - t) / 0.02)


def instruments() -> np.ndarray:
    """A string and a pipe, (2, samples): four seconds of notes, some of which sound together."""
    rng, found = np.random.default_rng(3), np.zeros((2, 4 * RATE))
    for start in np.arange(0, 3.6, 0.3):
        string = note(rng.choice([262.0, 330.0, 392.0]), 0.4, 2.0, odd=False)
        first = int(start * RATE)
        found[0, first : first + len(string)] += string
    for start in np.arange(0.1, 3.4, 0.55):
        pipe = note(rng.choice([294.0, 440.0]), 0.5, 0.0, odd=True)
        first = int(start * RATE)
        found[1, first : first + len(pipe)] += pipe
    return 0.15 * found / found.std(axis=1, keepdims=True)


def ratio(true: np.ndarray, found: np.ndarray) -> float:
    """SI-SDR in dB: how much louder the true sound is in what was found than all else."""
    part = (true @ found) / (true @ true) * true
    return float(10 * np.log10(np.square(part).sum() / np.square(found - part).sum()))


def quietly(model: OnlineNMF, source: Any) -> OnlineNMF:
    with pytest.warns(onmf.DomainWarning):  # between the notes there is silence
        return model.fit(source)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a mixture of two instruments, the first of them alone, and models of both."""
    folder = tmp_path_factory.mktemp("sound")
    string, pipe = instruments()
    soundfile.write(folder / "song.wav", string + pipe, RATE)
    soundfile.write(folder / "solo.wav", string, RATE)
    soundfile.write(folder / "stereo.ogg", np.stack([string + 0.4 * pipe, 0.4 * string + pipe], axis=1), RATE)
    settings: dict[str, Any] = {"divergence": "is", "max_passes": 10, "random_state": 0}
    solo = quietly(OnlineNMF(4, **settings), open_source(folder / "solo.wav?window=512&hop=256"))
    onmf.save(solo, folder / "solo")
    song = open_source(folder / "song.wav?window=512&hop=256")
    onmf.save(quietly(OnlineNMF(7, fixed=solo.components_, **settings), song), folder / "m")
    return folder


@pytest.fixture
def model(place: Path) -> OnlineNMF:
    return onmf.load(place / "m")


# The sum


@pytest.mark.parametrize(
    ("window", "hop"), [(16, 8), (16, 4), (16, 5), (16, 1), (16, 11), (16, 16), (15, 7), (15, 15), (3, 2), (2, 2)]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_parts_sum_to_the_sound_from_the_first_sample_to_the_last(window: int, hop: int) -> None:
    model, rng = random_model(window), np.random.default_rng(1)
    for length in LENGTHS:
        for shape in ((length,), (length, 1), (length, 2)):
            sound = rng.normal(size=shape) * np.geomspace(1, 1e-3, length).reshape(-1, *[1] * (len(shape) - 1))
            parts = separate(model, sound, RATE, window=window, hop=hop)
            assert parts.shape == (3, *shape)
            np.testing.assert_allclose(parts.sum(axis=0), sound, rtol=1e-9, atol=1e-14)


@pytest.mark.filterwarnings("ignore")
def test_silence_channels_that_cancel_and_what_no_component_has_still_sum_to_the_sound() -> None:
    rng = np.random.default_rng(2)
    X = np.where(np.arange(9) < 4, rng.gamma(2.0, 1.0, (30, 9)), 0.0)  # nothing is known above the fourth frequency
    model = OnlineNMF(3, divergence="squared_l2", sets=Sets(eps=0.0, eps_prime=0.0), random_state=0).fit(X)
    sound = rng.normal(size=200)
    cases = [np.zeros(100), np.concatenate([np.zeros(90), sound, np.zeros(90)]), np.stack([sound, -sound], axis=1)]
    for case in [*cases, 1e-170 * sound, (1000 * sound).astype(np.int16)]:
        parts = separate(model, case, RATE, window=16)
        assert np.isfinite(parts).all()
        np.testing.assert_allclose(parts.sum(axis=0), case, atol=1e-12 * max(1e-300, np.abs(case).max()))


def test_masks_are_the_shares_of_the_fit_and_those_of_all_channels() -> None:
    """Against scipy's transform, away from the ends, where it pads otherwise."""
    model, rng = random_model(32), np.random.default_rng(3)
    sound = rng.normal(size=(640, 2))
    parts = separate(model, sound, RATE, window=32, hop=8)
    options: dict[str, Any] = {"window": "hann", "nperseg": 32, "noverlap": 24}
    _, _, S = scipy.signal.stft(sound.T, **options, scaling="spectrum")
    S *= 16  # its windows have sum one
    H, W = model.transform(np.square(np.abs(S)).mean(axis=0).T), model.components_
    for k in range(3):
        mask = (H[:, k, None] * W[k] / (H @ W)).T
        _, expected = scipy.signal.istft(S * mask / 16, **options, scaling="spectrum")
        np.testing.assert_allclose(parts[k][64:-64], expected.T[64 : len(sound) - 64], atol=1e-5)


@pytest.mark.parametrize("channels", [1, 2])
def test_a_sound_that_comes_in_blocks_has_the_same_parts_in_little_memory(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, rng = random_model(32), np.random.default_rng(4)
    sound = rng.normal(size=(6_000, channels))
    whole = separate(model, sound, RATE, window=32, hop=12)
    monkeypatch.setattr(frames, "BLOCK", 2**12)
    for size in (999, 50, 6_000):
        cut = [sound[first : first + size] for first in range(0, len(sound), size)]
        parts = np.concatenate(list(Separation(model, RATE, window=32, hop=12).parts(cut)), axis=1)
        np.testing.assert_allclose(parts[:, : len(sound)], whole, atol=1e-4)
        np.testing.assert_allclose(parts[:, : len(sound)].sum(axis=0), sound, atol=1e-12)
    tracemalloc.start()
    samples = 0
    for block in Separation(model, RATE, window=32, hop=12).parts(sound[:500] for _ in range(60)):
        samples += block.shape[1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 30_000 <= samples < 30_012
    assert peak < 0.5 * 3 * 30_000 * channels * 8


# What the parts are


def test_two_instruments_are_heard_apart(model: OnlineNMF, place: Path) -> None:
    """By the components of one of them, which was heard alone before (a mixture has 0 dB of either)."""
    string, pipe = instruments()
    found = separate(model, string + pipe, RATE, groups="fixed")
    assert found.shape == (2, len(string))
    assert min(ratio(string, found[0]), ratio(pipe, found[1])) > 8  # measured: see docs/guides/sound.md
    parts = separate(model, string + pipe, RATE)
    np.testing.assert_allclose(parts[:4].sum(axis=0), found[0], atol=1e-12)


def test_what_is_heard_as_the_difference_of_two_channels_alone_is_learnt(tmp_path: Path) -> None:
    """Left is the string and the pipe, right the string less the pipe: their mean is the string alone."""
    string, pipe = instruments()
    soundfile.write(tmp_path / "wide.wav", np.stack([string + pipe, string - pipe], axis=1), RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "pipe.wav", np.stack([pipe, -pipe], axis=1), RATE, subtype="FLOAT")
    pipes = quietly(OnlineNMF(2, divergence="is", random_state=0), open_source(tmp_path / "pipe.wav?window=512"))
    wide = open_source(tmp_path / "wide.wav?window=512")
    model = OnlineNMF(6, divergence="is", fixed=pipes.components_, max_passes=10, random_state=0)
    sound = soundfile.read(tmp_path / "wide.wav")[0]
    found = separate(quietly(model, wide), sound, RATE, groups="fixed")
    assert ratio(pipe, found[0, :, 0]) > 8


def test_groups_are_sums_of_parts_and_the_rest_is_one_more(model: OnlineNMF) -> None:
    sound = np.random.default_rng(5).normal(size=3000)
    parts = separate(model, sound, RATE)
    found = separate(model, sound, RATE, groups=[[0, 2], (1,), np.array([6])])
    expected = [parts[[0, 2]], parts[[1]], parts[[6]], parts[[3, 4, 5]]]
    np.testing.assert_allclose(found, [part.sum(axis=0) for part in expected], atol=1e-12)
    everything = separate(model, sound, RATE, groups=[range(7)])
    np.testing.assert_allclose(everything[0], sound, atol=1e-12)


def test_any_fitted_model_separates_also_one_of_all_samples_at_once() -> None:
    X = np.random.default_rng(0).gamma(0.5, 1.0, (40, 9)) + 1e-3
    model = BatchNMF(2, divergence="is", random_state=0, max_iter=20, tol=0).fit(X)
    sound = np.random.default_rng(1).normal(size=500)
    np.testing.assert_allclose(separate(model, sound, RATE, window=17).sum(axis=0), sound, atol=1e-12)


def test_faint_ends_and_silence_do_not_warn(model: OnlineNMF) -> None:
    separate(random_model(16), np.concatenate([np.zeros(100), np.full(50, 1e-9), np.ones(99)]), RATE, window=16)


# Refusals


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": [[0], [0, 1]]}, "component 0 is named twice"),
        ({"groups": [[7]]}, r"the group \[7\] is not a list of components, counted from 0 to 6"),
        ({"groups": [[-1]]}, "counted from 0 to 6"),
        ({"groups": [[]]}, "is not a list of components"),
        ({"groups": [3]}, "is not a list of components"),
        ({"groups": ["ab"]}, "is not a list of components"),
        ({"groups": "auto"}, "groups must be lists of components"),
        (
            {"rate": 44100},
            "44100 samples per second, but the model was learnt at 8000 samples per second",
        ),
        ({"rate": "fast"}, "rate must be the number of samples per second"),
        ({"window": 1024}, "window=1024 contradicts the model, which was learnt with window=512"),
        ({"hop": 128}, "hop=128 contradicts the model"),
        ({"sound": np.zeros((2, 3000))}, r"one row per sample, got the shape \(2, 3000\); pass sound.T"),
        ({"sound": np.zeros((3, 3, 3))}, r"must be numbers \(samples,\) or \(samples, channels\)"),
        ({"sound": np.zeros(0)}, "no samples"),
        ({"sound": ["a"]}, "must be numbers"),
        ({"sound": np.full(9, np.nan)}, "NaN or infinite"),
    ],
)
def test_what_cannot_be_separated_is_refused_in_a_sentence(
    model: OnlineNMF, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        separate(model, **({"sound": np.zeros(3000), "rate": RATE} | given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "not learnt from recordings, so that it has no window.*: window=16 or 17"),
        ({"window": 20}, "a window of 20 samples has 11 frequencies, the model 9"),
        ({"window": 16, "hop": 17}, "the hop must be a whole number from 1 to the window, 16, got 17"),
        ({"window": 16, "groups": "fixed"}, "no fixed components"),
    ],
)
def test_a_model_of_arrays_needs_the_window_of_its_spectra(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        separate(random_model(16), np.zeros(100), RATE, **given)


@pytest.mark.parametrize("last", ["i", "inf Hz", "0 Hz"])
def test_features_with_names_that_are_no_frequencies_are_refused(last: str) -> None:
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(np.random.default_rng(0).random((30, 9)) + 0.1, columns=[*"abcdefgh", last])
    with pytest.raises(ValueError, match=f"the model's features are not frequencies: the last one is '{last}'"):
        separate(OnlineNMF(2, random_state=0).fit(table), np.zeros(100), RATE, window=16)


# onmf separate


def command(*arguments: object) -> Any:
    return CliRunner().invoke(cli.app, ["separate", *map(str, arguments)], env={"COLUMNS": "200"})


def written(folder: Path) -> dict[str, np.ndarray]:
    return {path.name: soundfile.read(path)[0] for path in sorted(folder.iterdir())}


def test_the_command_writes_one_file_per_component_whose_sum_is_the_recording(place: Path, tmp_path: Path) -> None:
    result = command(place / "m", place / "stereo.ogg", "-o", tmp_path / "parts", "--json")
    assert result.exit_code == 0, result.output
    told, found = json.loads(result.stdout), written(tmp_path / "parts")
    assert list(found) == [f"part-0{k}.wav" for k in range(7)]
    assert [Path(part["file"]).name for part in told["parts"]] == list(found)
    assert [part["components"] for part in told["parts"]] == [[k] for k in range(7)]
    energies = np.array([np.square(part).sum() for part in found.values()])
    shares = [part["share_of_energy"] for part in told["parts"]]
    np.testing.assert_allclose(shares, energies / energies.sum(), rtol=1e-5)
    sound, rate = soundfile.read(place / "stereo.ogg")
    assert (told["rate"], told["channels"], told["samples"]) == (rate, 2, len(sound))
    np.testing.assert_allclose(sum(found.values()), sound, atol=1e-6)
    parts = separate(onmf.load(place / "m"), sound, rate)
    np.testing.assert_allclose(list(found.values()), parts, atol=1e-6)


def test_flac_of_24_bits_sums_to_a_recording_of_16_bits_exactly(place: Path, tmp_path: Path) -> None:
    arguments = "--group", "0,1,2,3", "--group", "5", "--format", "flac"
    result = command(place / "m", place / "song.wav", "-o", tmp_path / "parts", *arguments)
    assert result.exit_code == 0, result.output
    assert "0, 1, 2, 3" in result.stdout
    assert "their sum is the recording rounded to 24 bits" in result.stdout
    found = written(tmp_path / "parts")
    assert list(found) == ["group-0.flac", "group-1.flac", "rest.flac"]
    assert soundfile.info(tmp_path / "parts" / "rest.flac").subtype == "PCM_24"
    assert np.array_equal(sum(found.values()), soundfile.read(place / "song.wav")[0])


def test_fixed_components_against_the_others_and_other_formats_in(place: Path, tmp_path: Path) -> None:
    sound = soundfile.read(place / "song.wav")[0]
    for name in ["x.flac", "x.aiff", *(["x.mp3"] if "MP3" in soundfile.available_formats() else [])]:
        soundfile.write(tmp_path / name, sound, RATE)
        result = command(place / "m", tmp_path / name, "--group", "fixed", "-o", tmp_path / "parts")  # over and over
        assert result.exit_code == 0, result.output
        found = written(tmp_path / "parts")
        assert list(found) == ["fixed.wav", "others.wav"]
        np.testing.assert_allclose(sum(found.values()), soundfile.read(tmp_path / name)[0], atol=1e-6)


def test_instruments_learnt_alone_come_apart_by_their_origin(tmp_path: Path) -> None:
    """Learnt from the first halves of two songs, which have the same notes in another order, heard in the second."""
    strings = [note(pitch, 0.5, 2.0, odd=False) for pitch in (262, 330, 392, 330, 392, 330, 262, 392)]
    pipes = [np.append(note(pitch, 0.9, 0.0, odd=True), np.zeros(RATE // 10)) for pitch in (294, 440, 440, 294)]
    alone, half = np.stack([np.concatenate(strings), 0.3 * np.concatenate(pipes)]), 2 * RATE
    for name, sound in zip(("string", "pipe"), alone, strict=True):
        soundfile.write(tmp_path / f"{name}.wav", sound[:half], RATE, subtype="DOUBLE")
        learn(tmp_path / name, f"{tmp_path / name}.wav?window=512&hop=256", "-k", 4)
    soundfile.write(tmp_path / "both.wav", alone[:, half:].sum(axis=0), RATE, subtype="DOUBLE")
    learn(tmp_path / "m", tmp_path / "both.wav", "-k", 8, "--fixed", tmp_path / "string", "--fixed", tmp_path / "pipe")
    groups = "--group", tmp_path / "pipe", "--group", tmp_path / "string"
    result = command(tmp_path / "m", tmp_path / "both.wav", *groups, "-o", tmp_path / "parts", "--json")
    assert result.exit_code == 0, result.output
    assert [part["components"] for part in json.loads(result.stdout)["parts"]] == [[4, 5, 6, 7], [0, 1, 2, 3]]
    found = written(tmp_path / "parts")
    assert list(found) == ["group-0.wav", "group-1.wav"]
    assert ratio(alone[1, half:], found["group-0.wav"]) > 8
    assert ratio(alone[0, half:], found["group-1.wav"]) > 8
    learn(tmp_path / "longer", f"{tmp_path / 'pipe'}.wav?window=1024&hop=256", "-k", 4)
    for model, others in (("string", groups), ("m", ("--group", tmp_path / "longer"))):
        result = command(tmp_path / model, tmp_path / "both.wav", *others, "-o", tmp_path / "none")
        said = " ".join(result.output.split())
        assert (result.exit_code, "does not have its components; learn it with --fixed" in said) == (2, True), said


def learn(out: Path, *arguments: object) -> None:
    settings = "--divergence", "is", "--passes", "10", "--seed", "0", "--out", out
    with pytest.warns(onmf.DomainWarning):
        result = CliRunner().invoke(cli.app, ["fit", *map(str, (*arguments, *settings))])
    assert result.exit_code == 0, result.output


def test_a_recording_shorter_than_a_window_is_separated_too(place: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "x.wav", np.linspace(-0.5, 0.5, 100), RATE, subtype="DOUBLE")
    assert command(place / "m", tmp_path / "x.wav", "-o", tmp_path / "parts").exit_code == 0
    np.testing.assert_allclose(sum(written(tmp_path / "parts").values()), np.linspace(-0.5, 0.5, 100), atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("m fast.wav -o parts", "the sound has 16000 samples per second, but the model was learnt at 8000"),
        ("m nowhere.wav -o parts", "no such file: nowhere.wav"),
        ("m m -o parts", "m cannot be read as sound"),
        ("m empty.wav -o parts", "empty.wav has no samples"),
        ("m cut.flac -o parts", "cut.flac"),
        ("arrays song.wav -o parts", "arrays was not learnt from sound; learn a model from the recording"),
        ("m song.wav -o parts --group 1;2", "--group 1;2: write components between commas"),
        ("m song.wav -o parts --group 0 --group 0", "component 0 is named twice"),
        ("m song.wav -o song.wav", "song.wav is a file; give --out the name of a folder"),
        ("m song.wav -o no/parts", "cannot write no/parts: there is no folder no"),
        ("m full/part-03.wav -o full", "full/part-03.wav is an input"),
        ("m song.wav -o stale", "stale holds part-99.wav of another separation; give --out another folder"),
        ("m song.wav -o stale --group 0", "stale holds part-99.wav of another separation"),
        ("m song.wav -o full --format flac", "full holds part-03.wav of another separation; give --out another folder"),
        ("m song.wav -o grouped", "grouped holds group-0.wav and 1 more of another separation"),
        ("m song.wav -o halves", "halves holds fixed.flac and 1 more of another separation"),
        (
            "solo song.wav -o parts --group fixed",
            "solo has no fixed components to be set against the others",
        ),
        ("m loud.wav -o parts --format flac", "would be louder than 24 bits can hold; write the parts as WAV"),
    ],
)
def test_what_the_command_cannot_do_is_one_sentence_and_leaves_nothing(
    arguments: str, message: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sound = soundfile.read(place / "song.wav")[0]
    for name, part, rate in [("song", sound, RATE), ("fast", sound, 16000), ("empty", sound[:0], RATE)]:
        soundfile.write(f"{name}.wav", part, rate)
    soundfile.write("loud.wav", 9 * sound, RATE, subtype="FLOAT")
    soundfile.write("cut.flac", np.random.default_rng(0).uniform(-0.5, 0.5, 30_000), RATE)
    Path("cut.flac").write_bytes(Path("cut.flac").read_bytes()[:20_000])
    for name in ("m", "solo"):
        Path(name).write_bytes((place / name).read_bytes())
    onmf.save(random_model(16), "arrays")
    stale = [("grouped", "group-0.wav"), ("grouped", "rest.wav"), ("halves", "fixed.flac"), ("halves", "others.flac")]
    for folder, name in [("full", "part-03.wav"), ("stale", "part-99.wav"), *stale]:
        Path(folder).mkdir(exist_ok=True)
        soundfile.write(Path(folder) / name, sound, RATE)
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    result = command(*arguments.split())
    said = result.stderr or str(result.exception)
    assert result.exit_code != 0
    assert isinstance(result.exception, (SystemExit, ValueError))
    assert message in said
    assert "\n" not in said.strip()
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


def test_a_folder_may_hold_the_parts_that_are_replaced_and_files_of_ones_own(place: Path, tmp_path: Path) -> None:
    (tmp_path / "partial-mix.wav").write_text("my own")
    for _ in range(2):
        assert command(place / "m", place / "song.wav", "-o", tmp_path).exit_code == 0


def test_the_help_names_no_option_that_the_command_does_not_have() -> None:
    for name in ("separate", "fit"):
        said = CliRunner().invoke(cli.app, [name, "--help"], env={"COLUMNS": "200"}).stdout
        assert "--log-every" in said
        assert ("--log-json" in said) == (name == "fit")


def test_parts_too_long_for_a_wav_file_get_a_larger_header() -> None:
    wav = files.FORMATS["wav"]
    assert wav.for_length(10**9, 1) == "WAV"
    assert wav.for_length(10**9, 2) == "RF64"
    assert files.FORMATS["flac"].for_length(10**10, 2) == "FLAC"
