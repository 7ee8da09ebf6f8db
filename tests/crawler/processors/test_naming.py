"""The name precondition: a host without an address is asked for nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch.crawler.chain import Step
from anabranch.crawler.network.dns import Resolver
from anabranch.crawler.network.lookups import Lookup
from anabranch.crawler.outcomes.failures import NameNotFound, NameTimeout
from anabranch.crawler.processors.disposition import decide
from anabranch.crawler.processors.naming import NamePrecondition
from anabranch.crawler.visit import Visit
from anabranch.frontier.models import HostTrouble, OutcomeKind
from tests.crawler.builder import START_S, visit
from tests.frontier.builder import FakeClock
from tests.site.dns_server import DnsServer


class Named:
    """The precondition over a real name server, and what it notes."""

    def __init__(self, server: DnsServer, hosts: dict[str, str]) -> None:
        self.server = server
        self.clock = FakeClock(START_S)
        self.resolver = Resolver([server.address], hosts, clock=self.clock, timeout_s=0.2)
        self.notes: list[tuple[str, str, int]] = []
        self.process = NamePrecondition(self.resolver, self._note)

    async def _note(self, one: Visit, made: Lookup) -> None:
        await asyncio.sleep(0)
        self.notes.append((one.lease.url, made.url, made.status))


@asynccontextmanager
async def opened(table: dict[str, list[str]], hosts: dict[str, str] | None = None) -> AsyncIterator[Named]:
    async with DnsServer(table) as server:
        named = Named(server, hosts or {})
        yield named
        await named.resolver.close()


async def test_a_host_with_an_address_lets_its_pages_pass_and_is_noted_once() -> None:
    """All who wait for the same lookup go on; one of them has the line."""
    async with opened({"a.test": ["127.0.0.1"]}) as named:
        steps = await asyncio.gather(*(named.process(visit(url=f"http://a.test:81/{n}")) for n in range(5)))
        assert set(steps) == {Step.PROCEED}
        assert [note[1:] for note in named.notes] == [("dns:a.test", 1)]
        assert named.server.questions[("a.test", "A")] == 1


async def test_a_host_without_an_address_ends_the_visit_before_anything_is_fetched() -> None:
    """The failure is noted and raised; it has no times, so no slot rests, and the host is in no trouble."""
    async with opened({}) as named:
        one = visit(url="http://no.test/")
        with pytest.raises(NameNotFound) as raised:
            await named.process(one)
        one.failure = raised.value
        decided = decide(one, START_S)
        assert decided
        assert (decided.kind, decided.status, decided.trouble) == (OutcomeKind.FAILED, -1, HostTrouble.NONE)
        assert one.fetched is None
        assert named.notes == [("http://no.test/", "dns:no.test", -1)]


async def test_a_name_server_that_does_not_answer_is_a_failure_to_be_tried_again() -> None:
    """And has its line as well."""
    async with opened({"a.test": ["127.0.0.1"]}) as named:
        named.server.broken.add("a.test")
        one = visit()
        with pytest.raises(NameTimeout) as raised:
            await named.process(one)
        one.failure = raised.value
        decided = decide(one, START_S)
        assert decided
        assert decided.kind is OutcomeKind.RETRY
        assert [status for _, _, status in named.notes] == [-1]


@pytest.mark.parametrize("url", ["http://a.test/", "http://127.0.0.1/", "http://[::1]:81/"])
async def test_what_need_not_be_looked_up_has_no_line(url: str) -> None:
    """Names of the order's table, and addresses."""
    async with opened({}, {"a.test": "127.0.0.1"}) as named:
        assert await named.process(visit(url=url)) is Step.PROCEED
        assert named.notes == []


async def test_an_answer_that_is_too_old_is_looked_up_and_noted_again() -> None:
    """The second line belongs to the visit that asked."""
    async with opened({"a.test": ["127.0.0.1"]}) as named:
        for later_s in (0.0, 59.0, 2.0):
            named.clock.advance(later_s)
            await named.process(visit(url=f"http://a.test/{later_s}"))
        assert [via for via, _, _ in named.notes] == ["http://a.test/0.0", "http://a.test/2.0"]


async def test_a_host_that_a_proxy_asks_for_is_not_looked_up() -> None:
    """The proxy does that; whatever we knew of the name would be of no use."""
    async with opened({}) as named:
        process = NamePrecondition(named.resolver, named._note, lambda url: url.startswith("http://far.test/"))
        assert await process(visit(url="http://far.test/")) is Step.PROCEED
        with pytest.raises(NameNotFound):
            await process(visit(url="http://near.test/"))
