"""The hostile web as one table: group -> name -> what it does. Host `NAME.hostile.test` does what its line says."""

from __future__ import annotations

from collections.abc import Mapping

from tests.site.hostile.asking import Ask, Hostile, links, page
from tests.site.hostile.content import BUSY, ENDLESS, PARSERS, REDIRECTS, ROBOTS, SITEMAPS
from tests.site.hostile.wire import BODIES, FRAMING, HEADERS, NOISE, OK, SOCKETS

DOMAIN = "hostile.test"
GROUPS: Mapping[str, Mapping[str, Hostile]] = {
    "sockets": SOCKETS,
    "noise": NOISE,
    "headers": HEADERS,
    "framing": FRAMING,
    "bodies": BODIES,
    "endless sites": ENDLESS,
    "redirects": REDIRECTS,
    "parsers": PARSERS,
    "robots.txt": ROBOTS,
    "sitemaps": SITEMAPS,
    "busy hosts": BUSY,
}
HOSTILE: Mapping[str, Hostile] = {name: host for group in GROUPS.values() for name, host in group.items()}
assert len(HOSTILE) == sum(map(len, GROUPS.values())), "a name stands for one behaviour"

#: The innocent host: a tree of 30 pages, each with links to three further down and to the first one; three hops deep.
INNOCENT = f"innocent.{DOMAIN}"
INNOCENT_PAGES = 30
INNOCENT_URLS = frozenset(f"http://{INNOCENT}/{f'page{n}' if n else ''}" for n in range(INNOCENT_PAGES))
#: Hosts of this suffix are all one server: `h7.many.hostile.test`.
MANY = f".many.{DOMAIN}"

#: Hosts of this suffix have the longest robots.txt that is read: `h7.ruled.hostile.test`.
RULED = f".ruled.{DOMAIN}"
_RULES = b"User-agent: *\n" + b"".join(b"Disallow: /%06d*a\n" % number for number in range(26_000))


def host_of(name: str) -> str:
    """The host that does what the name says."""
    return f"{name}.{DOMAIN}"


def first_url(name: str) -> str:
    """Return the URL at which a crawl of that host begins."""
    return f"http://{host_of(name)}{HOSTILE[name].target}"


def many_hosts(count: int, suffix: str = MANY) -> list[str]:
    """So many names for one server."""
    return [f"h{number}{suffix}" for number in range(count)]


async def innocent(ask: Ask) -> None:
    """A page of the tree, or 404."""
    name = ask.target.strip("/")
    number = int(name.removeprefix("page") or 0) if name.removeprefix("page").isdigit() or not name else INNOCENT_PAGES
    if number >= INNOCENT_PAGES:
        await ask.page(b"there is no such page", "text/plain", status=404)
        return
    below = range(3 * number + 1, min(3 * number + 4, INNOCENT_PAGES))
    await ask.page(links("/", *(f"/page{n}" for n in below)).encode())


async def one_of_many(ask: Ask) -> None:
    """Answer every URL with a page of links to the next three hosts and to /1. Keeps the connection open."""
    ask.is_kept = True
    number = int(ask.host.removesuffix(MANY).removeprefix("h"))
    await ask.page(links(*(f"http://h{number + step}{MANY}/" for step in (1, 2, 3)), "/1").encode())


async def missing(ask: Ask) -> None:
    """404."""
    await ask.page(b"there is no such page", "text/plain", status=404)


MANY_HOST = Hostile("one of many hosts that are one server", one_of_many, (OK,))
RULED_HOST = Hostile("one of many hosts with 500 KB of rules", page("a page"), (OK,), robots=page(_RULES, "text/plain"))
INNOCENT_HOST = Hostile("an honest host", innocent, (OK,))


def found(host: str) -> Hostile | None:
    """Return the host that answers for this name; None if there is no such host."""
    if host == INNOCENT:
        return INNOCENT_HOST
    if host.endswith(MANY):
        return MANY_HOST
    if host.endswith(RULED):
        return RULED_HOST
    return HOSTILE.get(host.removesuffix(f".{DOMAIN}"))
