"""A gate as a row, and in its panel."""

import math

from anabranch.crawler.console.pages.hosts import fetched_row, gate_panel, gate_row
from anabranch.crawler.console.queues import ListedGate

GATE = ListedGate("a.test", "resting", 12, 1, 130.0, 0.0, 130.0, 5.0, 0.0, 3, None, 0, is_live=False)


def test_a_row_says_when_the_gate_opens() -> None:
    """Not of one that is open, or whose fetches are under way: it opens when they end."""
    assert gate_row(GATE, 100.0)["opens"] == "30s"
    assert gate_row(GATE, 130.0)["opens"] == ""
    assert gate_row(GATE._replace(opens_s=math.inf, in_flight=1, is_live=True), 100.0)["opens"] == ""
    assert gate_row(GATE._replace(opens_s=math.inf), 100.0)["opens"] == "for ever"


def test_the_panel_prefers_what_the_crawl_says() -> None:
    """Without it, the stored times say why."""
    facts = {"gate": "a.test", "why_closed": "429: Retry-After"}
    assert gate_panel(GATE, [facts], 100.0).reason == "closed: 429: Retry-After"
    assert gate_panel(GATE, [], 100.0).reason == "closed: resting for another 30s"
    assert gate_panel(GATE._replace(in_flight=1), [], 100.0).reason == "closed: fetches from it are under way"
    assert gate_panel(GATE, [], 200.0).reason == "open"


def test_the_panel_shows_only_settings_that_there_are() -> None:
    """A host without a Crawl-delay has none in its figures."""
    assert "Crawl-delay" in gate_panel(GATE, [], 100.0).figures
    assert "Crawl-delay" not in gate_panel(GATE._replace(spacing_s=0.0), [], 100.0).figures


def test_remaining_urls_of_a_host_may_be_unknown() -> None:
    """They are known of hosts that have a queue of their own."""
    row = {"host": "a.test", "#urls": 1500, "#bytes": 2048, "#remaining": None}
    assert fetched_row(row) == {"host": "a.test", "urls": "1,500", "bytes": "2.0 KiB", "queued": ""}


def test_an_open_host_cannot_be_unblocked() -> None:
    """Nor one that was never throttled."""
    open_gate = GATE._replace(opens_s=0.0, spacing_s=0.0)
    assert gate_panel(open_gate, [], 200.0).actions == {"Block …"}
    assert gate_panel(GATE, [], 100.0).actions == {"Block …", "Unblock …"}
