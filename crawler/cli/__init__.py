"""The command line: verbs first, every option also a key of the crawl order.

Modules here import lazily: `anabranch --help` must not wait for numpy, SQLAlchemy or aiohttp.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """The command `anabranch`. Interrupted before it has begun, it ends with 130 and has changed nothing.

    SIGTERM interrupts as Ctrl-C does, whatever the command does then; once its exit code is known, it is ignored.
    """
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from crawler.cli.app import app  # noqa: PLC0415 - importing the room must not import typer

        app(prog_name="anabranch")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # The interpreter's own end takes up to half a second, in which a signal would put 143 in the place of the code.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
