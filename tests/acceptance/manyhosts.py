"""A small web of many hosts whose pages lead from host to host, so that shares of a crawl depend on one another."""

from __future__ import annotations

from tests.site.page import Host, Page, Web, go, redirect

HOSTS = 8
PAGES = 9
#: A host that only a seed's redirect leads to.
MOVED_TO = "moved.test"
SEEDS = [
    "http://h0.test/",
    *(f"http://h{number}.test/robots-are-welcome" for number in range(1, HOSTS)),
    "http://old.test/",
]


def url(host: int, page: int) -> str:
    """A page of a host; page 0 is its root."""
    return f"http://h{host % HOSTS}.test/{page or ''}"


def many_hosts() -> Web:
    """Page P of each host but the last links to page P + 1 of others, and back; all begins at one host's root."""
    hosts = {f"h{number}.test": Host(pages=_pages(number)) for number in range(HOSTS)}
    hosts["old.test"] = Host(pages={"/": redirect(301, f"http://{MOVED_TO}/", f"http://{MOVED_TO}/")})
    hosts[MOVED_TO] = Host(
        pages={
            "/": Page(links=go("/1", url(3, 1))),
            **{f"/{page}": Page(links=go(f"/{page + 1}")) for page in range(1, 9)},
        }
    )
    return hosts


def _pages(host: int) -> dict[str, Page]:
    pages = {f"/{page or ''}": Page(links=_links(host, page)) for page in range(PAGES)}
    pages["/robots-are-welcome"] = Page()
    pages["/7"] = Page(links=_links(host, 7), first=(Page(status=503, body=b"soon"),))
    pages["/there"] = redirect(302, url(host + 5, 9), url(host + 5, 9))
    return pages


def _links(host: int, page: int) -> tuple:
    there = [url(host + step, page + 1) for step in (1, 3, 7) if page + 1 < PAGES]
    return go(*there, url(host, page), url(host + 1, 0), url(host + 2, 1), "/there", url(0, 0))
