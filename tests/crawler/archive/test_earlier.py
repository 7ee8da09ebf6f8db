"""Payloads of earlier archives: each index is read once, and no revisit refers to what an index no longer has."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from anabranch.crawler.archive import earlier
from anabranch.crawler.archive.cdxj import IndexLine
from anabranch.crawler.archive.earlier import DigestFilter, EarlierPayloads, open_earlier
from anabranch.crawler.archive.records import Original, digest_text
from anabranch.crawler.outcomes.errors import OrderError, StorageError

URL = "http://a.test/page"


def digest(text: str) -> bytes:
    return hashlib.sha1(text.encode()).digest()


def line(text: str = "page", **fields: Any) -> bytes:
    """The index line of a page with this text."""
    given = {"url": URL, "date": "2026-01-02T03:04:05.678901Z", "mime": "text/html", "status": 200} | fields
    return IndexLine(digest=digest_text(digest(text)), length=10, offset=0, filename="a.warc.gz", **given).to_bytes()


def write(path: Path, *lines: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    return path


@asynccontextmanager
async def opened(folder: Path, *places: Path) -> AsyncIterator[EarlierPayloads]:
    known = await open_earlier(folder / "earlier.sqlite", [str(place) for place in places])
    try:
        yield known
    finally:
        known.close()
        known.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that were read of indexes."""
    taken: list[int] = []
    take: Callable[..., Any] = EarlierPayloads.take

    def noted(self: EarlierPayloads, lines: Any) -> Any:
        piece = take(self, lines)
        taken.append(piece.payloads)
        return piece

    monkeypatch.setattr(EarlierPayloads, "take", noted)
    return taken


async def test_a_payload_is_known_by_its_digest_with_url_and_date(tmp_path: Path) -> None:
    """The date has full seconds, as the index has; another payload is unknown."""
    index = write(tmp_path / "a.cdxj", line())
    async with opened(tmp_path, index) as known:
        assert await known.original(digest("page")) == Original(URL, "2026-01-02T03:04:05Z", digest("page"))
        assert await known.original(digest("other")) is None


@pytest.mark.parametrize("place", [".", "warc", "workers/1/warc"])
async def test_a_folder_stands_for_its_indexes_and_a_job_for_those_of_its_workers(tmp_path: Path, place: str) -> None:
    """An index that still grows is left out: its last records may be taken back."""
    write(tmp_path / "job" / place / "a.cdxj", line())
    write(tmp_path / "job" / place / "b.cdxj.open", line("growing"))
    async with opened(tmp_path, tmp_path / "job") as known:
        assert await known.original(digest("page")) is not None
        assert await known.original(digest("growing")) is None


@pytest.mark.parametrize(
    "left_out",
    [
        line(is_revisit=True),
        line(status=301),
        line(status=0),
        line(url="urn:x"),
        line(date="2026"),
        line().replace(b"sha1:", b"sha256:"),
        b'!meta 0 {"format": "cdxj-gzip-1.0"}\n',
    ],
)
async def test_what_no_revisit_may_refer_to_is_left_out(tmp_path: Path, left_out: bytes) -> None:
    """A revisit of a revisit or a redirect is not replayed. Nothing is wrong with the index."""
    with capture_logs() as logs:
        async with opened(tmp_path, write(tmp_path / "a.cdxj", left_out)) as known:
            assert await known.original(digest("page")) is None
    assert {entry["log_level"] for entry in logs} == {"info"}


@pytest.mark.parametrize(
    "hostile",
    [
        b"\n",
        b"\xff\xfe \xff {}\n",
        b"com,a)/ 20260101000000 [1]\n",
        b"com,a)/ 20260101000000 " + b"[" * 50_000 + b"\n",
        b"com,a)/ 20260101000000 " + b"1" * 10_000 + b"\n",
        b"x" * 200_000 + b"\n",
        line()[:-40],
    ],
    ids=["empty", "no text", "a list", "deep", "a large number", "long", "torn"],
)
async def test_a_line_that_is_none_of_an_index_is_named_and_the_others_count(tmp_path: Path, hostile: bytes) -> None:
    """One warning for the whole file."""
    index = write(tmp_path / "a.cdxj", line(), hostile, b"" if hostile.endswith(b"\n") else b"\n", line("after"))
    with capture_logs() as logs:
        async with opened(tmp_path, index) as known:
            assert await known.original(digest("page")) is not None
            assert await known.original(digest("after")) is not None
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning["index"] == str(index)
    assert warning["lines"] >= 1


@pytest.mark.parametrize(
    "form", [str, str.lower, lambda text: text.removeprefix("sha1:"), lambda _: digest("page").hex()]
)
async def test_digests_of_other_programs_are_read(tmp_path: Path, form: Callable[[str], str]) -> None:
    """Base32 or hexadecimal, in either case, with or without the algorithm's name."""
    key, stamp, text = line().decode().split(" ", 2)
    fields = json.loads(text)
    other = f"{key} {stamp} {json.dumps(fields | {'digest': form(fields['digest'])})}\n".encode()
    async with opened(tmp_path, write(tmp_path / "a.cdxj", other)) as known:
        assert await known.original(digest("page")) is not None


async def test_an_index_is_read_once(tmp_path: Path, reads: list[int]) -> None:
    """A later run reads what was added alone."""
    index = write(tmp_path / "in" / "a.cdxj", line())
    async with opened(tmp_path, index):
        assert reads == [1]
    write(tmp_path / "in" / "b.cdxj", line("b"), line("c"))
    async with opened(tmp_path, tmp_path / "in") as known:
        assert reads == [1, 2]
        assert await known.original(digest("page")) is not None
        assert await known.original(digest("b")) is not None
    async with opened(tmp_path, tmp_path / "in") as known:
        assert reads == [1, 2]
        assert await known.original(digest("c")) is not None


@pytest.mark.parametrize("change", ["rewritten", "touched", "removed"])
async def test_payloads_of_an_index_that_has_changed_are_forgotten(tmp_path: Path, change: str) -> None:
    """Their records may be gone. What the indexes have now is known."""
    first, second = write(tmp_path / "in" / "a.cdxj", line("old")), write(tmp_path / "in" / "b.cdxj", line("kept"))
    async with opened(tmp_path, tmp_path / "in"):
        pass
    if change == "rewritten":
        write(first, line("newer"))
    elif change == "touched":
        write(first, line("new"))
        os.utime(first, ns=(1, 1))
    else:
        first.unlink()
    async with opened(tmp_path, tmp_path / "in") as known:
        assert await known.original(digest("old")) is None
        assert await known.original(digest("kept")) is not None
    assert second.exists()


async def test_an_index_that_was_not_read_to_its_end_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is now; what was taken of it before is forgotten."""
    monkeypatch.setattr(earlier, "LINES_AT_ONCE", 2)
    index = write(tmp_path / "a.cdxj", *(line(str(number)) for number in range(5)))
    take, pieces = EarlierPayloads.take, 0

    def killed(self: EarlierPayloads, lines: Any) -> Any:
        nonlocal pieces
        pieces += 1
        if pieces == 2:
            raise asyncio.CancelledError
        return take(self, lines)

    monkeypatch.setattr(EarlierPayloads, "take", killed)
    with pytest.raises(asyncio.CancelledError):
        await open_earlier(tmp_path / "earlier.sqlite", [str(index)])
    write(index, *(line(str(number)) for number in range(1, 6)))
    async with opened(tmp_path, index) as known:
        assert [await known.original(digest(str(number))) is not None for number in range(6)] == [False] + [True] * 5


async def test_several_processes_read_an_index_once(tmp_path: Path, reads: list[int]) -> None:
    """The second waits for the first and reads its table."""
    index = write(tmp_path / "a.cdxj", line())
    table = tmp_path / "earlier.sqlite"
    first, second = await asyncio.gather(*(open_earlier(table, [str(index)]) for _ in range(2)))
    assert reads == [1]
    assert await first.original(digest("page")) == await second.original(digest("page"))
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("name", "words"), [("none", "no such file"), ("empty", "has no finished index"), ("a\0b", "no such file")]
)
async def test_an_archive_without_an_index_is_refused_by_name(tmp_path: Path, name: str, words: str) -> None:
    """The crawl would write all again without a word."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(OrderError) as refused:
        await open_earlier(tmp_path / "earlier.sqlite", [str(tmp_path / name)])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_damaged_table_is_named_with_the_remedy(tmp_path: Path) -> None:
    """It is made anew of the indexes."""
    index = write(tmp_path / "a.cdxj", line())
    (tmp_path / "earlier.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(StorageError, match=r"earlier\.sqlite: .*; remove it"):
        await open_earlier(tmp_path / "earlier.sqlite", [str(index)])


async def test_an_unknown_digest_costs_no_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for one of 2,000."""
    index = write(tmp_path / "a.cdxj", *(line(str(number)) for number in range(2000)))
    async with opened(tmp_path, index) as known:
        reading: list[bytes] = []
        monkeypatch.setattr(EarlierPayloads, "_read", lambda _self, asked: reading.append(asked))
        for number in range(2000):
            await known.original(digest(f"other {number}"))
        assert len(reading) <= 5
        await known.original(digest("7"))
        assert reading[-1] == digest("7")


def test_the_filter_knows_each_of_its_keys_and_is_bounded() -> None:
    """Also when it was made for none."""
    keys = [digest(str(number)) for number in range(5000)]
    for size in (0, 10, 5000):
        known = DigestFilter(size)
        known.add(keys)
        assert all(key in known for key in keys)
    assert digest("x") not in DigestFilter(0)


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_index(tmp_path: Path) -> None:
    """Half a million lines, 130 MB, take 80 MB at most: those that are read at once, pages of the table, the filter."""
    with (tmp_path / "a.cdxj").open("wb") as index:
        index.writelines(line(str(number), url=f"http://a.test/{number}") for number in range(500_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with opened(tmp_path, tmp_path / "a.cdxj") as known:
        assert await known.original(digest("499999")) is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80_000
