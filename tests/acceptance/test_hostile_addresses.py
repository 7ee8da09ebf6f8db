"""Nothing private is fetched, whatever a site, a redirect or a name server says; the ledger of a private server proves it.

The crawl's Internet is 127.9.9.9 (see `tests/site/hostile/launcher.py`); every other address counts as what it is. On the same
port of 127.0.0.1 and ::1 listens the private server, which nobody may ask anything.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
from dns.message import Message

from tests.acceptance.hostile import crawl
from tests.site.dns_server import DnsServer
from tests.site.hostile.asking import Ask, Hostile, links
from tests.site.hostile.content import moved
from tests.site.hostile.server import HostileWeb
from tests.site.hostile.wire import OK

pytestmark = pytest.mark.timeout(900)

INTERNET = "127.9.9.9"
BLOCKED = -5001
NO_SUCH_NAME = -1
#: The private server's addresses, however they are written; {port} is its port.
LITERALS = (
    "127.0.0.1:{port}",
    "127.1:{port}",
    "2130706433:{port}",
    "0177.0.0.1:{port}",
    "0x7f.0x1:{port}",
    "%31%32%37.0.0.1:{port}",
    "①②⑦.0.0.1:{port}",
    "0:{port}",
    "0.0.0.0:{port}",
    "127.255.255.254:{port}",
    "[::1]:{port}",
    "[0:0:0:0:0:0:0:1]:{port}",
    "[::]:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "[::ffff:7f00:1]:{port}",
    "[::127.0.0.1]:{port}",
    "[64:ff9b::127.0.0.1]:{port}",
    "[64:ff9b:1::7f00:1]:{port}",
    "[2002:7f00:1::1]:{port}",
    "[2001:0:7f00:1::1]:{port}",
    "[fe80::1]:{port}",
    "[fe80::5efe:127.0.0.1]:{port}",
    "[fc00::1]:{port}",
    "localhost:{port}",
    "localhost.:{port}",
    "app.localhost:{port}",
    "10.0.0.1:{port}",
    "172.16.0.1:{port}",
    "192.168.0.1:{port}",
    "100.64.0.1:{port}",
    "169.254.169.254",
    "[fd00:ec2::254]",
)
#: Names of a name server that an attacker has.
NAMES = {
    "loopback.test": ("127.0.0.1",),
    "loopback6.test": ("::1",),
    "mapped.test": ("::ffff:127.0.0.1",),
    "nat64.test": ("64:ff9b::7f00:1",),
    "zero.test": ("0.0.0.0", "::"),
    "metadata.test": ("169.254.169.254",),
    "intranet.test": ("10.0.0.1", "192.168.0.1"),
    "unique-local.test": ("fd00::1",),
}
PUBLIC, BOTH, REBOUND = "public.test", "both.test", "rebound.test"


class Attacker(DnsServer):
    """Its `rebound.test` is public when it is asked for the first time, and private ever after."""

    def answer(self, question: Message) -> Message | None:
        """Answer from the table as it is now; after the first answer for `rebound.test`, make that name private."""
        found = super().answer(question)
        if self.questions[REBOUND, "A"]:
            self.table[REBOUND] = ("127.0.0.1",)
        return found


class Net(NamedTuple):
    """An Internet, what is private beside it, and the attacker's name server."""

    public: HostileWeb
    private: HostileWeb
    private6: HostileWeb | None
    names: Attacker

    def private_urls(self) -> list[str]:
        """Ways to the private server."""
        hosts = [text.format(port=self.public.port) for text in LITERALS] + [
            f"{name}:{self.public.port}" for name in NAMES
        ]
        return [f"http://{host}/secret" for host in hosts]

    def asked_in_private(self) -> set[str]:
        """Return the URLs that were requested from the private servers."""
        return {url for web in (self.private, self.private6) if web for url in web.ledger.counts()}


async def secret(ask: Ask) -> None:
    """Answer with a page that no crawl may read."""
    await ask.page(b"the crown jewels")


async def open_to_all(ask: Ask) -> None:
    """A page with ten others; /to/URL redirects to that URL."""
    if ask.target.startswith("/to/"):
        await moved(ask.target.removeprefix("/to/"))(ask)
    else:
        await ask.page(links(*(f"/{number}" for number in range(10))).encode())


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    """All three, for one test."""
    table = NAMES | {PUBLIC: (INTERNET,), BOTH: (INTERNET, "127.0.0.1"), REBOUND: (INTERNET,)}
    shown, hidden = Hostile("open", open_to_all, (OK,)), Hostile("secret", secret, (OK,))
    async with AsyncExitStack() as stack:
        try:
            public = await stack.enter_async_context(HostileWeb(address=INTERNET, find=lambda host: shown))
        except OSError as error:
            pytest.skip(f"this system has no second loopback address: {error}")
        enter = stack.enter_async_context
        private = await enter(HostileWeb(address="127.0.0.1", port=public.port, find=lambda host: hidden))
        private6 = (
            await enter(HostileWeb(address="::1", port=public.port, find=lambda host: hidden)) if has_ipv6() else None
        )
        yield Net(public, private, private6, await enter(Attacker(table, ttl_s=0)))


def has_ipv6() -> bool:
    """Whether ::1 can be listened on."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def seeds_of(net: Net) -> list[str]:
    """The public hosts, and every private URL: as it is, and as the target of a redirect."""
    port = net.public.port
    starts = [f"http://{name}:{port}/" for name in (PUBLIC, BOTH, REBOUND)]
    return [*starts, *net.private_urls(), *(f"http://{PUBLIC}:{port}/to/{url}" for url in net.private_urls())]


async def test_no_private_address_is_asked_for_anything(tmp_path, net):
    """Literals in every spelling, names, redirects, names with two addresses, names that change: all are refused as blocked."""
    dns = {"servers": [net.names.address], "timeout": "2s"}
    crawled = await crawl(tmp_path, seeds_of(net), {}, internet=INTERNET, dns=dns, scope={"max_hops": 2})
    assert crawled.run.code == 0, crawled.run.err
    assert net.asked_in_private() == set()
    assert {url.split("/")[2] for url in net.public.ledger.counts()} <= {PUBLIC, BOTH, REBOUND}
    statuses: dict[str, set[int]] = {}
    for url, status in crawled.final().items():
        statuses.setdefault(url.split("/")[2].removesuffix(f":{net.public.port}"), set()).add(status)
    public = {name: statuses.pop(name) for name in (PUBLIC, BOTH, REBOUND)}
    assert public[PUBLIC] == {200, 302}
    assert public[BOTH] == {200}, "the public address of a name counts, the private one beside it does not"
    assert public[REBOUND] <= {200, BLOCKED}
    assert statuses.pop("localhost.") <= {BLOCKED, NO_SUCH_NAME}
    assert {host: found for host, found in statuses.items() if found != {BLOCKED}} == {}
    assert len(statuses) >= 20


async def test_the_private_server_is_there_for_those_who_may_ask(tmp_path, net):
    """With --allow-private the same ways lead to it: the test above does not pass because nobody listens."""
    crawled = await crawl(
        tmp_path,
        net.private_urls()[:12],
        {},
        dns={"servers": [net.names.address]},
        scope={"max_hops": 0},
        fetch={"timeout": "2s"},
    )
    assert crawled.final()[f"http://127.0.0.1:{net.public.port}/secret"] == OK
    assert f"http://127.0.0.1:{net.public.port}/secret" not in net.public.ledger.counts()
    assert any(url.endswith("/secret") for url in net.asked_in_private())
