"""Scrapy's DUPEFILTER_CLASS."""

from __future__ import annotations

from pathlib import Path

import pytest
from scrapy import Request
from scrapy.pqueues import ScrapyPriorityQueue
from scrapy.squeues import FifoMemoryQueue, PickleFifoDiskQueue

from anabranch.frontier.hosts.scrapy import FrontierDupeFilter, FrontierPriorityQueue
from tests.frontier.hosts.scrapy.project import crawler

pytest.importorskip("scrapy")


URL = "http://a.test/1"


def test_a_fingerprint_is_seen_in_the_next_run_too(tmp_path: Path) -> None:
    """In JOBDIR; without it, in this run."""
    for expected, jobs in ((False, tmp_path), (True, tmp_path), (False, None)):
        made = FrontierDupeFilter.from_crawler(crawler(**({"JOBDIR": str(jobs)} if jobs else {})))
        made.open()
        assert made.request_seen(Request(URL)) is expected
        assert made.request_seen(Request(f"{URL}#x")) is True
        made.close("finished")


pytest.importorskip("scrapy")


def pushed(queue: FrontierPriorityQueue, *urls: str, priority: int = 0) -> None:
    for url in urls:
        queue.push(Request(url, priority=priority))


def popped(queue: FrontierPriorityQueue) -> list[str]:
    return [request.url for request in iter(queue.pop, None)]


A, B = ("http://a.test/1", "http://a.test/2"), ("http://b.test/1", "http://b.test/2")


def test_queues_are_served_in_turn() -> None:
    """A host with many requests does not hold up the others."""
    queue = FrontierPriorityQueue.from_crawler(crawler(FRONTIER={"policy": "host"}), FifoMemoryQueue, "")
    pushed(queue, *A, *B)
    assert (len(queue), "a.test" in queue) == (4, True)
    assert queue.peek() is not None
    assert popped(queue) == [A[0], B[0], A[1], B[1]]
    assert (len(queue), queue.close()) == (0, {})


def test_within_a_queue_the_higher_priority_goes_first() -> None:
    """Scrapy's own queue does the same."""
    queue = FrontierPriorityQueue.from_crawler(crawler(FRONTIER={"policy": "host"}), FifoMemoryQueue, "")
    pushed(queue, A[0])
    pushed(queue, A[1], priority=1)
    assert popped(queue) == [A[1], A[0]]


def test_what_is_on_disk_is_there_in_the_next_run(tmp_path: Path) -> None:
    """By the state that `close` answers."""
    made = crawler(FRONTIER={"policy": "host"})
    queue = FrontierPriorityQueue.from_crawler(made, PickleFifoDiskQueue, str(tmp_path))
    pushed(queue, *A, *B)
    state = queue.close()
    again = FrontierPriorityQueue.from_crawler(made, PickleFifoDiskQueue, str(tmp_path), state)
    assert popped(again) == [A[0], B[0], A[1], B[1]]
    again.close()
    assert not list(tmp_path.iterdir()), "a queue that is empty leaves no folder"


def test_a_queue_whose_first_request_cannot_be_serialised_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrapy keeps that request in memory then; the next one makes the queue anew."""
    closed: list[int] = []
    close = ScrapyPriorityQueue.close
    monkeypatch.setattr(ScrapyPriorityQueue, "close", lambda self: closed.append(len(self)) or close(self))
    queue = FrontierPriorityQueue.from_crawler(crawler(), PickleFifoDiskQueue, str(tmp_path))
    with pytest.raises(ValueError, match="lambda"):
        queue.push(Request(A[0], meta={"callable": lambda: None}))
    assert (closed, len(queue)) == ([0], 0)
    pushed(queue, A[0])
    assert popped(queue) == [A[0]]
