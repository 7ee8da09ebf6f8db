"""The real console in a process of its own, and a client of its API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from anabranch.crawler.console.access import Access, ConsoleRole
from tests.acceptance import forkserver
from tests.acceptance.command import Process, anabranch, environment
from tests.patience import HANG_S
from tests.ports import free_port


class RunningConsole:
    """A console that serves, with a client that has an operator's token."""

    def __init__(self, process: Process, port: int, token: str) -> None:
        self.process = process
        self.port = port
        self.token = token
        self.url = f"http://127.0.0.1:{port}"
        self.client = self.client_of(token)

    def client_of(self, token: str | None, **headers: str) -> httpx.AsyncClient:
        """A client that has this token."""
        given = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.url, headers={**given, **headers}, timeout=HANG_S)

    async def get(self, path: str, **query: Any) -> Any:
        """The answer to a question, which is 200."""
        answer = await self.client.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, asked: Any = None, method: str = "POST", code: int = 200) -> Any:
        """The answer to a change, which has this code."""
        answer = await self.client.request(method, f"/api/v1/{path}", json=asked)
        assert answer.status_code == code, answer.text
        return answer.json()

    async def until(self, job: str, phase: str) -> dict[str, Any]:
        """The row of a job once it is in this phase."""
        while True:
            rows = {row["job"]: row for row in await self.get("jobs")}
            if rows[job]["phase"] == phase:
                return rows[job]
            await asyncio.sleep(0.05)


async def token_of(folder: Path, name: str, *options: str) -> str:
    """A new token, by the command."""
    made = await anabranch("console", "token", name, *options, "--state", folder / "state", cwd=folder)
    assert made.code == 0, made.err
    return made.out.strip()


@asynccontextmanager
async def running_console(
    folder: Path,
    place: str = "jobs",
    token: str = "",
    program: Sequence[str] = ("-m", "anabranch"),
    more: Sequence[str] = (),
    **variables: str,
) -> AsyncIterator[RunningConsole]:
    """A console in a folder with `jobs`, until the block ends. Without a token one is made; `more` are options."""
    (folder / "jobs").mkdir(exist_ok=True)
    token = token or Access(folder / "state").make("operator", ConsoleRole.OPERATOR)
    port = free_port()
    options = ("console", place, "--listen", f"127.0.0.1:{port}", "--state", str(folder / "state"), *more)
    process = await forkserver.start([*program, *options], cwd=folder, env=environment(**variables))
    console = RunningConsole(process, port, token)
    try:
        while True:
            try:
                await console.get("version")
                break
            except httpx.TransportError:
                assert process.returncode is None, await process.communicate()
                await asyncio.sleep(0.05)
        yield console
    finally:
        await console.client.aclose()
        if process.returncode is None:
            process.kill()
        await process.communicate()
