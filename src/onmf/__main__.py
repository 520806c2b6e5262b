"""``python -m onmf``: the command line."""

from onmf.cli import main

main()
