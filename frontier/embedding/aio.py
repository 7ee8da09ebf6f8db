"""A job in a folder for a program of one's own with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.embedding.job import EmbeddedJob


@asynccontextmanager
async def open_job(
    folder: Path | None, settings: Mapping[str, object], *, max_unacknowledged: int | None = None
) -> AsyncIterator[AsyncFrontier]:
    """The job's Frontier, closed and let go of at the end of the block; both happen off the loop.

    `folder`, `settings` and `max_unacknowledged` are those of `EmbeddedJob`. Raises: PolicyError, FormatMismatch, StoreInUse,
    StoreUnavailable.
    """
    jobs: list[EmbeddedJob] = []

    def opened(on_change: Callable[[], None]) -> Frontier:
        jobs.append(EmbeddedJob(folder, settings, on_change=on_change, max_unacknowledged=max_unacknowledged))
        return jobs[0].frontier

    try:
        async with AsyncFrontier(opened) as frontier:
            yield frontier
    finally:
        for job in jobs:
            await asyncio.to_thread(job.close)
