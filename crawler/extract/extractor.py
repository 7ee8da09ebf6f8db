"""Reads the links of a response: small harmless documents at once, the others in helper processes with limits.

At most two helper processes read documents that are large or could stall the crawl. Each has a limit of memory (its address
space) and of time (it is killed, and replaced when needed). A document that exceeds a limit gets an annotation and no links. A
helper never outlives the crawl. Starting one takes about 0.15 s, in parallel with the crawl.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

import structlog

from anabranch.crawler.extract.content_type import DocumentKind
from anabranch.crawler.extract.helper import LENGTH
from anabranch.crawler.extract.links import ExtractOptions, Found, Link, Reference
from anabranch.crawler.extract.nesting import LIGHT_BYTES, is_light
from anabranch.crawler.extract.reading import (
    MARKUP,
    Document,
    DocumentHead,
    header_links,
    is_harmless_xml,
    kind_of,
    may_be_read,
    read,
)
from anabranch.crawler.extract.resolver import LinkResolver, gathered, merged
from anabranch.crawler.fetch.mime import mime_type
from anabranch.crawler.fetch.response import content_type_of
from anabranch.crawler.runtime import child_command
from anabranch.crawler.urls.parsing import canonical

if TYPE_CHECKING:
    from anabranch.crawler.fetch.response import Response

log = structlog.get_logger(__name__)

HELPERS = 2
#: Address space of a helper. The most that was measured: 140 MB, for 1 MiB of attributes; 110 MB for 16 MiB of anything.
MEMORY_BYTES = 512 << 20
#: After a larger document a helper is ended, because it would keep the memory.
_KEPT_BYTES = 2 << 20
TIMED_OUT = "extractTimeout"
FAILED = "extractFailed"
NO_URL = "noURL"

#: The largest message of a helper: a thousand links of 8 KiB.
_MAX_MESSAGE_BYTES = 16 << 20
_RECEIVE_BYTES = 256 * 1024


class Extractor:
    """Reads the links of responses. The caller closes the sandbox. One per crawl: it caches links."""

    def __init__(self, options: ExtractOptions, sandbox: Sandbox) -> None:
        self._options = options
        self._sandbox = sandbox
        self._resolver = LinkResolver()

    async def __call__(self, response: Response, base_url: str, hops: str = "") -> Found:
        """The links of a response's header, and of a 2xx's body. Takes at most 50 ms at a time on the event loop."""
        found = Found([])
        if 200 <= response.status < 300:
            found = await self._body(response, base_url, hops)
        references = list(header_links(response.headers, response.status))
        if references:
            links, dropped = gathered(references, base_url, self._options.max_outlinks, self._resolver)
            notes = (
                found.notes
                if len(links) + dropped == len(references)
                else (*found.notes, *_no_urls(references, base_url))
            )
            found = found._replace(links=merged(links, found.links), notes=notes)
        return found

    async def _body(self, response: Response, url: str, hops: str) -> Found:
        content_type = content_type_of(response.headers)
        if not may_be_read(mime_type(content_type).essence, self._options, hops):
            return Found([])  # without looking at its bytes
        body, is_cut = response.content(min(LIGHT_BYTES, self._options.max_content_bytes))
        no_sniff = response.headers.get("X-Content-Type-Options", "").strip().lower() == "nosniff"
        kind = kind_of(DocumentHead(content_type, url, hops, may_sniff=not no_sniff), body, self._options)
        if kind is None:
            return Found([])
        document = Document(kind, body, url=url, content_type=content_type, hops=hops)
        is_harmless = is_harmless_xml(document) if kind in MARKUP else kind is not DocumentKind.HTML or is_light(body)
        if (is_cut and len(body) < self._options.max_content_bytes) or not is_harmless:
            limit = self._options.max_content_bytes
            without_body = document._replace(body=b"")
            return await self._sandbox.read(without_body, lambda: response.content(limit)[0], self._options)
        return read(document, self._options, self._resolver)


def _no_urls(references: Sequence[Reference], base_url: str) -> Iterator[str]:
    """A note for each field of a header whose text is no web URL."""
    fields = {context.partition(" ")[0]: None for text, _, context in references if canonical(text, base_url) is None}
    return (f"{NO_URL}:{field}" for field in fields)


class HelperFailed(Exception):
    """A helper died, could not be started, or could not read the document."""


class Sandbox:
    """Up to `helpers` processes that read documents, for one running event loop."""

    def __init__(self, *, helpers: int = HELPERS, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._slots = asyncio.Semaphore(helpers)
        self._loading = asyncio.Lock()  # one body at a time is in this process's memory
        self._idle: list[_Helper] = []
        self._ending: set[asyncio.Task[int]] = set()

    async def read(self, document: Document, load: Callable[[], bytes], options: ExtractOptions) -> Found:
        """The links of the document; none, and a note, if it takes longer than `options.timeout_s` or breaks its reader.

        `load` returns the body, in a thread, one at a time. Raises: what `load` raises.
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
                    note = TIMED_OUT if isinstance(error, TimeoutError) else FAILED
                    log.info("not read", url=document.url, note=note, reason=str(error))
                    return Found([], notes=(note,))
                except BaseException:
                    self._end(helper)
                    raise
                if os.fstat(body.fileno()).st_size > _KEPT_BYTES:
                    self._end(helper)
                else:
                    self._idle.append(helper)
                return found

    async def close(self) -> None:
        """End all helpers and wait until they have exited. No document may be in progress."""
        while self._idle:
            self._end(self._idle.pop())
        while self._ending:
            await asyncio.wait(self._ending)

    async def _start(self) -> _Helper:
        starting = asyncio.create_task(_Helper.start(self._memory_bytes))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # a process that is being started must be ended, too
            with suppress(HelperFailed):
                self._end(await starting)
            raise

    def _end(self, helper: _Helper | None) -> None:
        if helper is not None:
            helper.kill()
            task = asyncio.create_task(helper.gone())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


async def _in_thread(load: Callable[[], bytes]) -> IO[bytes]:
    """An unnamed file that holds what `load` returns. If this is cancelled, the thread's file is closed all the same."""
    loading = asyncio.get_running_loop().run_in_executor(None, _file_of, load)
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        loading.add_done_callback(lambda done: done.exception() or done.result().close())
        raise


def _file_of(load: Callable[[], bytes]) -> IO[bytes]:
    data = load()
    # In memory where the system has such files (Linux), else on disk.
    in_memory = hasattr(os, "memfd_create")
    file = os.fdopen(os.memfd_create("document"), "w+b") if in_memory else tempfile.TemporaryFile()  # noqa: SIM115 - returned
    try:
        file.write(data)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


class _Helper:
    """One helper process, which reads one document at a time."""

    def __init__(self, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self._process = process
        self._channel = channel

    @classmethod
    async def start(cls, memory_bytes: int) -> _Helper:
        """Raises: HelperFailed."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        program = f"from anabranch.crawler.extract.helper import main; main({os.getpid()}, {memory_bytes})"
        devnull = asyncio.subprocess.DEVNULL
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *child_command(program),
                    stdin=theirs.fileno(),
                    stdout=devnull,
                    stderr=devnull,
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise HelperFailed(f"no process could be started: {error}") from error
        return cls(process, ours)

    async def ask(self, document: Document, body: IO[bytes], options: ExtractOptions) -> Found:
        """Raises: HelperFailed."""
        replaced = {"kind": document.kind.value, "body": "", "options": asdict(options)}
        data = json.dumps(document._asdict() | replaced).encode()
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
        tuples = {name: tuple(message[name]) for name in ("notes", "robots")}
        return Found(links, **message | tuples)

    async def _message(self) -> dict[str, Any]:
        (size,) = LENGTH.unpack(await self._receive(LENGTH.size))
        if size > _MAX_MESSAGE_BYTES:
            raise EOFError("a message is too long")
        message: dict[str, Any] = json.loads(await self._receive(size))
        return message

    async def _receive(self, size: int) -> bytes:
        """Receive `size` bytes; other tasks run meanwhile. Raises: EOFError."""
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
        self._channel.close()
        if self._process.returncode is None:
            self._process.kill()

    async def gone(self) -> int:
        return await self._process.wait()
