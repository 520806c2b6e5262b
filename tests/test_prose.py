"""The prose: house terms and short sentences, in pages, docstrings, help, messages and comments.

``make check`` runs these tests; ``python -m tests.test_prose`` lists the pages by the length of their sentences.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest

from onmf.persistence.file import VERSION

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = [*sorted({path.parent for path in (ROOT / "src").rglob("*.py")}), ROOT / "reproduction"]
TERMS = {  # what is wrong, and what to write
    r"\batoms?\b": "component",  # $W$ has atoms in formulas, which are not looked at
    r"\bpriced?\b": "penalty, cost",
    r"\bholes?\b": "missing entries",
    r"\bknown (components|atoms)\b": "fixed components",
    r"\b(data|matrix|rows|columns) with gaps\b": "with missing entries",
    r"\b(go|goes|going|went) on\b": "continue, resume",
    r"\brefus\w+": "raises an error",
    r"\b(is|are) said\b": "who says it",
    r"\bso many\b": "as many, the number",
    r"\bpeople (see|have)\b": "what it is",
    r"\bto the bit\b|\bbit-for-bit\b|\bbitwise (the same|identical)\b": "bit for bit",
    r"(^|[.!?:;] )Of (?!course)[^.:;]{2,60}?, ": "begin with the subject",
    r"\bthat (is|are) known in part\b|\bknown in part\b": "with missing entries",
}
MEAN = 18  # words per sentence of a page: guides to plain English advise 15 to 20
LONGEST = 40  # words: a sentence of twice the length advised is two sentences, or a list
FEW = 10  # sentences, whose mean says little
RECORDS = (
    "decisions",
    "theory.md",
    "reproduction.md",
    "measurements.md",
    "CHANGELOG.md",
)  # proofs, records: terms only


def prose(page: Path, tables: bool = False) -> str:
    """The text of a page with as many lines, without code, formulas, addresses and, unless asked for, tables."""
    text = page.read_text()
    for pattern in (r"^ *(```|\$\$).*?^ *\1[^\n]*$", r"<!--.*?-->"):
        text = re.sub(pattern, lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    if not tables:
        text = re.sub(r"^ *\|.*$|^#.*$|^!!!.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`|\$[^$\n]+\$", "X", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)(\{[^}]*\})?", r"\1", text)
    return re.sub(r"<[^>]+>|\*\*|https?://\S+", "", text)


def paragraphs(page: Path, tables: bool = False) -> list[str]:
    """The paragraphs and items of lists of a page, each in one line."""
    parts = re.split(r"\n\s*\n|\n(?= *(?:[-*>|#]|\d+\.) )", prose(page, tables))
    return [re.sub(r"^(?:[-*>]|\d+\.) ", "", " ".join(part.split())) for part in parts]


def sentences(page: Path) -> list[str]:
    ends = re.compile(r"(?<=[.!?])[\")]*\s+(?=[\"(\w])")
    return [each for part in paragraphs(page) for each in ends.split(part) if len(words(each)) > 3]


def words(sentence: str) -> list[str]:
    return re.findall(r"\w[\w'’.-]*", sentence)


def spoken(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings, messages and comments of a module, with their lines."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, " ".join(node.value.split())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def wrong(text: str) -> Iterator[str]:
    for pattern, better in TERMS.items():
        if found := re.search(pattern, text):
            yield f"{found[0]!r}: {better}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_keep_to_the_house_terms(page: Path) -> None:
    tables = page.name != "reproduction.md"  # whose tables have the words of topics
    assert [fault for each in paragraphs(page, tables) for fault in wrong(each)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_above_and_below_are_on_the_same_page(page: Path) -> None:
    links = re.findall(r"(?<!!)\[([^\]]*)\]\((?!#)[^)]*\)", page.read_text())
    assert [text for text in links if re.search(r"\b(above|below)\b", text)] == []


@pytest.mark.parametrize("template", sorted((ROOT / "src").rglob("*.j2")), ids=lambda path: path.name)
def test_templates_keep_to_the_house_terms(template: Path) -> None:
    assert [*wrong(re.sub(r"<[^>]+>", " ", template.read_text()))] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_docstrings_messages_and_comments_keep_to_the_house_terms(folder: Path) -> None:
    said = ((path.name, line, text) for path in sorted(folder.glob("*.py")) for line, text in spoken(path))
    assert [f"{name}:{line}: {fault}" for name, line, text in said for fault in wrong(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    found = sentences(page)
    if found and not any(record in page.parts for record in RECORDS):
        assert [each for each in found if len(words(each)) > LONGEST] == []
        assert len(found) < FEW or mean(len(words(each)) for each in found) <= MEAN


def test_the_changelog_has_usual_categories_and_the_format_of_model_files() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    usual = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= usual
    assert re.findall(r"Model files have format (\d+)", text)[:1] == [str(VERSION)]


if __name__ == "__main__":
    lengths = {page: [len(words(each)) for each in sentences(page)] for page in PAGES}
    for page in sorted(filter(lengths.get, PAGES), key=lambda page: mean(lengths[page])):
        print(f"{mean(lengths[page]):5.1f} words, at most {max(lengths[page]):2}  {page.relative_to(ROOT)}")
