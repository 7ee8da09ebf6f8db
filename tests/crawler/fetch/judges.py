"""Other clients that read the same answers: curl, wget, Go and Chromium. Each reads all of them in one process."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.acceptance.browser import chromium
from tests.patience import HANG_S


class Reading(NamedTuple):
    """One client's reading of an answer."""

    status: int = 0  #: 0: it refused the answer
    content: bytes = b""  #: without codings
    is_cut: bool = False  #: it reports that the content broke off

    def __str__(self) -> str:
        return f"{self.status} {self.content[:60]!r}{' cut' if self.is_cut else ''}" if self.status else "refused"


_LIMIT_S = 5  #: no answer takes so long: each connection is closed behind it

_ENVIRONMENT = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | {"LC_ALL": "C"}


async def _run(folder: Path, *command: str, stdin: str = "", **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=_ENVIRONMENT | environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(stdin.encode()), HANG_S)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return printed.decode("utf-8", "surrogateescape")


def _content(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""


async def curl(folder: Path, urls: Sequence[str]) -> list[Reading]:
    """Curl --compressed. A code of exit other than 0 behind a status: the content broke off."""
    common = f'compressed\nsilent\nmax-time = {_LIMIT_S}\nnoproxy = "*"\nheader = "Connection: close"\n'
    common += 'write-out = "%{exitcode} %{http_code}\\n"\n'
    parts = [f'url = "{url}"\noutput = "{number}"\n{common}' for number, url in enumerate(urls)]
    readings: list[Reading] = []
    while len(readings) < len(urls):  # some codes end curl before the next URL
        (folder / "config").write_text("next\n".join(parts[len(readings) :]))
        for line in (await _run(folder, "curl", "-q", "-K", "config")).splitlines():
            code, status = map(int, line.split())
            content = _content(folder / str(len(readings)))
            refuses = not status or (code != 0 and not content)
            readings.append(Reading() if refuses else Reading(status, content, code != 0))
    return readings


async def wget(folder: Path, urls: Sequence[str]) -> list[Reading]:
    """wget, once each. Its log names a status, and `saved` behind a content that is whole."""
    options = [
        "--tries=1",
        f"--timeout={_LIMIT_S}",
        "--no-proxy",
        "--content-on-error",
        "--compression=auto",
        "--no-config",
    ]
    options += ["--no-http-keep-alive", "--max-redirect=0", "--auth-no-challenge", "--force-directories"]
    log = await _run(folder, "wget", *options, "--input-file=-", stdin="\n".join(urls))
    found = {}
    for entry in re.split(r"(?m)^--\d{4}-\d\d-\d\d [\d:]+--  ", log)[1:]:
        url = entry.split(None, 1)[0]
        statuses = re.findall(r"awaiting response\.\.\. (?!.*assuming HTTP/0\.9)(\d+)", entry)
        content = _content(folder / url.removeprefix("http://"))
        is_whole = " at byte " not in entry and "giving up" not in entry.lower() and "Retrying" not in entry
        is_read = bool(statuses) and (is_whole or bool(content))
        found[url] = Reading(int(statuses[-1]), content, not is_whole) if is_read else Reading()
    return [found[url] for url in urls]


_GO = Path(__file__).with_name("judge.go")


async def go(folder: Path, urls: Sequence[str]) -> list[Reading]:
    """Go's net/http, by a small program. Go builds its library once, in 17 s of CPU time, and caches it."""
    program, settings = str(folder / "judge"), {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GO111MODULE": "off"}
    cheap = ["-tags=nethttpomithttp2", "-gcflags=all=-N -l -dwarf=false", "-ldflags=-w"]
    built = await _run(folder, "go", "build", *cheap, "-o", program, str(_GO), **settings, CGO_ENABLED="0", GOGC="400")
    assert not built, built
    readings = []
    for line in (await _run(folder, program, stdin="\n".join(urls))).splitlines():
        found = json.loads(line)
        content = base64.b64decode(found["Body"] or "")
        readings.append(Reading(found["Status"], content, bool(found["Error"])) if found["Status"] else Reading())
    return readings


_FETCH = """async ([urls, limit]) => {
    const read = async (url) => {
        const found = {status: 0, content: '', isCut: false};
        try {
            const answer = await fetch(url, {cache: 'no-store', signal: AbortSignal.timeout(limit)});
            found.status = answer.status;
            const reader = answer.body && answer.body.getReader();
            for (let part; reader && !(part = await reader.read()).done;)
                found.content += String.fromCharCode(...part.value);
        } catch (error) {
            found.isCut = true;
        }
        return found;
    };
    const found = [], left = urls.entries();
    const work = async () => { for (const [number, url] of left) found[number] = await read(url); };
    await Promise.all([work(), work(), work(), work()]);
    return found;
}"""


async def browser(folder: Path, urls: Sequence[str]) -> list[Reading]:
    """Chromium, by `fetch` in a page of the same origin."""
    del folder
    async with chromium() as running:
        page = await running.new_page()
        await page.goto(urls[0].rsplit("/", 1)[0] + "/")
        found: list[dict[str, Any]] = await page.evaluate(_FETCH, [list(urls), _LIMIT_S * 1000])
    return [
        Reading(one["status"], one["content"].encode("latin-1"), one["isCut"]) if one["status"] else Reading()
        for one in found
    ]


Judge = Callable[[Path, Sequence[str]], Coroutine[Any, Any, list[Reading]]]

#: Judge -> its program, and how it reads.
JUDGES: Mapping[str, tuple[str, Judge]] = MappingProxyType(
    {"Chromium": ("chromium", browser), "curl": ("curl", curl), "wget": ("wget", wget), "Go": ("go", go)}
)


def installed() -> list[str]:
    """The judges whose programs are on the PATH."""
    return [name for name, (program, _) in JUDGES.items() if shutil.which(program)]
