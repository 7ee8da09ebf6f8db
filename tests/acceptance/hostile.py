"""A real crawl of hostile hosts, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance import forkserver
from tests.acceptance.command import REPOSITORY, Ended, ended, environment, write_order
from tests.site.ledger import Ledger
from tests.site.memory import Peak

LAUNCHER = REPOSITORY / "tests" / "site" / "hostile" / "launcher.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The fields of one line of `crawl.log`."""

    status: int
    size: str
    url: str
    hops: str
    mime: str
    annotations: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crawled:
    """A crawl that has ended by itself."""

    run: Ended
    lines: tuple[Line, ...]
    peak_bytes: int  #: of anonymous memory, of the command itself

    def final(self) -> dict[str, int]:
        """URL -> status of its last line; robots.txt and names aside."""
        return {line.url: line.status for line in self.lines if not line.hops.endswith("P")}

    def notes(self, url: str) -> str:
        """The annotations of the URL's last line."""
        return next(line.annotations for line in reversed(self.lines) if line.url == url)


def read_lines(log: Path) -> tuple[Line, ...]:
    """The lines of a `crawl.log`; each has its fields, whatever a site sent."""
    lines = []
    for text in log.read_text("ascii").splitlines():
        fields = text.split(maxsplit=12)
        assert len(fields) >= 12, text
        _, status, size, url, hops, _, mime, *_, notes = fields[:12]
        lines.append(Line(status=int(status), size=size, url=url, hops=hops, mime=mime, annotations=notes))
    return tuple(lines)


async def crawl(
    folder: Path,
    seeds: Iterable[str],
    hosts: Mapping[str, str],
    *,
    internet: str | None = None,
    files: int | None = None,
    flags: Sequence[str] = (),
    **sections: Mapping[str, object],
) -> Crawled:
    """Crawl the seeds to the end, in a hurry. `internet` and `files`: see the launcher."""
    sections = {key: dict(value) for key, value in sections.items()}
    sections["fetch"] = {"timeout": "3s", "max_body": "1MiB", "allow_private": internet is None} | sections.get(
        "fetch", {}
    )
    sections["politeness"] = {"max_connections": 8, "max_retry_after": "200ms"} | sections.get("politeness", {})
    order = write_order(folder, hosts, **sections)
    seed_file = folder / "seeds.txt"
    seed_file.write_text("".join(f"{seed}\n" for seed in seeds))
    limited = ["--files", str(files)] if files else []
    command = [str(LAUNCHER), *limited, *(["--internet", internet] if internet else [])]
    command += ["crawl", str(seed_file), "-c", str(order), "--job", str(folder / "job"), *flags]
    process = await forkserver.start(command, cwd=folder, env=environment())
    peak = Peak(process.pid)
    watch = asyncio.create_task(peak.watch())
    try:
        run = await ended(process)
    finally:
        watch.cancel()
    return Crawled(run=run, lines=read_lines(folder / "job" / "logs" / "crawl.log"), peak_bytes=peak.own_bytes)


def asked_for(ledger: Ledger) -> set[str]:
    """The URLs that were asked for, robots.txt aside."""
    return {url for url in ledger.counts() if not url.partition("?")[0].endswith("/robots.txt")}
