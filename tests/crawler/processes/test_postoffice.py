"""A share's dealings with the others while it crawls."""

import asyncio
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.crawler.processes.channel import Channel, Message
from anabranch.crawler.processes.postoffice import PARCEL, QUIET, PostOffice
from anabranch.crawler.processes.seedbook import SharedBook
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.frontier.aio import AsyncShare
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.division.parcels import packed
from anabranch.frontier.errors import PolicyError
from anabranch.frontier.records import Candidate
from tests.patience import HANG_S

CONTENT = packed("http://page.test/", [Candidate("http://a.test/")])


class Refusing(AsyncShare):
    """A share whose own function fails for what is sent to it."""

    def __init__(self) -> None:
        """There is nothing to open."""

    def receive(self, consigned: Any) -> bool:
        raise PolicyError("cost='mine:cost' failed")


def office() -> PostOffice:
    """One of a share that is open and exchanges nothing."""
    opened = PostOffice(cast("Channel", None), Division(shares=1, share=0), cast("SharedBook", None))
    opened._open.set_result(cast("Any", SimpleNamespace(frontier=Refusing())))
    return opened


async def test_a_share_that_cannot_take_what_is_sent_ends_its_run_by_it() -> None:
    """The parcel stays with its sender, who would wait for ever; the operator hears why."""
    share = office()
    running = asyncio.create_task(share.watch(Refusing(), CrawlStatistics(started_s=0.0)))
    assert await share.handle(Message(PARCEL, {}, CONTENT)) == {"is_taken": False}
    with pytest.raises(ExceptionGroup) as failed:
        await asyncio.wait_for(running, HANG_S)
    assert failed.value.subgroup(PolicyError) is not None


async def test_a_share_that_does_not_crawl_yet_is_not_quiet() -> None:
    """Whatever its queue says: its seeds are still to come."""
    closed = PostOffice(cast("Channel", None), Division(shares=2, share=0), cast("SharedBook", None))
    answer = await closed.handle(Message(QUIET, {}))
    assert answer == {"is_quiet": False, "stirred": 0, "life": os.getpid()}
