"""The resolver against a small DNS server on loopback: answers, failures, cache, single flight."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import TYPE_CHECKING, cast

import aiodns
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pycares
import pytest

from anabranch.crawler.fetch import dns as crawler_dns
from anabranch.crawler.fetch.addresses import Address, ResolverOptions
from anabranch.crawler.fetch.dns import Resolver
from anabranch.crawler.outcomes.failures import NAME_SERVERS, NameNotFound, NameTimeout, ServiceAway
from tests.patience import HANG_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

A = "192.0.2.1"
LIMIT_S = HANG_S  # no test waits for this; it ends a test that would hang


class NameServer(asyncio.DatagramProtocol):
    """Answers from `records` (name, type) -> (ttl, addresses); other rcodes from `rcodes`; `silent` names never.

    `malformed` names get a header that promises a record, and garbage.

    While `held` is not set no answer is sent. Counts the questions by name.
    """

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self.rcodes: dict[str, dns.rcode.Rcode] = {}
        self.silent: set[str] = set()
        self.malformed: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.kinds: set[str] = set()
        self.was_asked = asyncio.Event()
        self.held = asyncio.Event()
        self.held.set()
        self.waiting: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.transport.get_extra_info("sockname"))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name = question.name.to_text(omit_final_dot=True)
        kind = dns.rdatatype.to_text(question.rdtype)
        if kind == "A":
            self.asked[name] += 1
        self.kinds.add(kind)
        self.was_asked.set()
        if name in self.silent:
            return
        if name in self.malformed:
            self.transport.sendto(data[:2] + b"\x81\x80\0\1\0\1\0\0\0\0" + b"\xff" * 20, addr)
            return
        answer = dns.message.make_response(query)
        answer.set_rcode(self.rcodes.get(name, dns.rcode.NOERROR))
        if record := self.records.get((name, kind)):
            answer.answer.append(dns.rrset.from_text(question.name, record[0], "IN", kind, *record[1]))
        elif name not in self.rcodes and not any(known == name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        if self.held.is_set():
            self.transport.sendto(answer.to_wire(), addr)
        else:
            self.waiting.append(lambda: self.transport.sendto(answer.to_wire(), addr))

    def release(self) -> None:
        self.held.set()
        for send in self.waiting:
            send()


class Clock:
    """Epoch seconds that only a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
async def no_task_left() -> AsyncIterator[None]:
    """A closed resolver leaves no task behind."""
    before = asyncio.all_tasks()
    yield
    assert asyncio.all_tasks() - before - {asyncio.current_task()} == set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def server() -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    yield protocol
    transport.close()


@pytest.fixture
async def resolver(no_task_left: None, server: NameServer, clock: Clock) -> AsyncIterator[Resolver]:
    resolver = Resolver([server.address], {}, clock=clock, timeout_s=0.3)
    yield resolver
    await asyncio.wait_for(resolver.close(), LIMIT_S)


async def hosts_of(resolver: Resolver, host: str) -> set[str]:
    return {address.host for address in await asyncio.wait_for(resolver.resolve(host), LIMIT_S)}


async def test_a_name_gives_its_a_and_aaaa_addresses(resolver: Resolver, server: NameServer) -> None:
    """Both families are asked for; the URL's port is kept."""
    server.records[("www.a.test", "A")] = (300, [A, "192.0.2.2"])
    server.records[("www.a.test", "AAAA")] = (300, ["2001:db8::1"])
    found = await resolver.resolve("www.a.test")
    assert set(found) == {
        Address(host=A, family=socket.AF_INET),
        Address(host="192.0.2.2", family=socket.AF_INET),
        Address(host="2001:db8::1", family=socket.AF_INET6),
    }


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", Address(host="127.0.0.1", family=socket.AF_INET)),
        ("::1", Address(host="::1", family=socket.AF_INET6)),
        ("[2001:DB8::1]", Address(host="2001:db8::1", family=socket.AF_INET6)),
    ],
)
async def test_an_ip_literal_is_its_own_answer(
    resolver: Resolver, server: NameServer, host: str, address: Address
) -> None:
    """IPv4 and IPv6 literals, in brackets or not, ask no server."""
    assert await resolver.resolve(host) == (address,)
    assert not server.asked


async def test_the_hosts_table_comes_first_and_may_give_a_port(server: NameServer, clock: Clock) -> None:
    """A name of the order's table is never asked for; its case does not matter."""
    table = {"A.test": "127.0.0.1:8080", "b.test": "[::1]:81", "c.test": "10.0.0.1"}
    resolver = Resolver([server.address], table, clock=clock)
    assert await resolver.resolve("a.test") == (Address(host="127.0.0.1", port=8080, family=socket.AF_INET),)
    assert await resolver.resolve("B.TEST") == (Address(host="::1", port=81, family=socket.AF_INET6),)
    assert await resolver.resolve("c.test") == (Address(host="10.0.0.1", family=socket.AF_INET),)
    assert not server.asked
    await resolver.close()


async def test_a_known_address_is_what_was_answered_last_and_costs_no_question(
    resolver: Resolver, server: NameServer, clock: Clock
) -> None:
    """Nobody waits for it: unknown until somebody resolves the host, of several the same one, and kept when it is old."""
    server.records[("www.a.test", "A")] = (300, ["192.0.2.9", "192.0.2.2"])
    assert resolver.known_address("www.a.test") is None
    assert not server.asked
    await resolver.resolve("www.a.test")
    assert resolver.known_address("WWW.a.test") == "192.0.2.2"
    clock.now_s += 1_000_000
    assert resolver.known_address("www.a.test") == "192.0.2.2"
    with pytest.raises(NameNotFound):
        await resolver.resolve("no.such.test")
    assert resolver.known_address("no.such.test") is None
    assert resolver.known_address("[::1]") == "::1"


async def test_the_hosts_table_is_known_at_once(clock: Clock) -> None:
    """Its addresses are the order's."""
    resolver = Resolver([], {"A.test": "127.0.0.1:8080"}, clock=clock)
    assert resolver.known_address("a.test") == "127.0.0.1"
    await resolver.close()


async def test_localhost_needs_no_server(resolver: Resolver, server: NameServer) -> None:
    """The system's own names work: `localhost` is loopback."""
    assert await hosts_of(resolver, "localhost") & {"127.0.0.1", "::1"}
    assert not server.asked


async def test_without_servers_the_systems_are_used(clock: Clock) -> None:
    """An empty list of servers is not an empty resolver."""
    resolver = Resolver([], {}, clock=clock)
    assert await hosts_of(resolver, "localhost") & {"127.0.0.1", "::1"}
    await resolver.close()


@pytest.mark.parametrize("host", ["no.such.test", "a..test", "x" * 64 + ".test", "\ud800.test"])
async def test_a_name_that_does_not_exist_is_not_found(resolver: Resolver, host: str) -> None:
    """NXDOMAIN, and names that can be no names, are final."""
    with pytest.raises(NameNotFound):
        await resolver.resolve(host)


async def test_the_systems_search_domains_are_not_tried(
    resolver: Resolver, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crawled name is a whole name: another host must not answer for it."""
    monkeypatch.setenv("LOCALDOMAIN", "corp.test")
    server.records[("no.test.corp.test", "A")] = (300, [A])
    with pytest.raises(NameNotFound):
        await resolver.resolve("no.test")


async def test_a_name_without_addresses_is_not_found(resolver: Resolver, server: NameServer) -> None:
    """NOERROR without an A or AAAA record is final."""
    server.records[("mail.a.test", "MX")] = (300, ["10 mx.a.test."])
    with pytest.raises(NameNotFound, match=r"^no address for mail\.a\.test: "):
        await resolver.resolve("mail.a.test")


async def test_where_no_server_listens_the_servers_are_away(clock: Clock) -> None:
    """A name server that is down says nothing of the name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))  # so that nobody else takes the port
        closed.connect(("127.0.0.1", 9))  # it hears this one alone: for all others nobody is there
        resolver = Resolver([f"127.0.0.1:{closed.getsockname()[1]}"], {}, clock=clock, timeout_s=0.3)
        with pytest.raises(ServiceAway, match="name servers: "):
            await asyncio.wait_for(resolver.resolve("a.test"), LIMIT_S)
        await resolver.close()


@pytest.mark.parametrize("rcode", [dns.rcode.SERVFAIL, dns.rcode.REFUSED, dns.rcode.NOTIMP])
async def test_a_server_that_fails_may_do_better_later(
    resolver: Resolver, server: NameServer, rcode: dns.rcode.Rcode
) -> None:
    """SERVFAIL and its like are no answer about the name."""
    server.rcodes["a.test"] = rcode
    with pytest.raises(NameTimeout):
        await asyncio.wait_for(resolver.resolve("a.test"), LIMIT_S)


async def test_a_silent_server_is_a_time_out(resolver: Resolver, server: NameServer) -> None:
    """No answer at all ends by itself as a NameTimeout."""
    server.silent.add("a.test")
    with pytest.raises(NameTimeout):
        await asyncio.wait_for(resolver.resolve("a.test"), LIMIT_S)


async def test_a_malformed_answer_fails_only_the_name_that_it_answers(server: NameServer, clock: Clock) -> None:
    """Lookups that are under way when it comes get their addresses."""
    resolver = Resolver([server.address], {}, clock=clock, timeout_s=LIMIT_S)
    names = [f"{letter}.test" for letter in "abcdef"]
    server.records = {(name, "A"): (300, [A]) for name in names}
    server.malformed.add("bad.test")
    server.held.clear()
    asking = [asyncio.create_task(resolver.resolve(name)) for name in names]
    while len(server.asked) < len(names):
        server.was_asked.clear()
        await asyncio.wait_for(server.was_asked.wait(), LIMIT_S)
    with pytest.raises(NameTimeout, match="Misformatted"):
        await asyncio.wait_for(resolver.resolve("bad.test"), LIMIT_S)
    server.release()
    answers = await asyncio.wait_for(asyncio.gather(*asking), LIMIT_S)
    await resolver.close()
    assert [{address.host for address in answer} for answer in answers] == [{A}] * len(names)


async def test_a_lookup_that_is_asked_again_alone_ends_with_the_resolver(server: NameServer, clock: Clock) -> None:
    """Closing leaves neither its channel nor its task."""
    resolver = Resolver([server.address], {}, clock=clock, timeout_s=LIMIT_S)
    server.malformed.add("bad.test")
    server.held.clear()
    asking = asyncio.create_task(resolver.resolve("bad.test"))
    while server.asked["bad.test"] < 1:
        await asyncio.wait_for(server.was_asked.wait(), LIMIT_S)
    server.malformed.clear()  # what is asked again waits
    while server.asked["bad.test"] < 2:
        server.was_asked.clear()
        await asyncio.wait_for(server.was_asked.wait(), LIMIT_S)
    await asyncio.wait_for(resolver.close(), LIMIT_S)
    with pytest.raises(NameTimeout):
        await asking


async def test_many_silent_servers_take_no_longer_than_the_limit(clock: Clock) -> None:
    """c-ares would wait for each of them twice; the lookup has a limit of its own."""
    silent = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
    for sock in silent:
        sock.bind(("127.0.0.1", 0))
    servers = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in silent]
    resolver = Resolver(servers, {}, clock=clock, timeout_s=0.2)
    with pytest.raises(ServiceAway, match="name servers: "):
        await asyncio.wait_for(resolver.resolve("a.test"), LIMIT_S)
    await resolver.close()
    for sock in silent:
        sock.close()


async def test_without_a_channel_the_name_is_tried_later(resolver: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """c-ares out of descriptors or memory is our trouble, not the name's."""

    def broken(**_: object) -> aiodns.DNSResolver:
        raise pycares.AresError("Failed to initialize c-ares channel")

    monkeypatch.setattr(aiodns, "DNSResolver", broken)
    with pytest.raises(ServiceAway, match="name servers: "):
        await resolver.resolve("a.test")


async def test_a_slow_answer_is_an_answer(resolver: Resolver, server: NameServer) -> None:
    """An answer that comes within the time counts."""
    server.records[("a.test", "A")] = (300, [A])
    server.held.clear()
    asking = asyncio.create_task(resolver.resolve("a.test"))
    await asyncio.wait_for(server.was_asked.wait(), LIMIT_S)
    server.release()
    assert {address.host for address in await asking} == {A}


@pytest.mark.parametrize(("ttl", "kept_s"), [(0, 60.0), (59, 60.0), (7200, 7200.0), (86_400, 21_600.0)])
async def test_an_answer_is_kept_for_its_ttl_between_a_minute_and_six_hours(
    resolver: Resolver, server: NameServer, clock: Clock, ttl: int, kept_s: float
) -> None:
    """Until then the name is not asked for again, then it is (c-ares may still know the answer)."""
    server.records[("a.test", "A")] = (ttl, [A])
    await resolver.resolve("a.test")
    clock.now_s += kept_s - 0.1
    assert resolver._cached("a.test") is not None
    await resolver.resolve("a.test")
    assert server.asked["a.test"] == 1
    clock.now_s += 0.1
    assert resolver._cached("a.test") is None


async def test_an_answer_that_is_too_old_is_asked_for_again(
    resolver: Resolver, server: NameServer, clock: Clock
) -> None:
    """The second answer replaces the first."""
    server.records[("a.test", "A")] = (0, [A])
    assert await hosts_of(resolver, "a.test") == {A}
    server.records[("a.test", "A")] = (0, ["192.0.2.9"])
    clock.now_s += 60.0
    assert await hosts_of(resolver, "a.test") == {"192.0.2.9"}


async def test_a_missing_name_is_not_asked_for_again_for_half_a_minute(
    resolver: Resolver, server: NameServer, clock: Clock
) -> None:
    """The failure is kept, and each caller gets an error of its own."""
    with pytest.raises(NameNotFound) as first:
        await resolver.resolve("no.test")
    asked = server.asked["no.test"]
    clock.now_s += 29.9
    with pytest.raises(NameNotFound) as second:
        await resolver.resolve("no.test")
    assert second.value is not first.value
    assert server.asked["no.test"] == asked
    server.records[("no.test", "A")] = (300, [A])
    clock.now_s += 0.1
    assert await hosts_of(resolver, "no.test") == {A}


async def test_a_time_out_is_forgotten_before_the_url_is_tried_again(
    resolver: Resolver, server: NameServer, clock: Clock
) -> None:
    """The first retry comes after 10 s and must be a new question."""
    server.rcodes["a.test"] = dns.rcode.SERVFAIL
    with pytest.raises(NameTimeout):
        await resolver.resolve("a.test")
    del server.rcodes["a.test"]
    server.records[("a.test", "A")] = (300, [A])
    clock.now_s += 10.0
    assert await hosts_of(resolver, "a.test") == {A}


async def test_the_cache_drops_the_host_asked_for_longest_ago(
    resolver: Resolver, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache holds a fixed number of hosts."""
    monkeypatch.setattr(crawler_dns, "MAX_HOSTS", 2)
    for name in "abc":
        server.records[(f"{name}.test", "A")] = (0, [A])
    for name in ("a", "b", "a", "c", "a"):
        await resolver.resolve(f"{name}.test")
    assert server.asked == {"a.test": 1, "b.test": 1, "c.test": 1}
    await resolver.resolve("b.test")
    assert server.asked["b.test"] == 2


async def test_lookups_failures_and_cached_answers_are_counted(resolver: Resolver, server: NameServer) -> None:
    """Answers of the hosts table or for an IP literal are not counted."""
    server.records["a.test", "A"] = (300, [A])
    await resolver.resolve("a.test")
    await resolver.resolve("a.test")
    await resolver.resolve(A)
    for _ in range(2):
        with pytest.raises(NameNotFound):
            await resolver.resolve("missing.test")
    assert (resolver.lookups, resolver.failures, resolver.cache_hits) == (2, 1, 2)


async def test_one_lookup_serves_all_who_ask_meanwhile(resolver: Resolver, server: NameServer) -> None:
    """Single flight: a hundred workers, one question."""
    server.records[("a.test", "A")] = (300, [A])
    found = await asyncio.gather(*(resolver.resolve("a.test") for _ in range(100)))
    assert {address.host for answer in found for address in answer} == {A}
    assert server.asked["a.test"] == 1


async def test_all_who_wait_for_a_failing_lookup_get_an_error_of_their_own(resolver: Resolver) -> None:
    """An error object belongs to one fetch, since it carries that fetch's times."""
    results = await asyncio.gather(*(resolver.resolve("no.test") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(error, NameNotFound) for error in results)
    assert len({id(error) for error in results}) == 3


async def test_a_cancelled_waiter_does_not_stop_the_lookup(resolver: Resolver, server: NameServer) -> None:
    """The others still get the answer, and nobody asks twice."""
    server.records[("a.test", "A")] = (300, [A])
    server.held.clear()
    first = asyncio.create_task(resolver.resolve("a.test"))
    second = asyncio.create_task(resolver.resolve("a.test"))
    await asyncio.wait_for(server.was_asked.wait(), LIMIT_S)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.release()
    assert {address.host for address in await second} == {A}
    assert server.asked["a.test"] == 1


async def test_closing_ends_the_lookups_under_way(server: NameServer, clock: Clock) -> None:
    """Waiting and later callers get a NameTimeout at once; no task is left."""
    server.silent.add("a.test")
    resolver = Resolver([server.address], {}, clock=clock, timeout_s=60.0)
    asking = asyncio.create_task(resolver.resolve("a.test"))
    await asyncio.wait_for(server.was_asked.wait(), LIMIT_S)
    await asyncio.wait_for(resolver.close(), LIMIT_S)
    with pytest.raises(NameTimeout):
        await asking
    with pytest.raises(NameTimeout, match="the resolver is closed"):
        await resolver.resolve("b.test")


async def test_closing_waits_for_lookups_that_nobody_waits_for(server: NameServer, clock: Clock) -> None:
    """The last waiter is gone, the lookup is not; when close returns it is."""
    server.silent.add("a.test")
    before = asyncio.all_tasks()
    resolver = Resolver([server.address], {}, clock=clock, timeout_s=60.0)
    asking = asyncio.create_task(resolver.resolve("a.test"))
    await asyncio.wait_for(server.was_asked.wait(), LIMIT_S)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(asyncio.all_tasks() - before) == 1
    await resolver.close()
    assert asyncio.all_tasks() - before - {asyncio.current_task()} == set()


async def test_closing_an_unused_resolver_is_fine_and_so_is_closing_twice(clock: Clock) -> None:
    """Close has no order to respect."""
    resolver = Resolver([], {}, clock=clock)
    await resolver.close()
    await resolver.close()


def test_a_name_in_place_of_an_address_is_refused(clock: Clock) -> None:
    """For servers and hosts alike, by what was written."""
    with pytest.raises(ValueError, match=r"not 'dns\.test:53'"):
        Resolver(["dns.test:53"], {}, clock=clock)
    with pytest.raises(ValueError, match=r"not 'b\.test'"):
        Resolver([], {"a.test": "b.test"}, clock=clock)


async def test_an_ipv6_name_server_is_asked_at_its_port(clock: Clock) -> None:
    """The server's address is written as c-ares reads it, brackets included."""
    resolver = Resolver(["[::1]:5353", "127.0.0.1"], {}, clock=clock)
    assert resolver._servers == ["[::1]:5353", "127.0.0.1:53"]
    await resolver.close()


# Families


async def test_the_families_take_turns(resolver: Resolver, server: NameServer) -> None:
    """RFC 8305, section 4: who goes down the list meets the other family at the second try."""
    server.records[("a.test", "A")] = (300, ["192.0.2.1", "192.0.2.2", "192.0.2.3"])
    server.records[("a.test", "AAAA")] = (300, ["2001:db8::1", "2001:db8::2"])
    found = [address.family for address in await resolver.resolve("a.test")]
    assert found[:4] in ([socket.AF_INET, socket.AF_INET6] * 2, [socket.AF_INET6, socket.AF_INET] * 2)


@pytest.mark.parametrize(
    ("options", "kinds", "found"),
    [
        (ResolverOptions(ipv6=False), {"A"}, {A}),
        (ResolverOptions(ipv4=False), {"AAAA"}, {"2001:db8::1"}),
    ],
)
async def test_a_family_that_is_off_is_not_asked_for(
    server: NameServer, clock: Clock, options: ResolverOptions, kinds: set[str], found: set[str]
) -> None:
    """Nor are its addresses used where they stand already: as a literal, or in the order's table."""
    server.records[("a.test", "A")] = (300, [A])
    server.records[("a.test", "AAAA")] = (300, ["2001:db8::1"])
    table = {"four.test": "10.0.0.1", "six.test": "::1"}
    resolver = Resolver([server.address], table, clock=clock, options=options)
    assert await hosts_of(resolver, "a.test") == found
    assert server.kinds == kinds
    off = ("10.0.0.1", "four.test", "IPv4") if options.ipv6 else ("[::1]", "six.test", "IPv6")
    for host in off[:2]:
        with pytest.raises(NameNotFound, match=f"{off[2]} is switched off"):
            await resolver.resolve(host)
    assert await resolver.resolve("six.test" if options.ipv6 else "four.test")
    await resolver.close()


async def test_a_host_that_has_only_the_other_family_is_not_found(server: NameServer, clock: Clock) -> None:
    """An empty answer to the only question."""
    server.records[("a.test", "A")] = (300, [A])
    resolver = Resolver([server.address], {}, clock=clock, options=ResolverOptions(ipv4=False))
    with pytest.raises(NameNotFound):
        await resolver.resolve("a.test")
    await resolver.close()


@pytest.mark.parametrize(("ttl", "kept_s"), [(1, 10.0), (15, 15.0), (300, 20.0)])
async def test_the_bounds_of_the_ttl_can_be_set(server: NameServer, clock: Clock, ttl: int, kept_s: float) -> None:
    """The order sets them."""
    server.records[("a.test", "A")] = (ttl, [A])
    resolver = Resolver([server.address], {}, clock=clock, options=ResolverOptions(min_ttl_s=10.0, max_ttl_s=20.0))
    await resolver.resolve("a.test")
    clock.now_s += kept_s - 0.1
    assert resolver._cached("a.test") is not None
    clock.now_s += 0.1
    assert resolver._cached("a.test") is None
    await resolver.close()


# What is noted of lookups


async def test_a_lookup_can_be_taken_once(resolver: Resolver, server: NameServer, clock: Clock) -> None:
    """With its records and times; what the cache answers was not looked up."""
    server.records[("a.test", "A")] = (300, [A])
    server.records[("a.test", "AAAA")] = (60, ["2001:db8::1"])
    for _ in range(2):
        await resolver.resolve("A.test")
    made = resolver.take_lookup("a.TEST")
    assert made
    assert (made.host, made.start_s, made.end_s) == ("a.test", 1000.0, 1000.0)
    assert set(made.records) == {("A", A, 300), ("AAAA", "2001:db8::1", 60)}
    assert resolver.take_lookup("a.test") is None
    await resolver.resolve("a.test")
    assert resolver.take_lookup("a.test") is None


async def test_a_lookup_that_failed_can_be_taken_too(resolver: Resolver) -> None:
    """With its reason, and without records."""
    with pytest.raises(NameNotFound) as raised:
        await resolver.resolve("no.test")
    made = resolver.take_lookup("no.test")
    assert made
    assert (made.records, made.reason) == ((), str(raised.value))


async def test_lookups_that_nobody_takes_are_forgotten(
    resolver: Resolver, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest first."""
    monkeypatch.setattr(crawler_dns, "MAX_UNTAKEN", 2)
    for name in "abc":
        server.records[(f"{name}.test", "A")] = (0, [A])
        await resolver.resolve(f"{name}.test")
    assert [resolver.take_lookup(f"{name}.test") is None for name in "abc"] == [True, False, False]


async def test_of_thousands_of_addresses_a_few_are_kept(resolver: Resolver, server: NameServer) -> None:
    """A hostile answer must not fill the memory, nor make us knock at a whole network; both families have their share."""
    server.records[("a.test", "A")] = (300, [f"192.0.2.{number}" for number in range(1, 60)])
    server.records[("a.test", "AAAA")] = (300, [f"2001:db8::{number:x}" for number in range(1, 20)])
    found = await resolver.resolve("a.test")
    assert Counter(address.family for address in found) == {socket.AF_INET: 8, socket.AF_INET6: 8}
    made = resolver.take_lookup("a.test")
    assert made
    assert [record.address for record in made.records] == [address.host for address in found]


async def test_a_wildcard_in_the_hosts_table_matches_the_names_below_it(clock: Clock) -> None:
    """`*.` matches every name below, not the name itself; an exact entry wins, then the longest wildcard."""
    hosts = {"*.test": "192.0.2.1", "*.B.test": "192.0.2.2", "c.b.test": "192.0.2.3"}
    resolver = Resolver([], hosts, clock=clock)
    found = {
        host: resolver.known_address(host)
        for host in ("a.test", "x.y.test", "X.b.test", "c.b.test", "test", "a.test.", "c.b.test.")
    }
    assert found == {
        "a.test": "192.0.2.1",
        "x.y.test": "192.0.2.1",
        "X.b.test": "192.0.2.2",
        "c.b.test": "192.0.2.3",
        "test": None,
        "a.test.": "192.0.2.1",
        "c.b.test.": "192.0.2.3",
    }
    assert [address.host for address in await resolver.resolve("a.test")] == ["192.0.2.1"]
    await resolver.close()


# Servers that are away


class Away(NameServer):
    """A name server that can go away: it says nothing, or answers every question with one rcode."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.rcode: dns.rcode.Rcode | None = None

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.is_away:
            super().datagram_received(data, addr)
        elif self.rcode is not None:
            answer = dns.message.make_response(dns.message.from_wire(data))
            answer.set_rcode(self.rcode)
            self.transport.sendto(answer.to_wire(), addr)


@pytest.fixture
async def away() -> AsyncIterator[Away]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(Away, local_addr=("127.0.0.1", 0))
    server.records = {("a.test", "A"): (0, [A]), ("b.test", "A"): (0, [A])}  # c-ares keeps none
    yield server
    transport.close()


@pytest.fixture
async def of_away(away: Away, clock: Clock) -> AsyncIterator[Resolver]:
    options = ResolverOptions(max_stale_s=1000.0)
    resolver = Resolver([away.address], {}, clock=clock, timeout_s=0.1, options=options)
    yield resolver
    await resolver.close()


@pytest.mark.parametrize("rcode", [None, dns.rcode.SERVFAIL, dns.rcode.REFUSED])
async def test_servers_that_answer_nothing_are_away_whatever_the_name(
    of_away: Resolver, away: Away, rcode: dns.rcode.Rcode | None
) -> None:
    """Our own question gets no better answer. Nothing is kept: the name is asked for again when they are back."""
    away.is_away, away.rcode = True, rcode
    for _ in range(2):
        with pytest.raises(ServiceAway, match=f"^{NAME_SERVERS}: "):
            await of_away.resolve("a.test")
    assert (of_away.is_away, of_away.has_answered, of_away.take_lookup("a.test")) == (True, False, None)
    assert not await of_away.answers()
    away.is_away = False
    assert await of_away.answers()
    assert [address.host for address in await of_away.resolve("a.test")] == [A]
    assert (of_away.is_away, of_away.has_answered) == (False, True)


async def test_while_the_servers_are_away_no_name_is_asked_for(of_away: Resolver, away: Away) -> None:
    """A visit does not wait for a time-out that is known beforehand."""
    away.is_away = True
    with pytest.raises(ServiceAway):
        await of_away.resolve("a.test")
    asked = away.asked.total()
    with pytest.raises(ServiceAway):
        await of_away.resolve("b.test")
    assert (away.asked.total(), away.asked["b.test"]) == (asked, 0)


async def test_known_addresses_are_served_past_their_time_only_while_the_servers_are_away(
    of_away: Resolver, away: Away, clock: Clock
) -> None:
    """RFC 8767, up to `max_stale_s`; a host that was never looked up has none."""
    await of_away.resolve("a.test")
    clock.now_s += 61.0
    away.records["a.test", "A"] = (0, ["192.0.2.9"])
    assert [address.host for address in await of_away.resolve("a.test")] == ["192.0.2.9"]
    clock.now_s += 61.0
    away.is_away = True
    assert [address.host for address in await of_away.resolve("a.test")] == ["192.0.2.9"]
    assert of_away.has_address("A.test")
    assert not of_away.has_address("b.test")
    clock.now_s += 1000.0
    assert not of_away.has_address("a.test")
    with pytest.raises(ServiceAway):
        await of_away.resolve("a.test")


@pytest.mark.parametrize("fault", ["silent", "SERVFAIL"])
async def test_the_fault_of_one_name_is_not_its_servers(of_away: Resolver, away: Away, fault: str) -> None:
    """They answer for the root, or for a name that was answered before: some know nothing of the root."""
    await of_away.resolve("b.test")
    away.rcodes[""] = dns.rcode.REFUSED  # the root
    if fault == "silent":
        away.silent.add("a.test")
    else:
        away.rcodes["a.test"] = dns.rcode.SERVFAIL
        away.records.pop(("a.test", "A"))
    with pytest.raises(NameTimeout):
        await of_away.resolve("a.test")
    assert not of_away.is_away


async def test_one_question_of_our_own_serves_all_names_that_get_no_answer(of_away: Resolver, away: Away) -> None:
    """A hundred workers do not ask a hundred times."""
    away.is_away = True
    failures = await asyncio.gather(*(of_away.resolve(f"h{n}.test") for n in range(30)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {ServiceAway}
    assert len({id(failure) for failure in failures}) == 30
