"""`python -m mesu` is `mesu`."""

from mesu.cli import main

main()
