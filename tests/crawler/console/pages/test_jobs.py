"""The order, the groups and the search of a list of jobs."""

from __future__ import annotations

from anabranch.crawler.console.pages.jobs import group_of, is_found, ranked
from anabranch.crawler.console.pages.shell import PHASES, STATE_ICONS


def row(job, state, *tags):
    """A row of a job."""
    return {"job": job, "state": state, "tags": list(tags)}


def test_what_needs_attention_comes_first() -> None:
    """Then what runs, what is stopped, what is finished; by name within each state."""
    states = ("finished", "stopped", "running", "paused", "killed", "unknown", "failed", "starting", "waiting")
    found = ranked([row(f"j{number}", state) for number, state in enumerate(states)] + [row("a", "stopped")])
    assert [one["state"] for one in found] == [
        "killed", "failed", "unknown", "waiting", "paused", "starting", "running", "stopped", "stopped", "finished",
    ]  # fmt: skip
    assert [one["job"] for one in found if one["state"] == "stopped"] == ["a", "j1"]


def test_killed_stopped_and_finished_are_told_apart() -> None:
    """By group, colour and icon."""
    three = ("killed", "stopped", "finished")
    for looks in (PHASES, STATE_ICONS, {state: group_of(row("a", state)) for state in three}):
        assert len({looks[state] for state in three}) == len(three)
    assert PHASES.keys() == STATE_ICONS.keys()


def test_a_search_finds_names_tags_states_and_notes() -> None:
    """Each word must be in one of them."""
    one = row("News", "stopped", "portals", "weekly")
    assert all(is_found(one, "by the page limit", words) for words in ("new", "WEEK port", "stopped limit", ""))
    assert not is_found(one, "", "news daily")
