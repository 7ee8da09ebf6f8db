"""From any foreseeable error of a command to one line on standard error and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from anabranch.crawler.cli.saying import say
from anabranch.crawler.outcomes.deciding import deciding
from anabranch.crawler.outcomes.endings import FORESEEABLE, failure_code
from anabranch.crawler.outcomes.exits import ExitCode
from anabranch.crawler.reporting.escaping import escaped
from anabranch.crawler.reporting.logs import configure_logs
from anabranch.frontier.errors import UnknownQueue
from anabranch.frontier.operating.dumpreading import DumpDamaged

#: Characters of an error that are shown.
_SAID = 1000


def guarded(run: Callable[[], int | None]) -> int:
    """Run a command: a foreseeable error is one line on standard error; its exit code, or else what `run` says, or 0."""
    configure_logs(0)
    try:
        with deciding():
            return run() or ExitCode.DONE
    except BrokenPipeError:
        # What is flushed at the end of the process must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.READER_GONE
    except (UnknownQueue, *FORESEEABLE) as error:
        return _fail(error, failure_code(error))
    except DumpDamaged as error:
        return _fail(error, ExitCode.USAGE)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def _fail(error: Exception, code: ExitCode) -> ExitCode:
    said = escaped(str(error))
    if len(said) > _SAID:  # it repeats what was typed, or a name from the web
        said = f"{said[: _SAID * 3 // 4]} … {said[-_SAID // 4 :]}"
    say(f"anabranch: {said}")
    return code
