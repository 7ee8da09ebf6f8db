"""The parts that commands share: errors to exit codes, output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from anabranch.crawler.cli.terminal import say
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code, first_failure
from anabranch.crawler.outcomes.errors import ExitCode, deciding, storage_error
from anabranch.crawler.report.logs import configure_logs
from anabranch.crawler.report.table import escaped, escaped_lines
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.inspect.dump import DumpDamaged

#: Characters of an error that are shown.
_MOST_CHARS = 1000


def guarded(run: Callable[[], int | None], *, verbosity: int = 0, interrupted: ExitCode = ExitCode.INTERRUPTED) -> int:
    """Run a command and return its exit code. A foreseeable error becomes one line on standard error and its exit code."""
    configure_logs(verbosity)
    try:
        with deciding():
            return run() or ExitCode.DONE
    except BrokenPipeError:
        # What is flushed at the end of the process must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.READER_GONE
    except (UnknownQueue, DumpDamaged, *FORESEEABLE) as last:
        error = first_failure(last)
        code = ExitCode.USAGE if isinstance(error, DumpDamaged) else failure_code(error)
        message = escaped(str(error))
        if len(message) > _MOST_CHARS:  # it quotes the command line, or a name from the web
            message = f"{message[: _MOST_CHARS * 3 // 4]} … {message[-_MOST_CHARS // 4 :]}"
        say(f"anabranch: {message}")
        return code
    except KeyboardInterrupt:
        return interrupted


def put(text: str, *, is_file: bool = False) -> None:
    """Print lines on standard output, escaped; as they are if they are the content of a file, like an order.

    Characters that it cannot encode are escaped. Raises: BrokenPipeError, StorageError.
    """
    text = text if is_file else escaped_lines(text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)  # noqa: T201 - the command's own output
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, Path("standard output")) from error
