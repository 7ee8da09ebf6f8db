"""Lines of `crawl.log`, read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.crawler.reporting.crawl_log_parsing import NotALogLine, last_entry, parse_crawl_log_line

#: A line of Heritrix 3, as its manual shows it.
HERITRIX = (
    b"2011-06-23T17:12:08.802Z   200       1299 http://content-5.powells.com/robots.txt LREP "
    b"http://content-5.powells.com/cgi-bin/imageDB.cgi?isbn=9780385518635 text/plain #014 20110623171208574+225 "
    b"sha1:YIUOKDBAEPZTZJUNVQDSHWDMLWVVJXWL http://www.powells.com/ 3t"
)

WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1).filter(
    lambda text: text != "-"
)
TIMES = st.integers(0, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000)


@st.composite
def entries(draw: st.DrawFn) -> CrawlLogEntry:
    start_s = draw(st.none() | TIMES)
    return CrawlLogEntry(
        logged_s=draw(TIMES),
        status=draw(st.integers(-9999, 999)),
        size_bytes=draw(st.none() | st.integers(0, 1 << 40)),
        url=draw(WORDS),
        hops=draw(st.text("LERX", max_size=50)),
        via=draw(st.none() | WORDS),
        mime=draw(st.sampled_from(["text/html", "no-type", "a/b"])),
        worker=draw(st.integers(1, 5000)),
        start_s=start_s,
        end_s=None if start_s is None else start_s + draw(st.integers(0, 100_000)) / 1000,
        digest=draw(st.none() | WORDS),
        source=draw(st.none() | WORDS),
        annotations=tuple(draw(st.lists(WORDS, max_size=3))),
        extra=draw(st.none() | st.dictionaries(st.text(), st.text() | st.integers(0, 1 << 50), max_size=3)),
    )


@given(entries())
def test_what_was_written_is_read(entry: CrawlLogEntry) -> None:
    """Every field comes back, to the millisecond, also the JSON with whatever it holds."""
    read = parse_crawl_log_line(crawl_log_line(entry))
    assert read.logged_s == pytest.approx(entry.logged_s, abs=1e-3)
    if entry.start_s is not None and entry.end_s is not None:
        assert (read.start_s, read.end_s) == pytest.approx((entry.start_s, entry.end_s), abs=1e-3)
    for field in ("status", "size_bytes", "url", "hops", "via", "mime", "worker", "digest", "source", "annotations"):
        assert getattr(read, field) == getattr(entry, field), field
    assert read.extra == entry.extra


@given(entries())
def test_a_line_that_was_read_is_written_as_it_was(entry: CrawlLogEntry) -> None:
    """Whatever is counted from a line is what was counted when it was written."""
    line = crawl_log_line(entry)
    assert crawl_log_line(parse_crawl_log_line(line)) == line


def test_a_line_of_heritrix_is_read() -> None:
    """Its fields are ours."""
    read = parse_crawl_log_line(HERITRIX)
    assert (read.status, read.size_bytes, read.hops, read.mime, read.worker) == (200, 1299, "LREP", "text/plain", 14)
    assert (read.source, read.annotations, read.extra) == ("http://www.powells.com/", ("3t",), None)
    assert read.start_s == 1308849128.574
    assert read.end_s == 1308849128.799


@pytest.mark.parametrize(
    ("written", "logged_s"),
    [
        (b"2011-06-23T17:12:08.802Z", 1308849128.802),
        (b"2011-06-23T17:12:08.8021Z", 1308849128.8021),
        (b"2011-06-23T17:12:08Z", 1308849128.0),
        (b"2011-06-23T19:12:08.802+02:00", 1308849128.802),
    ],
)
def test_a_time_may_be_written_in_other_ways(written: bytes, logged_s: float) -> None:
    """Milliseconds in UTC are what crawlers write; others made some logs."""
    line = HERITRIX.replace(b"2011-06-23T17:12:08.802Z", written)
    assert parse_crawl_log_line(line).logged_s == logged_s


def test_the_thirteenth_field_is_one_word_of_json() -> None:
    """Blanks in it would make more fields of it."""
    entry = CrawlLogEntry(logged_s=0.0, status=200, url="u", worker=1, extra={"warcFilename": "a b\x7f\u2028.warc"})
    fields = crawl_log_line(entry).split()
    assert len(fields) == 13
    assert json.loads(fields[12]) == {"warcFilename": "a b\x7f\u2028.warc"}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"2011-06-23T17:12:08.802Z 200",
        HERITRIX.replace(b"2011-06-23T", b"2011-16-23T"),
        HERITRIX.replace(b"12:08.802Z", b"12:08+01:00.802Z"),
        HERITRIX.replace(b"12:08.802Z", b"12:08.-02Z"),
        HERITRIX.replace(b"  200 ", b"  two "),
        HERITRIX.replace(b"574+225", b"574-225"),
        HERITRIX.replace(b"20110623171208574", b"20111323171208574"),
        HERITRIX.replace(b"#014", b"#fourteen"),
        HERITRIX + b" {",
        HERITRIX + b" " + b"[" * 100_000,
    ],
)
def test_what_is_no_line_is_refused(line: bytes) -> None:
    """One kind of error, whatever is wrong with it."""
    with pytest.raises(NotALogLine):
        parse_crawl_log_line(line)


def entry_line(url: str, status: int, via: str | None = None) -> bytes:
    return crawl_log_line(CrawlLogEntry(logged_s=0.0, status=status, url=url, via=via, worker=1))


def test_the_last_line_about_a_url_is_found(tmp_path: Path) -> None:
    """Not an earlier one, not one that was found on it, not one that cannot be read."""
    wanted = "http://a.test/robots.txt"
    log = tmp_path / "crawl.log"
    log.write_bytes(
        entry_line(wanted, 404)
        + entry_line(wanted, 200)
        + entry_line("http://a.test/1", 200, via=wanted)
        + f"torn {wanted} line\n".encode()
        + entry_line(f"{wanted}?x", 500)
        + entry_line("http://a.test/2", 200, via=wanted).rstrip()
    )
    found = last_entry(log, wanted)
    assert found is not None
    assert (found.url, found.status) == (wanted, 200)
    assert last_entry(log, "http://a.test/3") is None


def test_a_log_that_is_empty_or_not_there_has_no_line(tmp_path: Path) -> None:
    """A job that was just made."""
    (tmp_path / "empty").touch()
    for name in ("empty", "none"):
        assert last_entry(tmp_path / name, "http://a.test/") is None
