"""Texts as counts of words, by scikit-learn's vectorisers: one document per line, JSON object or file.

A vocabulary is learnt in a first pass, which counts words in bounded memory. Hashing does without, as a stream that
cannot be read twice must, but has no words to show.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from onmf._support.skipping import Unread
from onmf._support.wording import plural
from onmf.data.base import Numbered, OnBad, Sequential, Source, SourceError, reading, require_room
from onmf.data.budget import MEMORY, PARSED, allowed, characters
from onmf.data.columns import shown
from onmf.data.files import matching, named
from onmf.data.in_memory import Rows
from onmf.data.lines import JsonLines
from onmf.data.pipes import name_of
from onmf.data.registry import Spec, register

log = logging.getLogger("onmf")

USUAL = 10_000  # words of a vocabulary
HASHED = 2**14
ENOUGH_TEXTS = 100  # for a word in one of them to be left out
COUNTED = 1024  # bytes of memory for each word that is counted, which takes half of them
LONG = 32  # characters of a word; longer ones take the room of several
MOST_FEATURES = 2**31 - 1  # of scikit-learn's vectorisers
COUNTED_AT_A_TIME = 1000  # texts
LEAST_TOLD = 0.005  # the share of unknown words from which on it is told


@dataclass(frozen=True)
class TextOptions:
    """The options that texts take.

    ``words`` is how many words to learn a vocabulary of, among those that ``min_df`` and ``max_df`` leave; ``hashed``
    does without a vocabulary. ``ngrams=2`` also counts pairs of words, ``stop=english`` leaves the commonest English
    words out, ``stop=FILE`` those in a file, ``tfidf=yes`` weights words by their rarity and texts by their length.
    """

    words: int | None = None
    hashed: int | None = None
    stop: str | None = None
    min_df: int | float | None = None
    max_df: int | float | None = None
    ngrams: int | None = None
    tfidf: bool | None = None

    def require_valid(self, where: object) -> None:
        """Raise an error if an option is out of range, or two contradict each other."""
        for name in ("words", "hashed", "ngrams"):
            number = getattr(self, name)
            if number is not None and not 1 <= number <= MOST_FEATURES:
                raise SourceError(f"{where}: {name} must be at least 1 and at most {MOST_FEATURES}, got {number}.")
        for name in ("min_df", "max_df"):
            df = getattr(self, name)
            if df is not None and not (df >= 1 if isinstance(df, int) else 0 <= df <= 1):
                raise SourceError(
                    f"{where}: {name} is a number of texts, as in {name}=5, or a share of them, as in {name}=0.5; "
                    f"got {df}."
                )
        if self.words is not None and self.hashed is not None:
            raise SourceError(f"{where}: words= learns a vocabulary and hashed= does without one; give one of them.")


TEXT_OPTIONS = tuple(option.name for option in fields(TextOptions))


@dataclass(frozen=True)
class WordFeatures:
    """The words that are features: those of a vocabulary, perhaps weighted, or all words, hashed."""

    hashed: int = HASHED  # features, where there is no vocabulary
    stop: str | list[str] | None = None
    ngrams: int = 1
    vocabulary: list[str] | None = None
    idf: list[float] | None = None

    def vectoriser(self, counting: "UnknownWords | None" = None) -> Any:
        """Return scikit-learn's object that turns texts into rows, perhaps one that counts unknown words."""
        from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer

        read = {**self._read, "dtype": np.float64}
        if counting is not None:
            read = {"analyzer": counting, "dtype": np.float64}
        if self.vocabulary is None:
            return HashingVectorizer(n_features=self.hashed, alternate_sign=False, norm=None, **read)
        if self.idf is None:
            return CountVectorizer(vocabulary=self.vocabulary, **read)
        weighted = TfidfVectorizer(vocabulary=self.vocabulary, **read)
        weighted.idf_ = np.asarray(self.idf)
        return weighted

    def analyser(self) -> Callable[[str], list[str]]:
        """Return scikit-learn's function that gives the words of a text, repetitions included."""
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(**self._read).build_analyzer()

    @property
    def _read(self) -> dict[str, Any]:
        return {"stop_words": self.stop, "ngram_range": (1, self.ngrams)}


class UnknownWords:
    """A reader of texts that counts the words which a model does not know, and says so once, at the end."""

    def __init__(self, where: str | Path, words_of: Callable[[str], list[str]], known: Collection[str]) -> None:
        self.where, self.words_of, self.known = where, words_of, frozenset(known)
        self.texts = self.blank = self.words = self.unknown = 0
        self.told, self.tells_blank = False, True

    def __call__(self, text: str) -> list[str]:
        """Return the words of a text."""
        words = self.words_of(text)
        single = [word for word in words if " " not in word]  # not of pairs
        self.texts, self.words = self.texts + 1, self.words + len(single)
        self.unknown += sum(word not in self.known for word in single)
        self.blank += self.known.isdisjoint(words)
        return words

    def tell(self) -> None:
        """Say what share of the words is unknown, and how many texts have no others."""
        share = self.unknown / max(self.words, 1)
        blank = self.blank if self.tells_blank else 0
        if not self.told and (blank or share >= LEAST_TOLD):
            none = (
                f"; {blank:,} of {self.texts:,} texts {'has' if blank == 1 else 'have'} none of these" if blank else ""
            )
            what = "%s: %.0f %% of the words are outside the model's %s%s."
            log.warning(what, self.where, 100 * share, f"{len(self.known):,} {plural(len(self.known), 'word')}", none)
        self.told = self.told or self.texts > 0


@dataclass
class WordCounts:
    """Counts of the occurrences of each word, and of the texts that it is in.

    Beyond ``most`` different words, or ``LONG`` characters for each of these, all but the most frequent are forgotten,
    and counted anew if they come again.
    """

    most: int
    texts: int = 0
    characters: int = 0
    total: Counter[str] = field(default_factory=Counter)
    in_texts: Counter[str] = field(default_factory=Counter)
    forgets: bool = False  # has it forgotten any?

    def add(self, words: Collection[str]) -> None:
        """Count the words of one more text."""
        different = set(words)
        self.characters += sum(len(word) for word in different if word not in self.total)
        self.total.update(words)
        self.in_texts.update(different)
        self.texts += 1
        if len(self.total) > self.most or self.characters > LONG * self.most:
            self._forget_rare()

    def _forget_rare(self) -> None:
        if not self.forgets:
            log.warning(
                "There are more than %d different words, or very long ones: rare ones are forgotten while they are "
                "counted, so that min_df and the choice among rare words are approximate; a larger ?%s= counts more.",
                *(self.most, MEMORY),
            )
        kept, room = Counter[str](), LONG * self.most // 2
        for word, n in self.total.most_common(self.most // 2):
            if len(word) <= room:
                kept[word], room = n, room - len(word)
        self.total, self.forgets = kept, True
        self.in_texts = Counter({word: self.in_texts[word] for word in kept})
        self.characters = sum(map(len, kept))

    def chosen(self, where: object, words: int, min_df: float | None, max_df: float | None) -> list[str]:
        """Return the ``words`` most frequent in at least min_df and at most max_df texts, in alphabetical order.

        As in scikit-learn a whole number is a number of texts, a fraction a share of them.
        """
        if not self.total:
            raise SourceError(f"{where} has no words to count.")
        low, high = self.limit(min_df, 1), self.limit(max_df, self.texts)
        kept = self.most_frequent(low, high)
        if not kept:
            raise SourceError(
                f"{where}: of {len(self.in_texts)} words in {self.texts} texts none is in at least {low:g} and at most "
                f"{high:g} of them; give another min_df or max_df."
            )
        return sorted(kept[:words])

    def most_frequent(self, low: float, high: float) -> list[str]:
        """Return the words in at least ``low`` and at most ``high`` texts, the most frequent first."""
        kept = sorted((-self.total[word], word) for word, n in self.in_texts.items() if low <= n <= high)
        return [word for _, word in kept]

    @property
    def usual_min_df(self) -> int:
        """Two where many texts share words, else one: a word in one text alone says nothing of others."""
        return 2 if self.texts >= ENOUGH_TEXTS and max(self.in_texts.values(), default=0) > 1 else 1

    def idf(self, vocabulary: list[str]) -> list[float]:
        """Return log((1 + n) / (1 + texts with the word)) + 1, as in scikit-learn: the rarer, the heavier."""
        return [math.log((1 + self.texts) / (1 + self.in_texts[word])) + 1.0 for word in vocabulary]

    def limit(self, df: float | None, usual: int) -> float:
        """Return a number of texts, given as that or as a share of them."""
        return usual if df is None else df if isinstance(df, int) else df * self.texts


class Corpus(JsonLines):
    """Texts: the lines of a file or pipe, a field of JSON Lines, or the files of a folder or pattern.

    The field ``index`` names the rows.
    """

    def __init__(self, path: Path, field: str | None, index: str | None, ngrams: int) -> None:
        super().__init__(path, index)
        self.field, self.most = field, characters(self.memory // ngrams)
        self.paths: list[Path] | None = None
        if field is None and index is not None:
            raise SourceError(f"{self.where}: index= is a field of JSON Lines; texts without fields keep their order.")
        if self.rewinds and not path.is_file():
            if field is not None:
                raise SourceError(
                    f"{path}: field= is for JSON Lines, in a file or from -; the files of a folder are texts."
                )
            self.paths = matching(path, [".txt"])

    def texts(self, size: int, on_bad: OnBad | None) -> Numbered:
        """Yield numbers or names of rows with lists of texts, from the beginning or, of a pipe, once."""
        return self._numbered(size, on_bad, 0)

    def _lines(self) -> Iterator[Any]:
        if self.paths is not None:
            return iter(self.paths)
        return super()._lines()

    def _holds_sample(self, line: str) -> bool:
        return self.field is None or super()._holds_sample(line)  # a blank line is a text, but no JSON

    def _length(self, line: Any) -> int:
        if not isinstance(line, Path):
            return len(line)
        return line.stat().st_size if line.exists() else 0

    def _parsed(self, first: int, block: list[Any]) -> tuple[npt.NDArray[Any], Any]:
        if self.field is not None:
            rows, objects = self._objects(first, block)
            return rows, [self._text(first + place, found) for place, found in enumerate(objects)]
        rows = np.arange(first, first + len(block))
        if self.paths is not None:
            return rows, list(map(self._whole_file, block))
        self._require_utf8(first, block)
        return rows, block

    def _text(self, row: int, found: dict[str, Any]) -> str:
        place = f"{self.where}: row {row} (counted from 0)"
        if self.field not in found:
            fields = shown(list(found))
            raise SourceError(
                f"{place} has no field {self.field!r}; its fields are {fields}: choose the text by field=, or numbers "
                "by features=."
            )
        text = found[self.field]
        if not isinstance(text, str):
            raise SourceError(f"{place} has no text in the field {self.field!r}; choose the text by field=.")
        return text

    def _whole_file(self, path: Path) -> str:
        try:
            if path in self.bad:
                raise self.bad[path]
            return _whole_file(path)
        except SourceError as error:
            self.bad[path] = error
            raise

    def _missing(self) -> Any:
        return [""]


def _whole_file(path: Path) -> str:
    with reading(path, "as text", "save it as UTF-8"):
        return path.read_text(encoding="utf-8")


class Documents(Sequential):
    """Sparse counts of words, one row per text; a text without any, such as a blank line, is a row of zeros."""

    says_hashed = False  # with the first texts that can be read: what else is wrong comes before

    def __init__(self, corpus: Corpus, words: WordFeatures, told: bool = False) -> None:
        self.where, self.corpus, self.index_name = corpus.where, corpus, corpus.index_name
        self.rewinds, self.pipe, self.bad = corpus.rewinds, corpus.pipe, corpus.bad
        self.feature_names = words.vocabulary
        self.n_features = words.hashed if words.vocabulary is None else len(words.vocabulary)
        self.unknown = None
        if told and words.vocabulary is not None:
            self.unknown = UnknownWords(corpus.where, words.analyser(), frozenset(words.vocabulary))
        self.vectoriser = words.vectoriser(self.unknown)
        if corpus.paths is not None:
            self.files, self.n_samples = named(corpus.path, corpus.paths), len(corpus.paths)
            self.rows_in = dict.fromkeys(corpus.paths, 1)

    def of_files(self, names: Sequence[str]) -> Source:
        some: Any = super().of_files(names)
        some.corpus = copy(self.corpus)
        some.corpus.paths, some.corpus.bad = list(some.rows_in), some.bad
        return some

    def _numbered(self, size: int, on_bad: OnBad | None, first: int) -> Numbered:
        try:
            for rows, texts in self.corpus.texts(size, on_bad):
                if self.says_hashed:
                    _say_hashed(self.rewinds)
                X = scipy.sparse.csr_matrix(self.vectoriser.transform(texts))
                if isinstance(rows[0], Unread):  # which comes alone
                    X = scipy.sparse.csr_matrix(([np.nan], ([0], [0])), shape=X.shape)
                yield rows, X
        finally:
            if self.unknown is not None:
                self.unknown.tell()

    def beginnings(self, rows: Collection[Any], length: int) -> dict[Any, str]:
        """Return the first characters of the texts of these rows."""
        read = (zip(names, texts, strict=True) for names, texts in self.corpus.texts(COUNTED_AT_A_TIME, None))
        return {row: " ".join(text.split())[:length] for block in read for row, text in block if row in rows}


class TextList(Corpus):
    """Texts in memory."""

    def __init__(self, given: list[str]) -> None:
        self.where, self.given, self.most = "the texts", given, characters(self.memory)
        self.field = self.paths = self.bytes = None

    def _lines(self) -> Iterator[Any]:
        return iter(self.given)


def texts(given: Iterable[str], like: Spec | None = None, grow: bool = False, **options: Any) -> Source:
    """Return texts in memory as rows of counts, with the options that files of texts take: ``stop="english"``.

    ``like`` and ``grow`` are as in ``open_source``.

    Parameters
    ----------
    given : iterable of str
        The texts.
    like : Spec or None
        The ``source_`` of a model, whose words are counted.
    grow : bool
        Whether new words are added to those of the model.
    **options
        As of files of texts: ``words``, ``stop``, ``min_df``, ``max_df``, ``ngrams``, ``tfidf``, ...

    Returns
    -------
    Source
        Counts (texts, words).

    Examples
    --------
    >>> texts = ["the cat sat", "a cat and a dog"]
    >>> source = onmf.data.texts(texts, stop="english", min_df=1)
    >>> source.feature_names
    ['cat', 'dog', 'sat']
    """
    given = list(given)
    for row, text in enumerate(given):
        if not isinstance(text, str):
            raise SourceError(f"row {row} (counted from 0) is of type {type(text).__name__}, not a text.")
    shaping = {} if like is None else {name: like.options.get(name) for name in TEXT_OPTIONS}
    chosen = TextOptions(**shaping | options)
    chosen.require_valid("the texts")
    read = _counted_source(TextList(given), chosen, like if like is None else replace(like, grows=grow))
    parts = [batch for _, batch in read.batches(COUNTED_AT_A_TIME)]
    source = Rows(scipy.sparse.vstack(parts).tocsr() if parts else np.empty((0, read.n_features)))
    source.feature_names = read.feature_names
    kept = {name: value for name, value in asdict(chosen).items() if value is not None} | dict(read.chosen)
    source.spec = Spec("text", kept, None if read.feature_names is None else tuple(read.feature_names))
    return source


@register("text", [".txt"], takes=["folders", "patterns", "standard input"], feature_options=TEXT_OPTIONS)
def documents(
    path: Path, field: str | None = None, *, options: TextOptions, index: str | None = None, like: Spec | None = None
) -> Source:
    """Open the lines of a .txt file or standard input, a field of JSON Lines, or the files of a folder or pattern.

    The vocabulary of a model, with its weights, is taken as it is. Without ``words`` it has ten thousand, of a hundred
    texts or more those in at least two; ``hashed`` and what can be read only once have no vocabulary. ``index`` is the
    field of JSON Lines that names the rows.
    """
    options.require_valid(name_of(path))
    source = _counted_source(Corpus(path, field, index, options.ngrams or 1), options, like)
    source.chosen = dict(source.chosen) | ({} if field is None else {"field": field})
    return source


def _counted_source(corpus: Corpus, options: TextOptions, like: Spec | None) -> Documents:
    words, min_df, max_df = options.words, options.min_df, options.max_df
    ngrams, tfidf = options.ngrams or 1, bool(options.tfidf)
    where, rewinds = corpus.where, corpus.rewinds
    stop = _stop_words(where, options.stop, like)
    counted, n_samples = WordFeatures(options.hashed or HASHED, stop, ngrams), None
    if like is not None and like.scheme not in (None, "text", "jsonl"):
        raise SourceError(
            f"{where}: the model was learnt from {like.scheme}, not from texts; give it data of that kind."
        )
    if like is not None and like.names is not None:
        vocabulary, idf = list(like.names), _weights(where, like, tfidf)
        if like.grows and rewinds:
            counts, n_samples = _counted(corpus, counted)
            low, known = counts.usual_min_df if min_df is None else min_df, frozenset(vocabulary)
            often = counts.most_frequent(counts.limit(low, 1), counts.limit(max_df, counts.texts))
            new = [word for word in often if word not in known][: words or USUAL]
            vocabulary, idf = vocabulary + new, None if idf is None else idf + counts.idf(new)
        counted = replace(counted, vocabulary=vocabulary, idf=idf)
    elif words is not None or (options.hashed is None and rewinds and like is None):
        counts, n_samples = _counted(corpus, counted)
        if words is None and min_df is None:
            min_df = counts.usual_min_df
        words = words or USUAL
        vocabulary = counts.chosen(where, words, min_df, max_df)
        counted = replace(counted, vocabulary=vocabulary, idf=counts.idf(vocabulary) if tfidf else None)
    elif tfidf or not (min_df is None and max_df is None):
        cure = "leave out hashed=" if rewinds else "learn one from a file first"
        raise SourceError(f"{where}: min_df, max_df and tfidf need a vocabulary; {cure}.")
    source = Documents(corpus, counted, told=like is not None)
    source.says_hashed = like is None and counted.vocabulary is None
    source.n_samples = source.n_samples or n_samples
    hashed = counted.hashed if counted.vocabulary is None else None
    settled: dict[str, Any] = {"words": words, "min_df": min_df, "hashed": hashed, "idf": counted.idf}
    settled |= {"ngrams": ngrams, "tfidf": tfidf, "stop_words": stop if isinstance(stop, list) else None}
    source.chosen = {name: value for name, value in settled.items() if value is not None}
    return source


def _stop_words(where: object, stop: str | None, like: Spec | None) -> str | list[str] | None:
    """Return the words to leave out: those of the model, which reads no file of a user's, or those of a file."""
    if stop in (None, "english"):
        return stop
    if like is not None and stop == like.options.get("stop"):
        kept = like.options.get("stop_words")
        if not isinstance(kept, list) or not all(isinstance(word, str) for word in kept):
            raise SourceError(f"{where}: the model does not have the stop words of {stop!r}; learn it again.")
        return kept
    path = Path(str(stop)).expanduser()
    if not path.is_file():
        raise SourceError(f"{where}: stop must be english, or a file of words; no such file: {stop!r}.")
    require_room(path, PARSED * path.stat().st_size, allowed())
    return sorted(set(WordFeatures().analyser()(_whole_file(path))))


def _counted(corpus: Corpus, counted: WordFeatures) -> tuple[WordCounts, int]:
    """Return the words of all texts that can be read, and the number of all texts."""
    if not corpus.rewinds:
        raise SourceError(
            f"{corpus.where} can be read only once, so no vocabulary can be learnt first; leave out words=."
        )
    words_of, counts = counted.analyser(), WordCounts(corpus.memory // COUNTED)
    bad, first_error = 0, None  # bad texts are reported when they are learnt from, if anything is

    def note(error: ValueError) -> None:
        nonlocal bad, first_error
        bad, first_error = bad + 1, first_error or error

    for rows, texts in corpus.texts(COUNTED_AT_A_TIME, note):
        if isinstance(rows[0], Unread):
            note(rows[0].reason)
            continue
        for text in texts:
            counts.add(words_of(text))
    if first_error is not None and not counts.total:
        raise first_error
    return counts, counts.texts + bad


def _weights(where: str | Path, like: Spec, tfidf: bool) -> list[float] | None:
    """Return the model's idf, if its words are weighted."""
    names, idf = like.names or (), like.options.get("idf")
    if len(set(names)) < len(names):
        raise SourceError(f"{where}: the model's features have names that occur twice, so they cannot be a vocabulary.")
    if not tfidf:
        return None
    if not isinstance(idf, list) or [float] * len(names) != list(map(type, idf)) or min(idf) < 0:
        raise SourceError(f"{where}: the model does not have the weights of its words; leave out tfidf=.")
    return idf


@cache
def _say_hashed(rewinds: bool) -> None:
    cure = "without hashed= they are kept"
    if not rewinds:
        cure = "to know them, learn a model from some of the texts in a file, and continue from it"
    log.warning("Words are hashed, so that the model will not know which words its features stand for; %s.", cure)
