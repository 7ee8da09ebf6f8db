"""Types, parsers and completions of command-line parameters, as Typer reads them at run time.

A parser raises typer.BadParameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Optional

import typer

from anabranch.crawler.order.quantities import parse_duration
from anabranch.frontier.jobfolder import JOBS, is_job

if TYPE_CHECKING:
    from anabranch.crawler.operate.notices import NoticeTargets

Text = Optional[str]  # noqa: UP045 - typer reads these at run time
Texts = Optional[list[str]]  # noqa: UP045
Whole = Optional[int]  # noqa: UP045
Number = Optional[float]  # noqa: UP045
Numbers = Optional[tuple]  # type: ignore[type-arg]  # noqa: UP045 - the option's parser makes it
Switch = Optional[bool]  # noqa: UP045
FilePath = Optional[Path]  # noqa: UP045 - of a file or folder

#: Parameters of `crawl` that are no keys of the crawl order; every other parameter is a key.
NO_KEYS = frozenset(
    {"sources", "order_file", "job", "settings", "again", "fresh", "delete_old", "run_code", "yes", "verbose", "quiet"}
    | {"on_end_command", "on_end_webhook", "on_end_secret_env", "on_end_allow_private"}
)

#: Names that no shell reads as anything but a word.
_PLAIN_NAME = re.compile(r"\w[\w.,@+-]*")


@cache  # typer reads each annotation several times
def completed_from(*words: str) -> Callable[[str], list[str]]:
    """The completion of a value that is one of these words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def complete_job(incomplete: str) -> list[str]:
    """The jobs below jobs/ whose names begin so; without any, the shell completes folders."""
    try:
        names = sorted(folder.name for folder in JOBS.iterdir() if is_job(folder))
    except OSError:
        return []
    return [name for name in names if name.startswith(incomplete) and _PLAIN_NAME.fullmatch(name)]


Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's folder, its name below jobs/, or the URL of its database.",
        autocompletion=complete_job,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
RunCode = Annotated[
    bool, typer.Option("--run-code", help="Trust the job: run user functions that only its own order names.")
]

_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmg]?)", re.ASCII | re.IGNORECASE)
_SUFFIXES = "k, M and G stand for thousand, million and thousand million"
_THOUSANDS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}

#: Words that `set-budget` takes in place of a number.
_UNITS: Mapping[str, int | None] = {"unlimited": -1, "order": None}


def parse_count(text: str) -> int:
    """A whole number above 0 as people write it: `2500`, `500k`, `10M`, `1.5G`. Raises: typer.BadParameter."""
    found = _COUNT.fullmatch(text.strip())
    count = float(found[1]) * _THOUSANDS[found[2].lower()] if found else -1.0
    if not 0 < count < 1 << 53 or not count.is_integer():
        raise typer.BadParameter(f"must be a whole number above 0, like 500k, 10M, 1.5G ({_SUFFIXES}); not {text!r}")
    return int(count)


def parse_levels(text: str) -> tuple[int, ...]:
    """Bytes per level as people write them: `1,3`. Raises: typer.BadParameter."""
    return _whole_numbers(text, 0, "the bytes of each level, like 1,3 or 1,1,3")


def parse_folder(text: str) -> Path:
    """The path of a folder. Raises: typer.BadParameter for an empty text, which would be the folder one is in."""
    if not text:
        raise typer.BadParameter("must not be empty; the folder you are in is .")
    return Path(text)


def parse_numbers(text: str) -> tuple[int, ...]:
    """Whole numbers above 0 as people write them: `1,2,4`. Raises: typer.BadParameter."""
    return _whole_numbers(text, 1, "whole numbers above 0, like 1,2,4")


def _whole_numbers(text: str, least: int, form: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) >= least for part in parts):
        raise typer.BadParameter(f"must be {form}; not {text!r}")
    return tuple(map(int, parts))


def parse_seconds(text: str) -> float:
    """A duration as people write it, in seconds: `0.4ms`. Raises: typer.BadParameter."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def parse_positive_seconds(text: str) -> float:
    """A duration above 0 as people write it, in seconds: `90s`, `2h`. Raises: typer.BadParameter."""
    seconds = parse_seconds(text)
    if not seconds:
        raise typer.BadParameter("must be more than 0")
    return seconds


def parse_moment(text: str) -> float:
    """A date, or a date and time, in the local zone unless it names one, as epoch seconds. Raises: typer.BadParameter."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise typer.BadParameter(f"must be like 2027-01-31 or 2027-01-31T14:00; not {text!r}") from error


def parse_units(text: str) -> int | None:
    """Cost units, -1 for a budget without end, None for the order's. Raises: typer.BadParameter."""
    if text in _UNITS:
        return _UNITS[text]
    if text.isascii() and text.isdecimal() and int(text) < 1 << 53:
        return int(text)
    raise typer.BadParameter(f"must be a whole number, or {' or '.join(_UNITS)}; not {text!r}")


def parse_names(text: str) -> tuple[str, ...]:
    """Names as people list them: `host,bkdr:997`. Raises: typer.BadParameter."""
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise typer.BadParameter(f"must be names with commas between them, like host,bkdr:997; not {text!r}")
    return names


def flags_of(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of `crawl` that are keys of the order; None for one that is not given (a list comes empty)."""
    return {key: None if value == () else value for key, value in parameters.items() if key not in NO_KEYS}


_ON_END: Callable[..., Any] = partial(typer.Option, rich_help_panel="When a crawl ends")

OnEndCommand = Annotated[
    Text, _ON_END(metavar="COMMAND", help="Run this when a crawl ends; it gets the facts as JSON on standard input.")
]
OnEndWebhook = Annotated[Text, _ON_END(metavar="URL", help="Send the facts there when a crawl ends, signed, by POST.")]
OnEndSecretEnv = Annotated[str, _ON_END(metavar="NAME", help="The variable with the secret that signs them.")]
OnEndAllowPrivate = Annotated[bool, _ON_END("--on-end-allow-private", help="The webhook may have a private address.")]
SECRET_ENV = "WEBHOOK_SECRET"  # noqa: S105 - the name of a variable


class OnEnd(NamedTuple):
    """The options that say where notices of the end of a crawl go, as they were given."""

    command: str | None = None
    webhook: str | None = None
    secret_env: str = SECRET_ENV
    allow_private: bool = False

    @property
    def is_given(self) -> bool:
        """Whether any notice is wanted."""
        return bool(self.command or self.webhook)

    @property
    def arguments(self) -> list[str]:
        """The options for another command; the secret stays in its variable."""
        named = {"command": self.command, "webhook": self.webhook, "secret-env": self.secret_env}
        given = [f"--on-end-{name}={value}" for name, value in named.items() if value]
        return [*given, *(["--on-end-allow-private"] if self.allow_private else [])] if self.is_given else []

    def targets(self, environment: Mapping[str, str]) -> NoticeTargets:
        """The targets, with the secret from its variable. Raises: UsageError."""
        from anabranch.crawler.operate.notices import targets_of  # noqa: PLC0415 - help must be fast

        return targets_of(
            self.command, self.webhook, self.secret_env, allow_private=self.allow_private, environment=environment
        )
