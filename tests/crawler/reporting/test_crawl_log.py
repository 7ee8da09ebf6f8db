"""The lines of crawl.log and pages.jsonl."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.archiving.exchanges import Place
from anabranch.crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line, hops_shown, page_line, with_place
from anabranch.crawler.reporting.crawl_log_parsing import parse_crawl_log_line

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
    """As Heritrix writes it."""
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


PLACE = Place("a-00000.warc.gz", 0)


@pytest.mark.parametrize("mime", ["text/html", "{", '{"a":1}', ""])
@pytest.mark.parametrize("extra", [{}, {"contentSize": 9}])
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
def test_the_short_ways_of_a_log_line_lead_where_the_long_ones_do(
    logged_s: float, start_s: float, duration_s: float, url: str, mime: str
) -> None:
    """A second's text is kept and fit texts are not gone through; the line is the same byte for byte."""
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
