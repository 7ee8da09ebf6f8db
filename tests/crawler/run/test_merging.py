"""Answers of several workers as one."""

from typing import Any

from anabranch.crawler.run.merging import joined_rows, merged_active, merged_listing, merged_totals


def queue(name: str, urls: int, state: str = "inactive") -> dict[str, Any]:
    return {"queue": name, "urls": urls, "state": state}


def said(*queues: dict[str, Any], why_idle: str = "", **states: int) -> dict[str, Any]:
    """By one worker: the totals are the job's, what is in memory its own."""
    totals = {"pending": 12, "in_flight": 1, "gates_open": 2, "queues": states, "why_idle": why_idle}
    return {"now_s": 5.0, "queues": list(queues), "totals": totals}


def test_a_queue_is_as_the_worker_sees_it_that_holds_it() -> None:
    """The others see its rows alone."""
    one = said(queue("1/a", 3, "ready"), queue("2/b", 8))
    other = said(queue("1/a", 3), queue("2/b", 8, "in-flight"))
    listed = merged_listing([one, other], {"limit": 2})
    assert [(row["queue"], row["state"]) for row in listed["queues"]] == [("2/b", "in-flight"), ("1/a", "ready")]


def test_fetches_under_way_are_summed() -> None:
    """A queue in the memory of several workers is in the strongest of its states."""
    one = {"now_s": 1.0, "queues": [["a", "ready", 0], ["b", "in-flight", 2]], "gates": [["a.test", 0.0, 1]]}
    other = {"now_s": 2.0, "queues": [["b", "ready", 1], ["a", "loading", 0]], "gates": [["b.test", None, 0]]}
    assert merged_active([one, other], 3.0) == {
        "now_s": 3.0,
        "queues": [["a", "ready", 0], ["b", "in-flight", 3]],
        "gates": [["a.test", 0.0, 1], ["b.test", None, 0]],
    }


def test_totals_are_the_jobs_and_what_is_in_memory_is_added() -> None:
    """A queue that another worker has in memory is inactive for who does not hold it."""
    totals = merged_totals([said(ready=2, inactive=8)["totals"], said(ready=3, inactive=7)["totals"]])
    assert (totals["pending"], totals["in_flight"], totals["gates_open"]) == (12, 2, 4)
    assert (totals["queues"]["ready"], totals["queues"]["inactive"]) == (5, 5)


def test_a_job_is_idle_if_all_its_workers_are() -> None:
    """One that works is enough."""
    assert merged_totals([said(why_idle="gates")["totals"], said()["totals"]])["why_idle"] == ""
    assert merged_totals([said(why_idle=why)["totals"] for why in ("b", "a", "b")])["why_idle"] == "a; b"


def test_rows_of_all_workers_stand_one_after_another() -> None:
    """As many as are asked for; of facts by name those of the first."""
    tables = [{"heads": ["a"], "rows": [{"a": number}], "more": False} for number in (1, 2)]
    assert joined_rows(tables, 9)["rows"] == [{"a": 1}, {"a": 2}]
    assert joined_rows(tables, 1)["more"]
    assert joined_rows([{"facts": {"x": 1}}, {"facts": {"x": 2}}], 9) == {"facts": {"x": 1}}
