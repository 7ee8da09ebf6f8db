"""Notices of the end of a run: a command or a webhook of the operator gets the facts of the job, as JSON.

    {"type": "job.ended", "timestamp": "2026-12-01T03:00:00Z", "data": {facts of `status --json`}}

Where they go is said on a command line alone, never by an order. A webhook is signed as Standard Webhooks have it: by the
header fields `webhook-id`, `webhook-timestamp` (epoch seconds), and `webhook-signature`: `v1,` and the HMAC-SHA256, in base64,
of `id.timestamp.body`. Redirects are not followed, private addresses are refused unless the operator allows them, and the time
and the size of an answer are bounded. A command gets the JSON on its standard input.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from anabranch.crawler.accounts.crawl_log import iso_time
from anabranch.crawler.fetch.addresses import ip_literal, is_public
from anabranch.crawler.job.folder import who_holds
from anabranch.crawler.job.state import run_record
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import CrawlerError, UsageError, storage_errors
from anabranch.crawler.run.verbs import Facts
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier.jobfolder import STATE

if TYPE_CHECKING:
    from anabranch.crawler.fetch.fetcher import Fetcher

#: A command or a webhook has this long.
COMMAND_S, WEBHOOK_S = 60.0, 10.0
#: Bytes of an answer that are read.
_MOST_ANSWER_BYTES = 1 << 16
#: Seconds after the first tries of a crawl that waits for them.
WAITS_S = (1.0, 5.0, 25.0)
COMMAND, WEBHOOK = "command", "webhook"
#: How a secret begins that Standard Webhooks write in base64.
_BASE64_SECRET = "whsec_"  # noqa: S105 - no secret
#: Bytes of a secret, at least.
_LEAST_SECRET_BYTES = 16


class Undelivered(CrawlerError):
    """A notice was not taken; a later try may succeed."""


class NoticeTargets(NamedTuple):
    """The targets of notices."""

    command: tuple[str, ...] = ()  #: a program and its arguments
    webhook: str = ""  #: URL
    secret: bytes = b""  #: with which notices to the webhook are signed
    allow_private: bool = False  #: the webhook may have a private address

    @property
    def kinds(self) -> tuple[str, ...]:
        """`COMMAND`, `WEBHOOK`, or both."""
        return (*((COMMAND,) if self.command else ()), *((WEBHOOK,) if self.webhook else ()))


class Notice(NamedTuple):
    """A notice, as it is sent."""

    id: str  #: the same for each try
    job: str  #: the job's name
    made_s: float  #: epoch seconds
    body: str  #: JSON


def targets_of(
    command: str | None, webhook: str | None, secret_env: str, *, allow_private: bool, environment: Mapping[str, str]
) -> NoticeTargets:
    """The targets of a command line; the secret is in a variable of the environment. Raises: UsageError."""
    argv: tuple[str, ...] = ()
    if command:
        try:
            argv = tuple(shlex.split(command))
        except ValueError as error:
            raise UsageError(f"--on-end-command {command!r}: {error}; quote it as for a shell") from error
    if not webhook:
        return NoticeTargets(argv)
    url = seed_url(webhook) if webhook.lower().startswith(("http://", "https://")) else None
    if url is None or "@" in webhook.partition("://")[2].partition("/")[0]:
        raise UsageError("--on-end-webhook: must be an http or https URL without a user, like https://example.org/hook")
    literal = ip_literal(urlsplit(url).hostname or "")
    if literal is not None and not (allow_private or is_public(literal.host)):
        raise UsageError(f"--on-end-webhook: {literal.host} is not a public address (--on-end-allow-private allows it)")
    return NoticeTargets(argv, url, _secret(environment.get(secret_env, ""), secret_env), allow_private)


def _secret(text: str, name: str) -> bytes:
    """The secret that a variable holds. Raises: UsageError."""
    advice = f"set it, for example {name}=$(openssl rand -base64 32), or name another one: --on-end-secret-env NAME"
    if not text:
        raise UsageError(f"--on-end-webhook: the variable {name} has no secret to sign with; {advice}")
    secret = text.encode("utf-8", "surrogateescape")
    if text.startswith(_BASE64_SECRET):
        try:
            secret = base64.b64decode(text.removeprefix(_BASE64_SECRET), validate=True)
        except binascii.Error as error:
            raise UsageError(f"--on-end-webhook: the variable {name} is not base64 behind {_BASE64_SECRET}") from error
    if len(secret) < _LEAST_SECRET_BYTES:
        raise UsageError(
            f"--on-end-webhook: the secret in {name} is shorter than {_LEAST_SECRET_BYTES} bytes; {advice}"
        )
    return secret


class RunEnd(NamedTuple):
    """The end of a job's last run."""

    began_s: float  #: epoch seconds
    ended_s: float  #: of a killed run: when it began


def ended_run(directory: Path) -> RunEnd | None:
    """The end of a job's last run; None without one, or while a process holds the job. Raises: StorageError."""
    with storage_errors(directory):
        record = None if who_holds(directory)[0] else run_record(directory / STATE)
    return None if record is None else RunEnd(record.began_s, record.ended_s or record.began_s)


def notice_of(place: str, began_s: float, facts: Facts, now_s: float) -> Notice:
    """The notice of the end of a run, which began then, of the job at this place. Pure."""
    digest = sha256(f"{place} {began_s!r}".encode("utf-8", "surrogateescape")).hexdigest()
    body = {"type": "job.ended", "timestamp": iso_time(now_s), "data": facts}
    return Notice(f"msg_{digest[:32]}", str(facts["job"]), now_s, json.dumps(body))


def signature(secret: bytes, notice: Notice, time_s: int) -> str:
    """The value of `webhook-signature`. Pure."""
    signed = f"{notice.id}.{time_s}.{notice.body}".encode()
    return f"v1,{base64.b64encode(hmac.digest(secret, signed, 'sha256')).decode()}"


def deliver(notice: Notice, kind: str, targets: NoticeTargets, now_s: float) -> None:
    """Deliver a notice to the command or to the webhook (blocks, for `COMMAND_S` at most). Raises: Undelivered."""
    if kind not in targets.kinds:
        raise Undelivered(f"no {kind} is configured now (--on-end-{kind})")
    if kind == COMMAND:
        _run(targets.command, notice.body.encode())
    else:
        asyncio.run(_post(notice, targets, int(now_s)))


def deliver_all(notice: Notice, targets: NoticeTargets, clock: Callable[[], float]) -> Iterator[str]:
    """Deliver a notice to all targets, each in four tries (blocks); a line for each target that did not take it."""
    for kind in targets.kinds:
        for wait_s in (*WAITS_S, None):
            try:
                deliver(notice, kind, targets, clock())
                break
            except Undelivered as error:
                if wait_s is None:
                    yield f"the notice of the end was not delivered: {error}"
                else:
                    Event().wait(wait_s)


def _run(command: Sequence[str], body: bytes) -> None:
    """Run a command with the JSON on its standard input. Raises: Undelivered."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise Undelivered(f"{command[0]}: {os.strerror(error.errno or 0).lower()}") from error
    try:
        process.communicate(body, COMMAND_S)
    except subprocess.TimeoutExpired as error:
        raise Undelivered(f"{command[0]}: ran for more than {COMMAND_S:.0f} s and was killed") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise Undelivered(f"{command[0]}: ended with exit code {process.returncode}")


async def _post(notice: Notice, targets: NoticeTargets, time_s: int) -> None:
    """Send a notice to the webhook. Raises: Undelivered."""
    from anabranch.crawler.outcomes.failures import FetchError  # noqa: PLC0415 - only when there is something to send

    order = CrawlOrder.model_validate(
        {"fetch": {"timeout": WEBHOOK_S, "max_body": _MOST_ANSWER_BYTES, "allow_private": targets.allow_private}}
    )
    fields = {
        "Content-Type": "application/json",
        "webhook-id": notice.id,
        "webhook-timestamp": str(time_s),
        "webhook-signature": signature(targets.secret, notice, time_s),
    }
    host = urlsplit(targets.webhook).hostname
    async with AsyncExitStack() as parts:
        fetcher = await lone_fetcher(order, parts)
        try:
            response = await fetcher.post(targets.webhook, notice.body.encode(), fields)
        except FetchError as error:
            words = str(error).replace("--allow-private", "--on-end-allow-private")
            raise Undelivered(f"{host}: {words}") from error
        response.body.close()
    if not 200 <= response.status < 300:
        what = "a redirect, which is not followed" if 300 <= response.status < 400 else "no 2xx"
        raise Undelivered(f"{host}: answered {response.status}, {what}")


async def lone_fetcher(order: CrawlOrder, parts: AsyncExitStack) -> Fetcher:
    """A fetcher as a crawl by this order has it, for single requests; `parts` closes it."""
    from anabranch.crawler.fetch.connection_limits import ConnectionLimits  # noqa: PLC0415 - most commands fetch nothing
    from anabranch.crawler.fetch.dns import Resolver  # noqa: PLC0415
    from anabranch.crawler.fetch.fetcher import Fetcher  # noqa: PLC0415
    from anabranch.crawler.fetch.response import Scratch  # noqa: PLC0415
    from anabranch.crawler.order.fetch import fetch_options  # noqa: PLC0415
    from anabranch.frontier.times import steady_clock  # noqa: PLC0415

    clock, dns = steady_clock(), order.dns
    options = dns.options(ipv4=order.fetch.ipv4, ipv6=order.fetch.ipv6)
    resolver = Resolver(dns.servers, dns.hosts, clock=clock, timeout_s=dns.timeout_s, options=options)
    parts.push_async_callback(resolver.close)
    fetcher = Fetcher(
        fetch_options(order.fetch, order.agent.sent_user_agent),
        resolver=resolver,
        scratch=Scratch(None),
        clock=clock,
        connections=ConnectionLimits(idle=0),  # no gate would retry a request whose kept connection closes
    )
    parts.push_async_callback(fetcher.close)
    return fetcher
