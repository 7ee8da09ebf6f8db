"""Reads what could stall or break the crawl in processes of their own: large documents, and small ones that are dangerous.

At most two helpers, started when the first such document comes and kept for the next. Each has a limit of memory (its address
space) and of time (it is killed, and another is started when one is needed). What a document costs beyond that is the
document's loss: an annotation, no links. A helper never outlives the crawl (`helper.py` says how), and is killed when the visit
that waits for it is cancelled.

Starting one takes about 0.15 s, beside the crawl.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

import structlog

from anabranch.crawler.children import child_command
from anabranch.crawler.extracting.helper import LENGTH
from anabranch.crawler.extracting.links import Found, Link
from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.extracting.reading import Document

log = structlog.get_logger(__name__)

HELPERS = 2
#: Address space of a helper. The most that was measured: 140 MB, for 1 MiB of attributes; 110 MB for 16 MiB of anything.
MEMORY_BYTES = 512 << 20
#: After a larger document a helper is ended: it would keep what memory it took.
_KEPT_BYTES = 2 << 20
TIMED_OUT = "extractTimeout"
FAILED = "extractFailed"

#: A message of a helper is no larger: a thousand links of 8 KiB.
_MAX_MESSAGE_BYTES = 16 << 20
_RECEIVE_BYTES = 256 * 1024


class HelperFailed(Exception):
    """A helper died, could not be started, or could not read the document."""


class Sandbox:
    """Up to `helpers` processes that read documents. Used within one running loop, and closed by its owner."""

    def __init__(self, *, helpers: int = HELPERS, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(helpers)
        self._loading = asyncio.Lock()  # a body is in this process's memory while it is loaded: one at a time
        self._idle: list[_Helper] = []
        self._ending: set[asyncio.Task[int]] = set()

    async def read(self, document: Document, load: Callable[[], bytes], options: ExtractOptions) -> Found:
        """What the document leads to; nothing, and a note, if it takes more than `options.timeout_s` or breaks its reader.

        `load` gives its body (`document.body` is not looked at). It is called in a thread, once a helper is free, and for one
        document at a time: one such body is in the crawl's memory. Raises: what `load` raises.
        """
        async with self._slots:
            async with self._loading:
                loaded = await _in_thread(load)
            with loaded as body:
                helper = None
                try:
                    async with asyncio.timeout(options.timeout_s):
                        helper = self._idle.pop() if self._idle else await self._start()
                        found = await helper.ask(document, body, options)
                except (TimeoutError, HelperFailed) as error:
                    self._end(helper)
                    return _lost(document, error)
                except BaseException:
                    self._end(helper)
                    raise
                if os.fstat(body.fileno()).st_size > _KEPT_BYTES:
                    self._end(helper)
                else:
                    self._idle.append(helper)
                return found

    async def close(self) -> None:
        """End all helpers and wait until they are gone. No document may be under way."""
        while self._idle:
            self._end(self._idle.pop())
        while self._ending:
            await asyncio.wait(self._ending)

    async def _start(self) -> _Helper:
        starting = asyncio.create_task(_Helper.start(self._memory_bytes))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # a process that is just being made must not be forgotten
            with suppress(HelperFailed):
                self._end(await starting)
            raise

    def _end(self, helper: _Helper | None) -> None:
        if helper is not None:
            helper.kill()
            task = asyncio.create_task(helper.gone())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def _lost(document: Document, error: Exception) -> Found:
    note = TIMED_OUT if isinstance(error, TimeoutError) else FAILED
    log.info("not read", url=document.url, note=note, reason=str(error))
    return Found([], notes=(note,))


async def _in_thread(load: Callable[[], bytes]) -> IO[bytes]:
    """A file without a name that holds what `load` gives; if this is cancelled, the thread's file is closed all the same."""
    loading = asyncio.get_running_loop().run_in_executor(None, _file_of, load)
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        loading.add_done_callback(lambda done: done.exception() or done.result().close())
        raise


def _file_of(load: Callable[[], bytes]) -> IO[bytes]:
    data = load()
    file = _unnamed_file()
    try:
        file.write(data)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _unnamed_file() -> IO[bytes]:
    """In memory where the system can (Linux), else on disk."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("document"), "w+b")
    return tempfile.TemporaryFile()


class _Helper:
    """One process, asked one document at a time."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel

    @classmethod
    async def start(cls, memory_bytes: int) -> _Helper:
        """Raises: HelperFailed."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        program = f"from anabranch.crawler.extracting.helper import main; main({os.getpid()}, {memory_bytes})"
        nothing = asyncio.subprocess.DEVNULL
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *child_command(program),
                    stdin=theirs.fileno(),
                    stdout=nothing,
                    stderr=nothing,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise HelperFailed(f"no process could be started: {error}") from error
        return cls(process, ours)

    async def ask(self, document: Document, body: IO[bytes], options: ExtractOptions) -> Found:
        """Raises: HelperFailed."""
        request = {
            "kind": document.kind.value,
            "url": document.url,
            "content_type": document.content_type,
            "hops": document.hops,
            "options": asdict(options),
        }
        data = json.dumps(request).encode()
        try:
            # The socket is empty, and the message fits in it.
            socket.send_fds(self._channel, [LENGTH.pack(len(data)) + data], [body.fileno()])
            links: list[Link] = []
            while "links" in (message := await self._message()):
                links += [Link(*link) for link in message["links"]]
        except (OSError, EOFError) as error:
            raise HelperFailed(f"the helper died ({error or 'end of file'})") from error
        if "error" in message:
            raise HelperFailed(message["error"])
        notes, robots = tuple(message["notes"]), tuple(message["robots"])
        return Found(links, message["dropped"], message["nofollow"], notes, robots, message["canonical"])

    async def _message(self) -> dict[str, Any]:
        (size,) = LENGTH.unpack(await self._receive(LENGTH.size))
        if size > _MAX_MESSAGE_BYTES:
            raise EOFError("a message is too long")
        message: dict[str, Any] = json.loads(await self._receive(size))
        return message

    async def _receive(self, size: int) -> bytes:
        """So many bytes; the loop has its turn between them. Raises: EOFError."""
        loop = asyncio.get_running_loop()
        data = bytearray()
        while len(data) < size:
            chunk = await loop.sock_recv(self._channel, min(size - len(data), _RECEIVE_BYTES))
            if not chunk:
                raise EOFError("end of file")
            data += chunk
        await asyncio.sleep(0)
        return bytes(data)

    def kill(self) -> None:
        """End it at once."""
        self._channel.close()
        if self._process.returncode is None:
            self._process.kill()

    async def gone(self) -> int:
        """Wait until it is gone."""
        return await self._process.wait()
