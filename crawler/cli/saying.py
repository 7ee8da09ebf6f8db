"""What a command says beside its output: lines on standard error, which nobody need read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress


def say(text: str) -> None:
    """Write the line. A standard error that is closed, full or without a reader costs the line, never the run."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - the command's own output


def with_flag(words: str, flags: Mapping[str, str]) -> str:
    """The words with the option in the place of the parameter's name that they begin with; `flags` has name -> option."""
    first, space, rest = words.partition(" ")
    return flags.get(first, first) + space + rest


def consents(question: str) -> bool:
    """Asked on standard error, answered on standard input; its end is a no."""
    print(question, end="", file=sys.stderr, flush=True)  # noqa: T201 - the command's own question
    answer = "" if sys.stdin is None else sys.stdin.readline()
    if not answer.endswith("\n"):
        say("")  # the question's line ends, whoever did not answer it
    return answer.strip().lower() in {"y", "yes"}
