"""The memory of payloads: what is known is durable in the WARC, what is forgotten costs a duplicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.crawler.archive import history
from anabranch.crawler.archive.history import FetchHistory
from anabranch.crawler.archive.records import SAME_PAYLOAD, Exchange, Original, RecordLocation, Revisit
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.fetch.options import Validators
from anabranch.crawler.outcomes.errors import ExitCode, StorageError
from tests.crawler.archive.exchanges import Cut, Payload, exchange

DATE = "2026-01-01T00:00:00.250000Z"
PLACE = RecordLocation("test-00000.warc.gz", 512)
TAGGED = ((b"ETag", b'"v1"'), (b"Last-Modified", b"Thu, 01 Jan 2026 00:00:00 GMT"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "payloads.sqlite"


@pytest.fixture
def memory(path: Path) -> Iterator[FetchHistory]:
    opened = FetchHistory(path)
    yield opened
    opened.close()
    opened.close()


def keep(memory: FetchHistory, *exchanges: Exchange) -> None:
    memory.append([JournalEntry(exchange=kept, place=PLACE) for kept in exchanges])
    memory.keep()


async def validators(memory: FetchHistory, url: str) -> Validators | None:
    known = await memory.fetched(url)
    return None if known is None else known.validators


async def test_a_payload_is_known_by_its_digest_when_it_is_kept(memory: FetchHistory) -> None:
    """Not before: the WARC might be taken back."""
    digest = Payload(b"data").digest
    memory.append(
        [JournalEntry(exchange=exchange("http://a.test/1", b"data"), place=PLACE), JournalEntry(crawl_log=b"line\n")]
    )
    assert await memory.original(digest) is None
    memory.take_back()
    memory.keep()
    assert await memory.original(digest) is None
    keep(memory, exchange("http://a.test/1", b"data"))
    assert await memory.original(digest) == Original("http://a.test/1", DATE, digest, PLACE)


async def test_the_first_record_of_a_payload_stays_its_original_over_runs(path: Path) -> None:
    """A revisit must not refer to a revisit."""
    digest = Payload(b"data").digest
    for url in ("http://a.test/1", "http://a.test/2"):
        memory = FetchHistory(path)
        known = await memory.original(digest)
        revisit = None if known is None else Revisit(SAME_PAYLOAD, known)
        keep(memory, exchange(url, b"data", revisit=revisit, raw_headers=TAGGED))
        memory.close()
    memory = FetchHistory(path)
    assert await memory.original(digest) == Original("http://a.test/1", DATE, digest, PLACE)
    fetched = await memory.fetched("http://a.test/2")
    assert fetched is not None
    assert fetched.original.url == "http://a.test/1"
    memory.close()


@pytest.mark.parametrize(
    "not_whole", [exchange(data=b""), exchange(data=b"data", cuts=(Cut.LENGTH,)), exchange(data=b"moved", status=301)]
)
async def test_what_is_empty_cut_or_a_redirect_is_nobodys_original(memory: FetchHistory, not_whole: Exchange) -> None:
    """The rest of a cut payload may differ; pywb replays a revisit of a redirect without its payload."""
    keep(memory, not_whole)
    assert await memory.original(not_whole.response.body.digest) is None


async def test_validators_of_the_last_whole_fetch_are_known(memory: FetchHistory) -> None:
    """Both, or the one there is; none for a page without, an error page, a cut one."""
    keep(
        memory,
        exchange("http://a.test/1", raw_headers=TAGGED[:1]),
        exchange("http://a.test/1", raw_headers=TAGGED),
        exchange("http://a.test/2", raw_headers=TAGGED[1:]),
        exchange("http://a.test/3"),
        exchange("http://a.test/4", raw_headers=TAGGED, status=404),
        exchange("http://a.test/5", raw_headers=TAGGED, cuts=(Cut.TIME,)),
        exchange("http://a.test/6", raw_headers=((b"ETag", b'"\xff\xfe"'),)),
        exchange("http://a.test/7", raw_headers=((b"ETag", b'"' + b"x" * 5000 + b'"'),)),
    )
    assert await validators(memory, "http://a.test/1") == Validators('"v1"', "Thu, 01 Jan 2026 00:00:00 GMT")
    assert await validators(memory, "http://a.test/2") == Validators("", "Thu, 01 Jan 2026 00:00:00 GMT")
    assert [await validators(memory, f"http://a.test/{n}") for n in range(3, 8)] == [None] * 5


async def test_what_does_not_fit_into_memory_is_read_from_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory, whatever the size of the crawl; also after reopening."""
    monkeypatch.setattr(history, "PAYLOADS_HELD", 5)
    monkeypatch.setattr(history, "FETCHES_HELD", 5)
    long = "http://a.test/" + "x" * 2000
    memory = FetchHistory(path)
    keep(memory, *(exchange(f"http://a.test/{n}", b"%d" % n, raw_headers=TAGGED) for n in range(20)))
    keep(memory, exchange(long, b"long", raw_headers=TAGGED))
    for _ in range(2):
        for n in range(20):
            known = await memory.original(Payload(b"%d" % n).digest)
            assert known is not None
            assert known.url == f"http://a.test/{n}"
            assert await validators(memory, f"http://a.test/{n}") is not None
        assert await validators(memory, long) is not None
        assert await memory.original(Payload(b"unknown").digest) is None
        memory.close()
        memory = FetchHistory(path)
    memory.close()


async def test_the_file_is_asked_only_for_what_may_be_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crawl that meets new pages reads nothing; a file that was too large for memory at its opening is always asked."""
    monkeypatch.setattr(history, "PAYLOADS_HELD", 5)
    monkeypatch.setattr(history, "FETCHES_HELD", 5)
    monkeypatch.setattr(history, "WRITTEN_ROWS", 1)
    asked: list[bytes | str] = []
    read = FetchHistory._read
    monkeypatch.setattr(FetchHistory, "_read", lambda self, sql, key: asked.append(key) or read(self, sql, key))
    memory = FetchHistory(path)
    for n in range(200):
        url, data = f"http://a.test/{n}", b"%d" % n
        assert await memory.original(Payload(data).digest) is None
        assert await validators(memory, url) is None
        keep(memory, exchange(url, data, raw_headers=TAGGED))
    assert asked == []
    assert await validators(memory, "http://a.test/7") is not None
    assert await memory.original(Payload(b"8").digest) is not None
    assert asked == ["http://a.test/7", Payload(b"8").digest]
    memory.close()
    with closing(FetchHistory(path)) as memory:
        assert await validators(memory, "http://a.test/unknown") is None
    assert asked[2:] == ["http://a.test/unknown"]


def test_evicted_keys_are_all_known_and_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many filters, each twice as large as the one before."""
    monkeypatch.setattr(history, "_EVICTED_FIRST", 256)
    evicted = history._EvictedKeys()
    for n in range(20_000):
        evicted.add(f"http://a.test/{n}")
    assert all(f"http://a.test/{n}" in evicted for n in range(20_000))
    assert sum(f"http://b.test/{n}" in evicted for n in range(20_000)) < 600


async def test_a_file_that_cannot_be_written_now_is_written_later(
    memory: FetchHistory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The crawl goes on with what it has in memory; only a crash would lose it."""
    with monkeypatch.context() as patch:
        patch.setattr(history, "_ADD_PAYLOAD", "INSERT INTO gone VALUES (?, ?, ?, ?, ?)")
        keep(memory, exchange("http://a.test/1", b"data"))
        assert await memory.original(Payload(b"data").digest) is not None
        assert await written(path, b"data") == [False]
    keep(memory)
    assert await written(path, b"data") == [True]


async def written(path: Path, *payloads: bytes) -> list[bool]:
    """Whether the file has them, as the next run would find it."""
    again = FetchHistory(path)
    found = [await again.original(Payload(data).digest) is not None for data in payloads]
    again.close()
    return found


async def test_the_file_is_written_now_and_then(
    memory: FetchHistory, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second, with many rows, with one that memory has no room for, and at the end."""
    now_s = 100.0
    monkeypatch.setattr(history, "monotonic", lambda: now_s)
    keep(memory, exchange("http://a.test/1", b"1"))
    keep(memory, exchange("http://a.test/2", b"2"))
    assert await written(path, b"1", b"2") == [True, False]
    now_s += history.WRITTEN_S
    keep(memory, exchange("http://a.test/3", b"3"))
    assert await written(path, b"2", b"3") == [True, True]
    keep(memory, exchange("http://a.test/" + "x" * 2000, b"4"))
    assert await written(path, b"4") == [True]
    keep(memory, *(exchange("http://a.test/", b"%d" % n) for n in range(5, 5 + history.WRITTEN_ROWS - 1)))
    assert await written(path, b"5") == [False]
    keep(memory, exchange("http://a.test/", b"last"))
    assert await written(path, b"5", b"last") == [True, True]
    keep(memory, exchange("http://a.test/", b"at the end"))
    memory.close()
    assert await written(path, b"at the end") == [True]


@pytest.mark.parametrize("spoil", [b"no database at all, but long enough to be looked at " * 30])
def test_a_file_that_is_none_of_ours_is_refused(path: Path, spoil: bytes) -> None:
    """In one line, with what to do; it is left as it was."""
    path.write_bytes(spoil)
    with pytest.raises(StorageError, match=r"^/.*payloads.sqlite: .*; remove it") as refused:
        FetchHistory(path)
    assert path.read_bytes() == spoil
    assert refused.value.exit_code == ExitCode.BAD_ORDER


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [cut_in_half, made_a_folder])
def test_a_damaged_file_is_for_a_person_to_mend(path: Path, spoil: Callable[[Path], None]) -> None:
    """Exit code 4, since the same command would fail again."""
    FetchHistory(path).close()
    spoil(path)
    with pytest.raises(StorageError, match="; remove it") as refused:
        FetchHistory(path)
    assert refused.value.exit_code == ExitCode.BAD_ORDER


def test_a_file_of_another_version_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older program does not guess."""
    with monkeypatch.context() as patch:
        patch.setattr(history, "VERSION", 3)
        FetchHistory(path).close()
    with pytest.raises(StorageError, match="written in version 3, this one reads 2"):
        FetchHistory(path)
