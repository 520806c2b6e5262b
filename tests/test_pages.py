"""What the site's hooks make of its pages: formulas, tables, commands, pictures, and the page for what is not found."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_site import ROOT, articles, site  # noqa: F401 (the fixture)

sys.path.insert(0, str(ROOT / "docs"))
hooks: Any = pytest.importorskip("hooks")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("h_k u_f", "h<sub>k</sub> u<sub>f</sub>"),
        ("Σ_f W_kf²", "Σ<sub>f</sub> W<sub>kf</sub>²"),
        ("W_{t+1}^α", "W<sub>t+1</sub><sup>α</sup>"),
        ("V(Φ_{s_n − s_t}(z_t))", "V(Φ<sub>s<sub>n</sub> − s<sub>t</sub></sub>(z<sub>t</sub>))"),
        ("x^β, y^(β−2), t^(−½)", "x<sup>β</sup>, y<sup>β−2</sup>, t<sup>−½</sup>"),
        ("(x/y)^α and 0.5^m.", "(x/y)<sup>α</sup> and 0.5<sup>m</sup>."),
        ("∇_y d, low_f, δ_tol, dW_kf", "∇<sub>y</sub> d, low<sub>f</sub>, δ<sub>tol</sub>, dW<sub>kf</sub>"),
        ("t_{s &lt; n}", "t<sub>s &lt; n</sub>"),
        *(
            (name, name)
            for name in ("max_memory", "squared_l2", "component_0", "partial_fit", "file_a_b.py", "1_000", "_k", "[^1]")
        ),
    ],
)
def test_formulas_have_subscripts_and_superscripts(written: str, read: str) -> None:
    assert hooks.scripts(written) == read


def test_code_links_and_tags_keep_their_underscores() -> None:
    kept = '<h2 id="w_t"><code>W_t</code> <a href="x_t.html">x_t</a></h2><pre>h_k</pre>'
    assert hooks.outside(kept, ("a", "code", "pre"), hooks.scripts) == kept


def test_no_page_of_the_explanation_shows_the_source_of_a_formula(site: Path) -> None:  # noqa: F811
    pages = {name: article for name, article in articles(site) if name.startswith("explanation/")}
    left = [
        (name, found)
        for name, article in pages.items()
        for found in re.findall(r".{9}[_^]\{.{9}", re.sub(r"<code.*?</code>", "", article, flags=re.DOTALL))
    ]
    assert left == []
    assert pages["explanation/theory.html"].count("<sub>") > 300


def test_dates_numbers_and_short_code_are_not_broken(site: Path) -> None:  # noqa: F811
    for name, article in articles(site):
        text = re.sub(r"<pre.*?</pre>|<span class=\"whole\">[^<]*</span>", "", article, flags=re.DOTALL)
        cells = re.findall(r"<td[^>]*>(.*?)</td>", text, re.DOTALL)
        plain = [re.sub(r"<code.*?</code>|<[^>]+>", "", cell, flags=re.DOTALL) for cell in cells]
        assert [cell for cell in plain if re.search(r"\d{4}-\d\d-\d\d|\de-\d", cell) and len(cell) < 15] == [], name
        options = re.findall(r"<code>(--?\w[\w-]*)</code>", text)
        assert options == [], name


def test_long_code_is_broken_between_options_alone() -> None:
    def shown(text: str) -> str:
        return str(re.sub(r"<code>([^<]+)</code>", hooks.code, f"<code>{text}</code>"))

    assert shown("--held-out") == '<code class="whole">--held-out</code>'
    assert '<span class="whole">--held-out</span>' in shown("onmf rank counts.npz --ranks 2..30 --held-out 0.1")


def test_every_command_has_its_options_in_tables_and_each_example_alone(site: Path) -> None:  # noqa: F811
    page = (site / "reference" / "commands.html").read_text()
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    group: Any = hooks.typer.main.get_command(hooks.app)
    assert "╭" not in text
    for name, command in group.commands.items():
        part = page.partition(f'id="onmf-{name}"')[2].partition("<h2")[0]
        context = command.make_context(name, [], resilient_parsing=True)
        names = [each.opts[0] for each in command.get_params(context) if each.param_type_name == "option"]
        assert [option for option in names if f">{option}</code>" not in part] == []
        examples = re.findall(r"^`([^`]+)`$", command.epilog, re.MULTILINE)
        blocks = [
            html.unescape(re.sub(r"<[^>]+>", "", each)) for each in re.findall(r"<pre>.*?</pre>", part, re.DOTALL)
        ]
        assert [" ".join(block.replace("\\\n", " ").split()) for block in blocks] == examples


def test_what_the_help_says_in_brackets_is_a_sentence() -> None:
    assert hooks.remark("x>=1") == "At least 1."
    assert hooks.remark("required") == "Required."
    assert hooks.remark("default: kl") == "Default: `kl`."
    assert hooks.remark("default: (max(5 K, 200), later more)") == "Default: max(5 K, 200), later more."


def test_what_is_not_found_leads_on(site: Path) -> None:  # noqa: F811
    page = (site / "404.html").read_text()
    content = page.partition("<article")[2].partition("</article>")[0]
    targets = [each.partition("?")[0] for each in re.findall(r'href="([^"]+)"', content)]
    assert {"index.html", "guides/topics.html", "guides/divergences.html"} <= set(targets)
    assert all((site / target).exists() for target in targets)
    assert "index.html?q=" in content  # which opens the search
    assert not re.search(
        r'<(?:link|script|a|img)\b[^>]*(?:src|href)="(?:/|https?://unpkg)', page
    )  # it opens from a disk, too


def test_every_page_says_what_it_is_about(site: Path) -> None:  # noqa: F811
    said = {}
    for name, _ in articles(site):
        found = re.search(r'<meta name="description" content="([^"]+)"', (site / name).read_text())
        assert found, name
        assert len(html.unescape(found[1])) <= 160
        assert "This page as a notebook" not in found[1]
        said[name] = found[1]
    del said["404.html"]
    assert len(set(said.values())) == len(said)


def test_every_picture_leads_to_its_full_size(site: Path) -> None:  # noqa: F811
    pictures = 0
    for name, article in articles(site):
        linked = re.findall(r'<a class="picture" href="([^"]+)"><img\b[^>]*\bsrc="([^"]+)"[^>]*></a>', article)
        assert len(linked) == article.count("<img"), name
        assert all(target == source and ((site / name).parent / target).exists() for target, source in linked)
        pictures += len(linked)
    assert pictures > 20


def test_what_is_printed_has_no_button_to_copy_it(site: Path) -> None:  # noqa: F811
    pages = dict(articles(site))
    assert 'class="language-text no-copy highlight"' in pages["guides/sound.html"]
    for article in pages.values():
        blocks = re.findall(r'class="language-text highlight"><pre>(?:<span></span>)?<code>(\w+) ', article)
        assert set(blocks) <= {"onmf", "pip", "make", "python", "python3"}
