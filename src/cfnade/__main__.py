"""`python -m cfnade` is `cfnade`."""

from cfnade.cli import main

main()
