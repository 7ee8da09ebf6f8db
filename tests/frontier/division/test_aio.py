"""The asyncio face of one share of several."""

import asyncio
from collections.abc import Callable

import pytest

from anabranch.frontier.aio import Drained
from anabranch.frontier.core import Frontier
from anabranch.frontier.division.aio import AsyncShare
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.division.parcels import Consigned
from anabranch.frontier.models import Outcome, OutcomeKind
from tests.frontier.builder import HASTE, build, candidates

DONE = Outcome(kind=OutcomeKind.DONE)


async def opened() -> AsyncShare:
    def open_(on_change: Callable[[], None]) -> Frontier:
        return build(politeness=HASTE, division=Division(shares=1, share=0), on_change=on_change).core

    share = AsyncShare(open_)
    await share.__aenter__()
    return share


async def settle() -> None:
    """Let everything run that can run without time."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_share_that_is_drained_waits_for_the_others() -> None:
    """They may still send something: whoever waits for a lease goes on waiting, and somebody is told."""
    told: list[str] = []
    share = await opened()
    share.on_drained = lambda: told.append("drained")
    waiter = asyncio.create_task(share.lease())
    await settle()
    assert told
    assert not waiter.done()
    assert share.receive([Consigned("http://elsewhere.test/", candidates("http://a.test/"))])
    lease = await waiter
    assert (lease.url, lease.via) == ("http://a.test/", "http://elsewhere.test/")
    told.clear()
    waiter = asyncio.create_task(share.lease())
    await settle()
    assert not told, "a lease is out, so it is not drained"
    share.finish(lease, DONE)
    await settle()
    assert told
    share.let_end()
    with pytest.raises(Drained):
        await waiter
    await share.close()


async def test_a_share_that_is_kept_open_stops_all_the_same() -> None:
    """A stop is a stop."""
    share = await opened()
    waiter = asyncio.create_task(share.lease())
    await settle()
    share.stop_leasing()
    with pytest.raises(Drained):
        await waiter
    await share.close()
