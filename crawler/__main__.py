"""`python -m crawler` is the command `anabranch`."""

from crawler.cli import main

main()
