"""`anabranch console` and its options. What runs it (`console.py`) is imported when it runs, so that help is fast."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anabranch.crawler.cli.parameters import (
    SECRET_ENV,
    FilePath,
    Json,
    OnEnd,
    OnEndAllowPrivate,
    OnEndCommand,
    OnEndSecretEnv,
    OnEndWebhook,
    Text,
    Texts,
)
from anabranch.frontier.jobfolder import JOBS

_STATE = typer.Option(
    "--state", metavar="FOLDER", help="The console's own folder, for tokens, passwords and the audit log."
)


class _ServesByDefault(TyperGroup):
    """Makes `serve` the default command: `anabranch console jobs`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `serve` first if the arguments do not begin with a command."""
        helps = {"-h", "--help"}
        if not args or (args[0] not in self.commands and not (args[0] in helps and len(args) == 1)):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


console = typer.Typer(
    cls=_ServesByDefault,
    help="Serve the pages, the API and the metrics of all jobs in a folder, or of a job in a database.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@console.command()
def serve(
    place: Annotated[
        str,
        typer.Argument(metavar="[FOLDER|URL]", help="The folder that holds the jobs, or the URL of a job's database."),
    ] = str(JOBS),
    listen: Annotated[str, typer.Option(metavar="IP:PORT", help="Where to listen.")] = "127.0.0.1:8700",
    allow_host: Annotated[
        Texts,
        typer.Option(
            metavar="NAME", help="Another host name of the console, as a reverse proxy passes it; repeatable."
        ),
    ] = None,
    tls_cert: Annotated[FilePath, typer.Option(metavar="FILE", help="Certificate, as PEM.")] = None,
    tls_key: Annotated[FilePath, typer.Option(metavar="FILE", help="Its key, as PEM.")] = None,
    base_path: Annotated[
        str, typer.Option(metavar="PATH", help="Path of the console behind a reverse proxy, like /crawls.")
    ] = "",
    run_code: Annotated[
        bool,
        typer.Option("--run-code", help="Crawls started here run user functions that only their job's order names."),
    ] = False,
    on_end_command: OnEndCommand = None,
    on_end_webhook: OnEndWebhook = None,
    on_end_secret_env: OnEndSecretEnv = SECRET_ENV,
    on_end_allow_private: OnEndAllowPrivate = False,
    state: Annotated[FilePath, _STATE] = None,
) -> None:
    """Serve until Ctrl-C. This is what `anabranch console [FOLDER|URL]` does."""
    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("give --tls-cert and --tls-key, or neither")
    from anabranch.crawler.cli.console import run_console  # noqa: PLC0415 - help must be fast

    tls = None if tls_cert is None or tls_key is None else (tls_cert, tls_key)
    hosts = allow_host or ()
    how: dict[str, Any] = {"tls": tls, "base_path": base_path, "state": state, "run_code": run_code}
    how["on_end"] = OnEnd(on_end_command, on_end_webhook, on_end_secret_env, on_end_allow_private)
    raise typer.Exit(run_console(place, listen, hosts=hosts, **how))


@console.command()
def token(
    name: Annotated[Text, typer.Argument(metavar="[NAME]", help="Make a token of this name, and print it.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="The token cannot change anything.")] = False,
    revoke: Annotated[Text, typer.Option(metavar="NAME", help="Revoke a token at once.")] = None,
    state: Annotated[FilePath, _STATE] = None,
    as_json: Json = False,
) -> None:
    """Make, list or revoke tokens of the API. A token is printed once; only its digest is kept."""
    if name is not None and revoke is not None:
        raise typer.BadParameter("give a NAME to make a token, or --revoke, not both")
    from anabranch.crawler.cli.console import run_token  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_token(name, revoke, read_only=read_only, state=state, as_json=as_json))


@console.command()
def passwd(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user who logs in with it.")],
    read_only: Annotated[bool, typer.Option("--read-only", help="The user cannot change anything.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the password and log the user out.")] = False,
    state: Annotated[FilePath, _STATE] = None,
) -> None:
    """Set the password of a user of the pages, from a prompt or a line of standard input. Only its hash is kept."""
    from anabranch.crawler.cli.console import run_passwd  # noqa: PLC0415 - help must be fast

    raise typer.Exit(run_passwd(name, read_only=read_only, removes=remove, state=state))
