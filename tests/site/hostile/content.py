"""Hostile content over correct HTTP: endless sites, bombs for parsers, bad redirects and links, robots.txt, sitemaps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

from tests.site.hostile import bodies
from tests.site.hostile.asking import TRAP, Answer, Ask, Hostile, links, page, raw, streamed
from tests.site.hostile.wire import CHUNKED, EXCLUDED, KEPT, OK, ROBOTS_FAILED, STATUS, TYPE

EMBED_BYTES = 50_000_000
TEXT, XML, CSS = "text/plain", "application/xml", "text/css"


def moved(location: str | bytes, status: int = 302) -> Answer:
    """A redirect, its Location as it is."""
    place = location.encode() if isinstance(location, str) else location
    return raw(
        b"HTTP/1.1 %d Found\r\nLocation: " % status + place + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )


# --- endless sites


async def calendar(ask: Ask) -> None:
    """A page for every day: the day before and after, the month and the year, for ever."""
    try:
        day = date.fromisoformat(ask.target.partition("=")[2])
    except ValueError:
        day = date(2026, 1, 1)
    steps = (1, -1, 31, -31, 366, -366)
    await ask.page(links(*(f"/?day={day + timedelta(days=step)}" for step in steps)).encode())


async def deeper(ask: Ask) -> None:
    """Two relative links on every page: /x/x/x/x/…"""
    await ask.page(links("x/", "y/").encode())


async def sessions(ask: Ask) -> None:
    """Every page gives every link a new session id."""
    number = int(ask.target.rpartition("=")[2] or 0) if "=" in ask.target else 0
    await ask.page(links(*(f"/page{n}?PHPSESSID={number * 3 + n + 1}" for n in range(3))).encode())


async def frames(ask: Ask) -> None:
    """A frame in a frame in a frame, without end."""
    depth = int(ask.target.strip("/") or 0)
    await ask.page(f'<!DOCTYPE html><iframe src="/{depth + 1}"></iframe>'.encode())


async def stylesheets(ask: Ask) -> None:
    """@import in a circle, to oneself, and without end."""
    if not ask.target.endswith(".css"):
        await ask.page(b'<!DOCTYPE html><link rel=stylesheet href="/a.css"><link rel=stylesheet href="/1.css">')
        return
    name = ask.target.strip("/").removesuffix(".css")
    after = {"a": "b", "b": "a"}.get(name) or str(int(name) + 1)
    await ask.page(f'@import "/{name}.css"; @import url(/{after}.css);'.encode(), CSS)


async def refreshes(ask: Ask) -> None:
    """A meta refresh to the next page, for ever."""
    number = int(ask.target.strip("/") or 0)
    await ask.page(f'<!DOCTYPE html><meta http-equiv=refresh content="0;url=/{number + 1}">'.encode())


# --- redirects


async def ping_pong(ask: Ask) -> None:
    await moved("/pong" if ask.target != "/pong" else "/")(ask)


async def chain(ask: Ask) -> None:
    """50 redirects, then a page."""
    number = int(ask.target.strip("/") or 0)
    await (moved(f"/{number + 1}") if number < 50 else page(KEPT))(ask)


async def away(ask: Ask) -> None:
    """Links that redirect to what no crawler fetches."""
    places = {
        "/1": "file:///etc/passwd",
        "/2": f"javascript:location='{TRAP}js'",
        "/3": "data:text/html,<a href=/trap/data>x</a>",
        "/4": "gopher://127.0.0.1/",
        "/5": "",
        "/6": "http://",
        "/7": "//",
        "/8": "http://[::1",
    }
    if ask.target in places:
        await moved(places[ask.target])(ask)
    else:
        await ask.page(links(*places).encode())


async def split_location(ask: Ask) -> None:
    """CR LF in a Location: some would take what follows for a header field, or an answer."""
    split = f"/early\r\nSet-Cookie: a=b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n<a href={TRAP}split>".encode()
    await (moved(split) if ask.target == "/" else page(KEPT))(ask)


async def encoded_location(ask: Ask) -> None:
    """Send a Location with a percent-encoded CR LF: it is one URL, and no other field."""
    await (moved("/early%0d%0aSet-Cookie:%20a=b") if ask.target == "/" else page(KEPT))(ask)


# --- bombs for parsers


def _spread(size: int, first: bytes, unit: bytes) -> Answer:
    return streamed(STATUS + TYPE + b"\r\n" + first, unit, size // len(unit))


async def million_links(ask: Ask) -> None:
    """1,000,000 different links on a page, 18 MB of them."""
    if ask.target != "/":
        await ask.page(b"a page")
        return
    await ask.say(STATUS + TYPE + b"\r\n<!DOCTYPE html>")
    for start in range(0, 1_000_000, 5000):
        await ask.say(b"".join(b"<a href=/%d>x</a>" % number for number in range(start, start + 5000)))
    ask.status = OK


async def million_attributes(ask: Ask) -> None:
    """A tag with 1,000,000 attributes, all different."""
    await ask.say(STATUS + TYPE + b"\r\n<!DOCTYPE html><a href=/early>x</a><a ")
    for start in range(0, 1_000_000, 5000):
        await ask.say(b"".join(b"a%d=%d " % (number, number) for number in range(start, start + 5000)))
    await ask.say(b"href=/late>x</a>")
    ask.status = OK


FORMATTING = b"".join(b"<b id=%d><p>" % number for number in range(120_000))
LONG = "a" * 100_000


# --- robots.txt and sitemaps


async def sitemap_index(ask: Ask) -> None:
    """An index that names itself, and another one that is new each time."""
    number = int(ask.target.rpartition("=")[2]) if "=" in ask.target else 0
    names = ("/sitemap.xml", f"/sitemap.xml?n={number + 1}")
    entries = "".join(f"<sitemap><loc>http://{ask.host}{name}</loc></sitemap>" for name in names)
    await ask.page(
        f"<sitemapindex xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>{entries}</sitemapindex>".encode(), XML
    )


def _laughs() -> str:
    entities = "".join(
        f'<!ENTITY l{n} "{"&l" + str(n - 1) + ";"}{("&l" + str(n - 1) + ";") * 9}">' for n in range(1, 10)
    )
    return f'<?xml version="1.0"?><!DOCTYPE u [<!ENTITY l0 "ha">{entities}]><urlset><url><loc>&l9;</loc></url></urlset>'


_PASSWD = (
    '<?xml version="1.0"?><!DOCTYPE u [<!ENTITY f SYSTEM "file:///etc/passwd"><!ENTITY h SYSTEM "http://private.test/trap/entity">]>'
    "<urlset><url><loc>http://x.test/&f;&h;</loc></url></urlset>"
)


def _with_map(ask: Ask) -> bytes:
    return f"User-agent: *\nAllow: /\nSitemap: http://{ask.host}/sitemap.xml\n".encode()


async def names_map(ask: Ask) -> None:
    """A robots.txt that names /sitemap.xml."""
    await ask.page(_with_map(ask), TEXT)


async def robots_circle(ask: Ask) -> None:
    """A robots.txt that redirects to a new one each time."""
    number = int(ask.target.rpartition("=")[2]) if "=" in ask.target else 0
    await moved(f"/robots.txt?n={number + 1}")(ask)


async def robots_many_rules(ask: Ask) -> None:
    """50 MB of rules, the one that matters first."""
    unit = b"Disallow: /not/here/nor/there\n"
    head = STATUS + b"Content-Type: text/plain\r\n\r\nUser-agent: *\nDisallow: /shut\n"
    await streamed(head, unit, EMBED_BYTES // len(unit))(ask)


async def wild(ask: Ask) -> None:
    """500 KB of rules full of stars: each is dear to judge."""
    rule = b"Disallow: /*a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t*u*v*w*x*y*z$\n"
    await ask.page(b"User-agent: *\n" + rule * 7500, TEXT)


async def stars(ask: Ask) -> None:
    """One rule of 100,000 stars, and URLs that make it work hard."""
    rule = "/*" + "a*" * 50_000 + "$"
    await ask.page(f"User-agent: *\nDisallow: {rule}\n".encode(), TEXT)


async def busy(ask: Ask) -> None:
    """429 for ever."""
    await ask.page(b"slow down", TEXT, status=429)


async def back_next_year(ask: Ask) -> None:
    """A page, then 503 with a Retry-After of a year."""
    if ask.target == "/":
        await ask.page(links("/1").encode())
    else:
        await ask.page(b"come back", TEXT, f"Retry-After: {366 * 86_400}", status=503)


ENDLESS: Mapping[str, Hostile] = {
    "calendar": Hostile("a calendar without end", calendar, (OK,), is_endless=True),
    "deeper": Hostile("relative paths without end: /x/x/x/y/x/…", deeper, (OK,), is_endless=True),
    "sessions": Hostile("a new session id in each link", sessions, (OK,), is_endless=True),
    "frames": Hostile("a frame in each frame", frames, (OK,), is_endless=True),
    "imports": Hostile("@import in circles and without end", stylesheets, (OK,), is_endless=True),
    "refreshes": Hostile("a meta refresh on each page", refreshes, (OK,), is_endless=True),
}

REDIRECTS: Mapping[str, Hostile] = {
    "self": Hostile("redirects to itself", moved("/"), (302,)),
    "ping-pong": Hostile("two URLs that redirect to each other", ping_pong, (302,)),
    "chain": Hostile("50 redirects in a row", chain, (302,)),
    "away": Hostile("redirects to file:, javascript:, data:, gopher: and nowhere", away, (OK,)),
    "split-location": Hostile("CR LF in a Location", split_location, (302, -3)),
    "encoded-location": Hostile("%0d%0a in a Location", encoded_location, (302,)),
    "long-location": Hostile("a Location of 100 KB", moved(f"/{LONG}"), (302, -3)),
    "binary-location": Hostile("a Location of binary", moved(b"/\xff\xfe\x80"), (302, -3)),
    "no-location": Hostile("a redirect to nowhere", page(b"", TEXT, status=301), (301,)),
}

PARSERS: Mapping[str, Hostile] = {
    "nested": Hostile("50 MB of nested tags", _spread(EMBED_BYTES, KEPT, b"<div>"), (OK,)),
    "formatting": Hostile("120,000 <b id=…><p>, all open", page(KEPT + FORMATTING), (OK,)),
    "tables": Hostile("50 MB of tables in tables", _spread(EMBED_BYTES, KEPT, b"<table><tr><td>"), (OK,)),
    "million-links": Hostile("1,000,000 links on a page", million_links, (OK,), is_endless=True),
    "million-attributes": Hostile("1,000,000 attributes in a tag", million_attributes, (OK,)),
    "open-tags": Hostile("10 MB of tags that are never closed", _spread(10_000_000, KEPT, b"<a href="), (OK,)),
    "comments": Hostile("10 MB of <!--", _spread(10_000_000, KEPT, b"<!--"), (OK,)),
    "entities": Hostile("10 MB of &amp", _spread(10_000_000, KEPT + b"<a href='", b"&amp"), (OK,)),
    "quotes": Hostile("10 MB of quotes", _spread(10_000_000, KEPT, b"<a '\" "), (OK,)),
    "srcset": Hostile("a srcset of 5 MB of commas", _spread(5_000_000, KEPT + b"<img srcset='", b","), (OK,)),
    "css-urls": Hostile("5 MB of url( that never end", page(b"url(" * 1_250_000, CSS), (OK,)),
    "bad-charset": Hostile("a charset that there is not", page(KEPT, "text/html; charset=klingon"), (OK,)),
    "evil-charset": Hostile(
        "charsets that are Python's codecs and no character sets",
        page(KEPT * 2000, "text/html; charset=punycode"),
        (OK,),
    ),
    "meta-charset": Hostile(
        "a meta that says unicode_escape", page(b"<meta charset=unicode_escape>" + KEPT * 2000), (OK,)
    ),
    "wrong-charset": Hostile(
        "bytes that are not in the charset declared", page(KEPT + b"\xff\xfe\x80" * 10_000), (OK,)
    ),
    "no-charset": Hostile("bytes in no charset at all", page(KEPT + bytes(range(256)) * 100, "text/html"), (OK,)),
    "long-urls": Hostile(
        "links of 100 KB", page(links(f"/{LONG}", f"/?{LONG}", f"http://{LONG}.test/", "/early")), (OK,)
    ),
    "schemes": Hostile(
        "links to file:, javascript:, data:, about:, mailto:",
        page(
            links(
                "file:///etc/passwd",
                f"javascript:'{TRAP}x'",
                f"data:text/html,<a href={TRAP}d>",
                "about:blank",
                "mailto:a@b.test",
                "FILE:/etc/passwd",
                "java\nscript:alert(1)",
                "/early",
            )
        ),
        (OK,),
    ),
    "base": Hostile(
        "base elements that would lead astray",
        page('<base href="javascript:x"><base href="/trap/">' + links("/early")),
        (OK,),
    ),
    "long-base": Hostile("a base of 100 KB", page(f'<base href="/{LONG}/">' + links("/early")), (OK,)),
    "authority": Hostile(
        "links with userinfo, ports and hosts that are none",
        page(
            links(
                "http://a:b@c@private.test/",
                "http://private.test:99999/",
                "http://%00/",
                "http://a b/",
                "//",
                "http:///",
                "/early",
            )
        ),
        (OK,),
    ),
}

ROBOTS: Mapping[str, Hostile] = {
    "robots-50mb": Hostile("a robots.txt of 50 MB", page(links("/shut", "/early")), (OK,), robots=robots_many_rules),
    "robots-endless": Hostile(
        "a robots.txt that never ends",
        page(KEPT),
        (OK, ROBOTS_FAILED, -4),
        robots=streamed(CHUNKED, b"8\r\n# more!\n\r\n"),
    ),
    "robots-circle": Hostile(
        "a robots.txt of endless redirects", page(KEPT), (OK, ROBOTS_FAILED), robots=robots_circle
    ),
    "robots-mute": Hostile(
        "a robots.txt that never comes", page(KEPT), (ROBOTS_FAILED, -4), robots=raw(then="silence")
    ),
    "robots-stars": Hostile(
        "a rule of 50,000 stars",
        page(links("/" + "a" * 2000 + "b")),
        (OK, EXCLUDED),
        target="/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
        robots=stars,
    ),
    "robots-wild": Hostile("500 KB of rules full of stars", page(KEPT), (OK, EXCLUDED), robots=wild),
    "robots-noise": Hostile(
        "a robots.txt of random bytes", page(KEPT), (OK,), robots=page(bytes(range(256)) * 1000, TEXT)
    ),
    "robots-bomb": Hostile(
        "a robots.txt that is a gzip bomb",
        page(KEPT),
        (OK, ROBOTS_FAILED, -3),
        robots=page(bodies.gzip_bomb(256), TEXT, "Content-Encoding: gzip"),
    ),
}

SITEMAPS: Mapping[str, Hostile] = {
    "map-laughs": Hostile(
        "a sitemap of a billion laughs", page(_laughs(), XML), (OK,), target="/sitemap.xml", robots=names_map
    ),
    "map-outside": Hostile(
        "a sitemap with entities of files and URLs", page(_PASSWD, XML), (OK,), target="/sitemap.xml", robots=names_map
    ),
    "map-index": Hostile(
        "a sitemap index that names itself, and new ones",
        sitemap_index,
        (OK,),
        target="/sitemap.xml",
        robots=names_map,
        is_endless=True,
    ),
    "map-bomb": Hostile(
        "a sitemap that is a gzip bomb",
        page(bodies.gzip_bomb(256), "application/gzip"),
        (OK,),
        target="/sitemap.xml.gz",
    ),
    "map-deep": Hostile(
        "10 MB of nested elements", _spread(10_000_000, b"<urlset>", b"<url>"), (OK,), target="/sitemap.xml"
    ),
}

BUSY: Mapping[str, Hostile] = {
    "throttled": Hostile("429 for ever", busy, (429,)),
    "next-year": Hostile("Retry-After of a year", back_next_year, (OK,)),
}
