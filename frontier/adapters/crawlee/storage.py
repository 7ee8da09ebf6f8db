"""Crawlee's storage client whose request queues are Frontiers; datasets and key-value stores are files, as Crawlee's own."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Self

from crawlee.configuration import Configuration
from crawlee.storage_clients import FileSystemStorageClient, StorageClient
from crawlee.storage_clients._base import DatasetClient, KeyValueStoreClient

from anabranch.frontier.adapters.crawlee.client import FrontierRequestQueueClient
from anabranch.frontier.adapters.crawlee.identity import with_id

_QUEUES = "request_queues"
_DEFAULT = "default"


class FrontierStorageClient(StorageClient):
    """Request queues in `STORAGE_DIR/request_queues/NAME`, each a job's folder for `anabranch frontier`.

    `settings` are the Frontier's, the same for every queue, see `frontier.embedding.settings`. Queues without a name are purged
    at the start as Crawlee's own are (`purge_on_start`). `close`, or leaving `async with`, closes the queues that were opened.

    What a crawler learns of hosts (429, Crawl-delay) it tells a `FrontierRequestManager` alone: give it
    `FrontierRequestManager(await storage.create_rq_client(...))` if it shall be heeded.
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
        """Write all and let go of the queues' folders. They cannot be used any more."""
        while self._opened:
            await self._opened[-1].close()

    def get_storage_client_cache_key(self, configuration: Configuration) -> Hashable:
        """One instance of each storage for a folder."""
        return super().get_storage_client_cache_key(configuration), configuration.storage_dir

    async def create_dataset_client(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> DatasetClient:
        """As Crawlee's FileSystemStorageClient."""
        return await self._files.create_dataset_client(id=id, name=name, alias=alias, configuration=configuration)

    async def create_kvs_client(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> KeyValueStoreClient:
        """As Crawlee's FileSystemStorageClient."""
        return await self._files.create_kvs_client(id=id, name=name, alias=alias, configuration=configuration)

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
    """The folder of a queue. Raises: ValueError for what would be elsewhere."""
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} cannot name a queue's folder")
    return base / name
