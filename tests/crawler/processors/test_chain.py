"""The chain of a crawl: which processors it has by its order, and what reports call them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.processors.admission import Preselector, UrlAdmission
from anabranch.crawler.processors.candidates import DropSimilar
from anabranch.crawler.processors.chain import ChainParts, build_chain
from anabranch.crawler.processors.preconditions import IgnoreRobots, RobotsPrecondition
from anabranch.crawler.processors.recorder import ExchangeMaker
from anabranch.crawler.visit import Processor, Step
from tests.crawler.builder import clock

HERE = __name__


async def look(visit: object) -> None: ...


async def stop(visit: object) -> Step:
    return Step.STOP


def chain(*, is_archived: bool = False, is_similar: bool = False, **sections: Any) -> dict[str, Processor]:
    """The processors by their names, for an order with these sections."""
    made: Any = SimpleNamespace(
        get=None,
        has_logins=False,
        cookies_for=None,
        uses_proxy=None,
        redirected=None,
        payloads=None,
        lookup=None,
        record_robots=None,
        set_delay=None,
        core=SimpleNamespace(first_format="7"),
    )
    unused: Any = None
    admission = UrlAdmission(
        scope=unused,
        canonicalizer=unused,
        similar=unused,
        drop_similar=DropSimilar(unused, unused) if is_similar else None,
        seen=None,
        preselector=Preselector(unused, ()),
        quotas_of=unused,
        traps=unused,
    )
    parts = ChainParts(
        order=CrawlOrder.model_validate(sections),
        job=unused,
        clock=clock,
        frontier=made,
        resolver=unused,
        fetcher=made,
        sandbox=unused,
        admission=admission,
        seeding=made,
        files=made,
        exchanges=ExchangeMaker(unused, revisit=True) if is_archived else None,
        recorder=made,
        disposition=made,
    )
    return dict(build_chain(parts))


def test_processors_have_one_order_and_one_name_in_all_reports() -> None:
    """That of the counters."""
    names = ["preselect", "names", "preconditions", "fetch", "extract", "parameters", "candidates", "cookies", "ahead"]
    assert list(chain()) == names
    whole = [*names[:5], "write", "parameters", "candidates", "cookies", "similar", "ahead"]
    assert list(chain(is_archived=True, is_similar=True)) == whole


def test_the_users_own_keep_their_order_and_have_their_names_in_reports() -> None:
    """They keep the order's sequence and follow the extraction."""
    names = [f"{HERE}:stop", f"{HERE}:look"]
    assert list(chain(job={"processors": names}))[5:7] == names


def test_a_name_that_is_no_processor_is_refused() -> None:
    """Before anything is fetched."""
    with pytest.raises(OrderError, match="cannot be imported"):
        chain(job={"processors": [f"{HERE}:missing"]})


@pytest.mark.parametrize(("mode", "kind"), [("obey", RobotsPrecondition), ("ignore", IgnoreRobots)])
def test_robots_txt_is_obeyed_or_ignored_in_the_same_place(mode: str, kind: type) -> None:
    """Reports show one column for both."""
    assert type(chain(robots={"robots": mode})["preconditions"]) is kind
