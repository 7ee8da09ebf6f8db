"""Raw answers as odd servers send them, by family, and what is expected of whoever reads them as browsers do.

The families are small tables of bytes; the rule of a family says what is expected. `test_odd_answers` lets the fetcher read
all of them, and `test_judges` curl, wget, Go and Chromium. `EXCEPTIONS` names those that we read otherwise, and why.
"""

from __future__ import annotations

import gzip
import importlib
import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from anabranch.crawler.fetch.decoding import CODINGS
from anabranch.crawler.fetch.repairs import Repair

STATUS, LINES, FRAMING, CHUNKS = Repair.STATUS_LINE, Repair.LINES, Repair.FRAMING, Repair.CHUNKS

OK = b"HTTP/1.1 200 OK\r\n"
PAGE = b"<p>page"
MORE = b" and more"
LENGTH = b"Content-Length: 7\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
IN_CHUNKS = b"7\r\n<p>page\r\n0\r\n\r\n"

#: The status of what is no answer.
NO_ANSWER = 0


class OddAnswer(NamedTuple):
    """An answer, and how it is to be read."""

    name: str
    sent: bytes
    status: int = 200  #: or `NO_ANSWER`
    content: bytes = PAGE  #: without transfer and content codings, as far as it came
    is_cut: bool = False  #: the body breaks off, or its coding does
    closes: bool = False  #: only the end of the connection ends it
    repairs: tuple[Repair, ...] | None = ()  #: None: it depends on the library
    media_type: str = "text/html"
    coded: bytes = b""  #: the content in its coding: a client that reads this leaves the coding to its user

    @property
    def lines(self) -> list[bytes]:
        """The lines of its head between `X-Before` and `X-Behind`, both included."""
        start, end = self.sent.find(b"X-Before"), self.sent.find(b"X-Behind: 2")
        return self.sent[start : end + 11].replace(b"\r\n", b"\n").split(b"\n") if 0 <= start < end else []


def answer(status: bytes = OK, fields: bytes = LENGTH, body: bytes = PAGE) -> bytes:
    """A whole answer: the odd fields stand between two good ones."""
    return status + b"Content-Type: text/html\r\nX-Before: 1\r\n" + fields + b"X-Behind: 2\r\n\r\n" + body


# Each family is a function that yields its answers.


def _status_lines() -> Iterator[OddAnswer]:
    """Chromium's rule: `HTTP` in any case behind at most four bytes, a version that may be odd, a number, a reason."""
    good = (b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK", b"HTTP/1.1 200 ", b"HTTP/1.1 200", b"HTTP/1.1 200 200 300")
    good += (b"HTTP/1.1 200 <b>OK</b>: fine", b"HTTP/1.1 200 " + b"long " * 400, "HTTP/1.1 200 Schön".encode())
    good += ("HTTP/1.1 200 Schön".encode("latin-1"), b"HTTP/1.1 200 a\tb", b"HTTP/1.1 200 OK  ", b"HTTP/1.1 200  OK")
    for line in good:
        yield OddAnswer(_shown(line), answer(line + b"\r\n"))
    for version in (b"0.9", b"1.2", b"2.0", b"1", b"2", b"3.0", b"1.10", b"11.1", b"1.01", b"01.1"):
        yield OddAnswer(f"version {version.decode()}", answer(b"HTTP/%s 200 OK\r\n" % version), repairs=None)
    odd = (
        b"http/1.1 200 ok",
        b"Http/1.1 200 OK",
        b"hTTP/1.1 200 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1\t200 OK",
        b" HTTP/1.1 200 OK",
    )
    odd += (
        b"HTTP/1.1     200     OK",
        b"    HTTP/1.1 200 OK",
        b"HTTP 200 OK",
        b"http 200",
        b"HTTP/1.1 200OK",
        b"HTTP/1.1 200-OK",
        b"HTTP/1.1 200;OK",
    )
    odd += (
        b"HTTP/1.1 200.5 OK",
        b"HTTP/1.1 200, OK",
        b"HTTP/1.x 200 OK",
        b"HTTP/x.1 200 OK",
        b"HTTP/ 200 OK",
        b"HTTP/1. 200 OK",
        b"HTTP/1,1 200 OK",
    )
    odd += (
        b"HTTP/1.1.1 200 OK",
        b"HTTP/-1.1 200 OK",
        b"HTTPS/1.1 200 OK",
        b"HTTP1.1 200 OK",
        b"\tHTTP/1.1 200 OK",
        b"HTTP/one 200 OK",
    )
    for line in odd:
        yield OddAnswer(_shown(line), answer(line + b"\r\n"), repairs=(STATUS,))
        other = line.replace(b"200", b"404")
        yield OddAnswer(_shown(other), answer(other + b"\r\n"), 404, repairs=(STATUS,))
    for line in (
        b"HTTP/1.1 200 a\rb",
        b"HTTP/1.1 200 a\0b",
        b"HTTP/1.1 200 a\x1bb",
        b"HTTP/1.1 200 a\x7fb",
        b"HTTP/1.1 200\r",
        b"HTTP/1.1 200 OK\r",
    ):
        yield OddAnswer(_shown(line), answer(line + b"\r\n"), repairs=None)
    for line in (
        b"HTTP/1.1 OK",
        b"HTTP/1.1",
        b"HTTP/1.1 ",
        b"HTTP",
        b"HTTP/1.1 two hundred",
        b"HTTP/1.1 -200 OK",
        b"HTTP/1.1 +404 OK",
        b"HTTP /1.1 404 OK",
    ):
        yield OddAnswer("no number: " + _shown(line), answer(line + b"\r\n"), repairs=(STATUS,))
    yield OddAnswer("code 0200", answer(b"HTTP/1.1 0200 OK\r\n"), repairs=(STATUS,))
    yield OddAnswer("HTTP/ 1.1 200 OK", answer(b"HTTP/ 1.1 200 OK\r\n"), NO_ANSWER, b"")
    for code in (b"20", b"2", b"099", b"000", b"1000", b"2000", b"2 00", b"0x200", b"99999999999"):
        yield OddAnswer(f"code {code.decode()}", answer(b"HTTP/1.1 %s OK\r\n" % code), NO_ANSWER, b"")
    for status in (201, 203, 206, 226, 299, 300, 400, 404, 410, 418, 499, 500, 503, 599, 600, 799, 999):
        yield OddAnswer(f"code {status}", answer(b"HTTP/1.1 %d Odd\r\n" % status), status)


def _before() -> Iterator[OddAnswer]:
    """Answers with octets or interim responses before the final status line."""
    for junk in (
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b"\n\n\n",
        b"\xef\xbb\xbf",
        b"x",
        b"\0",
        b"abcd",
        b"\r\n\r\n\r\n\r\n",
        b"\n" * 20,
    ):
        yield OddAnswer(f"{_shown(junk)} before", junk + answer(), repairs=None)
    for junk in (b"\r\n \r\n", b"abcde", b"<html>"):
        yield OddAnswer(f"{_shown(junk)} before", junk + answer(), NO_ANSWER, b"")
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    yield OddAnswer("100 before", b"HTTP/1.1 100 Continue\r\n\r\n" + answer())
    yield OddAnswer("102 before", b"HTTP/1.1 102 Processing\r\n\r\n" + answer())
    yield OddAnswer("103 before", hints + answer())
    yield OddAnswer("103 three times", hints * 3 + answer())
    yield OddAnswer("199 before", b"HTTP/1.1 199 Odd\r\n\r\n" + answer())
    yield OddAnswer("100 in HTTP/1.0", b"HTTP/1.0 100 Continue\r\n\r\n" + answer(), repairs=None)
    yield OddAnswer("100 with LF", b"HTTP/1.1 100 Continue\n\n" + answer())
    yield OddAnswer("100 with a length", b"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n" + answer())
    yield OddAnswer("103 with an odd line", b"HTTP/1.1 103 Early Hints\r\nno field\r\n\r\n" + answer())
    yield OddAnswer("103 before an odd line", hints + answer(fields=b"Warning\r\n" + LENGTH), repairs=(LINES,))
    yield OddAnswer(
        "103 in lower case", b"http/1.1 103 early\r\n\r\n" + answer(b"http/1.1 200 ok\r\n"), repairs=(STATUS,)
    )
    yield OddAnswer("100 alone", b"HTTP/1.1 100 Continue\r\n\r\n", NO_ANSWER, b"", closes=True)
    yield OddAnswer(
        "101",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        101,
        b"",
        closes=True,
        media_type="",
    )


#: Lines that are no fields.
_NO_FIELDS = (
    b"PHP Warning:  Undefined index in /x.php on line 3",
    b"Warning",
    b"this is not a field",
    b"<b>Notice</b>: Undefined variable",
    b"<br />",
    b"<!-- a: comment -->",
    b'<a href="http://x.test/">y</a>',
    b"HTTP/1.1 200 OK",
    b"HTTP/1.0 200 Connection established",
    b"GET / HTTP/1.1",
    b"My Header: 1",
    b"X-Odd : 1",
    b"X-Odd\t: 1",
    b"X-[a]: 1",
    b"X-(a): 1",
    b'"X-Odd": 1',
    "\u2018allow-origin\u2019: *".encode(),
    b"X-B\xfccher: 1",
    "X-Bücher: 1".encode(),
    b"@x: 1",
    b"text/html: 1",
    b"charset=utf-8; a: 1",
    b"a,b: 1",
    b"a=b: 1",
    b"a?b: 1",
    b'{"error": 1}',
    b"a\\b: 1",
    b": 1",
    b":",
    b"X-\x01: 1",
    b"X-\x00: 1",
    b"X-\x7f: 1",
    b"\xef\xbb\xbfX-Odd: 1",
    b"X-Odd: a\rb",
    b"X-Odd: a\rSet-Cookie: b=1",
    b"X\r-Odd: a",
    b"X-Odd: a\0b",
    b"no field\r\n and: more",
    b"<pre>\r\n at x:1\r\n\tat y:2",
    b"Content-Length",
    b"Content-Length 3",
    b"Transfer-Encoding chunked",
    b"Content-Length=3",
    b"--boundary",
    b"Content-Disposition attachment; filename=a:b",
    b"Fatal error: Uncaught Error in /x.php:3",
    b"ERROR [main] 12:30:01 - x",
    b"\xe4\xbd\xa0\xe5\xa5\xbd",
    b"\xff\xfe",
)


def _odd_lines() -> Iterator[OddAnswer]:
    """A line without a colon, one whose name is no token, and one with CR or NUL is dropped, with those folded behind it."""
    for line in _NO_FIELDS:
        yield OddAnswer(_shown(line), answer(fields=line + b"\r\n" + LENGTH), repairs=(LINES,))
    for line in _NO_FIELDS[:4]:
        first = OK + line + b"\r\nContent-Type: text/html\r\nX-Before: 1\r\n" + LENGTH + b"X-Behind: 2\r\n\r\n" + PAGE
        last = OK + b"Content-Type: text/html\r\nX-Before: 1\r\nX-Behind: 2\r\n" + LENGTH + line + b"\r\n\r\n" + PAGE
        yield OddAnswer("first " + _shown(line), first, repairs=(LINES,))
        yield OddAnswer("last " + _shown(line), last, repairs=(LINES,))
        yield OddAnswer("behind LF " + _shown(line), answer(fields=line + b"\n" + LENGTH), repairs=(LINES,))
    yield OddAnswer("500 lines", answer(fields=b"trace of a call\r\n" * 500 + LENGTH), repairs=(LINES,))
    yield OddAnswer("a long line", answer(fields=b"x " * 10_000 + b"\r\n" + LENGTH), repairs=(LINES,))
    yield OddAnswer(
        "with all else odd",
        answer(b"http/1.1  200 ok\r\n", b"Warning\r\n" + LENGTH + CHUNKED, IN_CHUNKS),
        repairs=(STATUS, LINES, FRAMING),
    )


def _odd_fields() -> Iterator[OddAnswer]:
    """Fields that count, although they look odd."""
    values = (
        b"",
        b" ",
        b"\t",
        b"\x01",
        b"\x1b[0m",
        b"\x7f",
        b"\xfc",
        "ü".encode(),
        b"a" * 9000,
        b"a" * 60_000,
        b"a:b:c",
        b"\xff\xfe",
    )
    values += (
        b"a\r\n b",
        b"a\r\n\tb",
        b"a\r\n  b\r\n  c",
        b"\r\n a",
        b"a\r\n \r\n b",
        b" \t a \t ",
        b'"',
        b"a;;;b",
        b"=?utf-8?q?a?=",
        b"1\r\n : 1",
    )
    for value in values:
        yield OddAnswer("value " + _shown(value), answer(fields=b"X-Odd:" + value + b"\r\n" + LENGTH), repairs=None)
    for name in (b"1", b"12:30:01 x", b"x!#$%&'*+-.^_`|~", b"X_Odd", b"x" * 1000, b"-"):
        yield OddAnswer("name " + _shown(name), answer(fields=name + b": 1\r\n" + LENGTH))
    whole = answer()
    yield OddAnswer("LF for CR LF", whole.replace(b"\r\n", b"\n"), repairs=None)
    yield OddAnswer("LF behind the status line", whole.replace(b"\r\n", b"\n", 1), repairs=None)
    yield OddAnswer("LF at the end of the head", whole.replace(b"\r\n\r\n", b"\r\n\n"), repairs=None)
    yield OddAnswer("LF twice at the end", whole.replace(b"\r\n\r\n", b"\n\n"), repairs=None)
    yield OddAnswer("CR CR LF", whole.replace(b"\r\n", b"\r\r\n", 3), repairs=None)
    yield OddAnswer("CR CR LF behind fields", OK + whole[len(OK) :].replace(b"\r\n", b"\r\r\n", 3), repairs=None)
    yield OddAnswer("CR CR LF everywhere", whole.replace(b"\r\n", b"\r\r\n"), NO_ANSWER, b"", closes=True)
    yield OddAnswer("CR for CR LF", whole.replace(b"\r\n", b"\r"), NO_ANSWER, b"", closes=True)
    sent = (OK + b"Content-Length: 7\r\n\r\n").replace(b"\r\n", b"\n\r") + PAGE
    yield OddAnswer("LF CR for CR LF", sent, content=b"\r" + PAGE, closes=True, repairs=(LINES,), media_type="")
    yield OddAnswer("a fold behind the status line", OK + b" folded: x\r\n" + whole[len(OK) :], repairs=None)
    yield OddAnswer(
        "BOM behind the status line", OK + b"\xef\xbb\xbf" + whole[len(OK) :], media_type="", repairs=(LINES,)
    )
    for line in (b" ", b"\t", b"   ", b"\r"):
        yield OddAnswer("first " + _shown(line), OK + line + b"\r\n" + whole[len(OK) :] + MORE, repairs=None)
    yield OddAnswer("first a blank with LF", OK + b" \n" + whole[len(OK) :] + MORE, repairs=None)
    for line in (b"X:\r", b"X: \r", b"X:\t \r", b"X: 1\r\n \r", b"X: 1\r\n "):
        yield OddAnswer(
            "ends with CR or a blank: " + _shown(line),
            answer(fields=line + b"\r\n" + LENGTH, body=PAGE + MORE),
            repairs=None,
        )
    yield OddAnswer("no fields", OK + b"\r\n" + PAGE, closes=True, media_type="")
    yield OddAnswer("100 equal fields", answer(fields=b"X-Odd: 1\r\n" * 100 + LENGTH))
    yield OddAnswer("names in upper case", whole.replace(b"Content-Length", b"CONTENT-LENGTH"))


#: A value -> the length that it means, or None for one that is none and is ignored.
_LENGTHS: Mapping[bytes, int | None] = {
    b"7": 7,
    b" 7 ": 7,
    b"\t7": 7,
    b"007": 7,
    b"0" * 15 + b"7": 7,
    b"0" * 5000 + b"7": 7,
    b"7, 7": 7,
    b"7,7,7": 7,
    b"7,": 7,
    b",7": 7,
    b"7, 07": 7,
    b"+7": None,
    b"-7": None,
    b"-1": None,
    b"7.0": None,
    b"7e0": None,
    b"0x7": None,
    b"7;": None,
    b"7 bytes": None,
    b"7 7": None,
    b"1 000": None,
    b"7b": None,
    b'"7"': None,
    b"seven": None,
    b"": None,
    b" ": None,
    b"null": None,
    b"undefined": None,
    b"NaN": None,
    b"*": None,
    b"?": None,
    b"9" * 30: None,
    b"18446744073709551616": None,
    "\u0667".encode(): None,
    b"\xb2": None,
    b"7, x": 7,
    b"x, 7": 7,
}


def _lengths() -> Iterator[OddAnswer]:
    """Equal lengths are one; what is none is ignored, and the body ends with the connection; different ones are an error."""
    for value, length in _LENGTHS.items():
        field = b"Content-Length: " + value + b"\r\n"
        is_good = value.strip().isdigit() and length is not None
        repairs = () if is_good else (FRAMING,) if value.strip() else None
        yield OddAnswer(_shown(value), answer(fields=field), closes=length is None, repairs=repairs)
        whole = PAGE if length else PAGE + MORE
        yield OddAnswer(
            _shown(value) + " and more",
            answer(fields=field, body=PAGE + MORE),
            content=whole,
            closes=length is None,
            repairs=repairs,
        )
    for field in (b"Content-Length : 7", b"content-length:7", b"Content-Length:\r\n 7"):
        yield OddAnswer("field " + _shown(field), answer(fields=field + b"\r\n", body=PAGE + MORE), repairs=None)
    for field in (
        b"Content-Length\t: 7",
        b"Content Length: 7",
        b"Content_Length: 7",
        b"Content-Length: 7\r\n 8",
        b"Content-Length: 7\rX: 1",
        b" Content-Length: 3",
    ):
        yield OddAnswer(
            "field " + _shown(field),
            answer(fields=field + b"\r\n", body=PAGE + MORE),
            content=PAGE + MORE,
            closes=True,
            repairs=None,
        )
    for first, second in ((b"7", b"7"), (b"7", b"07"), (b"7", b"x"), (b"x", b"7"), (b"7", b"-1"), (b"7", b"")):
        field = b"Content-Length: %s\r\nContent-Length: %s\r\n" % (first, second)
        yield OddAnswer(f"{_shown(first)} and {_shown(second)}", answer(fields=field), repairs=(FRAMING,))
    for values in (
        (b"7", b"8"),
        (b"8", b"7"),
        (b"7", b"7", b"8"),
        (b"7, 8",),
        (b"7", b"0"),
        (b"0", b"7"),
        (b"7,7", b"8"),
    ):
        field = b"".join(b"Content-Length: %s\r\n" % value for value in values)
        yield OddAnswer("different " + " ".join(map(_shown, values)), answer(fields=field), NO_ANSWER, b"")


def _transfer_codings() -> Iterator[OddAnswer]:
    """If chunked is one of the codings, the body comes in chunks, whatever its length; other codings are ignored."""
    spellings = (
        b"chunked",
        b"Chunked",
        b"CHUNKED",
        b" chunked ",
        b"\tchunked",
        b"chunked,",
        b",chunked",
        b"identity, chunked",
    )
    for value in spellings:
        yield OddAnswer(
            _shown(value), answer(fields=b"Transfer-Encoding: " + value + b"\r\n", body=IN_CHUNKS), repairs=None
        )
    for value in (b"chunked;", b"chunked;q=1"):
        yield OddAnswer(
            _shown(value),
            answer(fields=b"Transfer-Encoding: " + value + b"\r\n", body=IN_CHUNKS),
            content=IN_CHUNKS,
            closes=True,
        )
    twice = (b"chunked, chunked", b"chunked,chunked")
    for value in twice:
        yield OddAnswer(
            _shown(value), answer(fields=b"Transfer-Encoding: " + value + b"\r\n", body=IN_CHUNKS), repairs=None
        )
    yield OddAnswer("chunked twice", answer(fields=CHUNKED * 2, body=IN_CHUNKS), repairs=None)
    yield OddAnswer(
        "identity and chunked",
        answer(fields=b"Transfer-Encoding: identity\r\n" + CHUNKED, body=IN_CHUNKS),
        repairs=None,
    )
    yield OddAnswer(
        "chunked and identity",
        answer(fields=CHUNKED + b"Transfer-Encoding: identity\r\n", body=IN_CHUNKS),
        repairs=None,
    )
    for length in (b"7", b"3", b"17", b"0", b"x", b"-1", b"7, 8", b"999999"):
        field = b"Content-Length: " + length + b"\r\n"
        yield OddAnswer(
            f"chunked, then length {length.decode()}",
            answer(fields=CHUNKED + field, body=IN_CHUNKS),
            repairs=(FRAMING,),
        )
        yield OddAnswer(
            f"length {length.decode()}, then chunked",
            answer(fields=field + CHUNKED, body=IN_CHUNKS),
            repairs=(FRAMING,),
        )
    for value in (b"chunked, x", b"chunked, gzip", b"x, chunked", b"gzip;q=1, chunked", b"chunked, identity"):
        yield OddAnswer(
            _shown(value), answer(fields=b"Transfer-Encoding: " + value + b"\r\n", body=IN_CHUNKS), repairs=None
        )
    for value in (b"identity", b"Identity", b"", b" ", b"identity, identity"):
        field = b"Transfer-Encoding: " + value + b"\r\n"
        yield OddAnswer(f"{_shown(value)}, no length", answer(fields=field), closes=True, repairs=None)
        yield OddAnswer(f"{_shown(value)} and a length", answer(fields=field + LENGTH), repairs=None)
        yield OddAnswer(
            f"{_shown(value)} and a length, and more", answer(fields=field + LENGTH, body=PAGE + MORE), repairs=None
        )
    for value in (b"xchunked", b"chunkedx", b"x", b"none", b"utf-8", b"gzip", b"chunked x", b'"chunked"', b"binary"):
        field = b"Transfer-Encoding: " + value + b"\r\n"
        yield OddAnswer(f"{_shown(value)}, no length", answer(fields=field), closes=True, repairs=None)
        yield OddAnswer(f"{_shown(value)} and a length", answer(fields=field + LENGTH), repairs=(FRAMING,))
        yield OddAnswer(
            f"{_shown(value)} and a length, and more",
            answer(fields=field + LENGTH, body=PAGE + MORE),
            repairs=(FRAMING,),
        )
        yield OddAnswer(
            f"a length and {_shown(value)}, and more",
            answer(fields=LENGTH + field, body=PAGE + MORE),
            repairs=(FRAMING,),
        )
    zipped = gzip.compress(PAGE, mtime=0)
    yield OddAnswer(
        "gzip, chunked",
        answer(fields=b"Transfer-Encoding: gzip, chunked\r\n", body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(zipped), zipped)),
        content=zipped,
        repairs=None,
    )
    yield OddAnswer("in HTTP/1.0", answer(b"HTTP/1.0 200 OK\r\n", CHUNKED, IN_CHUNKS), repairs=None)
    yield OddAnswer(
        "with a length in HTTP/1.0", answer(b"HTTP/1.0 200 OK\r\n", LENGTH + CHUNKED, IN_CHUNKS), repairs=None
    )
    yield OddAnswer(
        "with the length of the chunks in HTTP/1.0",
        answer(b"HTTP/1.0 200 OK\r\n", b"Content-Length: 17\r\n" + CHUNKED, IN_CHUNKS),
        repairs=None,
    )
    field = b"Transfer-Encoding : chunked\r\n"  # the library takes a space there, and no tab
    yield OddAnswer("chunked behind a space and a colon", answer(fields=field, body=IN_CHUNKS))
    sent = answer(fields=field.replace(b" :", b"\t:"), body=IN_CHUNKS)
    yield OddAnswer("chunked behind a tab and a colon", sent, content=IN_CHUNKS, closes=True, repairs=(LINES,))
    for value in (b"chunked", b"x"):
        yield OddAnswer(
            f"{value.decode()}, with a space before the colon",
            answer(fields=b"Transfer-Encoding : " + value + b"\r\n" + LENGTH),
            repairs=(LINES,),
        )


def _chunks() -> Iterator[OddAnswer]:
    """Line ends may be LF, and sizes have spaces around them; without a size, or with a wrong one, the body ends there."""
    good = {
        "one chunk": IN_CHUNKS,
        "two chunks": b"3\r\n<p>\r\n4\r\npage\r\n0\r\n\r\n",
        "seven chunks": b"".join(b"1\r\n%c\r\n" % byte for byte in PAGE) + b"0\r\n\r\n",
        "a leading zero": b"07\r\n<p>page\r\n0\r\n\r\n",
        "leading zeros": b"0000007\r\n<p>page\r\n0000\r\n\r\n",
        "14 leading zeros": b"0" * 14 + b"7\r\n<p>page\r\n0\r\n\r\n",
        "a space behind a size": b"7 \r\n<p>page\r\n0 \r\n\r\n",
        "spaces behind a size": b"7      \r\n<p>page\r\n0\r\n\r\n",
        "an extension": b"7;a=b\r\n<p>page\r\n0\r\n\r\n",
        "an extension without a value": b"7;a\r\n<p>page\r\n0;b\r\n\r\n",
        "an extension in quotes": b'7;a="b;c"\r\n<p>page\r\n0\r\n\r\n',
        "a trailer": b"7\r\n<p>page\r\n0\r\nX-Trailer: 1\r\n\r\n",
        "two trailers": b"7\r\n<p>page\r\n0\r\nX-Trailer: 1\r\nY-Trailer: 2\r\n\r\n",
        "a long trailer": b"7\r\n<p>page\r\n0\r\nX-Trailer: " + b"a" * 9000 + b"\r\n\r\n",
        "surplus bytes": IN_CHUNKS + b"surplus",
        "one more answer": IN_CHUNKS + OK + b"Content-Length: 4\r\n\r\nevil",
    }
    odd = {
        "a trailer of framing": b"7\r\n<p>page\r\n0\r\nContent-Length: 3\r\n\r\n",
        "LF behind all": b"7\n<p>page\n0\n\n",
        "LF behind sizes": b"7\n<p>page\r\n0\r\n\r\n",
        "LF behind a later size": b"3\r\n<p>\r\n4\npage\n0\n\n",
        "LF behind content": b"7\r\n<p>page\n0\r\n\r\n",
        "LF behind the last size": b"7\r\n<p>page\r\n0\n\r\n",
        "LF at the end": b"7\r\n<p>page\r\n0\r\n\n",
        "LF and a trailer": b"7\n<p>page\n0\nX-Trailer: 1\n\n",
        "a space before a size": b" 7\r\n<p>page\r\n0\r\n\r\n",
        "a tab before a size": b"\t7\r\n<p>page\r\n0\r\n\r\n",
        "a tab before a later size": b"3\r\n<p>\r\n\t4\r\npage\r\n0\r\n\r\n",
        "a tab behind a size": b"7\t\r\n<p>page\r\n0\r\n\r\n",
        "a space before an extension": b"7 ;a=b\r\n<p>page\r\n0\r\n\r\n",
        "an empty extension": b"7;\r\n<p>page\r\n0\r\n\r\n",
        "extensions without names": b"7;;=;=x\r\n<p>page\r\n0\r\n\r\n",
        "an extension with bytes": b"7;\xfc\x01=\x80\r\n<p>page\r\n0\r\n\r\n",
        "an extension with spaces": b"7; a = b c\r\n<p>page\r\n0\r\n\r\n",
        "an open quote": b'7;a="\r\n<p>page\r\n0\r\n\r\n',
        "a trailer without a colon": b"7\r\n<p>page\r\n0\r\nno field\r\n\r\n",
        "a trailer with an odd name": b"7\r\n<p>page\r\n0\r\nX [a]: 1\r\n\r\n",
        "a trailer of HTML": b"7\r\n<p>page\r\n0\r\n<b>bye</b>\r\n\r\n",
        "a folded trailer": b"7\r\n<p>page\r\n0\r\nX: 1\r\n 2\r\n\r\n",
        "CR in a trailer": b"7\r\n<p>page\r\n0\r\nX: a\rb\r\n\r\n",
    }
    for name, body in good.items():
        yield OddAnswer(name, answer(fields=CHUNKED, body=body))
    for name, body in odd.items():
        yield OddAnswer(name, answer(fields=CHUNKED, body=body), repairs=None)
    yield OddAnswer(
        "a size in upper case",
        answer(fields=CHUNKED, body=b"A\r\n<p>page one\r\n0\r\n\r\n".replace(b" one", b"one")),
        content=b"<p>pageone",
    )
    yield OddAnswer(
        "a size in lower case", answer(fields=CHUNKED, body=b"a\r\n<p>pageone\r\n0\r\n\r\n"), content=b"<p>pageone"
    )
    yield OddAnswer("only the last chunk", answer(fields=CHUNKED, body=b"0\r\n\r\n"), content=b"")
    yield OddAnswer(
        "a line that is none, too",
        answer(fields=b"Warning\r\n" + CHUNKED, body=b"7\n<p>page\n0\n\n"),
        repairs=(LINES, CHUNKS),
    )
    cut = {
        "no last chunk": b"7\r\n<p>page\r\n",
        "no line end behind the content": b"7\r\n<p>page",
        "no empty line at the end": b"7\r\n<p>page\r\n0\r\n",
        "no line end at all at the end": b"7\r\n<p>page\r\n0",
        "a trailer without end": b"7\r\n<p>page\r\n0\r\nX-Trailer: 1\r\n",
        "half a chunk": b"9\r\n<p>page",
        "a chunk longer than its size": b"7\r\n<p>page and more\r\n0\r\n\r\n",
        "a second size that is none": b"7\r\n<p>page\r\nzz\r\n",
        "an empty second size": b"7\r\n<p>page\r\n\r\n0\r\n\r\n",
        "a second size with a sign": b"7\r\n<p>page\r\n-1\r\n\r\n",
        "a second size too long": b"7\r\n<p>page\r\n" + b"f" * 17 + b"\r\nx",
        "HTML behind": b"7\r\n<p>page\r\n</html>",
    }
    for name, body in cut.items():
        yield OddAnswer(name, answer(fields=CHUNKED, body=body), is_cut=True, closes=True, repairs=None)
    for name, body in {
        "no size": b"\r\n<p>page\r\n0\r\n\r\n",
        "an empty line before a size": b"\r\n7\r\n<p>page\r\n0\r\n\r\n",
        "a negative size": b"-7\r\n<p>page\r\n0\r\n\r\n",
        "a size with plus": b"+7\r\n<p>page\r\n0\r\n\r\n",
        "a size with 0x": b"0x7\r\n<p>page\r\n0\r\n\r\n",
        "a decimal size": b"7.0\r\n<p>page\r\n0\r\n\r\n",
        "a size too long": b"1" + b"0" * 17 + b"\r\n<p>page\r\n0\r\n\r\n",
        "words for a size": b"seven\r\n<p>page\r\n0\r\n\r\n",
        "h behind a size": b"7h\r\n<p>page\r\n0\r\n\r\n",
        "a comma behind a size": b"7,\r\n<p>page\r\n0\r\n\r\n",
        "a word behind a size": b"7 a\r\n<p>page\r\n0\r\n\r\n",
        "plain text": PAGE,
        "nothing": b"",
    }.items():
        yield OddAnswer(name, answer(fields=CHUNKED, body=body), content=b"", is_cut=True, closes=True, repairs=None)


def _bodies() -> Iterator[OddAnswer]:
    """A body has its length; a shorter one is cut, and what comes behind it is no part of it."""
    yield OddAnswer("as long as it says", answer())
    for length in (8, 100, 10**9):
        yield OddAnswer(
            f"shorter than {length}", answer(fields=b"Content-Length: %d\r\n" % length), is_cut=True, closes=True
        )
    yield OddAnswer("nothing of 7", answer(body=b""), content=b"", is_cut=True, closes=True)
    for surplus in (
        b"x",
        MORE,
        b"\r\n",
        b"\r\n\r\n",
        OK + b"Content-Length: 4\r\n\r\nevil",
        b"HTTP/1.1 103 Early\r\n\r\n",
    ):
        yield OddAnswer("and " + _shown(surplus), answer(body=PAGE + surplus))
    yield OddAnswer("surplus of nothing", answer(fields=b"Content-Length: 0\r\n"), content=b"")
    yield OddAnswer("up to the end", answer(fields=b""), closes=True)
    yield OddAnswer("up to the end, Connection: close", answer(fields=b"Connection: close\r\n"), closes=True)
    yield OddAnswer("up to the end, Connection: keep-alive", answer(fields=b"Connection: keep-alive\r\n"), closes=True)
    yield OddAnswer("up to the end in HTTP/1.0", answer(b"HTTP/1.0 200 OK\r\n", b""), closes=True)
    yield OddAnswer("nothing up to the end", answer(fields=b"", body=b""), content=b"", closes=True)
    for status in (204, 304):
        line = b"HTTP/1.1 %d Odd\r\n" % status
        yield OddAnswer(f"{status}", answer(line, b"", b""), status, b"")
        yield OddAnswer(f"{status} with a length", answer(line, LENGTH, b""), status, b"")
        yield OddAnswer(f"{status} with a body", answer(line), status, b"")
        yield OddAnswer(f"{status} with chunks", answer(line, CHUNKED, IN_CHUNKS), status, b"")
        yield OddAnswer(f"{status} with an odd line", answer(line, b"Warning\r\n", b""), status, b"", repairs=(LINES,))
    yield OddAnswer("205 with a body", answer(b"HTTP/1.1 205 Reset Content\r\n"), 205)
    yield OddAnswer("206 without a range", answer(b"HTTP/1.1 206 Partial Content\r\n"), 206)
    yield OddAnswer("301 without a place", answer(b"HTTP/1.1 301 Moved\r\n"), 301)
    yield OddAnswer("401 without a challenge", answer(b"HTTP/1.1 401 Unauthorized\r\n"), 401)
    yield OddAnswer("407 of no proxy", answer(b"HTTP/1.1 407 Odd\r\n"), 407)
    yield OddAnswer("416", answer(b"HTTP/1.1 416 Odd\r\n"), 416)


def _content_codings() -> Iterator[OddAnswer]:
    """A known coding is undone; text that was never coded is read as it is; of a broken one, what stands before the fault."""
    zipped, deflated = gzip.compress(PAGE, mtime=0), zlib.compress(PAGE)
    raw = deflated[2:-4]
    coded = {
        b"gzip": zipped,
        b"GZIP": zipped,
        b" gzip ": zipped,
        b"x-gzip": zipped,
        b"deflate": deflated,
        b"Deflate": deflated,
    }
    coded |= {b"gzip,": zipped, b", gzip": zipped, b"identity, gzip": zipped, b"gzip, identity": zipped}
    if "br" in CODINGS:
        coded[b"br"] = importlib.import_module("brotli").compress(PAGE)
        coded[b"BR"] = coded[b"br"]
    if "zstd" in CODINGS:
        coded[b"zstd"] = b"\x28\xb5\x2f\xfd\x20\x07\x39\x00\x00" + PAGE  # one raw block
    for value, body in coded.items():
        yield _coded(value, _shown(value), body)
        yield _coded(value, f"{_shown(value)}, but plain", PAGE)
        yield _coded(value, f"{_shown(value)}, up to the end", body, is_open=True)
    yield _coded(b"deflate", "raw deflate", raw)
    for value in (
        b"identity",
        b"none",
        b"",
        b"utf-8",
        b"UTF-8",
        b"binary",
        b"8bit",
        b"text/html",
        b"unknown",
        b"x",
        b"chunked",
        b"*",
        b"gzip;q=1",
        b"xgzip",
        b"gzip x",
    ):
        yield _coded(value, f"{_shown(value)}, plain", PAGE)
    yield _coded(b"gzip, gzip", "gzip twice", gzip.compress(zipped, mtime=0))
    yield _coded(b"deflate, gzip", "deflate and gzip", gzip.compress(deflated, mtime=0))
    yield _coded(b"gzip\r\nContent-Encoding: gzip", "gzip twice in two fields", gzip.compress(zipped, mtime=0))
    yield _coded(b"gzip, gzip", "gzip once, labelled twice", zipped, b"", is_cut=True)
    yield _coded(b"gzip", "gzip labelled, deflate sent", deflated)
    yield _coded(b"deflate", "deflate labelled, gzip sent", zipped, b"", is_cut=True)
    yield _coded(b"gzip", "gzip of nothing", gzip.compress(b"", mtime=0), b"")
    yield _coded(b"gzip", "gzip, nothing sent", b"", b"")
    yield _coded(b"gzip", "gzip in two members", zipped + gzip.compress(MORE, mtime=0), PAGE + MORE)
    yield _coded(b"gzip", "gzip and zeros", zipped + bytes(20))
    yield _coded(b"gzip", "gzip and text", zipped + b"surplus")
    yield _coded(b"gzip", "gzip with a wrong check sum", zipped[:-8] + b"\1\2\3\4" + zipped[-4:], is_cut=True)
    yield _coded(b"gzip", "gzip with a wrong size", zipped[:-4] + b"\1\2\3\4", is_cut=True)
    yield _coded(b"gzip", "gzip without its trailer", zipped[:-8], is_cut=True)
    yield _coded(b"gzip", "gzip without the end of its trailer", zipped[:-3], is_cut=True)
    yield _coded(b"deflate", "deflate without its check sum", deflated[:-4], is_cut=True)
    yield _coded(b"deflate", "deflate with a wrong check sum", deflated[:-4] + b"\1\2\3\4", is_cut=True)
    yield _coded(b"gzip", "gzip with a name", b"\x1f\x8b\x08\x08\0\0\0\0\0\3page.html\0" + raw + zipped[-8:])
    yield _coded(b"gzip", "gzip in chunks", b"%x\r\n%s\r\n0\r\n\r\n" % (len(zipped), zipped), fields=CHUNKED)
    yield _coded(b"gzip", "gzip and the length of the content", zipped, fields=LENGTH, is_cut=True, content=b"")
    yield OddAnswer(
        "gzip, not labelled", answer(fields=b"Content-Length: %d\r\n" % len(zipped), body=zipped), content=zipped
    )


def _coded(
    value: bytes,
    name: str,
    body: bytes,
    content: bytes = PAGE,
    *,
    is_cut: bool = False,
    is_open: bool = False,
    fields: bytes | None = None,
) -> OddAnswer:
    length = b"" if is_open else fields or b"Content-Length: %d\r\n" % len(body)
    sent = answer(fields=b"Content-Encoding: " + value + b"\r\n" + length, body=body)
    return OddAnswer(name, sent, content=content, is_cut=is_cut, closes=is_open, coded=body if body != content else b"")


#: The values of one or more Content-Type fields -> the type by the Fetch standard, empty for none.
_TYPES: Mapping[tuple[bytes, ...], str] = {
    (): "",
    (b"text/html",): "text/html",
    (b"TEXT/HTML",): "text/html",
    (b"text/html;",): "text/html",
    (b"text/html; charset=utf-8",): "text/html",
    (b"text/html;charset=",): "text/html",
    (b"text/html;;;",): "text/html",
    (b"text/html; charset",): "text/html",
    (b' text/html ; charset="utf-8"',): "text/html",
    (b"text/html, text/plain",): "text/plain",
    (b"text/plain, text/html",): "text/html",
    (b"text/plain", b"text/html"): "text/html",
    (b"text/html", b"text/plain"): "text/plain",
    (b"text/html", b"nonsense"): "text/html",
    (b"nonsense", b"text/html"): "text/html",
    (b"text/html", b"*/*"): "text/html",
    (b"text/html,",): "text/html",
    (b",text/html",): "text/html",
    (b"application/xhtml+xml",): "application/xhtml+xml",
    (b"image/svg+xml",): "image/svg+xml",
    (b"application/json",): "application/json",
    (b"x/y",): "x/y",
    (b"html",): "",
    (b"text",): "",
    (b"text/",): "",
    (b"/html",): "",
    (b"text /html",): "",
    (b"text/html charset=utf-8",): "",
    (b"none",): "",
    (b"",): "",
    (b"*/*",): "",
    (b'"text/html"',): "",
}


def _content_types() -> Iterator[OddAnswer]:
    """The type by the Fetch standard: the last valid one of all fields."""
    for values, media_type in _TYPES.items():
        fields = b"".join(b"Content-Type: %s\r\n" % value for value in values)
        sent = OK + b"X-Before: 1\r\n" + fields + LENGTH + b"X-Behind: 2\r\n\r\n" + PAGE
        yield OddAnswer(" and ".join(map(_shown, values)) or "no field", sent, media_type=media_type)


def _no_http() -> Iterator[OddAnswer]:
    """Data that do not begin with a status line are no answer, and the fetcher does not wait for their end."""
    for sent in (
        b"<html>no HTTP",
        b"<!doctype html>\r\n\r\n<p>page",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 smtp.x.test ready\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"SIP/2.0 200 OK\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"Content-Length: 5\r\n\r\nhello",
        b"Status: 200 OK\r\nContent-Type: text/html\r\n\r\n<p>page",
        b"200 OK\r\n\r\nhello",
        b'{"error": "x"}',
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x00" * 30,
        b"hello, world",
        b"+OK POP3 ready\r\n",
        b"* OK IMAP4 ready\r\n",
        b"-ERR unknown command 'GET'\r\n",
        b"H",
        b"HTT",
        b"",
    ):
        yield OddAnswer(_shown(sent), sent, NO_ANSWER, b"", closes=True)
    yield OddAnswer(
        "RTSP", b"RTSP/1.0 200 OK\r\n\r\n", content=b"", closes=True, media_type=""
    )  # the library's tolerance
    for sent in (
        b"HTTP",
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 200 OK\r\n",
        OK + b"Content-Type: text/html\r\n",
        OK + b"Content-Type: text/ht",
    ):
        yield OddAnswer("only " + _shown(sent), sent, NO_ANSWER, b"", closes=True)


def _shown(data: bytes) -> str:
    """A short name of bytes."""
    text = repr(data)[2:-1]
    return text if len(text) <= 60 else f"{text[:40]}… ({len(data)} bytes)"


#: Family -> its answers, by name.
FAMILIES: Mapping[str, Mapping[str, OddAnswer]] = MappingProxyType(
    {
        family: {found.name: found for found in answers}
        for family, answers in {
            "status lines": _status_lines(),
            "before the status line": _before(),
            "lines that are no fields": _odd_lines(),
            "odd fields": _odd_fields(),
            "lengths": _lengths(),
            "transfer codings": _transfer_codings(),
            "chunks": _chunks(),
            "bodies": _bodies(),
            "content codings": _content_codings(),
            "content types": _content_types(),
            "no HTTP": _no_http(),
        }.items()
    }
)


#: Why we read some answers otherwise than the judges -> these answers, by family.
EXCEPTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "no status of HTTP: crawl.log and WARC files have three digits": {
            "status lines": (
                "HTTP/ 1.1 200 OK",
                "code 20",
                "code 2",
                "code 099",
                "code 1000",
                "code 2000",
                "code 2 00",
                "code 99999999999",
            )
        },
        "the number behind a tab counts; Chromium looks for a space": {"status lines": ("HTTP/1.1\\t404 OK",)},
        "a head without end is a lost connection, and is tried again; Chromium shows an empty page": {
            "odd fields": ("CR CR LF everywhere", "CR for CR LF"),
            "no HTTP": (
                "only HTTP",
                "only HTTP/1.1 200 OK",
                "only HTTP/1.1 200 OK\\r\\n",
                "only HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\n",
                "only HTTP/1.1 200 OK\\r\\nContent-Type: text/ht",
            ),
        },
        "a line with CR in it is dropped, and decides nothing": {
            "odd fields": ("LF CR for CR LF",),
            "lengths": ("field Content-Length: 7\\rX: 1",),
        },
        "different lengths are an error": {"lengths": ("different 7, 8",)},
        "chunks in HTTP/1.0 are undone, as curl and wget do": {
            "transfer codings": ("with the length of the chunks in HTTP/1.0",)
        },
        "a size with something behind it may be text": {
            "chunks": ("a decimal size", "h behind a size", "a comma behind a size", "a word behind a size")
        },
        "all members of gzip are one content (RFC 1952)": {"content codings": ("gzip in two members",)},
        "the stream of a radio; Chromium takes it for HTTP/0.9": {"no HTTP": ("ICY 200 OK\\r\\n\\r\\n",)},
    }
)
