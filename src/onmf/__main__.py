"""``python -m onmf``: the command line."""

from onmf.cli.main import main

main()
