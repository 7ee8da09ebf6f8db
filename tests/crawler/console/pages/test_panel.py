"""What a panel shows of gates and URLs."""

from anabranch.crawler.console.pages.panel import closed_row, url_row
from anabranch.frontier.stores.sql.browse import QueuedUrl

HOSTILE = "\x1b[2J<script>\u202e"


def test_a_gate_is_shown_with_why_it_is_closed() -> None:
    """Its group closes it, too."""
    group = {"gate": "ip:10.0.0.1", "opens_in_s": 3.0, "rate_per_s": 1.0, "why_closed": "busy", "group": None}
    gate = {"gate": "a.test", "opens_in_s": 2.0, "rate_per_s": 0.5, "why_closed": "rests", "group": group}
    assert closed_row(gate) == {
        "gate": "a.test",
        "opens": "2.0s",
        "rate": "0.5",
        "why": "rests; busy",
        "group": "ip:10.0.0.1",
    }


def test_a_gate_without_a_time_or_a_rate_has_no_number() -> None:
    """An open one says so."""
    gate = {"gate": "a.test", "opens_in_s": None, "rate_per_s": None, "why_closed": "blocked", "group": None}
    assert (closed_row(gate)["opens"], closed_row(gate)["rate"]) == ("unknown", "")
    assert closed_row({**gate, "opens_in_s": 0.0})["opens"] == "open"


def test_what_comes_from_the_web_is_escaped_and_cut() -> None:
    """Control and direction marks are shown; a long text ends."""
    gate = {"gate": HOSTILE, "opens_in_s": 0.0, "rate_per_s": 1.0, "why_closed": HOSTILE, "group": None}
    assert closed_row(gate)["gate"] == closed_row(gate)["why"] == "\\x1b[2J<script>\\u202e"
    url = QueuedUrl("http://a.test/" + "a" * 1_000_000, "q", "g", 1, 2, None)
    assert len(url_row(url, 0.0)["url"]) == 301


def test_a_url_that_waits_for_a_retry_says_how_long() -> None:
    """One whose time has come waits for nothing."""
    url = QueuedUrl("http://a.test/", "q", "g", 1, 2, 130.0)
    assert (url_row(url, 100.0)["due"], url_row(url, 130.0)["due"], url_row(url, 100.0)["attempts"]) == ("30s", "", "2")
