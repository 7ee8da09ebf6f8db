"""The small web: the hosts and pages that the crawler's tests crawl, as data.

One entry per host of WEB, one entry per path of a host; `page.py` says what the fields mean. A host
without `/robots.txt` answers 404 for it. Paths under `/trap/` exist nowhere: they stand where a
crawler must not find links, so a request for one of them is a mistake that the ledger shows.
"""

from itertools import pairwise, product

from tests.site.alpha import ALPHA, ALPHA_PAGES
from tests.site.page import MIB, Fault, Host, Link, Page, Web, failure, file, go, redirect, trap


def tree(fan_out: int = 4) -> dict[str, Page]:
    """A tree of three levels below its root; each page links to its children, siblings, parent and the root."""
    pages = {}
    names = [f"{number}" for number in range(1, fan_out + 1)]
    for depth in range(4):
        for steps in product(names, repeat=depth):
            here = "/tree/" + "".join(f"{step}/" for step in steps)
            children = [f"{here}{name}/" for name in names] if depth < 3 else []
            parent = here.removesuffix(f"{steps[-1]}/") if steps else "/"
            siblings = [f"{parent}{name}/" for name in names] if steps else []
            pages[here] = Page(links=go(*children, *siblings, parent, "/tree/"))
    return pages


#: A host on which everything is well: 88 pages, all answered with 200.
BLOG_PAGES: dict[str, Page] = {
    "/": Page(links=go("/tree/", "/about.html", f"{ALPHA}/", "http://beta.test/")),
    "/about.html": Page(links=go("/", "/style.css")),
    "/style.css": file("text/css", b"body { margin: 0 }\n"),
    **tree(),
}

_TEXT_WITH_LINKS = b'See http://beta.test/trap/text and <a href="/trap/text-file">this</a>.\n'
_PDF = b'%PDF-1.4\n1 0 obj << /URI (http://beta.test/trap/pdf) >> <a href="/trap/pdf">x</a>\n%%EOF\n'

#: A host of bodies: encodings, character sets, files.
BETA_PAGES: dict[str, Page] = {
    "/": Page(
        links=go(*(f"/{name}" for name in ("gzip", "latin-1", "latin-1-by-meta", "empty", "no-content", "xhtml")))
        + go(*(f"/{name}" for name in ("no-type", "paper.pdf", "picture.png", "notes.txt", "data.json", "upper")))
        + go(f"{ALPHA}/", "http://blog.alpha.test/tree/")
    ),
    "/gzip": Page(links=go("/from-gzip"), gzip=True),
    "/latin-1": Page(
        links=(Link("/café", "/caf%C3%A9"),), content_type="text/html; charset=ISO-8859-1", charset="latin-1"
    ),
    "/latin-1-by-meta": Page(
        head='<meta charset="iso-8859-1">',
        links=(Link("/thé", "/th%C3%A9"),),
        content_type="text/html",
        charset="latin-1",
    ),
    "/xhtml": Page(links=go("/from-xhtml"), content_type="application/xhtml+xml"),
    "/upper": Page(links=go("/from-upper"), content_type="Text/HTML;Charset=UTF-8"),
    "/empty": Page(body=b""),
    "/no-content": Page(status=204, body=b"", content_type=None),
    "/no-type": Page(links=go("/from-no-type"), content_type=None),
    "/from-no-type": Page(),
    "/paper.pdf": file("application/pdf", _PDF),
    "/picture.png": file("image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
    "/notes.txt": file("text/plain; charset=utf-8", _TEXT_WITH_LINKS),
    "/data.json": file("application/json", b'{"url": "http://beta.test/trap/json"}\n'),
    "/caf%C3%A9": Page(),
    "/th%C3%A9": Page(),
    **{f"/{name}": Page() for name in ("from-gzip", "from-xhtml", "from-upper", "only-by-redirect")},
    "/from-base/leaf-5": Page(),
}

SLOW_PAGES: dict[str, Page] = {
    "/": Page(links=go("/1", "/2", "/3", "/fast")),
    "/1": Page(delay_s=0.1),
    "/2": Page(delay_s=0.2),
    "/3": Page(delay_s=0.3),
    "/fast": Page(),
}

#: The bodies larger than a limit. Whoever reads them whole finds the late links.
BIG_PAGES: dict[str, Page] = {
    "/": Page(links=go("/large", "/huge", "/bomb")),
    "/large": Page(links=go("/early-large"), filler_bytes=300 * 1024, late_links=go("/late-large")),
    "/huge": Page(links=go("/early-huge"), filler_bytes=17 * MIB, late_links=go("/late-huge")),
    "/bomb": Page(links=go("/early-bomb"), filler_bytes=17 * MIB, late_links=go("/late-bomb"), gzip=True),
    **{f"/{when}-{what}": Page() for when in ("early", "late") for what in ("large", "huge", "bomb")},
}

_BUSY = failure(429, ("Retry-After", "1"))

BUSY_PAGES: dict[str, Page] = {
    "/": Page(links=go("/1", "/2", "/calm")),
    "/1": Page(first=(_BUSY, _BUSY)),
    "/2": Page(first=(_BUSY, _BUSY), links=go("/behind-2")),
    "/calm": Page(),
    "/behind-2": Page(),
}

BROKEN_PAGES: dict[str, Page] = {
    "/": Page(links=go("/500", "/404", "/410", "/closed-once", "/closed", "/cut", "/cut-once", "/garbage", "/well")),
    "/500": failure(500),
    "/410": failure(410),
    "/closed-once": Page(first=(Page(fault=Fault.CLOSE),), links=go("/behind-closed-once")),
    "/closed": Page(fault=Fault.CLOSE, links=(trap("/trap/closed"),)),
    "/cut": Page(fault=Fault.CUT, links=go("/in-the-half"), filler_bytes=4096, late_links=(trap("/trap/cut"),)),
    "/in-the-half": Page(),
    "/cut-once": Page(first=(Page(fault=Fault.CUT),), links=go("/behind-cut-once")),
    "/garbage": Page(fault=Fault.GARBAGE),
    "/well": Page(),
    "/behind-closed-once": Page(),
    "/behind-cut-once": Page(),
}

_ROBOTS = b"""# the rules of robots.test
User-agent: *
Disallow: /private/
Allow: /private/open
Disallow: /*.secret$
Crawl-delay: 0.5
"""
_ROBOTS_NAMED = b"User-agent: *\nDisallow: /\n\nUser-agent: anabranch\nDisallow: /not-for-anabranch\n"

_FAR = [f"far{step}.test" for step in range(8)]

WEB: Web = {
    "www.alpha.test": Host(pages=ALPHA_PAGES),
    "blog.alpha.test": Host(pages=BLOG_PAGES),
    "beta.test": Host(pages=BETA_PAGES),
    "xn--bcher-kva.test": Host(pages={"/": Page()}),
    "slow.test": Host(pages=SLOW_PAGES),
    "big.test": Host(pages=BIG_PAGES),
    "busy.test": Host(pages=BUSY_PAGES),
    "broken.test": Host(pages=BROKEN_PAGES),
    # 503 without a word about when: once, and for ever
    "overloaded.test": Host(pages={"/": Page(first=(failure(503),), links=go("/1")), "/1": Page()}),
    "down.test": Host(pages={"/": failure(503)}),
    # No answer, or no end of one
    "silent.test": Host(pages={"/": Page(fault=Fault.SILENCE)}),
    "stalled.test": Host(pages={"/": Page(fault=Fault.STALL, links=(trap("/trap/stalled"),))}),
    # robots.txt: rules and a delay, a group by name, moved, failing, closed
    "robots.test": Host(
        pages={
            "/robots.txt": file("text/plain", _ROBOTS),
            "/": Page(links=go("/1", "/2", "/private/1", "/private/open", "/my.secret", "/my.secret.html")),
            **{path: Page() for path in ("/1", "/2", "/private/1", "/private/open", "/my.secret", "/my.secret.html")},
        },
        forbids=("/private/1", "/my.secret"),
    ),
    "robots-named.test": Host(
        pages={
            "/robots.txt": file("text/plain", _ROBOTS_NAMED),
            "/": Page(links=go("/for-all", "/not-for-anabranch")),
            "/for-all": Page(),
            "/not-for-anabranch": Page(),
        },
        forbids=("/not-for-anabranch",),
    ),
    "robots-moved.test": Host(
        pages={
            "/robots.txt": redirect(301, "/real-robots.txt", "/real-robots.txt"),
            "/real-robots.txt": file("text/plain", b"User-agent: *\nDisallow: /private\n"),
            "/": Page(links=go("/open", "/private")),
            "/open": Page(),
            "/private": Page(),
        },
        forbids=("/private",),
    ),
    "robots-404.test": Host(pages={"/robots.txt": failure(404), "/": Page(links=go("/1")), "/1": Page()}),
    "robots-403.test": Host(pages={"/robots.txt": failure(403), "/": Page(links=go("/1")), "/1": Page()}),
    "robots-500.test": Host(pages={"/robots.txt": failure(500), "/": Page()}, forbids=("/",)),
    "robots-closed.test": Host(pages={"/robots.txt": Page(fault=Fault.CLOSE), "/": Page()}, forbids=("/",)),
    # A seed that moves to another host, and one that moves seven times
    "old.test": Host(pages={"/": redirect(301, "http://new.test/", "http://new.test/")}),
    "new.test": Host(pages={"/": Page(links=go("/1", "http://old.test/behind")), "/1": Page()}),
    **{
        here: Host(pages={"/": redirect(302, f"http://{there}/", f"http://{there}/")}) for here, there in pairwise(_FAR)
    },
    _FAR[-1]: Host(pages={"/": Page()}),
}
