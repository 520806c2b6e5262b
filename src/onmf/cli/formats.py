"""The command ``onmf formats``: list the formats of data and their options."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from onmf.cli import command
from onmf.cli.terminal import console
from onmf.data import schemes
from onmf.data.budget import USUAL, VARIABLE

TOP = """\
DATA is a file or folder, with one sample per row, line, cell, picture or moment of sound.

  table.csv                               the suffix tells the format
  images:faces                            a folder takes its format and a colon
  'docs.jsonl?field=body&stop=english'    options follow a question mark, in quotes
  csv:-   npy:-   'jsonl:-?field=body'    standard input
  -                                       texts from standard input, one per line
  'parquet:days/2026-*.parquet'           a pattern, where the table below has one
"""
BOTTOM = f"""
All formats take memory={USUAL}, the memory that reading a batch may use (or set {VARIABLE}), and links=follow, which \
follows links to files elsewhere.

A model remembers how its data were read; later commands on it need no options. `pip install 'onmf[parquet]'` installs \
the extra that a format needs.
"""
PLACES = {"folders": "folder", "patterns": "pattern", "standard input": "-"}
OPTIONS = {
    "bands": "which axis of a cube holds the bands, where the guess is wrong: first or last",
    "colour": "grey (usual) or rgb",
    "columns": "the columns or genes to use, between commas; usually all",
    "drop": "columns to leave out, between commas",
    "features": "the fields that hold numbers, between commas",
    "field": "the field that holds the text",
    "hashed": "count words in this many features, without a vocabulary; the words are then unknown",
    "header": "yes or no, where column names look like numbers",
    "hop": "samples of sound from one frame to the next; usually half the window",
    "index": "the column or field that names the rows; obs_names in .h5ad",
    "item": "ratings, one per line: the column with the item; with user and value",
    "layer": "the layer of an AnnData file, such as counts; usually X",
    "max_df": "leave out words in more texts than this number (max_df=100) or share (max_df=0.5)",
    "min_df": "leave out words in fewer texts than this number (min_df=5) or share (min_df=0.01)",
    "name": "the array to read, where a file holds several",
    "ngrams": "2 also counts pairs of words",
    "rate": "resample to this many samples of sound per second",
    "size": "scale pictures to this width and height: 32x32",
    "stop": "leave out frequent words: english, or a file of words",
    "tfidf": "yes weights words by how rare they are",
    "user": "ratings, one per line: the column with the user",
    "value": "ratings, one per line: the column with the rating",
    "variable": "the matrix to read, where a file holds several",
    "weight": "the column or field that says how much each row counts",
    "window": "samples of sound per frame: 1024 (usual)",
    "words": "how many words to keep, the most frequent first: 10000 (usual)",
}


@command("Before learning", "onmf formats")
def formats() -> None:
    """Explain how to name data: the formats that onmf reads, and their options."""
    console.print(TOP, soft_wrap=True)
    listed = Table("format", "suffixes", "also", "extra", "options", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for each in schemes():
        places = " ".join(name for place, name in PLACES.items() if place in each.takes)
        listed.add_row(each.name, " ".join(each.suffixes), places, each.extra or "", " ".join(each.options))
    console.print(listed)
    meanings = Table("option", "", box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in sorted({option for each in schemes() for option in each.options}):
        meanings.add_row(name, OPTIONS.get(name, ""))
    console.print()
    console.print(meanings)
    console.print(BOTTOM)
