"""`python -m anabranch` is the command `anabranch`."""

from anabranch.crawler.cli import main

main()
