"""`python -m dmm` is the command line."""

from .cli import main

main()
