"""`anabranch console`: serves the pages and the API, and manages tokens and passwords."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from getpass import getpass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.crawler.accounts.crawl_log import iso_time
from anabranch.crawler.cli.parameters import OnEnd
from anabranch.crawler.cli.terminal import guarded, put
from anabranch.crawler.console.access import Access, ConsoleRole, default_folder
from anabranch.crawler.console.passwords import Passwords
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.table import plain_table
from anabranch.extras import install_command

if TYPE_CHECKING:
    from fastapi import FastAPI

    from anabranch.crawler.console.queues import QueueTables
    from anabranch.crawler.console.routing import Console


def run_console(
    place: str,
    listen: str,
    *,
    hosts: Sequence[str],
    tls: tuple[Path, Path] | None,
    base_path: str,
    state: Path | None,
    run_code: bool = False,
    on_end: OnEnd,
) -> int:
    """Serve until Ctrl-C. A foreseeable error becomes one line on standard error and its exit code."""

    def run() -> None:
        if missing := [name for name in ("fastapi", "nicegui", "re2", "uvicorn") if find_spec(name) is None]:
            raise UsageError(
                f"the console needs {missing[0]}, which is not installed; run `{install_command('console')}`"
            )
        from anabranch.crawler.console.server import ConsoleOptions, serve  # noqa: PLC0415 - libraries of an extra

        targets = on_end.targets(os.environ) if on_end.is_given else None
        options = ConsoleOptions(
            place=place,
            listen=listen,
            hosts=hosts,
            tls=tls,
            base_path=base_path,
            state=state,
            run_code=run_code,
            on_end=targets,
        )
        serve(options, _console_app, put)

    return guarded(run)


def _console_app(console: Console, tables: QueueTables) -> FastAPI:
    """The application with pages. Imported late, because NiceGUI reads environment variables at its import."""
    from anabranch.crawler.console.pages.application import console_app  # noqa: PLC0415

    return console_app(console, tables)


def run_token(name: str | None, revoked: str | None, *, read_only: bool, state: Path | None, as_json: bool) -> int:
    """Make a token, revoke one, or list them. A foreseeable error is one line and its exit code."""

    def run() -> None:
        access = Access(state or default_folder(os.environ))
        if name is not None:
            put(access.make(name, ConsoleRole.READER if read_only else ConsoleRole.OPERATOR))
        elif revoked is not None:
            access.revoke(revoked)
            put(f"{revoked}: revoked")
        else:
            rows = [(token.holder.name, token.holder.role.value, iso_time(token.made_s)) for token in access.tokens()]
            if as_json:
                put(json.dumps([dict(zip(("name", "role", "made"), row, strict=True)) for row in rows], indent=2))
            else:
                put("\n".join(plain_table(("name", "role", "made"), rows)) if rows else "no tokens")

    return guarded(run)


def run_passwd(name: str, *, read_only: bool, removes: bool, state: Path | None) -> int:
    """Set the password of a name, or remove it. A foreseeable error is one line and its exit code."""

    def run() -> None:
        folder = state or default_folder(os.environ)
        Access(folder)  # creates the folder
        passwords = Passwords(folder)
        if removes:
            passwords.remove(name)
            put(f"{name}: password removed")
        else:
            passwords.put(name, _asked(), ConsoleRole.READER if read_only else ConsoleRole.OPERATOR)
            put(f"{name}: password set")

    return guarded(run)


def _asked() -> str:
    """Read a password: twice from a terminal, else a line of standard input. Raises: UsageError if the two differ."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass("Password: ")
    if getpass("Again: ") != password:
        raise UsageError("the passwords differ; nothing was changed")
    return password
