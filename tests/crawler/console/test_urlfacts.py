"""Tests of the facts about a URL in the files of a job."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, links_line
from anabranch.crawler.archive.files import WarcFiles
from anabranch.crawler.archive.records import SAME_PAYLOAD, Original, Revisit
from anabranch.crawler.archive.sink import JournalEntry
from anabranch.crawler.console.urlfacts import (
    BODY_BYTES,
    is_within,
    lines_with,
    safe_text,
    sorted_lines,
    url_files,
    url_record,
)
from tests.crawler.archive.exchanges import COMPRESSIONS, OPTIONS, START_S, exchange, warcs
from tests.patience import HANG_S

URL, OTHER = "http://a.test/page", "http://a.test/other"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


def archive(job: Path, *kept: object, is_finished: bool = True, compression: str = "gzip") -> None:
    files = WarcFiles(job / "warc", replace(OPTIONS, compression=COMPRESSIONS[compression]()), lambda: START_S)
    files.append([JournalEntry(exchange=one) for one in kept])  # type: ignore[arg-type]
    files.keep()
    if is_finished:
        files.close()


def test_the_last_lines_are_found_across_pieces_of_a_large_file(tmp_path: Path) -> None:
    """Nine megabytes of other lines before, between and behind them, and a line that is longer than a piece."""
    filler = b"x" * 99 + b"\n"
    wanted = [b"wanted 1", b"wanted 2 " + b"y" * (5 << 20), b"wanted 3"]
    log = tmp_path / "log"
    log.write_bytes((filler * 45_000).join([b"", *(line + b"\n" for line in wanted), b""]))
    assert lines_with(log, b"wanted", 10, monotonic() + HANG_S) == (wanted[::-1], True)
    assert lines_with(log, b"wanted", 2, monotonic() + HANG_S) == (wanted[:0:-1], False)


def test_a_search_ends_when_its_time_is_over(tmp_path: Path) -> None:
    """And says that there may be more."""
    (tmp_path / "log").write_bytes(b"wanted\n")
    assert lines_with(tmp_path / "log", b"wanted", 10, monotonic() - 1) == ([], False)


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """A user who may write to a job's folder must not read the machine's files through the console."""
    (tmp_path / "secret").write_bytes(b"wanted\n")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "log").symlink_to(tmp_path / "secret")
    assert lines_with(tmp_path / "job" / "log", b"wanted", 10, monotonic() + HANG_S).lines == []
    assert not is_within(tmp_path / "job", tmp_path / "job" / "log")
    assert is_within(tmp_path / "job", tmp_path / "job" / "none")


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_each_key_of_a_sorted_index_is_found(tmp_path: Path, count: int) -> None:
    """By halving, with all its lines; a key that is not there is not found."""
    lines = sorted(f"test,a)/{number} 2026 {'z' * (number % 200)}\n".encode() for number in range(count))
    (tmp_path / "index").write_bytes(b"".join(lines))
    for number in range(0, count, 7):
        key = f"test,a)/{number} ".encode()
        assert sorted_lines(tmp_path / "index", key) == [line for line in lines if line.startswith(key)]
    assert sorted_lines(tmp_path / "index", b"test,a)/1x ") == []


def test_the_logs_say_where_a_url_was_found_and_how_it_ended(job: Path) -> None:
    """Its own lines only: it is the `via` of others, and a part of their URLs."""
    own = crawl_log_line(CrawlLogEntry(logged_s=START_S, status=200, url=URL, worker=1, via=OTHER))
    child = crawl_log_line(CrawlLogEntry(logged_s=START_S, status=200, url=f"{URL}/more", worker=1, via=URL))
    (job / "logs" / "crawl.log").write_bytes(own + child)
    (job / "logs" / "errors.jsonl").write_text(
        "".join(f"{json.dumps({'time': 't', 'url': url, 'via': URL}, separators=(',', ':'))}\n" for url in (URL, OTHER))
    )
    (job / "links.jsonl").write_bytes(
        links_line(OTHER, "", [(URL, "L", "a/@href")])
        + links_line(URL, "L", [(f"{URL}/more", "E", "img/@src")])
        + links_line(f"{URL}/more", "LE", [])
    )
    found = url_files(job, URL)
    assert [line.encode() for line in found.log] == [own.rstrip(b"\n")]
    assert len(found.errors) == 1
    assert f'"url":"{URL}"' in found.errors[0]
    assert (found.via, found.parents, found.links) == (OTHER, [OTHER], [(f"{URL}/more", "E", "img/@src")])
    assert not found.is_seed
    assert (found.record, found.is_whole) == (None, True)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("is_finished", [False, True])
def test_a_record_is_read_from_a_file_that_grows_or_is_finished(job: Path, is_finished: bool, compression: str) -> None:
    """The request without its secrets, the answer's head, and the beginning of its body."""
    body = b"<p>page" * BODY_BYTES
    archive(job, exchange(OTHER), exchange(URL, body), is_finished=is_finished, compression=compression)
    found = url_record([job], URL, monotonic() + HANG_S)
    assert found is not None
    assert (found.head.split("\r\n")[0], found.media_type) == ("HTTP/1.1 200 OK", "text/html; charset=utf-8")
    assert found.request.startswith("GET / HTTP/1.1")
    assert "secret" not in found.request
    assert (found.body, found.is_cut, found.trouble, found.original) == (body[:BODY_BYTES], True, "", "")


@pytest.mark.parametrize(("hops", "is_seed"), [("", True), ("P", False)])
def test_a_seed_is_known_by_its_line_in_the_log(job: Path, hops: str, is_seed: bool) -> None:
    """It was found on no page; neither was a robots.txt."""
    line = crawl_log_line(CrawlLogEntry(logged_s=START_S, status=200, url=URL, worker=1, hops=hops))
    found = crawl_log_line(CrawlLogEntry(logged_s=START_S, status=200, url=OTHER, worker=1, hops="L", via=URL))
    (job / "logs" / "crawl.log").write_bytes(line + found)
    assert url_files(job, URL).is_seed == is_seed
    assert not url_files(job, OTHER).is_seed


def test_a_revisit_names_the_url_that_has_its_body(job: Path) -> None:
    """It has a head of its own, and no body."""
    original = Original(OTHER, "2026-01-01T00:00:00Z", bytes(20))
    archive(job, exchange(URL, b"same", revisit=Revisit(SAME_PAYLOAD, original)))
    found = url_record([job], URL, monotonic() + HANG_S)
    assert found is not None
    assert (found.original, found.body, found.head[:15]) == (OTHER, b"", "HTTP/1.1 200 OK")


def test_a_record_without_a_request_behind_it_is_read(job: Path) -> None:
    """The file may end there: it grows, or was cut."""
    archive(job, exchange(URL, b"<p>page"))
    (file,) = warcs(job / "warc")
    fields = json.loads(next((job / "warc").glob("*.cdxj")).read_bytes().split(b" ", 2)[2])
    os.truncate(file, int(fields["offset"]) + int(fields["length"]))
    found = url_record([job], URL, monotonic() + HANG_S)
    assert found is not None
    assert (found.body, found.request, found.trouble) == (b"<p>page", "", "")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_file_that_was_moved_or_damaged_is_named(job: Path, compression: str) -> None:
    """The index has the record still."""
    archive(job, exchange(URL), compression=compression)
    (file,) = warcs(job / "warc")
    file.write_bytes(bytes(file.stat().st_size))
    damaged = url_record([job], URL, monotonic() + HANG_S)
    assert damaged is not None
    assert damaged.trouble.startswith(f"{file.name}: cannot be read at")
    file.unlink()
    moved = url_record([job], URL, monotonic() + HANG_S)
    assert moved is not None
    assert moved.trouble == f"{file.name} is no longer in {job / 'warc'}"


def test_an_index_never_leads_out_of_its_folder(job: Path) -> None:
    """Its file names are names, not paths."""
    (job / "warc").mkdir()
    fields = {"url": URL, "offset": "0", "length": "10", "filename": "../../secret"}
    (job / "warc" / "a.cdxj").write_text(f"test,a)/page 2026 {json.dumps(fields)}\n")
    assert url_record([job], URL, monotonic() + HANG_S) is None


def test_a_damaged_line_of_an_index_is_left_out(job: Path) -> None:
    """It has no length, or one that is no number."""
    (job / "warc").mkdir()
    lines = [{"url": URL, "offset": "0", "filename": "a.warc", **length} for length in ({}, {"length": "x"})]
    (job / "warc" / "a.cdxj").write_text("".join(f"test,a)/page 2026 {json.dumps(fields)}\n" for fields in lines))
    assert url_record([job], URL, monotonic() + HANG_S) is None


def test_text_of_the_web_is_shown_as_what_it_is() -> None:
    """Controls and marks of direction are escaped, lines stay lines."""
    assert safe_text(b"<script>\r\n\x1b[31m\t|\xe2\x80\xaex\0\xff") == "<script>\n\\x1b[31m   |\\u202ex\\x00\ufffd"
