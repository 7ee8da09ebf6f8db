"""The lines of crawl.log, pages.jsonl and links.jsonl."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.accounts.crawl_log import (
    DUPLICATE_DIGEST,
    CrawlLogEntry,
    NotALogLine,
    VisitNotes,
    annotations_of,
    crawl_log_line,
    hops_shown,
    last_entry,
    links_line,
    page_line,
    parse_crawl_log_line,
    with_place,
)
from anabranch.crawler.archive.records import RecordLocation
from anabranch.crawler.extract.links import Link
from anabranch.crawler.outcomes.userfunctions import KEY, RULE, UserFunctionFailed
from tests.rows import each_row

#: 2026-11-20 11:22:33.456 UTC
AT_S = 1795173753.456


def test_a_fetched_page_has_all_twelve_fields() -> None:
    """The widths and forms are Heritrix's."""
    entry = CrawlLogEntry(
        logged_s=AT_S,
        status=200,
        size_bytes=12345,
        url="http://a.test/p?q=1",
        hops="LLE",
        via="http://a.test/",
        mime="text/html; charset=utf-8",
        worker=7,
        start_s=AT_S - 1.25,
        end_s=AT_S - 0.25,
        digest="sha1:2SMOO7EBA5YN7XQL3NUWAQ5IAXL6MLQF",
        source="http://a.test/",
        annotations=("2t", "lenTrunc"),
    )
    assert crawl_log_line(entry) == (
        b"2026-11-20T11:22:33.456Z   200      12345 http://a.test/p?q=1 LLE http://a.test/ text/html #007 "
        b"20261120112232206+1000 sha1:2SMOO7EBA5YN7XQL3NUWAQ5IAXL6MLQF http://a.test/ 2t,lenTrunc\n"
    )


def test_a_seed_that_got_no_answer_has_dashes_for_what_is_missing() -> None:
    """Its content type is `unknown`."""
    entry = CrawlLogEntry(logged_s=0.0, status=-9998, url="http://a.test/", worker=1000)
    assert crawl_log_line(entry) == (
        b"1970-01-01T00:00:00.000Z -9998          - http://a.test/ - - unknown #1000 - - - -\n"
    )


def test_an_answer_without_a_type_is_no_type() -> None:
    """That differs from having no answer; an empty body has the size 0."""
    entry = CrawlLogEntry(logged_s=0.0, status=404, size_bytes=0, url="http://a.test/", worker=1)
    assert crawl_log_line(entry) == (
        b"1970-01-01T00:00:00.000Z   404          0 http://a.test/ - - no-type #001 - - - -\n"
    )


def test_milliseconds_are_rounded_not_cut() -> None:
    """1.0005 s as a float lies a little below or above; 0.9999 s is one second."""
    entry = CrawlLogEntry(logged_s=0.9999, status=200, url="u", worker=1, start_s=0.9996, end_s=2.0004)
    assert crawl_log_line(entry).startswith(b"1970-01-01T00:00:01.000Z ")
    assert b" 19700101000001000+1000 " in crawl_log_line(entry)


def test_a_clock_that_was_set_back_makes_no_negative_duration() -> None:
    """Tools read digits behind the plus sign."""
    entry = CrawlLogEntry(logged_s=0.0, status=200, url="u", worker=1, start_s=5.0, end_s=4.0)
    assert b" 19700101000005000+0 " in crawl_log_line(entry)


@pytest.mark.parametrize(
    ("hops", "shown"),
    [("", ""), ("L" * 50, "L" * 50), ("R" + "L" * 50, "1+" + "L" * 50), ("L" * 12 + "E" * 50, "12+" + "E" * 50)],
)
def test_of_a_long_path_the_last_fifty_hops_are_shown_behind_a_count(hops: str, shown: str) -> None:
    """Heritrix writes long paths in this form."""
    assert hops_shown(hops) == shown


def test_blanks_inside_a_field_are_percent_encoded() -> None:
    """A comma inside an annotation too: commas part them."""
    entry = CrawlLogEntry(
        logged_s=0.0,
        status=1,
        url="http://a/b c\n\u00e9",
        via="\u2028",
        mime=" x",
        worker=1,
        annotations=("a,b c", "", "d"),
    )
    fields = crawl_log_line(entry).split()
    assert fields[3:7] == [b"http://a/b%20c%0A%C3%A9", b"-", b"%E2%80%A8", b"no-type"]
    assert fields[11] == b"a%2Cb%20c,d"


TEXT = st.text(max_size=60) | st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)
TIME = st.floats(0, 4e9)


@given(
    st.builds(
        CrawlLogEntry,
        logged_s=st.floats(0, 4e9),
        status=st.integers(-10_000, 999),
        size_bytes=st.none() | st.integers(0, 10**12),
        url=TEXT,
        hops=TEXT,
        via=st.none() | TEXT,
        mime=TEXT,
        worker=st.integers(0, 5000),
        start_s=st.none() | st.floats(0, 4e9),
        end_s=st.none() | st.floats(0, 4e9),
        digest=st.none() | TEXT,
        source=st.none() | TEXT,
        annotations=st.lists(TEXT, max_size=4).map(tuple),
        extra=st.none(),
    )
)
def test_whatever_the_facts_a_line_has_twelve_fields_and_one_newline(entry: CrawlLogEntry) -> None:
    """No URL, header or note can shift the columns or break the line."""
    line = crawl_log_line(entry)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    fields = re.split(rb" +", line[:-1])
    assert len(fields) == 12
    assert all(fields)
    assert line[:-1].isascii()
    assert line[:-1].decode().isprintable()


PLACE = RecordLocation("a-00000.warc.gz", 0)


@each_row("mime", ["text/html", "{", '{"a":1}', ""])
@each_row("extra", [{}, {"contentSize": 9}])
def test_the_thirteenth_field_tells_where_the_record_stands(mime: str, extra: dict[str, str | int]) -> None:
    """Whatever a server sends, nothing else of the line changes; an offset of 0 is one."""
    entry = CrawlLogEntry(logged_s=0.0, status=200, url="http://a.test/{", worker=1, mime=mime, extra=extra)
    before = crawl_log_line(entry)
    after = with_place(before, PLACE)
    assert after.split()[:12] == before.split()[:12]
    assert parse_crawl_log_line(after).extra == extra | {"warcFilename": "a-00000.warc.gz", "warcFileOffset": 0}
    assert after.endswith(b"}\n")


@pytest.mark.parametrize("mime", ["text/html", "{", '{"a":1}'])
def test_a_line_without_a_thirteenth_field_stays_as_it_is(mime: str) -> None:
    """Nobody asked for it."""
    line = crawl_log_line(CrawlLogEntry(logged_s=0.0, status=200, url="http://a.test/", worker=1, mime=mime))
    assert with_place(line, PLACE) == line


def test_a_page_is_one_compact_json_object() -> None:
    """Keys in a fixed order, no spaces, the time in UTC."""
    line = page_line(
        url="http://a.test/",
        status=200,
        mime="text/html;charset=utf-8",
        size_bytes=17,
        hops="L" * 60,
        via=None,
        fetched_s=AT_S,
        digest="sha1:AB",
        round_number=3,
    )
    assert line == (
        b'{"url":"http://a.test/","status":200,"mime":"text/html","size":17,"hops":"' + b"L" * 60 + b'",'
        b'"via":null,"fetch_time":"2026-11-20T11:22:33.456Z","digest":"sha1:AB","round":3}\n'
    )


def test_a_page_without_a_type_has_none() -> None:
    """Not the words of crawl.log: JSON can say nothing."""
    line = page_line(
        url="u", status=200, mime="", size_bytes=0, hops="", via="v", fetched_s=0, digest=None, round_number=1
    )
    assert json.loads(line)["mime"] is None


@given(TEXT, TEXT, st.none() | TEXT)
def test_a_page_line_is_utf_8_and_reads_back(url: str, mime: str, via: str | None) -> None:
    """Whatever the texts hold, it is one line."""
    line = page_line(
        url=url, status=200, mime=mime, size_bytes=1, hops="", via=via, fetched_s=1.0, digest=None, round_number=1
    )
    read = json.loads(line.decode())
    assert line.count(b"\n") == 1
    assert (read["url"], read["via"]) == (url, via)


def test_half_a_surrogate_pair_does_not_stop_the_journal() -> None:
    """It cannot be written in UTF-8; a question mark stands for it."""
    line = page_line(
        url="a\ud800", status=200, mime="", size_bytes=1, hops="", via=None, fetched_s=1.0, digest=None, round_number=1
    )
    assert json.loads(line)["url"] == "a?"
    entry = CrawlLogEntry(logged_s=0.0, status=200, url="a\ud800", worker=1)
    assert b" a%ED%A0%80 " in crawl_log_line(entry)


def iso(time_s: float) -> str:
    """A time to the millisecond, by the library alone."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=round(time_s * 1000))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def percent_encoded(text: str) -> str:
    """Character by character."""
    return "".join(
        c if "!" <= c <= "~" else "".join(f"%{byte:02X}" for byte in c.encode("utf-8", "surrogatepass")) for c in text
    )


@given(logged_s=TIME, start_s=TIME, duration_s=st.floats(0, 1000), url=TEXT, mime=TEXT)
def test_a_log_line_is_what_the_library_makes_of_its_fields(
    logged_s: float, start_s: float, duration_s: float, url: str, mime: str
) -> None:
    """Byte for byte, whatever the times, the URL and the type."""
    end_s = start_s + duration_s
    entry = CrawlLogEntry(logged_s, 200, url, 1, size_bytes=7, mime=mime, start_s=start_s, end_s=end_s)
    begun = re.sub(r"\D", "", iso(start_s))
    taken = round(end_s * 1000) - round(start_s * 1000)
    fields = (iso(logged_s), "  200", "         7", percent_encoded(url) or "-", "-", "-")
    kind = percent_encoded(re.split(r"[\s;,]", mime, maxsplit=1)[0]) or "no-type"
    line = " ".join((*fields, kind, "#001", f"{begun}+{taken}", "-", "-", "-"))
    assert crawl_log_line(entry) == f"{line}\n".encode()


@given(url=TEXT, mime=TEXT, via=st.none() | TEXT, fetched_s=TIME)
def test_a_page_line_is_what_the_library_makes_of_its_fields(
    url: str, mime: str, via: str | None, fetched_s: float
) -> None:
    """Byte for byte, but for controls that it leaves raw."""
    line = page_line(
        url=url,
        status=-2,
        mime=mime,
        size_bytes=3,
        hops="LE",
        via=via,
        fetched_s=fetched_s,
        digest="sha1:A",
        round_number=2,
    )
    kind = re.split(r"[\s;,]", mime, maxsplit=1)[0] or None
    fields = {"url": url, "status": -2, "mime": kind, "size": 3, "hops": "LE", "via": via}
    fields |= {"fetch_time": iso(fetched_s), "digest": "sha1:A", "round": 2}
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    text = re.sub("[\x7f-\x9f\u2028\u2029]", lambda raw: f"\\u{ord(raw[0]):04x}", text)
    assert line == f"{text}\n".encode("utf-8", "replace")


def test_nothing_in_a_page_line_is_obeyed_by_a_terminal() -> None:
    """C1 controls, of which U+009B begins a command, and DEL are escaped; the text reads back as it was."""
    odd = "".join(map(chr, range(0xA0))) + "\u2028"
    line = page_line(
        url="u", status=200, mime="", size_bytes=1, hops="", via=odd, fetched_s=1.0, digest=None, round_number=1
    )
    assert line.decode().removesuffix("\n").isprintable()
    assert json.loads(line)["via"] == odd


@each_row(
    ("noted", "notes"),
    [
        (VisitNotes(), ()),
        (VisitNotes(attempts=2), ("3t",)),
        (VisitNotes(cuts=("lenTrunc", "decTrunc")), ("lenTrunc", "decTrunc")),
        (VisitNotes(repairs=("httpRepair:lines", "oldTLS")), ("httpRepair:lines", "oldTLS")),
        (VisitNotes(robots_excluded=True), ("robotExcluded",)),
        (VisitNotes(duplicate=DUPLICATE_DIGEST, revisit="digest"), ("duplicate:digest", "warcRevisit:digest")),
        (VisitNotes(more=("Q:pages_per_host",)), ("Q:pages_per_host",)),
        (VisitNotes(dropped_links=7), ("dol:7",)),
        (VisitNotes(broken=KeyError("x")), ("err=KeyError",)),
        (VisitNotes(broken=UserFunctionFailed(RULE, "my:f", "failed")), ("err=UserFunctionFailed", "rule=my:f")),
        (VisitNotes(broken=UserFunctionFailed(KEY, "my:f", "failed")), ("err=UserFunctionFailed", "key=my:f")),
        (VisitNotes(lost_links=3), ("fol:3",)),
        (VisitNotes(stopped_by="my:f", more=("mine",)), ("stopped=my:f", "mine")),
        (VisitNotes(more=("extractTimeout", "", "extractTimeout")), ("extractTimeout",)),
    ],
)
def test_each_note_has_heritrix_words(noted: VisitNotes, notes: tuple[str, ...]) -> None:
    """Only what happened is noted, and nothing is noted twice."""
    assert annotations_of(noted) == notes


def test_notes_stand_in_one_order() -> None:
    """Tools that compare logs find the same field for the same facts."""
    noted = VisitNotes(attempts=1, cuts=("timeTrunc",), dropped_links=2, broken=ValueError(), more=("later",))
    assert annotations_of(noted) == ("2t", "timeTrunc", "dol:2", "err=ValueError", "later")


def test_a_page_has_one_line_with_its_links_in_order() -> None:
    """Hop and context of each; whatever a page names, the line stays one line of UTF-8."""
    line = links_line(
        "http://a.test/", "LE", [Link("http://a.test/ü", "L", "a/@href"), Link("http://a.test/\ud800", "E")]
    )
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "url": "http://a.test/",
        "hops": "LE",
        "links": [
            {"url": "http://a.test/ü", "hop": "L", "context": "a/@href"},
            {"url": "http://a.test/?", "hop": "E", "context": ""},
        ],
    }


@given(st.text(), st.text(), st.lists(st.builds(Link, st.text(), st.text(), st.text()), max_size=3))
def test_a_line_is_what_the_library_makes_of_its_fields(url: str, hops: str, links: list[Link]) -> None:
    """Byte for byte, but for controls that it leaves raw."""
    listed = [{"url": link.url, "hop": link.hop, "context": link.context} for link in links]
    text = json.dumps({"url": url, "hops": hops, "links": listed}, ensure_ascii=False, separators=(",", ":"))
    text = re.sub("[\x7f-\x9f\u2028\u2029]", lambda raw: f"\\u{ord(raw[0]):04x}", text)
    assert links_line(url, hops, links) == f"{text}\n".encode("utf-8", "replace")


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


@each_row(
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
