"""The counts that one line of crawl.log adds to the totals."""

from __future__ import annotations

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, parse_crawl_log_line
from anabranch.crawler.accounts.totals import (
    BYTES_FETCHED,
    DNS,
    MAX_TYPE_CHARS,
    MAX_TYPES,
    OTHER_TYPES,
    PROCESSOR_COUNTERS,
    Additions,
    Totals,
    counts_of,
    counts_of_lines,
    host_counted,
)
from tests.rows import each_row


def entry(status=200, *, size=10, url="http://a.test/x", mime="text/html", **more):
    return CrawlLogEntry(
        logged_s=0.0, status=status, size_bytes=size if status > 0 else None, url=url, mime=mime, worker=1, **more
    )


def counted(*entries) -> Additions:
    additions = Additions()
    for each in entries:
        additions.count(counts_of(each))
    return additions


@each_row(
    ("line", "totals"),
    [
        (entry(), Totals(urls=1, bytes=10, novel_urls=1, novel_bytes=10)),
        (entry(404), Totals(urls=1, bytes=10, novel_urls=1, novel_bytes=10)),
        (entry(annotations=("2t", "duplicate:digest")), Totals(urls=1, bytes=10, dup_urls=1, dup_bytes=10)),
        (
            entry(304, size=0, annotations=("duplicate:server-not-modified", "warcRevisit:notModified")),
            Totals(urls=1, not_modified_urls=1),
        ),
        (entry(hops="LP"), Totals(urls=1, bytes=10, prerequisites=1, novel_urls=1, novel_bytes=10)),
        (entry(-2), Totals(failures=1)),
        (entry(503), Totals(failures=1, bytes=10)),
        (entry(503, hops="P"), Totals(urls=1, bytes=10, prerequisites=1, novel_urls=1, novel_bytes=10)),
        (entry(-9998), Totals(disregards=1, robots=1)),
        (entry(-5001), Totals(disregards=1)),
        (
            entry(start_s=5.0, end_s=7.0),
            Totals(urls=1, bytes=10, novel_urls=1, novel_bytes=10, first_success_s=5.0, last_success_s=7.0),
        ),
        (entry(-2, start_s=5.0, end_s=7.0), Totals(failures=1)),
    ],
)
def test_a_line_counts_where_its_status_and_notes_say(line, totals) -> None:
    """The counts are those of Heritrix's FetchStats; the last answer of a busy host counts as a failure."""
    additions = counted(line)
    assert additions.total == totals
    assert additions.hosts == {"a.test": totals}


def test_lines_of_a_group_count_as_each_alone() -> None:
    """Those that differ in sizes and times only are summed first. Lines that cannot be counted are told."""
    entries = [
        entry(size=10, start_s=5.0, end_s=7.0, source="http://s.test/", hops="L"),
        entry(size=20, start_s=3.0, end_s=4.5, source="http://s.test/", hops="LL"),
        entry(size=30, start_s=6.0, end_s=9.25, source="http://s.test/", hops="L"),
        entry(size=40, hops="LP"),
        entry(size=40, url="http://b.test/"),
        entry(size=50, url="http://b.test/", annotations=("duplicate:digest", "dol:7")),
        entry(size=60, url="http://b.test/", annotations=("duplicate:digest", "dol:7"), extra={"warcFilename": "w"}),
        entry(size=70, url="http://b.test/", annotations=("duplicate:digest", "dol:7"), extra={"warcFilename": "w"}),
        entry(503),
        entry(503, size=5),
        entry(-2, start_s=1.0, end_s=2.0),
        entry(-2),
        entry(-404, url="http://b.test/"),
    ]
    lines = [crawl_log_line(each) for each in entries]
    together = Additions()
    counts, broken = counts_of_lines([*lines, b"no line\n", lines[0].replace(b"200", b"OK!")])
    for each in counts:
        together.count(each)
    assert together == counted(*map(parse_crawl_log_line, lines))
    assert broken == [b"no line\n", lines[0].replace(b"200", b"OK!")]
    assert len(counts) < len(lines)


def test_pages_are_what_quotas_count() -> None:
    """robots.txt is fetched for them, it is none of them."""
    assert counted(entry(hops="P"), entry(), entry()).total.pages == 2


def test_types_statuses_and_sources_are_counted() -> None:
    """A URL without an answer has the type `unknown` and no source."""
    additions = counted(
        entry(source="http://s.test/"),
        entry(mime="", url="http://b.test/"),
        entry(-2, mime="", source="http://s.test/"),
    )
    assert additions.mime_urls == {"text/html": 1, "no-type": 1, "unknown": 1}
    assert additions.mime_bytes["text/html"] == 10
    assert additions.statuses == {200: 2, -2: 1}
    assert additions.sources == {("http://s.test/", "a.test"): 1, ("-", "b.test"): 1}


@each_row(
    ("line", "counter", "number"),
    [
        (entry(-5003), ("preselect", "out of scope or over a limit"), 1),
        (entry(hops="P"), ("preconditions", "robots.txt fetched"), 1),
        (entry(1, url="dns:a.test", hops="P"), ("preconditions", "names looked up"), 1),
        (entry(-9998), ("preconditions", "denied by robots.txt"), 1),
        (entry(), ("fetch", "answers"), 1),
        (entry(), ("fetch", "bytes"), 10),
        (entry(-4), ("fetch", "no answer"), 1),
        (entry(annotations=("timeTrunc",)), ("fetch", "cut"), 1),
        (entry(304, annotations=("duplicate:server-not-modified",)), ("fetch", "not modified"), 1),
        (entry(annotations=("extractTimeout",)), ("extract", "gave up"), 1),
        (entry(annotations=("sitemapBroken:2bytes+12tags",)), ("extract", "sitemaps with faults"), 1),
        (entry(annotations=("sitemapBroken:2bytes+12tags+9other",)), ("extract", "faults in sitemaps"), 14),
        (entry(annotations=("sitemapCut",)), ("extract", "sitemaps with faults"), 0),
        (entry(annotations=("dol:7",)), ("extract", "links dropped"), 7),
        (entry(annotations=("dol:x",)), ("extract", "links dropped"), 0),
        (entry(extra={"warcFilename": "a"}), ("write", "records"), 1),
        (entry(annotations=("warcRevisit:digest",)), ("write", "revisits"), 1),
        (entry(annotations=("2t",)), ("disposition", "answered after retries"), 1),
        (entry(-2, annotations=("3t",)), ("disposition", "given up after retries"), 1),
        (entry(-5), ("disposition", "broken processors"), 1),
        (entry(-5), ("fetch", "no answer"), 0),
    ],
)
def test_each_processor_has_its_counters(line, counter, number) -> None:
    """A line's status, notes and other fields decide which counters of processors it adds to."""
    assert counter in {*PROCESSOR_COUNTERS, BYTES_FETCHED}
    assert counted(line).processors[counter] == number


def test_look_ups_of_names_have_a_host_of_their_own() -> None:
    """Look-ups are counted under `dns:`, as in Heritrix, because they are no pages of a host."""
    assert host_counted("dns:a.test") == DNS
    assert host_counted("https://a.test:8443/x") == "a.test"


def test_additions_add_up() -> None:
    """Two halves are the whole."""
    lines = [
        entry(),
        entry(-2),
        entry(hops="P", start_s=1.0, end_s=2.0),
        entry(url="http://b.test/", start_s=0.5, end_s=9.0),
        entry(-9),
    ]
    halves = counted(*lines[:2])
    halves.merge(counted(*lines[2:]))
    assert halves == counted(*lines)


def test_media_types_beyond_a_number_are_counted_together() -> None:
    """A site that sends a new type with each page gets no row for each; those that are known go on being counted."""
    additions = counted(*(entry(mime=f"a/{number}") for number in range(MAX_TYPES + 50)), entry(mime="a/7"))
    assert len(additions.mime_urls) == MAX_TYPES + 1
    assert (additions.mime_urls[OTHER_TYPES], additions.mime_bytes[OTHER_TYPES]) == (50, 500)
    assert additions.mime_urls["a/7"] == 2


def test_a_long_media_type_counts_by_its_beginning() -> None:
    """It may be as long as a header."""
    assert list(counted(entry(mime="x" * 5000)).mime_urls) == ["x" * MAX_TYPE_CHARS]


def test_a_host_longer_than_a_name_can_be_counts_by_its_beginning() -> None:
    """A URL may have 8,000 characters of host; nothing was ever fetched there."""
    assert host_counted(f"http://{'a' * 8000}.test/") == "a" * 255
