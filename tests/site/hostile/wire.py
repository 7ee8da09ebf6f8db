"""Hosts that are hostile below the page: sockets, status lines, header fields, framing, and bodies without end."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.site.hostile import bodies
from tests.site.hostile.asking import HTML, TRAP, Answer, Ask, Hostile, links, page, raw, streamed

OK, LOST, TIMED_OUT, UNFETCHABLE, NO_HTTP = 200, -3, -4, -7, -9
ROBOTS_FAILED, EXCLUDED = -61, -9998
#: An answer with a body that was cut is an answer; one that cannot be framed, or read, is none.
CUT_OR_LOST = (OK, LOST)
CUT_OR_LATE = (OK, TIMED_OUT)
CUT_LATE_OR_LOST = (OK, TIMED_OUT, LOST)

STATUS = b"HTTP/1.1 200 OK\r\n"
TYPE = b"Content-Type: text/html\r\n"
CHUNKED = STATUS + TYPE + b"Transfer-Encoding: chunked\r\n\r\n"
TEN_GIGABYTES = 10_000_000_000
KEPT = b"<!DOCTYPE html><a href=/early>x</a>"


async def drip(ask: Ask) -> None:
    """A whole answer, one byte a second: 40 minutes of it."""
    await ask.drip(STATUS + TYPE + b"\r\n" + bodies.EARLY + b" " * 2400, 1.0)


async def drip_body(ask: Ask) -> None:
    await ask.say(STATUS + TYPE + b"\r\n" + bodies.EARLY)
    await ask.drip(b" " * 2400, 1.0)


async def two_answers(ask: Ask) -> None:
    """The second one waits in the kept connection for whoever asks next."""
    evil = links(f"{TRAP}smuggled").encode()
    for body in (b"<!DOCTYPE html>first", evil):
        await ask.say(STATUS + TYPE + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    ask.status = OK
    ask.is_kept = True


async def continues(ask: Ask) -> None:
    """`100 Continue` for ever."""
    await ask.flood(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


async def random_bytes(ask: Ask) -> None:
    await ask.say(random.Random(len(ask.host)).randbytes(200_000))


def sized(length: bytes, body: bytes = KEPT) -> Answer:
    """A Content-Length that is not the body's, then the end."""
    return raw(STATUS + TYPE + b"Content-Length: " + length + b"\r\n\r\n" + body)


def coded(coding: str, body: bytes) -> Answer:
    return page(body, HTML, f"Content-Encoding: {coding}")


def fields(*lines: bytes) -> Answer:
    """A small honest page with these header lines, as they are."""
    return raw(STATUS + TYPE + b"".join(line + b"\r\n" for line in lines) + b"Connection: close\r\n\r\n" + KEPT)


def _lazy(make: Callable[[], bytes], coding: str) -> Answer:
    """A coded body that is made when it is first asked for."""

    async def answer(ask: Ask) -> None:
        await ask.page(make(), HTML, f"Content-Encoding: {coding}")

    return answer


#: A robots.txt is asked for first: what breaks every connection breaks that one, too.
NO_ANSWER = (LOST, ROBOTS_FAILED)
NEVER_AN_ANSWER = (TIMED_OUT, ROBOTS_FAILED)

SOCKETS: Mapping[str, Hostile] = {
    "mute": Hostile(
        "accepts and never answers, robots.txt neither",
        raw(then="silence"),
        NEVER_AN_ANSWER,
        robots=raw(then="silence"),
    ),
    "half-status": Hostile("half a status line, then silence", raw(b"HTTP/1.1 20", then="silence"), (TIMED_OUT,)),
    "cut-status": Hostile("half a status line, then the end", raw(b"HTTP/1.1 20"), (LOST,)),
    "reset-accept": Hostile("RST right after the request", raw(then="reset"), NO_ANSWER, robots=raw(then="reset")),
    "reset-status": Hostile("RST after the status line", raw(STATUS, then="reset"), (LOST,)),
    "reset-headers": Hostile("RST in the middle of the headers", raw(STATUS + b"Content-Ty", then="reset"), (LOST,)),
    "reset-body": Hostile(
        "RST in the middle of the body",
        raw(STATUS + TYPE + b"Content-Length: 900\r\n\r\n" + KEPT, then="reset"),
        CUT_OR_LOST,
    ),
    "closed": Hostile("closes without a word", raw(), NO_ANSWER, robots=raw()),
    "drip": Hostile("one byte per second from the first byte on", drip, CUT_OR_LATE),
    "drip-body": Hostile("headers at once, the body one byte per second", drip_body, CUT_OR_LATE),
    "stalled-body": Hostile(
        "half a body, then silence",
        raw(STATUS + TYPE + b"Content-Length: 900\r\n\r\n" + KEPT, then="silence"),
        CUT_OR_LATE,
    ),
}

NOISE: Mapping[str, Hostile] = {
    "http-0-9": Hostile("HTTP/0.9: a page without a head", raw(KEPT), (NO_HTTP,)),
    "random": Hostile("200 KB of random bytes", random_bytes, (NO_HTTP,)),
    "zeros": Hostile("200 KB of zero bytes", raw(b"\0" * 200_000), (NO_HTTP,)),
    "smtp": Hostile(
        "the greeting of another protocol", raw(b"220 mail.test ESMTP ready\r\n", then="silence"), (NO_HTTP, TIMED_OUT)
    ),
    "status-text": Hostile("a status that is no number: 200, as in Chromium", raw(b"HTTP/1.1 OK 404\r\n\r\n"), (200,)),
    "status-huge": Hostile(
        "a status of a thousand digits", raw(b"HTTP/1.1 " + b"2" * 1000 + b" OK\r\n\r\n"), (NO_HTTP,)
    ),
    "status-negative": Hostile(
        "a status of -1: 200, as in Chromium", raw(b"HTTP/1.1 -1 OK\r\nContent-Length: 0\r\n\r\n"), (200,)
    ),
    "status-999": Hostile(
        "a status nobody knows", raw(b"HTTP/1.1 999 Go away\r\nContent-Length: 0\r\n\r\n"), (999, LOST)
    ),
    "continues": Hostile("100 Continue for ever", continues, (LOST, TIMED_OUT)),
    "two-answers": Hostile("two answers to one question, the second full of traps", two_answers, (OK, LOST)),
}

HEADERS: Mapping[str, Hostile] = {
    "endless-line": Hostile("one header line without end", streamed(STATUS + b"X-Long: ", b"a"), CUT_OR_LOST),
    "endless-lines": Hostile("header lines without end", streamed(STATUS, b"X-More: 1\r\n"), CUT_OR_LOST),
    "endless-status": Hostile("a reason phrase without end", streamed(b"HTTP/1.1 200 ", b"very "), CUT_OR_LOST),
    "cookies": Hostile("5000 cookies", fields(*(b"Set-Cookie: c%d=%d" % (n, n) for n in range(5000))), CUT_OR_LOST),
    "fat-cookies": Hostile(
        "200 cookies of 4 KB", fields(*(b"Set-Cookie: c%d=%s" % (n, b"x" * 4000) for n in range(200))), CUT_OR_LOST
    ),
    "etag": Hostile("an ETag of 1 MB", fields(b'ETag: "' + b"e" * 1_000_000 + b'"'), CUT_OR_LOST),
    "long-type": Hostile(
        "a Content-Type of 64 KB",
        raw(STATUS + b"Content-Type: text/html; x=" + b"a" * 65_536 + b"\r\n\r\n" + KEPT),
        CUT_OR_LOST,
    ),
    "duplicates": Hostile(
        "each header field twice, with different values",
        fields(b"Content-Type: image/png", b"ETag: 1", b"ETag: 2", b"Date: x", b"Date: y"),
        CUT_OR_LOST,
    ),
    "non-ascii": Hostile(
        "header fields that are neither ASCII nor UTF-8",
        fields(b"X-Caf\xe9: \xff\xfe", b"Server: \xe2\x98\x83"),
        CUT_OR_LOST,
    ),
    "fat-headers": Hostile(
        "250 header fields of 30 KB each", fields(*(b"X-%d: %s" % (n, b"x" * 30_000) for n in range(250))), CUT_OR_LOST
    ),
    "nul-header": Hostile("NUL in a header field", fields(b"Server: a\0b"), CUT_OR_LOST),
    "no-colon": Hostile("a header line without a colon", fields(b"this is no field"), CUT_OR_LOST),
    "space-colon": Hostile("a space before the colon", fields(b"Server : x"), CUT_OR_LOST),
    "folded": Hostile(
        "a header field folded over 100 lines", fields(b"X-Long: 1", *(b" and more" for _ in range(100))), CUT_OR_LOST
    ),
    "bare-lf": Hostile(
        "lines that end in LF alone", raw(b"HTTP/1.1 200 OK\nContent-Type: text/html\n\n" + KEPT), CUT_OR_LOST
    ),
}

FRAMING: Mapping[str, Hostile] = {
    "chunk-letters": Hostile("a chunk size that is no number", raw(CHUNKED + b"zz\r\n" + KEPT), CUT_OR_LOST),
    "chunk-negative": Hostile("a negative chunk size", raw(CHUNKED + b"-5\r\n" + KEPT), CUT_OR_LOST),
    "chunk-huge": Hostile("a chunk of 2^64 bytes", raw(CHUNKED + b"ffffffffffffffff\r\n" + KEPT), CUT_OR_LOST),
    "chunk-digits": Hostile("a chunk size of endless zeros", streamed(CHUNKED, b"0"), CUT_LATE_OR_LOST),
    "chunk-extension": Hostile("a chunk extension without end", streamed(CHUNKED + b"5;", b"x=y;"), CUT_LATE_OR_LOST),
    "chunk-cut": Hostile("no last chunk: closed", raw(CHUNKED + b"%x\r\n" % len(KEPT) + KEPT + b"\r\n"), CUT_OR_LOST),
    "chunk-stall": Hostile(
        "no last chunk: silent", raw(CHUNKED + b"%x\r\n" % len(KEPT) + KEPT + b"\r\n", then="silence"), CUT_OR_LATE
    ),
    "chunk-one": Hostile("chunks of one byte without end", streamed(CHUNKED, b"1\r\nx\r\n"), CUT_OR_LATE),
    "trailers": Hostile(
        "trailer fields without end", streamed(CHUNKED + b"1\r\nx\r\n0\r\n", b"X-More: 1\r\n"), CUT_LATE_OR_LOST
    ),
    "length-long": Hostile("Content-Length is more than comes", sized(b"100000"), CUT_OR_LOST),
    "length-short": Hostile("Content-Length is less than comes", sized(b"10"), CUT_OR_LOST),
    "length-negative": Hostile("Content-Length: -1", sized(b"-1"), CUT_OR_LOST),
    "length-two": Hostile("two Content-Lengths", sized(b"5\r\nContent-Length: 35"), (NO_HTTP,)),
    "length-text": Hostile("Content-Length: many", sized(b"many"), CUT_OR_LOST),
    "length-huge": Hostile("Content-Length of a thousand digits", sized(b"9" * 1000), CUT_OR_LOST),
    "length-chunked": Hostile(
        "Content-Length and chunks",
        raw(STATUS + TYPE + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        CUT_OR_LOST,
    ),
}

BODIES: Mapping[str, Hostile] = {
    "ten-gigabytes": Hostile(
        "10 GB, announced",
        streamed(STATUS + TYPE + b"Content-Length: %d\r\n\r\n" % TEN_GIGABYTES + KEPT, b"filler ", TEN_GIGABYTES // 7),
        (OK,),
    ),
    "endless": Hostile("a body without end or length", streamed(STATUS + TYPE + b"\r\n" + KEPT, b"filler "), (OK,)),
    "gzip-bomb": Hostile("1 GB in 1 MB of gzip", _lazy(bodies.gzip_bomb, "gzip"), CUT_OR_LOST),
    "deflate-bomb": Hostile("1 GB in 1 MB of deflate", _lazy(bodies.deflate_bomb, "deflate"), CUT_OR_LOST),
    "nested-bomb": Hostile(
        "10 GB in 24 KB: a gzip in a gzip", _lazy(bodies.nested_gzip_bomb, "gzip, gzip"), CUT_OR_LOST
    ),
    "brotli-bomb": Hostile("4 GB in 4 KB of brotli", _lazy(bodies.brotli_bomb, "br"), CUT_OR_LOST),
    "zstd-bomb": Hostile("4 GB in 128 KB of zstd", _lazy(bodies.zstd_bomb, "zstd"), CUT_OR_LOST),
    "zstd-window": Hostile(
        "zstd that wants a window of 2 GB", _lazy(lambda: bodies.zstd_bomb(64, window_log=31), "zstd"), CUT_OR_LOST
    ),
    "gzip-nothing": Hostile(
        "a gzip without end that decodes to nothing",
        streamed(STATUS + TYPE + b"Content-Encoding: gzip\r\n\r\n" + bodies.GZIP_HEAD, bodies.EMPTY_BLOCK),
        CUT_LATE_OR_LOST,
    ),
    "not-gzip": Hostile("says gzip and is not", coded("gzip", KEPT), CUT_OR_LOST),
    "torn-gzip": Hostile(
        "a gzip that breaks in the middle",
        coded("gzip", bodies.html_in_gzip(KEPT, b"abcdefg ", 1 << 20)[:500]),
        CUT_OR_LOST,
    ),
    "many-codings": Hostile("1000 content codings", coded(", ".join(["gzip"] * 1000), KEPT), CUT_OR_LOST),
    "nul-body": Hostile("NUL between the letters of its tags", page(b"<a\0 href=\0/early>" + b"\0" * 100_000), (OK,)),
}
