"""Webs whose every time is a round number, and the models that crawl them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from anabranch.crawler.lab.simulation.running import Model
from anabranch.crawler.lab.simulation.virtualtime import Speed
from anabranch.crawler.lab.web.ledger import PolitenessRule
from anabranch.crawler.lab.web.model import WebHost, WebPage
from anabranch.frontier.order import FrontierOrder
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.scheduling.gates import Backoff, Politeness

HOST = "a.test"
LATENCY_S = 1.0
DELAY_S = 3.0


class SmallWeb:
    """Pages by URL; implements `Web`."""

    def __init__(self, pages: Mapping[str, WebPage], sites: Sequence[WebHost], seeds: Sequence[str]) -> None:
        self.seeds = tuple(seeds)
        self.sites = sites
        self.urls = len(pages)
        self._pages = pages

    def page(self, url: str) -> WebPage | None:
        return self._pages.get(url)


def answer(
    *links: str, status: int = 200, size: int = 1000, latency_s: float = LATENCY_S, transfer_s: float = 0.0
) -> WebPage:
    return WebPage(status, "text/html", size, latency_s, transfer_s, links, ())


def one_host(pages: int, *, crawl_delay_s: float | None = None, statuses: Mapping[int, int] | None = None) -> SmallWeb:
    """A host whose first page leads to all others; each takes a second, robots.txt too."""
    urls = [f"http://{HOST}/{number}" for number in range(pages)]
    answers = {url: answer(status=(statuses or {}).get(number, 200)) for number, url in enumerate(urls)}
    answers[urls[0]] = answer(*urls[1:])
    return SmallWeb(answers, [WebHost(HOST, pages, LATENCY_S, 1e6, crawl_delay_s)], urls[:1])


def model_of(
    web: SmallWeb,
    *,
    policy: str = "host",
    slots: int = 1,
    workers: int = 10,
    seconds: float = math.inf,
    page_cost_s: float = 0.0,
) -> Model:
    """Slots rest for `DELAY_S` after every fetch."""
    politeness = Politeness(delay_factor=0.0, min_delay_s=DELAY_S, max_delay_s=DELAY_S, slots=slots)
    order = FrontierOrder(
        policy=policy,
        scope=PolitenessScope.HOST,
        politeness=politeness,
        backoff=Backoff(base_s=0.0, cap_s=0.0),
        max_unacknowledged=workers,
    )
    rule = PolitenessRule(slots=slots, min_delay_s=DELAY_S, max_delay_s=DELAY_S)
    return Model(web=web, order=order, rule=rule, workers=workers, seconds=seconds, speed=Speed(page_s=page_cost_s))
