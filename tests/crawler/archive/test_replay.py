"""Answers read back from WARC files: what was archived, or nothing, never something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.archive.files import WarcFiles
from anabranch.crawler.archive.history import FetchHistory
from anabranch.crawler.archive.records import SAME_PAYLOAD, Exchange, Revisit
from anabranch.crawler.archive.replay import MEMORY_BYTES, ArchivedResponses
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.fetch.options import Validators
from tests.crawler.archive.exchanges import COMPRESSIONS, OPTIONS, START_S, exchange, warcs

URL = "http://a.test/"
TAGGED = ((b"Content-Type", b"text/html"), (b"ETag", b'"v1"'), (b"X-Odd", b"\xff"))


class Job:
    """WARC files and the memory of payloads, fed as the journal does."""

    def __init__(self, folder: Path, compression: str) -> None:
        self.warc = folder / "warc"
        options = replace(OPTIONS, compression=COMPRESSIONS[compression]())
        self.files = WarcFiles(self.warc, options, lambda: START_S)
        self.payloads = FetchHistory(folder / "payloads.sqlite")
        self.archive = ArchivedResponses(self.warc, self.payloads, folder)

    def keep(self, *exchanges: Exchange) -> None:
        placed = self.files.append([JournalEntry(exchange=kept) for kept in exchanges])
        self.payloads.append(placed)
        self.files.keep()
        self.payloads.keep()

    def close(self) -> None:
        self.files.close()
        self.payloads.close()


@pytest.fixture(params=["gzip", "dictionary"])
def compression(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def job(tmp_path: Path, compression: str) -> Iterator[Job]:
    opened = Job(tmp_path, compression)
    yield opened
    opened.close()


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("data", [b"<p>page", bytes(range(256)) * (MEMORY_BYTES // 100), bytes(1 << 20)])
async def test_an_answer_comes_back_as_it_was_archived(job: Job, data: bytes, is_finished: bool) -> None:
    """Header and payload, small or large, from a file that grows or is finished."""
    job.keep(exchange("http://a.test/other", b"before"), exchange(URL, data, raw_headers=TAGGED))
    if is_finished:
        job.files.close()
    assert await job.archive.validators(URL) == Validators('"v1"', "")
    found = await job.archive.answer(URL)
    assert found is not None
    assert (found.status, found.reason, found.raw_headers) == (200, "OK", TAGGED)
    assert (found.headers.get("content-type"), found.headers["x-odd"]) == ("text/html", "\udcff")
    assert found.body.read() == data
    assert found.body.is_in_memory == (len(data) <= MEMORY_BYTES)
    found.body.close()


async def test_a_line_that_is_no_field_is_not_read_from_the_archive(job: Job) -> None:
    """The archive has it as it was received, and it was dropped then."""
    received = (b"Content-Type: text/html", b"PHP Warning in line 3", b'ETag: "v1"', b"X-Odd: \xff")
    job.keep(exchange(URL, raw_headers=TAGGED, received=received))
    found = await job.archive.answer(URL)
    assert found is not None
    assert found.raw_headers == TAGGED


async def test_a_revisit_has_its_own_header_and_the_payload_of_the_first(job: Job) -> None:
    """Links stand in headers, too, and two URLs with one payload may have different ones."""
    job.keep(exchange("http://a.test/first", b"<p>page", raw_headers=TAGGED[:1]))
    known = await job.payloads.original(exchange(data=b"<p>page").response.body.digest)
    assert known is not None
    job.keep(exchange(URL, b"<p>page", raw_headers=TAGGED, revisit=Revisit(SAME_PAYLOAD, known)))
    found = await job.archive.answer(URL)
    assert found is not None
    assert (found.headers["ETag"], found.body.read()) == ('"v1"', b"<p>page")


async def test_what_is_not_known_is_not_asked_for(job: Job) -> None:
    """Neither with a condition nor from the archive."""
    assert await job.archive.validators(URL) is None
    assert await job.archive.answer(URL) is None


async def test_a_url_whose_file_was_taken_away_is_asked_for_without_condition(job: Job) -> None:
    """A 304 could not be told from a page without links."""
    job.keep(exchange(URL, raw_headers=TAGGED))
    job.close()
    for path in job.warc.iterdir():
        path.unlink()
    job.payloads = FetchHistory(job.warc.parent / "payloads.sqlite")
    assert await ArchivedResponses(job.warc, job.payloads, job.warc.parent).validators(URL) is None


@pytest.mark.parametrize("spoil", ["zeros", "torn", "another record", "no record"])
async def test_a_spoilt_record_is_no_answer(job: Job, compression: str, spoil: str) -> None:
    """Whatever stands there now, it is told from what was written by its digest."""
    job.keep(exchange(URL, b"<p>page" * 99, raw_headers=TAGGED))
    job.files.close()
    (path,) = warcs(job.warc)
    data = path.read_bytes()
    known = await job.payloads.fetched(URL)
    assert known is not None
    start = known.place.offset
    if spoil == "another record":
        (job.warc.parent / "other").mkdir()
        other = Job(job.warc.parent / "other", compression)
        other.keep(exchange(URL, b"<p>other", raw_headers=TAGGED))
        other.close()
        (path_of_other,) = warcs(other.warc)
        place = path_of_other.read_bytes()[start:]
        path.write_bytes(data[:start] + place)
    else:
        path.write_bytes({"zeros": bytes(len(data)), "torn": data[: start + 50], "no record": b""}[spoil])
    assert await job.archive.answer(URL) is None


async def test_a_head_without_end_is_no_answer(job: Job) -> None:
    """It is looked for in so many bytes, and no further."""
    endless = replace(exchange(URL, raw_headers=TAGGED).response, raw_headers=((b"X", b"x" * (1 << 18)), *TAGGED))
    job.keep(Exchange(url=URL, response=endless))
    assert await job.archive.answer(URL) is None
