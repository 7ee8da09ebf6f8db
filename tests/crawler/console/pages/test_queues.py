"""A queue as a row, and in its panel."""

from anabranch.crawler.console.pages.queues import panel_facts, queue_actions, queue_row
from anabranch.crawler.console.queues import ListedQueue

QUEUE = ListedQueue("a.test", "ready", 1234, 5, 3, 17, None, 1, 10, 2, 1, is_live=True)


def test_a_row_keeps_the_key_and_shows_it_as_text() -> None:
    """The key finds the queue again; what is shown is escaped and cut."""
    key = "\x1b<script>" + "a" * 1000
    row = queue_row(QUEUE._replace(key=key), 0.0)
    assert (row["id"], row["key"][:14], len(row["key"]) < 310) == (key, "\\x1b<script>aa", True)


def test_a_budget_is_a_number_or_says_why_there_is_none() -> None:
    """It may be unlimited, or that of the order."""
    budgets = [queue_row(QUEUE._replace(budget=units), 0.0)["budget"] for units in (None, -1, 5000)]
    assert budgets == ["default", "unlimited", "5,000"]


def test_fetches_under_way_are_shown_only_if_the_crawl_has_said_so() -> None:
    """Else they are not known."""
    assert queue_row(QUEUE, 0.0)["in_flight"] == "1"
    assert queue_row(QUEUE._replace(is_live=False), 0.0)["in_flight"] == ""


def test_the_panel_has_the_explanation_the_figures_and_the_gates() -> None:
    """A URL in the place of a queue has no figures."""
    explained = {"state": "snoozed", "reason": "all its URLs wait"}
    queue = {"urls": 3, "in_flight": 0, "budget": None, "reason": "x"}
    found = panel_facts({"explanation": explained, "queue": queue, "gates": [{"gate": "a.test"}]})
    assert found.reason == "snoozed: all its URLs wait"
    assert found.figures == {"URLs": "3", "in flight": "0", "budget": "unlimited"}
    assert found.gates == [{"gate": "a.test"}]
    assert panel_facts({"explanation": {"state": "ended", "reason": ""}}) == ("ended", {}, [], [], frozenset())


def test_buttons_that_do_not_apply_are_off() -> None:
    """A paused queue cannot be paused, a retired one not retired, and without a gate no host is blocked."""
    assert queue_actions("ready", has_gates=True) >= {"Pause", "Retire …", "Block host …"}
    assert "Resume" not in queue_actions("ready", has_gates=True)
    assert queue_actions("paused", has_gates=False) == {"Resume", "Retire …", "Budget …"}
    assert "Retire …" not in queue_actions("retired", has_gates=True)
