"""The command line. Modules are imported late: `anabranch --help` must not wait for numpy, SQLAlchemy or aiohttp."""

from __future__ import annotations

import resource
import signal
import sys

from anabranch.crawler.outcomes.errors import decided, exhausted

#: Bytes of address space that the libraries of a crawl need: with less they fail with messages that name no cause.
_LEAST_ADDRESSES = 256 << 20


def main() -> None:
    """Run the command `anabranch`. SIGTERM interrupts as Ctrl-C does, until the exit code is known; then both are ignored."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESSES:
        sys.stderr.write(
            f"anabranch: the address space is limited to {limit >> 10} KiB, but {_LEAST_ADDRESSES >> 10} are needed; "
            "raise the limit (ulimit -v) and run the same command again\n"
        )
        sys.exit(1)
    try:
        from anabranch.crawler.cli.app import root_command  # noqa: PLC0415 - importing the room must not import typer

        root_command()(prog_name="anabranch")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        message = exhausted(error)
        if message is None:
            raise
        sys.stderr.write(f"anabranch: {message}\n")
        sys.exit(1)
    finally:
        decided()  # the interpreter's own end takes up to half a second
