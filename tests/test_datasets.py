"""Public data sets in their public formats: tiny files written here, damaged ones, and the real ones in ONMF_DATA."""

from __future__ import annotations

import gzip
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from benchmarks import data_sets
from onmf import OnlineNMF
from reproduction.datasets import matlab, texts
from reproduction.datasets.files import VARIABLE, DataFileError, DataFolderError
from reproduction.datasets.matlab import read_matrices
from reproduction.datasets.texts import leading_words, tfidf

LOADERS = {
    "bbc": (texts.BBC, texts.load_bbc),
    "newsgroups": (texts.NEWSGROUPS, texts.load_newsgroups),
    "piano": (data_sets.PIANO, data_sets.load_piano),
    "samson": (data_sets.SAMSON, data_sets.load_samson),
    "yaleb": (matlab.YALEB, matlab.load_yaleb),
    "movielens": (data_sets.MOVIELENS, data_sets.load_movielens),
}


def load(name: str, *folder: Path | str) -> object:
    return LOADERS[name][1](*folder)


def mat(compressed: bool = True, **variables: object) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, variables, do_compression=compressed)
    return file.getvalue()


RNG = np.random.default_rng(5)
SPECTRA = RNG.uniform(0.1, 9.0, (129, 4))
IMAGE, TRUE_SPECTRA, SHARES = RNG.uniform(size=(5, 6)), RNG.uniform(size=(5, 3)), RNG.dirichlet(np.ones(3), 6).T
FACES, SUBJECTS = RNG.integers(0, 256, (3, 1024), dtype=np.uint8), np.array([[1], [1], [2]], dtype=np.uint8)
NAMES = np.array([["1-rock"], ["2-Tree"], ["3-water"]], dtype=object)

FILES: dict[str, dict[str, bytes]] = {
    "bbc": {
        "bbc.mtx": b"%%MatrixMarket matrix coordinate real general\n% by us\n3 2 4\n1 1 1.0\n3 1 2\n2 2 5.0\n3 2 1\n",
        "bbc.terms": "sale\n£75m\nboost\n".encode(),
        "bbc.classes": b"%%Clustering hard\n%Name N\n%Clusters 2 business,sport\n%Objects\n1 0\n0 1\n",
    },
    "newsgroups": {
        "train.data": b"1 1 4\n1 3 2\n3 2 1\n",  # document 2 has no words
        "train.label": b"1\n2\n2\n",
        "test.data": b"1 4 7\n",  # document 2, the last, has no words
        "test.label": b"2\n1\n",
        "vocabulary.txt": b"archive\nname\natheism\nresources\n",
        "train.map": b"alt.atheism 1\ncomp.graphics 2\n",
    },
    "piano": {"piano_Mary.mat": mat(X=SPECTRA, Xspectr=SPECTRA * 1j, x=np.zeros((9, 1)))},
    "samson": {
        "samson_1.mat": mat(V=IMAGE, nRow=np.uint8([[2]]), nCol=np.uint8([[3]]), nBand=np.uint8([[5]])),
        "end3.mat": mat(M=TRUE_SPECTRA, A=SHARES, cood=NAMES),
    },
    "yaleb": {"YaleB_32x32.mat": mat(fea=FACES, gnd=SUBJECTS)},
    "movielens": {
        "ratings.csv": b"userId,Id,rating,timestamp\r\n1,3,4.0,964982703\r\n1,10,0.5,964981247\r\n7,10,5.0,9649\r\n",
    },
}
EVERY_SET = pytest.mark.parametrize("name", LOADERS)
PAIRS = [(name, file) for name, files in FILES.items() for file in files]
EVERY_FILE = pytest.mark.parametrize(("name", "file"), PAIRS)
EVERY_NEEDED_FILE = pytest.mark.parametrize(("name", "file"), [pair for pair in PAIRS if pair[1] != "train.map"])


def lay(folder: Path, files: dict[str, bytes], packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return folder


def lay_with(folder: Path, name: str, file: str, content: bytes) -> Path:
    return lay(folder, FILES[name] | {file: content})


def one_sentence(error: BaseException) -> str:
    text = str(error)
    assert "\n" not in text
    assert text.endswith(".")
    return text


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests on tiny files must not find the real ones."""
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture(params=["plain", "packed"])
def packed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "packed")


def test_bbc_has_documents_as_rows_and_labels_by_document(tmp_path: Path, packed: bool) -> None:
    data = texts.load_bbc(lay(tmp_path, FILES["bbc"], packed))
    assert data.counts.format == "csr"
    assert data.counts.dtype == np.float64
    np.testing.assert_array_equal(data.counts.toarray(), [[1, 0, 2], [0, 5, 1]])
    assert data.words == ["sale", "£75m", "boost"]
    np.testing.assert_array_equal(data.labels, [1, 0])
    assert data.label_names == ["business", "sport"]


def test_newsgroups_keep_the_rows_of_documents_without_words(tmp_path: Path, packed: bool) -> None:
    train, test = texts.load_newsgroups(lay(tmp_path, FILES["newsgroups"], packed))
    np.testing.assert_array_equal(train.counts.toarray(), [[4, 0, 2, 0], [0, 0, 0, 0], [0, 1, 0, 0]])
    np.testing.assert_array_equal(test.counts.toarray(), [[0, 0, 0, 7], [0, 0, 0, 0]])
    np.testing.assert_array_equal(train.labels, [0, 1, 1])
    np.testing.assert_array_equal(test.labels, [1, 0])
    for part in (train, test):
        assert part.words == ["archive", "name", "atheism", "resources"]
        assert part.label_names == ["alt.atheism", "comp.graphics"]


def test_newsgroups_do_without_names_of_groups(tmp_path: Path) -> None:
    lay(tmp_path, FILES["newsgroups"])
    (tmp_path / "train.map").unlink()
    train, _ = texts.load_newsgroups(tmp_path)
    assert train.label_names[:2] == ["group 1", "group 2"]
    np.testing.assert_array_equal(train.labels, [0, 1, 1])


def test_piano_is_the_squared_magnitude_with_frames_as_rows(tmp_path: Path, packed: bool) -> None:
    np.testing.assert_array_equal(data_sets.load_piano(lay(tmp_path, FILES["piano"], packed)), SPECTRA.T**2)


def test_samson_has_pixels_as_rows_and_pictures_by_column(tmp_path: Path, packed: bool) -> None:
    data = data_sets.load_samson(lay(tmp_path, FILES["samson"], packed))
    np.testing.assert_array_equal(data.pixels, IMAGE.T)
    np.testing.assert_array_equal(data.endmembers, TRUE_SPECTRA.T)
    np.testing.assert_array_equal(data.abundances, SHARES.T)
    assert (data.shape, data.names) == ((2, 3), ("rock", "tree", "water"))
    np.testing.assert_array_equal(data.image(np.arange(6)), [[0, 2, 4], [1, 3, 5]])


def test_yaleb_has_images_as_rows_and_shows_them_upright(tmp_path: Path, packed: bool) -> None:
    data = matlab.load_yaleb(lay(tmp_path, FILES["yaleb"], packed))
    assert data.images.dtype == np.float64
    np.testing.assert_array_equal(data.images, FACES)
    np.testing.assert_array_equal(data.subjects, [1, 1, 2])
    np.testing.assert_array_equal(matlab.upright(data.images[1]), FACES[1].reshape(32, 32).T)
    np.testing.assert_array_equal(matlab.upright(data.images)[1], matlab.upright(data.images[1]))


def test_movielens_has_a_column_for_each_rated_film(tmp_path: Path, packed: bool) -> None:
    ratings = data_sets.load_movielens(lay(tmp_path, FILES["movielens"], packed))
    np.testing.assert_array_equal(ratings.toarray(), [[4, 0.5], [0, 5]])


@EVERY_SET
def test_a_set_is_found_in_its_subfolder_by_argument_and_by_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lay(tmp_path / LOADERS[name][0].subfolder, FILES[name])
    load(name, tmp_path)
    load(name, str(tmp_path))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    load(name)
    with pytest.raises(DataFolderError):  # the argument goes before the variable
        load(name, tmp_path / "elsewhere")


@EVERY_SET
@pytest.mark.parametrize("value", [None, ""])
def test_without_a_folder_the_message_says_where_to_get_the_set_and_how_to_name_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str | None
) -> None:
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    text = one_sentence(caught.value)
    owner = LOADERS[name][0]
    assert all(part in text for part in (owner.title, owner.origin, VARIABLE, "argument"))


@EVERY_SET
def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataFolderError) as caught:
        load(name, tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in one_sentence(caught.value)


@EVERY_NEEDED_FILE
def test_a_missing_file_is_named_with_the_origin_of_the_set(tmp_path: Path, name: str, file: str) -> None:
    (lay(tmp_path, FILES[name]) / file).unlink()
    with pytest.raises(DataFolderError) as caught:
        load(name, tmp_path)
    text = one_sentence(caught.value)
    assert f"no {file} or {file}.gz in" in text
    assert LOADERS[name][0].origin in text


@EVERY_FILE
@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"\xff\xfe\x00nonsense", b"%\n"], ids=["empty", "blank", "bytes", "%"]
)
def test_a_file_of_nonsense_is_named(tmp_path: Path, name: str, file: str, content: bytes) -> None:
    if content == b"%\n" and file in {"bbc.terms", "vocabulary.txt"}:
        content = b""  # there '%' is a word
    with pytest.raises(DataFileError) as caught:
        load(name, lay_with(tmp_path, name, file, content))
    assert str(tmp_path) in one_sentence(caught.value)


@EVERY_FILE
def test_a_packed_file_that_is_cut_or_not_packed_is_named(tmp_path: Path, name: str, file: str) -> None:
    folder = lay(tmp_path, FILES[name], packed=True)
    path = folder / f"{file}.gz"
    content = path.read_bytes()
    for broken in (content[:-9], content[:5], b"", b"plain text", content[:12] + b"\xff" * 9 + content[21:]):
        path.write_bytes(broken)
        with pytest.raises(DataFileError) as caught:
            load(name, folder)
        assert str(path) in one_sentence(caught.value)


def changed(name: str, file: str, old: bytes, new: bytes) -> bytes:
    assert old in FILES[name][file]
    return FILES[name][file].replace(old, new)


DAMAGE = {
    "no Matrix Market": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"coordinate", b"array"), "Matrix Market"),
    "symmetric": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"general", b"symmetric"), "Matrix Market"),
    "other size": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"3 2 4\n", b"3 9 4\n"), "3 terms x 2 documents"),
    "cut": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"3 2 1\n", b""), "3 entries instead of 4"),
    "term of no row": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"3 2 1\n", b"4 2 1\n"), "4 is not a word number"),
    "half a count": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"5.0", b"5.5"), "5.5 is not a count"),
    "negative": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"5.0", b"-5"), "-5 is not a count"),
    "nan": ("bbc", "bbc.mtx", changed("bbc", "bbc.mtx", b"5.0", b"nan"), "nan is not a count"),
    "no names": ("bbc", "bbc.classes", b"0 0\n1 1\n", "%Clusters"),
    "class of no name": ("bbc", "bbc.classes", changed("bbc", "bbc.classes", b"0 1", b"0 2"), "2 is not a class"),
    "two classes": ("bbc", "bbc.classes", changed("bbc", "bbc.classes", b"0 1", b"1 1"), "two classes"),
    "document 0": ("newsgroups", "train.data", b"0 1 4\n", "0 is not a document number from 1 to 3"),
    "document 4": ("newsgroups", "train.data", b"4 1 4\n", "4 is not a document number from 1 to 3"),
    "word 5": ("newsgroups", "test.data", b"1 5 4\n", "5 is not a word number from 1 to 4"),
    "two numbers": ("newsgroups", "train.data", b"1 1\n2 1\n", "2 numbers instead of 3"),
    "short line": ("newsgroups", "train.data", b"1 1 1\n2 1\n", "number of columns"),
    "letters": ("newsgroups", "train.data", b"1 1 1\n2 x 1\n", "could not convert"),
    "group 3": ("newsgroups", "test.label", b"3\n1\n", "3 is not a group from 1 to 2"),
    "name alone": ("newsgroups", "train.map", b"alt.atheism\n", "not a name and a number"),
    "gap in numbers": ("newsgroups", "train.map", b"a 1\nb 3\n", "not 1 to 2"),
    "transposed": ("piano", "piano_Mary.mat", mat(X=SPECTRA.T), "4 rows instead of 129"),
    "complex": ("piano", "piano_Mary.mat", mat(X=SPECTRA * 1j), "no matrix X of real numbers"),
    "cell": ("piano", "piano_Mary.mat", mat(X=NAMES), "no matrix X of real numbers"),
    "sparse": ("piano", "piano_Mary.mat", mat(X=scipy.sparse.csc_matrix(SPECTRA)), "no matrix X of real numbers"),
    "other variable": ("piano", "piano_Mary.mat", mat(Y=SPECTRA), "no matrix X of real numbers"),
    "three axes": ("piano", "piano_Mary.mat", mat(X=np.ones((129, 2, 2))), "do not fit together"),
    "empty": ("piano", "piano_Mary.mat", mat(X=np.ones((129, 0))), "129 x 0"),
    "below 0": ("piano", "piano_Mary.mat", mat(X=-SPECTRA), "negative or not finite"),
    "infinite": ("piano", "piano_Mary.mat", mat(X=np.full((129, 2), np.inf)), "not finite"),
    "version 7.3": ("piano", "piano_Mary.mat", b"MATLAB 7.3".ljust(124) + b"\x00\x02IM", "save with -v7"),
    "pixels": ("samson", "samson_1.mat", mat(V=IMAGE, nRow=2, nCol=2), "6 columns instead of 2 x 2"),
    "no side": ("samson", "samson_1.mat", mat(V=IMAGE, nRow=2.5, nCol=2), "2.5 is not a side"),
    "not scaled": ("samson", "samson_1.mat", mat(V=IMAGE * 400, nRow=2, nCol=3), "above 1"),
    "other truth": ("samson", "end3.mat", mat(M=TRUE_SPECTRA, A=SHARES[:, :5]), "3 materials"),
    "other pictures": ("yaleb", "YaleB_32x32.mat", mat(fea=FACES[:, :1000], gnd=SUBJECTS), "1024 pixels"),
    "too bright": ("yaleb", "YaleB_32x32.mat", mat(fea=FACES * 2.0, gnd=SUBJECTS), "from 0 to 255"),
    "other subjects": ("yaleb", "YaleB_32x32.mat", mat(fea=FACES, gnd=SUBJECTS[1:]), "3 images, but 2"),
    "six stars": ("movielens", "ratings.csv", b"a,b,c,d\n1,3,6,0\n", "at most 5"),
    "no stars": ("movielens", "ratings.csv", b"a,b,c,d\n1,3,0,0\n", "above 0"),
    "twice": ("movielens", "ratings.csv", b"a,b,c,d\n1,3,4,0\n1,3,4,0\n", "twice"),
    "user 0": ("movielens", "ratings.csv", b"a,b,c,d\n0,3,4,0\n", "0 is not a user's number"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_named_with_its_file(tmp_path: Path, case: str) -> None:
    name, file, content, reason = DAMAGE[case]
    with pytest.raises(DataFileError) as caught:
        load(name, lay_with(tmp_path, name, file, content))
    text = one_sentence(caught.value)
    assert str(tmp_path / file) in text
    assert reason in text


@EVERY_FILE
def test_wrong_bytes_give_data_or_a_sentence_and_nothing_else(
    tmp_path: Path, rng: np.random.Generator, name: str, file: str
) -> None:
    content = FILES[name][file]
    for _ in range(60):
        broken = bytearray(content[: rng.integers(len(content) + 1)] if rng.random() < 0.3 else content)
        for _ in range(min(int(rng.integers(1, 5)), len(broken))):
            broken[rng.integers(len(broken))] = rng.choice([0, 1, 10, 14, 32, 48, 57, 255])
        lay_with(tmp_path, name, file, bytes(broken))
        try:
            load(name, tmp_path)
        except DataFileError as error:
            one_sentence(error)


@pytest.mark.parametrize("place", range(128, 200, 4))
@pytest.mark.parametrize("word", [0, 1, 15, 255, 0x40009, 0x50009, 2**31, 2**32 - 1])
def test_wrong_tags_in_a_matlab_file_give_data_or_a_sentence(tmp_path: Path, place: int, word: int) -> None:
    content = bytearray(mat(compressed=False, X=np.arange(6.0).reshape(2, 3), y=np.uint8([[3]])))
    content[place : place + 4] = struct.pack("<I", word)  # among these are files on which scipy.io.loadmat crashes
    path = tmp_path / "x.mat"
    path.write_bytes(content)
    try:
        read_matrices(path, "X", "y")
    except DataFileError as error:
        one_sentence(error)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_matlab_matrices_of_every_type_are_read(tmp_path: Path, compressed: bool, dtype: str) -> None:
    wanted = np.arange(6, dtype=dtype).reshape(2, 3)
    path = tmp_path / "x.mat"
    path.write_bytes(mat(compressed, before=NAMES, a=np.uint8([[7]]), cube=np.ones((2, 2, 2)), long_name=wanted))
    long_name, a = read_matrices(path, "long_name", "a")
    assert long_name.dtype == np.float64
    np.testing.assert_array_equal(long_name, wanted)
    np.testing.assert_array_equal(a, [[7]])


def test_matlab_files_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    def element(kind: int, content: bytes) -> bytes:
        return struct.pack(">II", kind, len(content)) + content + b"\0" * (-len(content) % 8)

    parts = element(6, struct.pack(">II", 6, 0)) + element(5, struct.pack(">ii", 2, 1)) + element(1, b"X")
    matrix = element(14, parts + element(3, struct.pack(">hh", 1, 258)))
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\x01\x00MI" + matrix)
    np.testing.assert_array_equal(read_matrices(path, "X")[0], [[1], [258]])


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    lay(tmp_path, FILES["piano"])
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataFileError, match="Permission denied"):
        data_sets.load_piano(tmp_path)


FORMS = [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array]
WORDS = np.array([[3, 0, 1, 0], [1, 2, 5, 0], [0, 0, 1, 0]])


@pytest.mark.parametrize("form", FORMS)
def test_tfidf_is_the_formula(form: type) -> None:
    weights = tfidf(form(WORDS))
    expected = np.zeros(WORDS.shape)
    for d, w in np.argwhere(WORDS):
        expected[d, w] = (1 + np.log(WORDS[d, w])) * np.log(3 / np.count_nonzero(WORDS[:, w]))
    assert weights.format == "csr"
    np.testing.assert_allclose(weights.toarray(), expected, rtol=1e-14)
    assert weights.nnz == 3  # the word in all documents tells none apart


def test_tfidf_counts_no_stored_zeros_sums_entries_given_twice_and_leaves_its_argument_alone() -> None:
    counts = scipy.sparse.csr_array((np.array([1.0, 2.0, 0.0]), np.array([0, 0, 0]), np.array([0, 2, 3])), shape=(2, 1))
    before = counts.data.copy()
    np.testing.assert_allclose(tfidf(counts).toarray(), [[(1 + np.log(3)) * np.log(2)], [0]])
    np.testing.assert_array_equal(counts.data, before)


@pytest.mark.parametrize("bad", [-1.0, 0.5, np.nan, np.inf])
def test_tfidf_refuses_what_is_no_count(bad: float) -> None:
    with pytest.raises(ValueError, match="needs counts"):
        tfidf(np.array([[1.0, bad]]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64])
def test_leading_words_go_by_l1_norm_and_keep_the_order_of_ties(form: type, dtype: type) -> None:
    counts = form(np.array([[1, 2, 0, 9, 2], [1, 3, 2, 0, 0]], dtype=dtype))
    assert leading_words(counts, 4).tolist() == [3, 1, 0, 2]
    assert leading_words(counts, 99).tolist() == [3, 1, 0, 2, 4]
    with pytest.raises(ValueError, match="at least 1"):
        leading_words(counts, 0)


def test_leading_words_take_absolute_values() -> None:
    assert leading_words(scipy.sparse.csr_array([[1.0, -3.0], [1.0, 3.0]]), 1).tolist() == [1]


REAL = os.environ.get(VARIABLE)


@pytest.fixture
def real() -> str:
    """The folder of the real sets; it is read before the tests clear the variable."""
    if not REAL:
        pytest.skip(f"set {VARIABLE} to a folder with the public data sets")
    return REAL


def test_real_bbc(real: str) -> None:
    data = texts.load_bbc(real)
    assert data.counts.shape == (2225, 9635)
    assert (data.counts.nnz, data.counts.sum()) == (286774, 425832)
    assert dict(zip(data.label_names, np.bincount(data.labels).tolist(), strict=True)) == {
        "business": 510,
        "entertainment": 386,
        "politics": 417,
        "sport": 511,
        "tech": 401,
    }
    sport = tfidf(data.counts)[data.labels == data.label_names.index("sport")]
    assert {"game", "win", "player"} <= {data.words[i] for i in leading_words(sport, 10)}


def test_real_newsgroups(real: str) -> None:
    train, test = texts.load_newsgroups(real)
    assert train.counts.shape == (11269, 61188)
    assert test.counts.shape == (7505, 61188)
    assert train.counts.indices.dtype == np.int32
    for part in (train, test):
        assert len(part.words) == 61188
        assert (len(part.label_names), part.label_names[10]) == (20, "rec.sport.hockey")
        assert (len(part.labels), set(part.labels)) == (part.counts.shape[0], set(range(20)))
        hockey = tfidf(part.counts)[part.labels == 10]
        assert {"hockey", "team", "nhl"} <= {part.words[i] for i in leading_words(hockey, 20)}


def test_real_piano(real: str) -> None:
    power = data_sets.load_piano(real)
    assert power.shape == (586, 129)
    assert power.min() > 0
    loud = power[10:60].mean(axis=0)  # the first note, E4: 329.6 Hz, in bins of 62.5 Hz
    assert np.argmax(loud) == 5


def test_real_samson(real: str) -> None:
    data = data_sets.load_samson(real)
    assert (data.pixels.shape, data.endmembers.shape, data.abundances.shape) == ((9025, 156), (3, 156), (9025, 3))
    assert (data.shape, data.pixels.min(), data.pixels.max()) == ((95, 95), 0.0, 1.0)
    np.testing.assert_allclose(data.abundances.sum(axis=1), 1)
    for k, spectrum in enumerate(data.endmembers):  # pure pixels look like their material
        mean = data.pixels[data.abundances[:, k] > 0.95].mean(axis=0)
        assert mean @ spectrum / np.linalg.norm(mean) / np.linalg.norm(spectrum) > 0.999
    water = data.image(data.abundances[:, data.names.index("water")])
    assert water[:, :10].mean() > 0.95  # the water lies to the left
    assert water[:, 60:].mean() < 0.05


def test_real_yaleb(real: str) -> None:
    data = matlab.load_yaleb(real)
    assert data.images.shape == (2414, 1024)
    assert (data.images.min(), data.images.max()) == (0, 255)
    assert set(data.subjects) == set(range(1, 39))
    mean = matlab.upright(data.images).mean(axis=0)
    assert np.corrcoef(mean.ravel(), mean[:, ::-1].ravel())[0, 1] > 0.95  # left and right of a face are alike,
    assert np.corrcoef(mean.ravel(), mean[::-1].ravel())[0, 1] < 0.7  # top and bottom are not


def test_real_movielens(real: str) -> None:
    ratings = data_sets.load_movielens(real)
    assert (ratings.shape, ratings.nnz) == ((610, 9724), 100836)
    assert set(ratings.data) == set(np.arange(1, 11) / 2)


def test_the_estimator_takes_what_the_loaders_give(real: str) -> None:
    counts = texts.load_bbc(real).counts[:200]
    words = counts[:, leading_words(counts, 100)]
    model = OnlineNMF(n_components=3, divergence="kl", method="em", random_state=0).fit(words)
    assert model.transform(words).shape == (200, 3)
