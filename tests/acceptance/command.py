"""The real command in a process of its own, on the small web."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance import forkserver
from tests.patience import HANG_S
from tests.site.server import SmallWeb

REPOSITORY = Path(__file__).resolve().parents[2]
#: A process that was started, fresh or forked.
Process = asyncio.subprocess.Process | forkserver.Forked
#: The variable that says which event loop crawls run on (`pytest --loop`).
LOOP = "TESTED_LOOP"
#: A command that has not ended by then is a defect.
PATIENCE_S = HANG_S

#: The section `dedup` of a crawl whose filter has 8 KB leaves. One of 1 MB leaves is 20 MB that each opening of a job touches.
SMALL_FILTER = {"expect": 100_000, "leaf_bits": 1 << 16}
#: `anabranch ARGUMENTS` as another program would start it, by `-c`; its first argument says how.
_STARTED_AS = """
import fcntl, os, runpy, signal, sys, termios
how = sys.argv.pop(1)
if how == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.setsid()
    fcntl.ioctl(os.openpty()[1], termios.TIOCSCTTY, 0)
elif how == "session":
    os.setsid()
else:
    os.login_tty(os.open(how, os.O_RDWR | os.O_NOCTTY))
runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """The environment of a user who has the clone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANABRANCH_")}
    return {**kept, "PYTHONPATH": str(REPOSITORY), **more}


def write_order(folder: Path, hosts: Mapping[str, str], **sections: Mapping[str, object]) -> Path:
    """A crawl order whose names are the small web's, fast and with a small filter unless `sections` say otherwise."""
    order: dict[str, dict[str, object]] = {
        "politeness": {"min_delay": 0, "max_delay": 0, "backoff_base": 0, "backoff_cap": 0},
        "fetch": {"allow_private": True, "timeout": "5s"},
        "crawl": {"workers": 20, "loop": os.environ.get(LOOP, "asyncio")},
        "agent": {"contact": "https://example.org/bot"},
        "dedup": dict(SMALL_FILTER),
        "scope": {
            "max_path_repeats": 3
        },  # the small web has an honest /tree/1/1/1/: to the default a trap, as in Heritrix
    }
    for name, section in sections.items():
        order.setdefault(name, {}).update(section)
    lines = []
    for name, values in order.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    lines += ["[dns.hosts]", *(f"{json.dumps(name)} = {json.dumps(address)}" for name, address in hosts.items())]
    file = folder / "order.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


async def start(*arguments: str | Path, cwd: Path, **variables: str) -> Process:
    """Start `anabranch ARGUMENTS` in the folder `cwd`."""
    return await forkserver.start(["-m", "anabranch", *map(str, arguments)], cwd=cwd, env=environment(**variables))


async def start_as(how: str, *arguments: str | Path, cwd: Path) -> Process:
    """Start `anabranch ARGUMENTS`.

    `how`: in a `session` of its own, without a terminal, as a daemon; under `nohup` on a new terminal, which ignores SIGHUP;
    or the path of a terminal, which becomes its own.
    """
    return await forkserver.start(["-c", _STARTED_AS, how, *map(str, arguments)], cwd=cwd, env=environment())


async def ended(process: Process, stdin: bytes = b"") -> Ended:
    """Wait for a started command."""
    assert process.stdin is not None
    if not stdin:
        process.stdin.close()  # uvloop lets nobody write to one that has ended, not even nothing
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin or None), PATIENCE_S)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"the command hangs: {out.decode()} {err.decode()}") from None
    assert process.returncode is not None
    return Ended(code=process.returncode, out=out.decode(), err=err.decode())


async def anabranch(*arguments: str | Path, cwd: Path, stdin: bytes = b"", **variables: str) -> Ended:
    """Run `anabranch ARGUMENTS` to its end."""
    return await ended(await start(*arguments, cwd=cwd, **variables), stdin)


async def comparing(*arguments: str, cwd: Path, **variables: str) -> Ended:
    """Run `anabranch ARGUMENTS`, a comparison of policies, to its end; each crawl's process is forked."""
    script = str(Path(__file__).with_name("forked_policies.py"))
    return await ended(await forkserver.start([script, *arguments], cwd=cwd, env=environment(**variables)))


async def kill_after(process: Process, web: SmallWeb, served: int) -> None:
    """SIGKILL the command when the small web has served so many requests."""
    while sum(web.ledger.counts().values()) < served and process.returncode is None:
        await asyncio.sleep(0.005)
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    await process.communicate()


def crawl_log(job: Path) -> dict[str, int]:
    """URL -> status of the last line that `crawl.log` has for it, robots.txt left out."""
    lines = [line.split() for line in (job / "logs" / "crawl.log").read_text().splitlines()]
    assert all(len(fields) == 12 for fields in lines), "crawl.log has twelve fields"
    return {fields[3]: int(fields[1]) for fields in lines if not fields[4].endswith("P")}


def pages(job: Path) -> dict[str, dict[str, object]]:
    """URL -> its object in `pages.jsonl`."""
    return {page["url"]: page for page in map(json.loads, (job / "pages.jsonl").read_text().splitlines())}
