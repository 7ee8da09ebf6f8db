"""Crawlee's storage client and request queue client over Frontiers; datasets and key-value stores are Crawlee's own files.

`FrontierStorageClient` opens queues by name below `STORAGE_DIR/request_queues`. `FrontierRequestQueueClient` is one of them,
with its id and name in Crawlee, which are in the queue's folder:

    FOLDER/queue.json   {"format": "anabranch crawlee queue", "version": 1, "id": …, "name": …, "created_at": …}
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from crawlee import Request
from crawlee.configuration import Configuration
from crawlee.storage_clients import FileSystemStorageClient, StorageClient
from crawlee.storage_clients._base import DatasetClient, KeyValueStoreClient, RequestQueueClient
from crawlee.storage_clients.models import AddRequestsResponse, ProcessedRequest, RequestQueueMetadata

from anabranch.frontier.errors import FormatMismatch, StoreUnavailable
from anabranch.frontier.hosts.crawlee.queue import FrontierQueue

FORMAT = "anabranch crawlee queue"
VERSION = 1
IDENTITY_FILE = "queue.json"
#: What Crawlee's own file storage writes into a queue's folder.
_OTHERS_FILE = "__metadata__.json"
_QUEUES = "request_queues"
_DEFAULT = "default"


class FrontierStorageClient(StorageClient):
    """Request queues in `STORAGE_DIR/request_queues/NAME`, each a job's folder for `anabranch frontier`.

    `settings` are the Frontier's, the same for every queue, see `frontier.hosts.embedding.settings`. Queues without a name are
    purged at the start as Crawlee's own are (`purge_on_start`). `close`, or leaving `async with`, closes the opened queues.

    A crawler reports 429 and Crawl-delay only to a request manager: give it
    `FrontierRequestManager(await storage.create_rq_client(...))` to respect them.
    """

    def __init__(self, **settings: object) -> None:
        self._settings = settings
        self._files = FileSystemStorageClient()
        self._opened: list[FrontierRequestQueueClient] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Write all and release the queues' folders. They cannot be used any more."""
        while self._opened:
            await self._opened[-1].close()

    def get_storage_client_cache_key(self, configuration: Configuration) -> Hashable:
        """One instance of each storage for a folder."""
        return super().get_storage_client_cache_key(configuration), configuration.storage_dir

    async def create_dataset_client(self, **which: Any) -> DatasetClient:
        """Make the client that Crawlee's FileSystemStorageClient makes."""
        return await self._files.create_dataset_client(**which)

    async def create_kvs_client(self, **which: Any) -> KeyValueStoreClient:
        """Make the client that Crawlee's FileSystemStorageClient makes."""
        return await self._files.create_kvs_client(**which)

    async def create_rq_client(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> FrontierRequestQueueClient:
        """Open or create a queue; one that this client has open already is the same object.

        Raises: ValueError, PolicyError, FormatMismatch, StoreInUse, StoreUnavailable.
        """
        if sum(given is not None for given in (id, name, alias)) > 1:
            raise ValueError("give one of id, name and alias")
        configuration = configuration or Configuration.get_global_configuration()
        base = Path(configuration.storage_dir) / _QUEUES
        folder = _below(base, name or alias or _DEFAULT) if id is None else with_id(base, id)
        client = next((client for client in self._opened if client.folder == folder), None)
        if client is None:
            client = await FrontierRequestQueueClient.open(folder, self._settings, name=name, on_close=self._forget)
            self._opened.append(client)
        await self._purge_if_needed(client, configuration)
        return client

    def _forget(self, client: FrontierRequestQueueClient) -> None:
        if client in self._opened:
            self._opened.remove(client)


def _below(base: Path, name: str) -> Path:
    """The folder of a queue. Raises: ValueError for a name that would lead elsewhere."""
    if name in {".", ".."} or any(sign in name for sign in "/\\\0"):
        raise ValueError(f"{name!r} cannot name a queue's folder")
    return base / name


class FrontierRequestQueueClient(RequestQueueClient):
    """A queue for Crawlee's `RequestQueue`. Its times are of this opening, except `created_at`."""

    def __init__(
        self,
        queue: FrontierQueue,
        identity: Identity,
        folder: Path | None,
        on_close: Callable[[FrontierRequestQueueClient], None] | None = None,
    ) -> None:
        """`on_close` is called when it is dropped or closed."""
        self._queue = queue
        self._identity = identity
        self._on_close = on_close
        self.folder = folder  #: its folder; None: in memory, dropped or closed
        self._accessed_at = self._modified_at = datetime.now(UTC)
        self._is_dropped = False

    @classmethod
    async def open(
        cls,
        folder: Path | None,
        settings: Mapping[str, object],
        *,
        name: str | None = None,
        on_close: Callable[[FrontierRequestQueueClient], None] | None = None,
    ) -> Self:
        """Open or create the queue in a folder, None: in memory. Raises: as `FrontierQueue.open`."""
        if folder is None:
            return cls(await FrontierQueue.open(None, settings), Identity.new(name), None)
        await asyncio.to_thread(check_free, folder)
        queue = await FrontierQueue.open(folder, settings)
        try:
            return cls(queue, await asyncio.to_thread(identity_in, folder, name), folder, on_close)
        except BaseException:
            await queue.close()
            raise

    @property
    def queue(self) -> FrontierQueue:
        """The queue behind it."""
        return self._queue

    @property
    def id(self) -> str:
        """The queue's id, the same at each opening."""
        return self._identity.id

    @property
    def name(self) -> str | None:
        """The queue's name, if it was made with one."""
        return self._identity.name

    async def close(self) -> None:
        """Write all and release the folder."""
        self.folder = None
        if self._on_close is not None:
            self._on_close(self)
        await self._queue.close()

    async def get_metadata(self) -> RequestQueueMetadata:
        """Exact counts, retired queues included."""
        handled, pending = (0, 0) if self._is_dropped else (self._queue.handled, self._queue.pending)
        return RequestQueueMetadata(
            id=self.id,
            name=self.name,
            created_at=self._identity.created_at,
            accessed_at=self._accessed_at,
            modified_at=self._modified_at,
            had_multiple_clients=False,
            handled_request_count=handled,
            pending_request_count=pending,
            total_request_count=handled + pending,
        )

    async def drop(self) -> None:
        """Remove the queue and all that it wrote, and its folder if that is empty then."""
        self._is_dropped = True
        folder, self.folder = self.folder, None
        if self._on_close is not None:
            self._on_close(self)
        if folder is not None:
            await asyncio.to_thread((folder / IDENTITY_FILE).unlink, missing_ok=True)
        await self._queue.drop()

    async def purge(self) -> None:
        """Forget all requests."""
        await self._queue.purge()
        self._touch()

    async def add_batch_of_requests(
        self, requests: Sequence[Request], *, forefront: bool = False
    ) -> AddRequestsResponse:
        """Call `FrontierQueue.add`."""
        answer = await self._queue.add(requests, front=forefront)
        self._touch()
        return answer

    async def get_request(self, unique_key: str) -> Request | None:
        """Call `FrontierQueue.get`."""
        self._accessed_at = datetime.now(UTC)
        return await self._queue.get(unique_key)

    async def fetch_next_request(self) -> Request | None:
        """Call `FrontierQueue.fetch`."""
        self._accessed_at = datetime.now(UTC)
        return await self._queue.fetch()

    async def mark_request_as_handled(self, request: Request) -> ProcessedRequest | None:
        """Call `FrontierQueue.mark_handled`; durable on return: a killed process repeats only what is in progress."""
        self._touch()
        answer = self._queue.mark_handled(request)
        await self._queue.until_durable()
        return answer

    async def reclaim_request(self, request: Request, *, forefront: bool = False) -> ProcessedRequest | None:
        """Call `FrontierQueue.reclaim`; durable on return."""
        self._touch()
        answer = self._queue.reclaim(request, front=forefront)
        await self._queue.until_durable()
        return answer

    async def is_empty(self) -> bool:
        """Call `FrontierQueue.is_empty`."""
        self._accessed_at = datetime.now(UTC)
        return await self._queue.is_empty()

    async def is_finished(self) -> bool:
        """Return `FrontierQueue.is_finished`."""
        return self._queue.is_finished

    def _touch(self) -> None:
        self._accessed_at = self._modified_at = datetime.now(UTC)


class Identity(NamedTuple):
    """The id and the name of a queue in Crawlee."""

    id: str
    name: str | None
    created_at: datetime

    @classmethod
    def new(cls, name: str | None) -> Self:
        """A queue that is made now."""
        return cls(secrets.token_urlsafe(12), name, datetime.now(UTC))


def identity_in(folder: Path, name: str | None) -> Identity:
    """The identity of the queue in this folder, which the caller has locked; a new queue gets this name (blocks).

    Raises: FormatMismatch, StoreUnavailable.
    """
    file = folder / IDENTITY_FILE
    try:
        if file.is_file():
            return _parsed(file)
        identity = Identity.new(name)
        fields = identity._asdict() | {"created_at": identity.created_at.isoformat()}
        unfinished = file.with_name(f"{IDENTITY_FILE}.new")
        unfinished.write_text(json.dumps({"format": FORMAT, "version": VERSION, **fields}) + "\n", encoding="utf-8")
        unfinished.replace(file)
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror}; choose a folder that can be written") from error
    return identity


def check_free(folder: Path) -> None:
    """Raises: FormatMismatch if Crawlee's own file storage has a queue there, which would be ignored."""
    if (folder / _OTHERS_FILE).exists() and not (folder / IDENTITY_FILE).exists():
        raise FormatMismatch(
            f"{folder}: a queue of Crawlee's file storage is there; choose another name or storage_dir"
        )


def with_id(base: Path, wanted: str) -> Path:
    """The folder below `base` with this queue's id (blocks for a look into each). Raises: ValueError, FormatMismatch."""
    for file in sorted(base.glob(f"*/{IDENTITY_FILE}")):
        if _parsed(file).id == wanted:
            return file.parent
    raise ValueError(f'Request queue with ID "{wanted}" not found')


def _parsed(file: Path) -> Identity:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise FormatMismatch(
                f"{file}: {found['format']!r} version {found['version']!r}, not {FORMAT!r} version {VERSION}"
            )
        return Identity(found["id"], found["name"], datetime.fromisoformat(found["created_at"]))
    except (ValueError, KeyError, TypeError) as error:
        raise FormatMismatch(f"{file}: it is no {FORMAT}; remove it, and the queue gets a new id") from error
