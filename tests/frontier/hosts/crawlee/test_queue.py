"""Crawlee's requests in a Frontier: in, out, and how they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crawlee")

from crawlee import Request, RequestState

from anabranch.frontier.errors import PolicyError, StoreInUse
from anabranch.frontier.hosts.crawlee.queue import AT_ONCE, FrontierQueue
from anabranch.frontier.records import BUSY, Candidate, Row, UrlState, Verdict

FAST = {"policy": "host", "min_delay": 0, "max_connections": 100, "per_queue": 100}
A, B, C = (f"http://a.test/{letter}" for letter in "abc")


def requests(*urls: str) -> list[Request]:
    return [Request.from_url(url) for url in urls]


@pytest.fixture(params=["memory", "folder"])
async def queue(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FrontierQueue]:
    opened = await FrontierQueue.open(None if request.param == "memory" else tmp_path / "job", FAST)
    yield opened
    await opened.close()


async def fetched(queue: FrontierQueue) -> list[Request]:
    """All that may be fetched now."""
    return [request async for request in every(queue)]


async def every(queue: FrontierQueue) -> AsyncIterator[Request]:
    while (request := await queue.fetch()) is not None:
        yield request


async def test_a_request_comes_out_as_it_went_in(queue: FrontierQueue) -> None:
    """Method, headers, payload and user data are its own."""
    request = Request.from_url(
        A, method="POST", payload=b"some=thing", headers={"x-mine": "1"}, user_data={"n": [1, {"m": None}]}, label="L"
    )
    await queue.add([request], front=False)
    out = await queue.fetch()
    assert out is not None
    assert out.model_dump_json() == request.model_dump_json()
    assert (out.payload, out.label, out.user_data["n"]) == (b"some=thing", "L", [1, {"m": None}])


async def test_requests_of_one_host_come_in_order_and_forefront_before(queue: FrontierQueue) -> None:
    """With the policy `host`, as in Crawlee's own queues."""
    await queue.add(requests(A, B), front=False)
    await queue.add(requests(C), front=True)
    assert [request.url for request in await fetched(queue)] == [C, A, B]


async def test_a_request_that_is_known_is_not_queued_again(queue: FrontierQueue) -> None:
    """The answer tells those that are queued from those that were handled."""
    (first,) = (await queue.add(requests(A), front=False)).processed_requests
    (second,) = (await queue.add(requests(A), front=False)).processed_requests
    request = await queue.fetch()
    assert request is not None
    queue.mark_handled(request)
    (third,) = (await queue.add(requests(A), front=False)).processed_requests
    known = [(one.was_already_present, one.was_already_handled) for one in (first, second, third)]
    assert known == [(False, False), (True, False), (True, True)]
    assert queue.is_finished


async def test_the_unique_key_decides_what_is_the_same(queue: FrontierQueue) -> None:
    """Crawlee may fold URLs, or enqueue one always."""
    await queue.add([Request.from_url(A, unique_key="k"), Request.from_url(B, unique_key="k")], front=False)
    await queue.add([Request.from_url(C), Request.from_url(C, always_enqueue=True)], front=False)
    assert sorted(request.url for request in await fetched(queue)) == [A, C, C]


async def test_a_reclaimed_request_is_queued_as_it_has_become(queue: FrontierQueue) -> None:
    """Behind the others, or in front of them; it counts once."""
    await queue.add(requests(A, B), front=False)
    first = await queue.fetch()
    assert first is not None
    first.retry_count, first.user_data["seen"] = 1, True
    answer = queue.reclaim(first, front=False)
    assert answer is not None
    assert not answer.was_already_handled
    second, again = await fetched(queue)
    assert (second.url, again.url, again.retry_count, again.user_data["seen"]) == (B, A, 1, True)
    queue.reclaim(second, front=True)
    queue.reclaim(again, front=True)
    assert len(await fetched(queue)) == 2
    assert (queue.handled, queue.pending) == (0, 2)


async def test_a_request_that_was_reclaimed_is_not_handled_until_it_is(queue: FrontierQueue) -> None:
    """The row that it left is none that was handled; the one that it has become is."""
    await queue.add(requests(A), front=False)
    request = await queue.fetch()
    assert request is not None
    request.retry_count = 3
    queue.reclaim(request, front=False)
    (known,) = (await queue.add(requests(A), front=False)).processed_requests
    assert (known.was_already_present, known.was_already_handled) == (True, False)
    queued = await queue.get(request.unique_key)
    assert queued is not None
    assert queued.retry_count == 3
    again = await queue.fetch()
    assert again is not None
    queue.mark_handled(again)
    (known,) = (await queue.add(requests(A), front=False)).processed_requests
    assert known.was_already_handled
    assert (queue.handled, queue.pending) == (1, 0)


async def test_what_is_not_in_progress_can_be_neither_handled_nor_reclaimed(queue: FrontierQueue) -> None:
    """A second call, or a request that was never fetched."""
    (request,) = requests(A)
    await queue.add([request], front=False)
    assert queue.mark_handled(request) is None
    assert queue.reclaim(request, front=False) is None
    assert await queue.fetch() is not None
    assert queue.mark_handled(request) is not None
    assert queue.mark_handled(request) is None


async def test_a_request_can_be_looked_up_wherever_it_is(queue: FrontierQueue) -> None:
    """Unknown, queued, in progress, handled."""
    request = Request.from_url(A, user_data={"n": 1})
    assert await queue.get(request.unique_key) is None
    await queue.add([request], front=False)
    queued = await queue.get(request.unique_key)
    assert queued is not None
    assert queued.user_data["n"] == 1
    out = await queue.fetch()
    assert out is not None
    assert await queue.get(request.unique_key) is out
    queue.mark_handled(out)
    found = await queue.get(request.unique_key)
    assert found is not None
    assert (found.url, found.was_already_handled, found.state) == (A, True, RequestState.DONE)


async def test_what_failed_for_good_counts_as_handled(queue: FrontierQueue) -> None:
    """Crawlee counts it so; the Frontier records a failure, or Heritrix's status for a URL that robots.txt forbids."""
    await queue.add(requests(A, B), front=False)
    failed, skipped = await fetched(queue)
    failed.state, skipped.state = RequestState.ERROR, RequestState.SKIPPED
    queue.mark_handled(failed)
    queue.mark_handled(skipped)
    assert (queue.handled, queue.is_finished) == (2, True)
    looked_up = [await queue.get(request.unique_key) for request in (failed, skipped)]
    assert [one.state for one in looked_up if one] == [RequestState.ERROR, RequestState.SKIPPED]
    records = [queue._frontier.operations.get(request.unique_key.encode()) for request in (failed, skipped)]
    assert [(one.state, one.outcome, one.status) for one in records if one] == [
        (UrlState.ENDED, "failed", 0),
        (UrlState.ENDED, "done", -9998),
    ]


async def test_an_empty_queue_is_not_finished_while_a_request_is_in_progress(queue: FrontierQueue) -> None:
    """Its handler may add others."""
    assert await queue.is_empty()
    assert queue.is_finished
    await queue.add(requests(A), front=False)
    assert not await queue.is_empty()
    request = await queue.fetch()
    assert request is not None
    assert (await queue.is_empty(), queue.is_finished) == (True, False)
    queue.mark_handled(request)
    assert (await queue.is_empty(), queue.is_finished) == (True, True)


async def test_a_purge_forgets_everything(queue: FrontierQueue) -> None:
    """It forgets handled requests, too; requests in progress are no longer in progress."""
    await queue.add(requests(A, B), front=False)
    first = await queue.fetch()
    second = await queue.fetch()
    assert first is not None
    assert second is not None
    queue.mark_handled(first)
    await queue.purge()
    assert (queue.handled, queue.pending, queue.is_finished) == (0, 0, True)
    assert queue.mark_handled(second) is None
    (known,) = (await queue.add(requests(A), front=False)).processed_requests
    assert not known.was_already_present


async def test_a_gate_lets_one_request_at_a_time_through() -> None:
    """`is_empty` says so, and waits for a gate that opens soon instead of letting the pool ask too late."""
    queue = await FrontierQueue.open(None, {"min_delay": 0.2})
    await queue.add(requests(A, B), front=False)
    request = await queue.fetch()
    assert request is not None
    assert await queue.fetch() is None
    assert await queue.is_empty()
    ended_s = queue._frontier.now_s()
    queue.mark_handled(request)
    assert await queue.fetch() is None
    assert not await queue.is_empty()
    assert queue._frontier.now_s() - ended_s >= 0.2
    assert await queue.fetch() is not None
    await queue.close()


async def test_a_request_that_comes_in_wakes_who_waits_for_a_gate() -> None:
    """A host that was not there before may be fetched at once."""
    queue = await FrontierQueue.open(None, {"min_delay": 0.5})
    await queue.add(requests(A, B), front=False)
    request = await queue.fetch()
    assert request is not None
    queue.mark_handled(request)
    waiting = asyncio.create_task(queue.is_empty())
    await asyncio.sleep(0)
    await queue.add(requests("http://b.test/"), front=False)
    assert not await waiting
    other = await queue.fetch()
    assert other is not None
    assert other.url == "http://b.test/"
    await queue.close()


async def test_what_was_in_progress_is_queued_again_at_the_next_opening(tmp_path: Path) -> None:
    """Handled requests stay handled, and the counts continue."""
    queue = await FrontierQueue.open(tmp_path / "job", FAST)
    await queue.add(requests(A, B, C), front=False)
    handled, in_progress = await queue.fetch(), await queue.fetch()
    assert handled is not None
    assert in_progress is not None
    queue.mark_handled(handled)
    await queue.close()
    await queue.close()
    again = await FrontierQueue.open(tmp_path / "job", FAST)
    assert (again.handled, again.pending) == (1, 2)
    assert not await again.is_empty()
    assert [request.url for request in await fetched(again)] == [in_progress.url, C]
    await again.close()


async def test_what_was_said_is_durable_when_it_is_waited_for(queue: FrontierQueue) -> None:
    """Every one of them is woken; a queue that is closed keeps nobody waiting."""
    await queue.add(requests(A, B, C), front=False)
    for request in await fetched(queue):
        queue.mark_handled(request)
    sent = queue._frontier.unacknowledged.last
    await asyncio.gather(*(queue.until_durable() for _ in range(3)))
    assert queue._frontier.unacknowledged.durable >= sent
    await queue.add(requests("http://b.test/"), front=False)
    waiting = asyncio.create_task(queue.until_durable())
    await queue.close()
    await waiting


async def test_a_folder_is_held_by_one_queue(tmp_path: Path) -> None:
    """Until it is closed or dropped."""
    queue = await FrontierQueue.open(tmp_path / "job", FAST)
    with pytest.raises(StoreInUse, match="uses this job"):
        await FrontierQueue.open(tmp_path / "job", FAST)
    other = await FrontierQueue.open(tmp_path / "other", FAST)
    await other.close()
    await queue.drop()
    assert not (tmp_path / "job").exists()


async def test_a_drop_removes_what_the_queue_wrote_and_nothing_else(tmp_path: Path) -> None:
    """A file of somebody else's keeps the folder."""
    queue = await FrontierQueue.open(tmp_path / "job", FAST)
    (tmp_path / "job" / "mine.txt").write_text("mine")
    await queue.drop()
    assert [file.name for file in (tmp_path / "job").iterdir()] == ["mine.txt"]


async def test_settings_that_are_unknown_are_refused() -> None:
    """In one line that names the setting."""
    with pytest.raises(PolicyError, match="min_dealy"):
        await FrontierQueue.open(None, {"min_dealy": 1})


async def test_a_store_that_is_behind_is_waited_for(queue: FrontierQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """BUSY is no answer for Crawlee."""
    schedule = queue._frontier.schedule
    answers: list[Any] = [[BUSY], None]

    def busy_once(candidates: list[Candidate]) -> list[Verdict]:
        return answers.pop(0) or schedule(candidates)

    monkeypatch.setattr(queue._frontier, "schedule", busy_once)
    (known,) = (await queue.add(requests(A), front=False)).processed_requests
    assert (known.was_already_present, answers) == (False, [])


async def test_what_is_no_request_is_given_up(queue: FrontierQueue, caplog: pytest.LogCaptureFixture) -> None:
    """It would come again and again; what has no payload was queued by its URL alone."""
    queue._frontier.schedule([Candidate(A, payload=b"{}"), Candidate(B, key=b"key")])
    (request,) = await fetched(queue)
    assert (request.url, request.unique_key) == (B, "key")
    assert f"{A} is given up" in caplog.text


async def test_what_can_never_be_queued_is_logged_and_not_sent_again(
    queue: FrontierQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """One line with the URL and the reason; unprocessed is what may be sent again, and the others are queued."""
    answer = await queue.add([Request.from_url("http://a.test/\0", unique_key="k"), *requests(A)], front=False)
    assert [one.unique_key for one in answer.processed_requests] == [A]
    assert answer.unprocessed_requests == []
    assert [record.getMessage() for record in caplog.records] == [
        "'http://a.test/\\x00' cannot be queued: it holds a NUL character"
    ]


async def test_forefront_moves_a_request_that_is_queued_and_changes_nothing_else(queue: FrontierQueue) -> None:
    """The request that was queued first keeps its data, as in Crawlee's own queues."""
    await queue.add([*requests(A, B), Request.from_url(C, user_data={"n": 1})], front=False)
    (known,) = (await queue.add([Request.from_url(C)], front=True)).processed_requests
    assert (known.was_already_present, known.was_already_handled) == (True, False)
    assert queue.pending == 3
    out = await fetched(queue)
    assert [request.url for request in out] == [C, A, B]
    assert out[0].user_data["n"] == 1


async def test_forefront_changes_nothing_of_what_is_in_progress_or_handled(queue: FrontierQueue) -> None:
    """Neither comes again."""
    await queue.add(requests(A, B, C), front=False)
    handled, in_progress = await queue.fetch(), await queue.fetch()
    assert handled is not None
    assert in_progress is not None
    queue.mark_handled(handled)
    answer = await queue.add(requests(A, B), front=True)
    assert [one.was_already_handled for one in answer.processed_requests] == [True, False]
    assert [request.url for request in await fetched(queue)] == [C]
    assert (queue.handled, queue.pending) == (1, 2)


async def test_a_request_that_is_fetched_while_it_is_looked_up_stays_where_it_is(
    queue: FrontierQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may even be handled before the store has answered."""
    await queue.add(requests(A, B, C), front=False)
    rows = queue._frontier.advancing.rows
    asked, may_answer = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def late(candidates: Sequence[Candidate]) -> Callable[[], list[Row]]:
        question = rows(candidates)

        def answer() -> list[Row]:
            found = question()
            loop.call_soon_threadsafe(asked.set)
            may_answer.wait()
            return found

        return answer

    monkeypatch.setattr(queue._frontier.advancing, "rows", late)
    adding = asyncio.create_task(queue.add(requests(A, C), front=True))
    await asked.wait()
    first = await queue.fetch()
    assert first is not None
    assert first.url == A
    queue.mark_handled(first)
    may_answer.set()
    await adding
    assert [request.url for request in await fetched(queue)] == [C, B]
    await asyncio.to_thread(queue._frontier.operations.check)


async def test_many_requests_are_queued_in_their_order_and_the_loop_goes_on_meanwhile(queue: FrontierQueue) -> None:
    """A page of very many links stops nobody else for long."""
    urls = [f"http://a.test/{number}" for number in range(2 * AT_ONCE + 1)]
    adding = asyncio.create_task(queue.add(requests(*urls), front=False))
    turns = 0
    while not adding.done():
        await asyncio.sleep(0)
        turns += queue.pending < len(urls)
    assert turns >= 2
    assert [one.unique_key for one in (await adding).processed_requests] == urls
    assert queue.pending == len(urls)
