"""What MkDocs does besides: pages from the files at the root and from the commands, guides as notebooks, and pages that
read well: formulas with subscripts, values in tables that are not broken, and pictures that lead to their full size.
"""

from __future__ import annotations

import base64
import html
import inspect
import io
import pydoc
import re
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import nbformat
import typer
from mkdocs.structure.files import File, Files

from onmf.cli.main import app

ROOT = Path(__file__).parent.parent
FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
SHIM = re.compile(
    r"https://unpkg\.com/iframe-worker/shim(?:\.min\.js)?"
)  # what the theme would fetch to search from a disk
STATUS = {  # of decisions: the date and the rest, from the table of all
    name: (date, status)
    for name, date, status in re.findall(
        r"^\| \[\d+\]\(([^)]+)\) \|.*\| ([\d-]+) \| (.*) \|$",
        (ROOT / "docs/decisions/README.md").read_text(),
        re.MULTILINE,
    )
}
NAME = re.compile(r"^::: (\S+)(?:\n    options:\n      members: \[(.*)\])?", re.MULTILINE)
FORMULAS = ("explanation", "guides", "decisions", "start")  # the folders of pages with formulas
DISPLAYED = ("explanation", "start")  # and of those where a block without a language may be a formula
PLAIN = re.compile(r'(<div class="language-text)( highlight"><pre>(?:<span></span>)?<code>)([^<]*)(?=</code>)')
LETTER = "A-Za-zΑ-Ωα-ωℓ"
SCRIPT = re.compile(  # x_k, x_{k + 1}, x^β and x^(β − 2), where x is no bracket that opens, and no number if _ follows
    rf"(?:(?<=[^\s\d_(\[{{\"'./=:;,-])_(?:\{{(?P<sub>(?:[^{{}}]|\{{[^{{}}]*\}})+)\}}|(?P<k>[{LETTER}]{{1,3}}\d?|\d+)(?![{LETTER}\d_])))"
    rf"|(?:(?<=[^\s_(\[{{\"'./])\^(?:\{{(?P<sup>[^{{}}]+)\}}|\((?P<power>(?:[^()]|\([^()]*\))+)\)"
    rf"|(?P<p>[−+-]?(?:\d+(?:\.\d+)?|½|[{LETTER}]+))))"
)
VALUE = re.compile(r"[^\s<>&;]*\w-\w[^\s<>&;]*")  # 2026-11-15, 6.8e-02, TF-IDF, but also mini-batch
WHOLE, FEW = 26, 20  # characters of code that a line of a phone has room for, and if it can be broken at a space
LONG = 40  # characters of a cell that needs room, so that its words are not broken
MOST = 160  # characters of a page's description: more are not shown
BLOCK = re.compile(r'^```python(?: title="(\S+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are written elsewhere."""
    for source, page in FROM_ROOT.items():
        text = (ROOT / source).read_text().replace("](docs/", "](").replace("](README.md", "](index.md")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "reference/commands.md", content=commands()))
    files.append(File.generated(config, "reference/index.md", content=index()))
    for guide in guides():
        files.append(File.generated(config, f"notebooks/{guide.stem}.ipynb", content=notebook(guide, config.site_url)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Every guide with code offers itself as a notebook."""
    markdown = moved(markdown)
    path = ROOT / "docs" / page.file.src_uri
    if path.parent.name == "decisions" and (found := STATUS.get(path.name)):
        title, _, rest = markdown.partition("\n")
        return f"{title}\n\n*{found[0]}: {found[1]}.*\n{rest}"
    if path not in guides():
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n[This page as a notebook](../notebooks/{path.stem}.ipynb){{ download }}\n{rest}"


def moved(markdown: str) -> str:
    """A page as it is in the repository, with the places that links have on the site."""
    for up in ("", "../"):
        markdown = markdown.replace(f"]({up}../CONTRIBUTING.md", f"]({up}contributing.md")
    return markdown


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """What the page is about in a line, for search engines, and its HTML with all that Markdown cannot say."""
    page.meta.setdefault("description", html.escape(description(page.title, content)))
    if page.is_homepage:
        page.meta.setdefault("hide", ["navigation"])  # that of a folder, and the home page is in none
    if page.file.src_uri.startswith(FORMULAS):
        content = outside(content, ("a", "autoref", "code", "pre", "script"), scripts)
    content = re.sub(r"(<td)([^>]*>)(.*?)(?=</td>)", cell, content, flags=re.DOTALL)
    blocks = re.split(r"(<pre.*?</pre>)", content, flags=re.DOTALL)
    blocks[::2] = [re.sub(r"<code>([^<]+)</code>", code, part) for part in blocks[::2]]
    content = PLAIN.sub(partial(plain, formula=page.file.src_uri.startswith(DISPLAYED)), "".join(blocks))
    links = re.split(r"(<a\b.*?</a>)", content, flags=re.DOTALL)
    picture = re.compile(r'<img\b[^>]*?\bsrc="([^"]+)"[^>]*>')
    links[::2] = [picture.sub(r'<a class="picture" href="\1">\g<0></a>', part) for part in links[::2]]
    return "".join(links)


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Search by our own script, which is beside the page."""
    return SHIM.sub("../" * page.url.count("/") + "assets/search.js", output)


def on_post_template(output: str, template_name: str, config: Any) -> str:
    """The page for what is not found is served under any address, so its links count from the root of the site.

    Where the site lies on a disk that root is beside it: a link is relative, and a server's page says what to.
    """
    if template_name != "404.html":
        return output
    root = urlsplit(config.site_url or "").path.rstrip("/") + "/"
    output = SHIM.sub("assets/search.js", output).replace(f'="{root}', '="')
    base = f"""<script>location.protocol === "file:" || document.write('<base href="{root}">')</script>"""
    return output.replace("<head>", f"<head>\n    {base}", 1)


def outside(content: str, elements: tuple[str, ...], change: Callable[[str], str]) -> str:
    """Change the text of a page, but not that within these elements, nor the tags."""
    parts, inside = re.split(r"(<[^>]+>)", content), 0
    for place, part in enumerate(parts):
        if place % 2:
            if (tag := re.match(r"<(/?)([\w-]+)", part)) and tag[2] in elements:
                inside += -1 if tag[1] else 1
        elif not inside:
            parts[place] = change(part)
    return "".join(parts)


def scripts(text: str) -> str:
    """Text with the subscripts and superscripts that its source writes as W_{t+1}, h_k and y^(β−2)."""

    def named(word: str, lower: str) -> bool:  # squared_l2 and component_0 are names; low_f and dW_kf are formulas
        short = len(word) <= 3 and len(lower) == 1 and lower.isalpha()
        return "_" in word or (word.islower() and len(word) > 1 and not short)

    def raised(found: re.Match[str]) -> str:
        lower = found["sub"] or found["k"]
        if not lower:
            return f"<sup>{scripts(found['sup'] or found['power'] or found['p'])}</sup>"
        word = re.search(r"\w*$", text[: found.start()])
        if found["k"] and word and named(word[0], lower):
            return found[0]
        return f"<sub>{scripts(lower)}</sub>"

    return SCRIPT.sub(raised, text)


def cell(found: re.Match[str]) -> str:
    """A cell of a table: its values are not broken at hyphens, and it says if it is long."""
    tag, attributes, content = found.groups()
    words = html.unescape(re.sub(r"<[^>]+>", "", content))
    content = outside(content, ("code",), lambda text: VALUE.sub(value, text))
    return f"{tag}{' data-long' if len(words) > LONG else ''}{attributes}{content}"


def plain(found: re.Match[str], formula: bool) -> str:
    """A block without a language is what a command prints, or a formula, and nobody copies that; a few are commands."""
    start, code, text = found.groups()
    if re.match(r"(onmf|pip|make|python3?) ", text):
        return found[0]
    return f"{start} no-copy{code}{scripts(text) if formula else text}"


def value(found: re.Match[str]) -> str:
    """A date, a number or a short code in one piece; words may be broken at their hyphens."""
    short = len(found[0]) <= 14 and re.search(r"[\dA-Z]", found[0])
    return f'<span class="whole">{found[0]}</span>' if short else found[0]


def code(found: re.Match[str]) -> str:
    """Inline code in one piece if it is short, else in pieces that end at spaces, not at the hyphens of options."""
    if len(html.unescape(found[1])) <= (FEW if " " in found[1] else WHOLE):
        return f'<code class="whole">{found[1]}</code>'
    pieces = (
        f'<span class="whole">{each}</span>' if "-" in each and len(html.unescape(each)) <= WHOLE else each
        for each in found[1].split(" ")
    )
    return f"<code>{' '.join(pieces)}</code>"


def description(title: str, content: str) -> str:
    """The title of a page and its first paragraph in plain text, as far as search engines show them.

    A link or a status alone is no paragraph.
    """
    for paragraph in re.findall(r"<p>(.*?)</p>", content, re.DOTALL):
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", paragraph)).split())
        if text and not re.fullmatch(r"<(a|em)\b.*</\1>", paragraph.strip(), re.DOTALL):
            return textwrap.shorten(f"{title}: {text}", MOST, placeholder=" ...")
    return title


def guides() -> list[Path]:
    """The pages whose code is worth running in a notebook."""
    return [path for path in sorted((ROOT / "docs" / "guides").glob("*.md")) if BLOCK.search(path.read_text())]


def notebook(page: Path, site: str | None) -> str:
    """A page as a notebook: its Python blocks are cells of code, all between them cells of text.

    It is read elsewhere, so it holds its pictures, and its links lead to the site; without an address they are words.
    Players stay behind: the code writes their sounds. A block whose title other blocks import is written to that file.
    """
    here = urljoin(site or "", "guides/")
    cells = []
    parts = BLOCK.split(moved(page.read_text()))  # text, title, code, text, title, code, ..., text
    for place, part in enumerate(parts):
        if place % 3 == 1:
            continue
        if place % 3 == 2:
            title = parts[place - 1] or ""
            module = re.compile(rf"^(?:import|from) {re.escape(title.removesuffix('.py'))}\b", re.MULTILINE)
            first = f"%%writefile {title}\n" if title and any(map(module.search, parts[2::3])) else ""
            cells.append(nbformat.v4.new_code_cell(first + part.strip(), id=f"cell-{place}"))
            continue
        text = re.sub(r'<div class="players".*?</div>', "", part, flags=re.DOTALL)
        pictures = {name: page.parent / path for path, name in re.findall(r"\]\(((?:[^()]*/)?([^()/]+\.png))\)", text)}
        text = re.sub(r"\]\((?:[^()]*/)?([^()/]+\.png)\)", r"](attachment:\1)", text)
        text = text.replace("](#", f"]({page.name}#")  # links within the page
        linked = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:)([^)]*?)\.md(#[^)]*)?\)")
        text = linked.sub(
            lambda each: f"[{each[1]}]({urljoin(here, each[2])}.html{each[3] or ''})" if site else each[1], text
        )
        if text.strip():
            cells.append(nbformat.v4.new_markdown_cell(text.strip(), id=f"cell-{place}"))
            for name, path in pictures.items():
                held = base64.b64encode(path.read_bytes()).decode()
                cells[-1].setdefault("attachments", {})[name] = {"image/png": held}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    out = io.StringIO()
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), out)
    return out.getvalue()


def names() -> dict[str, str]:
    """The names in the reference, as the user writes them, and the page of each."""
    found = {}
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for name, members in NAME.findall(page.read_text()):
            inside = [each.strip() for each in (members or "").split(",") if each.strip()]
            for each in [name, *(f"{name}.{member}" for member in inside)]:
                found[each] = page.name
    return found


def index() -> str:
    """A line for each name in the reference: what it is for, in the first sentence of its docstring."""
    lines = []
    for name, page in sorted(names().items(), key=lambda each: each[0].lower()):
        first = (
            (inspect.getdoc(pydoc.locate(name)) or "")
            .partition("\n")[0]
            .replace("|", "\\|")
            .replace("*", "\\*")
            .replace("``", "`")
        )
        lines.append(f"| [`{name.removeprefix('onmf.')}`]({page}#{name}) | {first} |")
    return (
        "# Reference\n\nEvery public name of the library.\n\n| `onmf.` | what it is |\n|---|---|\n"
        + "\n".join(lines)
        + "\n"
    )


def commands() -> str:
    """A page of all commands, from what they say of themselves, as --help does."""
    group: Any = typer.main.get_command(app)
    start = re.sub(
        r"^`([^`]+)` \((.*)\)$",
        lambda found: f"{found[2].capitalize()}:\n\n```sh\n{found[1]}\n```",
        group.epilog.partition("\n\n")[2],
        flags=re.MULTILINE,
    )
    panels: dict[str, list[str]] = {}
    for name, each in group.commands.items():
        first = quoted(inspect.cleandoc(each.help).partition("\n\n")[0])
        panels.setdefault(each.rich_help_panel, []).append(f"| [`onmf {name}`](#onmf-{name}) | {first} |")
    listed = [f"| {panel} | |\n|---|---|\n" + "\n".join(rows) for panel, rows in panels.items()]
    parts = ["# Command line", quoted(group.help), start, *listed, *options("onmf", group)]
    for name, each in group.commands.items():
        shown = re.findall(r"^`([^`]+)`$", each.epilog, re.MULTILINE)
        parts += [f"## onmf {name}", quoted(inspect.cleandoc(each.help)), *options(f"onmf {name}", each)]
        parts += ["Examples:" if len(shown) > 1 else "Example:", *(f"```sh\n{folded(line)}\n```" for line in shown)]
    return "\n\n".join(parts) + "\n"


def options(name: str, command: Any) -> list[str]:
    """How a command is used, and its arguments and options: a table for each group."""
    context = command.make_context(name, [], resilient_parsing=True)
    tables: dict[str, list[str]] = {}
    for each in command.get_params(context):
        kind = "Arguments" if each.param_type_name == "argument" else each.rich_help_panel or "Options"
        declared, text = each.get_help_record(context)
        what, _, more = text.removesuffix("]").partition("  [") if text.endswith("]") else (text, "", "")
        said = [quoted(what), *(remark(one) for one in re.split(r"; (?![^(]*\))", more) if one)]
        tables.setdefault(kind, []).append(f"| {declaration(declared)} | {' '.join(said)} |")
    usage = command.get_usage(context).partition(": ")[2]
    return [
        f"Usage: `{usage}`",
        *(f"| {kind} | |\n|---|---|\n" + "\n".join(rows) for kind, rows in tables.items()),
    ]


def declaration(text: str) -> str:
    """The names of an option as code, and its value as it is written in the help."""
    names = re.compile(r"(?<![\w-])--?[a-z][\w-]*|^[A-Z]+$")
    return names.sub(r"`\g<0>`", text).replace("|", "\\|")


def remark(text: str) -> str:
    """What the help says in brackets after an option, as a sentence."""
    what, _, value = text.partition(": ")
    if not value:
        return f"{what.replace('x>=', 'At least ').capitalize()}."
    shown = value[1:-1] if value.startswith("(") else f"`{value}`"
    return f"{'Environment variable' if what == 'env var' else what.capitalize()}: {shown}."


def quoted(text: str) -> str:
    """Help as Markdown for a cell of a table: options as code."""
    parts = re.sub(r"'[^' ]+\?[^' ]+'", r"`\g<0>`", text.replace("|", "\\|")).split("`")
    parts[::2] = [re.sub(r"(?<![\w-])(--[a-z][\w-]*(?: [\d,]+)?|-(?= ))", r"`\1`", part) for part in parts[::2]]
    return "`".join(parts)


def folded(line: str) -> str:
    """A command that is not wider than a block of code; an option stays with its value."""
    kept = re.sub(r" (?![-|>])", "\0", line)
    lines = textwrap.wrap(kept, 70, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines).replace("\0", " ")
