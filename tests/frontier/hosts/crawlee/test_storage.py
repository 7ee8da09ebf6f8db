"""Frontiers as Crawlee's storages."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("crawlee")

from crawlee import Request
from crawlee.configuration import Configuration

from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.hosts.crawlee.storage import IDENTITY_FILE, FrontierStorageClient

A = Request.from_url("http://a.test/")


def folders(path: Path) -> set[str]:
    return {folder.name for folder in path.iterdir()}


@pytest.fixture
async def storage() -> AsyncIterator[FrontierStorageClient]:
    async with FrontierStorageClient(min_delay=0) as client:
        yield client


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(storage_dir=str(tmp_path), purge_on_start=True)


async def test_a_named_queue_outlives_its_client(storage: FrontierStorageClient, configuration: Configuration) -> None:
    """With its id, by which it is found, too."""
    client = await storage.create_rq_client(name="mine", configuration=configuration)
    await client.add_batch_of_requests([A])
    before = await client.get_metadata()
    await storage.close()
    again = await storage.create_rq_client(id=client.id, configuration=configuration)
    after = await again.get_metadata()
    assert (after.id, after.name, after.created_at, after.total_request_count) == (
        client.id,
        "mine",
        before.created_at,
        1,
    )


async def test_a_queue_without_a_name_is_purged_at_the_start(
    storage: FrontierStorageClient, configuration: Configuration
) -> None:
    """By the configuration; it keeps its id."""
    client = await storage.create_rq_client(alias="run", configuration=configuration)
    await client.add_batch_of_requests([A])
    await storage.close()
    kept = configuration.model_copy(update={"purge_on_start": False})
    resumed = await storage.create_rq_client(alias="run", configuration=kept)
    assert (await resumed.get_metadata()).pending_request_count == 1
    await storage.close()
    purged = await storage.create_rq_client(alias="run", configuration=configuration)
    assert ((await purged.get_metadata()).pending_request_count, purged.id) == (0, client.id)


async def test_queues_are_apart(storage: FrontierStorageClient, configuration: Configuration) -> None:
    """Two may be open at once."""
    one = await storage.create_rq_client(configuration=configuration)
    other = await storage.create_rq_client(name="other", configuration=configuration)
    await one.add_batch_of_requests([A])
    assert (await other.is_empty(), await one.is_empty()) == (True, False)
    await one.drop()
    assert (await one.get_metadata()).total_request_count == 0
    new = await storage.create_rq_client(configuration=configuration)
    assert (new.id != one.id, await new.is_empty()) == (True, True)


async def test_what_names_no_queue_is_refused(storage: FrontierStorageClient, configuration: Configuration) -> None:
    """An id that is not there, two names, a way out of the folder."""
    with pytest.raises(ValueError, match="not found"):
        await storage.create_rq_client(id="nobody", configuration=configuration)
    with pytest.raises(ValueError, match="give one"):
        await storage.create_rq_client(id="a", name="b", configuration=configuration)
    for name in ("..", "a/b", "a\\b", "\0"):
        with pytest.raises(ValueError, match="cannot name"):
            await storage.create_rq_client(alias=name, configuration=configuration)


async def test_a_queue_of_crawlees_file_storage_is_not_overlooked(
    storage: FrontierStorageClient, configuration: Configuration, tmp_path: Path
) -> None:
    """Its requests would be forgotten without a word."""
    folder = tmp_path / "request_queues" / "default"
    folder.mkdir(parents=True)
    (folder / "__metadata__.json").write_text("{}")
    with pytest.raises(FormatMismatch, match="file storage is there"):
        await storage.create_rq_client(configuration=configuration)


async def test_an_identity_that_cannot_be_read_is_refused(
    storage: FrontierStorageClient, configuration: Configuration, tmp_path: Path
) -> None:
    """And the folder is let go of, so that it can be mended."""
    await storage.create_rq_client(configuration=configuration)
    await storage.close()
    file = tmp_path / "request_queues" / "default" / IDENTITY_FILE
    said = json.loads(file.read_text())
    for text in ("{", "[]", json.dumps({**said, "version": 2})):
        file.write_text(text)
        with pytest.raises(FormatMismatch, match=IDENTITY_FILE):
            await storage.create_rq_client(configuration=configuration)
    file.unlink()
    await storage.create_rq_client(configuration=configuration)


async def test_datasets_and_key_value_stores_are_crawlees_files(
    storage: FrontierStorageClient, configuration: Configuration, tmp_path: Path
) -> None:
    """The Frontier keeps requests and nothing else."""
    dataset = await storage.create_dataset_client(configuration=configuration)
    await dataset.push_data({"a": 1})
    store = await storage.create_kvs_client(configuration=configuration)
    await store.set_value(key="k", value="v")
    assert folders(tmp_path) == {"datasets", "key_value_stores"}


async def test_a_storage_is_one_for_each_folder(storage: FrontierStorageClient, configuration: Configuration) -> None:
    """Crawlee keeps its instances by that."""
    other = configuration.model_copy(update={"storage_dir": "elsewhere"})
    keys = [storage.get_storage_client_cache_key(one) for one in (configuration, configuration, other)]
    assert keys[0] == keys[1] != keys[2]


async def test_a_queue_that_is_open_already_is_the_same(
    storage: FrontierStorageClient, configuration: Configuration
) -> None:
    """Crawlee asks again when it has forgotten its own object; one that was dropped is made anew."""
    client = await storage.create_rq_client(name="mine", configuration=configuration)
    await client.add_batch_of_requests([A])
    assert await storage.create_rq_client(name="mine", configuration=configuration) is client
    assert await storage.create_rq_client(id=client.id, configuration=configuration) is client
    assert not await client.is_empty()
    await client.drop()
    again = await storage.create_rq_client(name="mine", configuration=configuration)
    assert again is not client
    assert await again.is_empty()


async def test_asking_whether_a_queue_is_empty_is_an_access(
    storage: FrontierStorageClient, configuration: Configuration
) -> None:
    """Crawlee's own clients do the same; nothing was modified."""
    client = await storage.create_rq_client(name="mine", configuration=configuration)
    before = await client.get_metadata()
    while datetime.now(UTC) <= before.accessed_at:  # a coarse clock
        pass
    await client.is_empty()
    after = await client.get_metadata()
    assert after.accessed_at > before.accessed_at
    assert after.modified_at == before.modified_at


async def test_a_queue_that_was_dropped_is_not_kept(
    storage: FrontierStorageClient, configuration: Configuration
) -> None:
    """A program that makes one for each task would keep all of them until its end."""
    client = await storage.create_rq_client(name="mine", configuration=configuration)
    kept = weakref.ref(client)
    await client.drop()
    del client
    gc.collect()
    assert kept() is None


async def test_a_queue_that_was_closed_is_not_kept(
    storage: FrontierStorageClient, configuration: Configuration
) -> None:
    """Whoever opened it may close it himself."""
    client = await storage.create_rq_client(name="mine", configuration=configuration)
    kept = weakref.ref(client)
    await client.close()
    del client
    gc.collect()
    assert kept() is None
