"""Records: what stands in them, byte for byte, as strangers read it."""

from __future__ import annotations

import base64
import gzip
import os
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.archive import records
from anabranch.crawler.archive.files import WarcFiles
from anabranch.crawler.archive.records import (
    NOT_MODIFIED,
    SAME_PAYLOAD,
    Exchange,
    NameRecord,
    Original,
    Revisit,
    digest_text,
    exchange_records,
    metadata_block,
    response_head,
    warc_date,
    without_secrets,
)
from anabranch.crawler.archive.sink import JournalEntry
from tests.crawler.archive.exchanges import (
    HTML,
    OPTIONS,
    START_S,
    Answered,
    Cut,
    Found,
    Payload,
    Read,
    exchange,
    read_by_fastwarc,
    read_by_warcio,
    warcs,
)


def records_of(folder: Path, visit: Exchange) -> dict[str, Read]:
    """The records of one visit by type, read back."""
    files = WarcFiles(folder, OPTIONS, lambda: START_S)
    files.append([JournalEntry(exchange=visit)])
    files.keep()
    files.close()
    read_by_fastwarc(warcs(folder)[0])
    return {read.kind: read for read in read_by_warcio(warcs(folder)[0])}


PAGE = b"<p>caf\xc3\xa9" * 5000


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        (b"gzip", gzip.compress(PAGE)),
        (b"br", bytes(range(256)) * 40),
        (b"identity", PAGE),
        (b"gzip", b"not gzip at all"),
    ],
)
def test_a_payload_stands_as_it_came_over_the_wire(tmp_path: Path, coding: bytes, data: bytes) -> None:
    """Content coding and all, also if it is broken."""
    fields = (*HTML, (b"Content-Encoding", coding), (b"content-LENGTH", str(len(data)).encode()))
    read = records_of(tmp_path, exchange(data=data, raw_headers=fields))["response"]
    assert read.payload == data
    assert list(read.http.items()) == [(name.decode(), value.decode()) for name, value in fields]


def test_header_fields_stand_as_received_and_in_their_order() -> None:
    """Names in their case, repeated fields, bytes that are no ASCII."""
    fields = (
        (b"SET-cookie", b"a=1"),
        (b"X-Odd", b"caf\xc3\xa9 \xff"),
        (b"Set-Cookie", b"b=2"),
        (b"Content-Length", b"7"),
    )
    head = response_head(Answered(body=Payload(b"1234567"), raw_headers=fields, status=203, reason="So so"))
    assert head == (
        b"HTTP/1.1 203 So so\r\nSET-cookie: a=1\r\nX-Odd: caf\xc3\xa9 \xff\r\nSet-Cookie: b=2\r\nContent-Length: 7\r\n\r\n"
    )


def test_chunks_are_not_promised_where_none_are(tmp_path: Path) -> None:
    """The transfer coding was taken off, so a reader must not look for it; its field is kept under another name."""
    fields = (*HTML, (b"Transfer-Encoding", b"chunked"))
    read = records_of(tmp_path, exchange(data=PAGE, raw_headers=fields))["response"]
    assert read.payload == PAGE
    assert read.http["X-Crawler-Transfer-Encoding"] == "chunked"
    assert read.http["Content-Length"] == str(len(PAGE))
    assert "Transfer-Encoding" not in read.http


@pytest.mark.parametrize(("cut", "word"), [(Cut.LENGTH, "length"), (Cut.TIME, "time")])
def test_a_cut_payload_says_so_and_its_length_is_honest(tmp_path: Path, cut: Cut, word: str) -> None:
    """The length that the server named is kept under another name."""
    fields = (*HTML, (b"Content-Length", b"1000"))
    read = records_of(tmp_path, exchange(data=b"1234", raw_headers=fields, cuts=(Cut.DECODED, cut)))["response"]
    assert read.fields["WARC-Truncated"] == word
    assert (read.http["Content-Length"], read.http["X-Crawler-Content-Length"]) == ("4", "1000")


def test_a_payload_that_came_whole_is_not_called_cut(tmp_path: Path) -> None:
    """That it could not be decoded is another matter."""
    assert "WARC-Truncated" not in records_of(tmp_path, exchange(cuts=(Cut.DECODED,)))["response"].fields


def test_the_length_that_a_304_names_is_left_alone() -> None:
    """It is that of the payload that was not sent (RFC 9110, 8.6)."""
    head = response_head(Answered(body=Payload(b""), raw_headers=((b"Content-Length", b"1000"),), status=304))
    assert b"\r\nContent-Length: 1000\r\n" in head


def test_a_field_cannot_end_before_its_end() -> None:
    """Breaks in a value or in the words of the status become blanks."""
    head = response_head(
        Answered(body=Payload(b""), raw_headers=((b"X-A", b"1\r\n\r\nX-B: 2"),), reason="OK\r\nX-C: 3")
    )
    assert head == b"HTTP/1.1 200 OK X-C: 3\r\nX-A: 1 X-B: 2\r\n\r\n"


def test_the_request_loses_what_opens_doors_and_nothing_else(tmp_path: Path) -> None:
    """An archive is read by others."""
    sent = b"GET /a HTTP/1.1\r\nHost: a.test\r\nauthorization: Basic x\r\nCookie: a=1\r\nAccept: */*\r\n\r\n"
    read = records_of(tmp_path, exchange(request=sent))["request"]
    assert list(read.http.items()) == [("Host", "a.test"), ("Accept", "*/*")]


def test_a_visit_is_bound_together(tmp_path: Path) -> None:
    """Same URL, date, address and file; request and metadata name the response."""
    read = records_of(tmp_path, exchange(address="fe80::1%eth0"))
    for kind in ("response", "request", "metadata"):
        assert read[kind].fields["WARC-Date"] == "2026-01-01T00:00:00.250000Z"
        assert read[kind].fields["WARC-IP-Address"] == "fe80::1"
        assert read[kind].fields["WARC-Warcinfo-ID"] == read["warcinfo"].fields["WARC-Record-ID"]
    for kind in ("request", "metadata"):
        assert read[kind].fields["WARC-Concurrent-To"] == read["response"].fields["WARC-Record-ID"]


def test_an_answer_without_a_known_request_has_no_request_record(tmp_path: Path) -> None:
    """Nor an address that nobody knows."""
    read = records_of(tmp_path, exchange(request=b"", address=""))
    assert "request" not in read
    assert "WARC-IP-Address" not in read["response"].fields


def test_metadata_are_in_heritrix_words(tmp_path: Path) -> None:
    """They are the page where it was found, the time it took, and its links."""
    links = (Found("http://a.test/b", "L", "a/@href"), Found("http://a.test/c\r\nx: y", "E"))
    visit = replace(exchange(), via="http://a.test/via", hops="LE", outlinks=links)
    assert records_of(tmp_path, visit)["metadata"].payload == (
        b"via: http://a.test/via\r\nhopsFromSeed: LE\r\nfetchTimeMs: 500\r\n"
        b"outlink: http://a.test/b L a/@href\r\noutlink: http://a.test/c%0D%0Ax:%20y E\r\n"
    )
    assert records_of(tmp_path / "seed", exchange())["metadata"].payload == b"seed: \r\nfetchTimeMs: 500\r\n"


@pytest.mark.parametrize(("profile", "status"), [(SAME_PAYLOAD, 200), (NOT_MODIFIED, 304)])
def test_a_revisit_has_the_header_and_names_the_record_with_the_payload(
    tmp_path: Path, profile: str, status: int
) -> None:
    """Another record's payload; its own header fields, but for a 304: the page is what shall be replayed."""
    original = Original("http://a.test/first", "2025-01-01T00:00:00.000001Z", Payload(PAGE).digest)
    data = PAGE if status == 200 else b""
    visit = exchange(data=data, status=status, revisit=Revisit(profile, original))
    read = records_of(tmp_path, visit)["revisit"]
    assert read.payload == b""
    assert read.fields["WARC-Profile"] == profile
    assert read.fields["WARC-Refers-To-Target-URI"] == original.url
    assert read.fields["WARC-Refers-To-Date"] == original.date
    assert read.fields["WARC-Payload-Digest"].startswith("sha1:")
    assert read.http.get("Content-Type") == ("text/html; charset=utf-8" if status == 200 else None)


@pytest.mark.parametrize(
    ("time_s", "date"),
    [
        (0.0, "1970-01-01T00:00:00.000000Z"),
        (START_S, "2026-01-01T00:00:00.250000Z"),
        (0.0000019, "1970-01-01T00:00:00.000002Z"),
    ],
)
def test_dates_are_utc_with_microseconds(time_s: float, date: str) -> None:
    """WARC 1.1 allows fractions."""
    assert warc_date(time_s) == date


@pytest.mark.parametrize("size", [0, 1, 100, 200, 700, 1700, 3500, 7500, 15_000, 31_000, 33_000, 70_000, 300_000])
def test_a_record_of_any_size_is_read_back(tmp_path: Path, size: int) -> None:
    """The window it is compressed with is as large as it needs; what cannot be compressed comes back, too."""
    for data in (os.urandom(size), b"word " * (size // 5)):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        assert records_of(folder, exchange(data=data))["response"].payload == data


@pytest.mark.parametrize("digest", [bytes(20), b"\xff" * 20, bytes(range(20)), bytes(range(0, 260, 13))])
def test_a_digest_is_written_as_the_library_does(digest: bytes) -> None:
    """Base32, without padding, since it has 160 bits."""
    assert digest_text(digest) == f"sha1:{base64.b32encode(digest).decode()}"


def test_each_record_has_a_random_id_of_its_own() -> None:
    """A UUID of version 4, as a URN."""
    source = records.RecordIds()
    ids = [record.record_id for _ in range(50) for record in exchange_records(exchange(), "<urn:uuid:0>", source)]
    read = [uuid.UUID(record_id.removeprefix("<urn:uuid:").removesuffix(">")) for record_id in ids]
    assert len(set(read)) == len(ids) == 150
    assert {(each.version, each.variant) for each in read} == {(4, uuid.RFC_4122)}
    assert [f"<{each.urn}>" for each in read] == ids


def test_one_link_that_is_unfit_spoils_no_other() -> None:
    """Characters of a URL that would end its field are encoded; contexts are not URLs, and lose line ends only."""
    links = (
        Found("http://a.test/%20", "L", "a/@href"),
        Found("http://a.test/\u00fc b", "E"),
        Found("u", "L", "x\r\ny"),
    )
    lines = metadata_block(replace(exchange(), outlinks=links)).split(b"\r\n")[-4:]
    assert lines == [
        b"outlink: http://a.test/%20 L a/@href",
        b"outlink: http://a.test/%C3%BC%20b E",
        b"outlink: u L x y",
        b"",
    ]


def test_cookies_and_values_of_a_login_are_redacted(tmp_path: Path) -> None:
    """In heads and in URLs. The payload and its digest are as received, and readers find all digests right."""
    made = exchange(
        url="http://a.test/?sid=0123456789",
        data=b"<p>0123456789",
        raw_headers=((b"Set-Cookie", b"sid=0123456789"), (b"set-cookie2", b"x=y"), (b"Location", b"/?sid=0123456789")),
        secrets=frozenset({b"0123456789"}),
        request=b"GET /?sid=0123456789 HTTP/1.1\r\nHost: a.test\r\n\r\n",
    )
    links = [("http://a.test/?x=0123456789", "L", "")]
    read = records_of(tmp_path, without_secrets(replace(made, via="http://a.test/0123456789", outlinks=links)))
    response = read["response"]
    assert response.url == "http://a.test/?sid=redacted"
    assert response.http == {
        "Set-Cookie": "redacted",
        "set-cookie2": "redacted",
        "Location": "/?sid=redacted",
    }
    assert response.payload == b"<p>0123456789"
    others = read["request"].payload + read["metadata"].payload
    assert b"0123456789" not in others
    assert b"outlink: http://a.test/?x=redacted L" in others


def test_answers_of_sites_without_a_login_stand_as_received(tmp_path: Path) -> None:
    """Their cookies, too."""
    made = exchange(raw_headers=((b"Set-Cookie", b"sid=0123456789"),))
    assert without_secrets(made) is made
    assert records_of(tmp_path, made)["response"].http["Set-Cookie"] == "sid=0123456789"


def test_a_name_that_was_looked_up_has_a_record_as_in_heritrix(tmp_path: Path) -> None:
    """A response of type text/dns. Readers take it; the index of pages does not have it."""
    files = WarcFiles(tmp_path, OPTIONS, lambda: START_S)
    data = b"20260102030405\na.test.\t300\tIN\tA\t192.0.2.7\n"
    files.append([JournalEntry(name=NameRecord("dns:a.test", START_S, data)), JournalEntry(exchange=exchange())])
    files.keep()
    files.close()
    (path,) = warcs(tmp_path)
    read_by_fastwarc(path)
    name = next(read for read in read_by_warcio(path) if read.url == "dns:a.test")
    assert (name.kind, name.payload, name.fields["Content-Type"]) == ("response", data, "text/dns")
    indexed = path.with_name(path.name.removesuffix(".warc.gz") + ".cdxj").read_text()
    assert "dns:" not in indexed
    assert "http://a.test/" in indexed
