"""The command `anabranch`, which `python -m anabranch` runs, too."""

from __future__ import annotations

import sys

#: Wrong usage: the exit code where the libraries of the command are not installed.
_USAGE = 2


def main() -> None:
    """Run the command; without the extra `crawl` one line names it."""
    try:
        from anabranch.crawler.cli import main as run  # noqa: PLC0415 - it may be missing
    except ImportError as error:
        if error.name != "anabranch[crawl]":
            raise
        sys.stderr.write(f"anabranch: {error}\n")
        sys.exit(_USAGE)
    run()


if __name__ == "__main__":
    main()
