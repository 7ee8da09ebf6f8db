"""Copies finished WARC files elsewhere while a crawl runs, and the last ones at its end (`archive.uploads`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from anabranch.crawler.archive.uploads import Uploaded, UploadFailed, Uploads
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.outcomes.errors import StorageError

log = structlog.get_logger(__name__)

#: Between two looks for finished files; longer after a failure.
LOOK_S = 3.0
_AGAIN_S = 60.0


class Uploading:
    """Copies the files of one job folder. Raises: OrderError if the place cannot be reached at all."""

    def __init__(self, job: JobFolder, target: str, on_arrival: Callable[[Uploaded], None] = lambda _: None) -> None:
        self._uploads = Uploads(job.warc, job.state, target, on_arrival)

    async def watch(self) -> None:
        """Copy what is finished, again and again, until cancelled. Failures are logged, and tried again."""
        while True:
            try:
                await asyncio.to_thread(self._uploads.copy)
                pause_s = LOOK_S
            except (UploadFailed, StorageError) as error:
                log.warning("a WARC file waits to be copied", reason=str(error))
                pause_s = _AGAIN_S
            await asyncio.sleep(pause_s)

    async def finish(self) -> None:
        """Copy what the end of the run has finished. Raises: UploadFailed, which says how many are left."""
        try:
            await asyncio.to_thread(self._uploads.copy)
        except UploadFailed as error:
            left = self._uploads.left
            raise UploadFailed(
                f"{error}; {left} finished files are at this machine only, the next run copies them"
            ) from error
