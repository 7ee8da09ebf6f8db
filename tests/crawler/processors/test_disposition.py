"""How visits end: the table of outcomes, the lines, and their order."""

import asyncio
import json

import pytest

from anabranch.crawler.archive.records import digest_text
from anabranch.crawler.extract.links import Link
from anabranch.crawler.fetch.addresses import AddressRecord, Lookup
from anabranch.crawler.fetch.response import Body, Cut
from anabranch.crawler.job.journal import Journal, LineFile
from anabranch.crawler.outcomes.failures import (
    AddressRefused,
    BadHttp,
    BodyBroken,
    ConnectFailed,
    ConnectionLost,
    FetchTimeout,
    HostTakenOver,
    KeptConnectionClosed,
    LoginUnavailable,
    NameNotFound,
    NameTimeout,
    RobotsUnavailable,
    ServiceAway,
    Unfetchable,
)
from anabranch.crawler.processors.disposition import Disposition, decide
from anabranch.crawler.processors.recorder import Recorder, visit_annotations
from anabranch.crawler.processors.seen_urls import SeenUrls
from anabranch.crawler.report.statistics import CrawlStatistics
from anabranch.crawler.visit import ChainDecision, Visit
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.composition import FrontierOrder, open_frontier
from anabranch.frontier.records import Candidate, HostTrouble, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Backoff
from tests.crawler.builder import END_S, HASTE, START_S, HeldJournal, clock, memory_frontier, response, visit
from tests.rows import each_row

DONE, FAILED, DISREGARDED, RETRY, DEFERRED = (
    OutcomeKind.DONE,
    OutcomeKind.FAILED,
    OutcomeKind.DISREGARDED,
    OutcomeKind.RETRY,
    OutcomeKind.DEFERRED,
)
NONE, THROTTLED, UNAVAILABLE, UNREACHABLE = HostTrouble
URL = "http://a.test/"
NOW_S = clock()
#: SHA-1 of nothing and of "abc" (FIPS 180-4, in Base32 by RFC 4648); the former is known from empty WARC records.
EMPTY_DIGEST = "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
ABC_DIGEST = "sha1:VGMT4NSHA2AWVOR6EVYXQUGCNSONBWE5"


# Decisions


def outcome(kind, status, *, fetched=True, after_s=0.0, trouble=HostTrouble.NONE, asked_s=0.0):
    times = (START_S, END_S) if fetched else (None, None)
    return Outcome(kind, status, *times, after_s, trouble, asked_s)


def tries(error):
    """The outcome of each try of a URL that always fails so."""
    failure = error("it failed").timed(START_S, END_S)
    return [decide(visit(failure=failure, attempts=attempts), NOW_S) for attempts in range(6)]


@each_row("status", [200, 204, 301, 404, 410, 500, 502])
def test_an_answer_is_done_whatever_it_says(status) -> None:
    """The server did answer; it is not asked again."""
    assert decide(visit(answer=response(status)), NOW_S) == outcome(DONE, status)


@each_row(
    ("error", "status", "waits_s", "trouble"),
    [
        (NameTimeout, -1, (10.0, 30.0, 600.0, 3600.0, 14_400.0), NONE),
        (ConnectFailed, -2, (5.0, 60.0), UNREACHABLE),
        (ConnectionLost, -3, (5.0, 60.0), UNREACHABLE),
        (LoginUnavailable, -2, (0.0,) * 4, UNAVAILABLE),
        (BadHttp, -9, (), NONE),
        (BodyBroken, -3, (5.0, 60.0), NONE),
        (FetchTimeout, -4, (5.0, 60.0), UNREACHABLE),
        (RobotsUnavailable, -61, (), NONE),
        (NameNotFound, -1, (), NONE),
        (Unfetchable, -7, (), NONE),
    ],
)
def test_a_failure_is_tried_again_after_its_waits_and_then_failed(error, status, waits_s, trouble) -> None:
    """Each kind has its own; the final ones have none. A host that cannot be reached is in trouble each time."""
    retries = [outcome(RETRY, status, after_s=wait_s, trouble=trouble) for wait_s in waits_s]
    assert tries(error) == retries + [outcome(FAILED, status, trouble=trouble)] * (6 - len(waits_s))


def test_a_private_address_is_not_failed_but_disregarded() -> None:
    """It was not fetched on purpose, at the first try and at any other."""
    assert tries(AddressRefused) == [outcome(DISREGARDED, -5001)] * 6


@pytest.mark.parametrize("failure", [KeptConnectionClosed, HostTakenOver, ServiceAway])
def test_a_url_that_was_not_tried_goes_back_to_its_gate(failure) -> None:
    """The slot rests, since the server may have read the request; no attempt counts, and the host is in no trouble."""
    assert tries(failure) == [outcome(DEFERRED, failure.status)] * 6


@pytest.mark.parametrize(("status", "trouble"), [(429, THROTTLED), (503, UNAVAILABLE)])
def test_a_busy_host_closes_its_gate_at_every_try_and_is_asked_five_times(status, trouble) -> None:
    """Its URL is due at once: it waits by the gate. The fifth answer stands."""
    answer = response(status, Retry_After="7")
    decided = [decide(visit(answer=answer, attempts=attempts), NOW_S) for attempts in range(5)]
    assert decided == [
        *[outcome(RETRY, status, trouble=trouble, asked_s=7.0)] * 4,
        outcome(FAILED, status, trouble=trouble, asked_s=7.0),
    ]


@pytest.mark.parametrize(
    ("headers", "asked_s"), [({}, 0.0), ({"Retry_After": "soon"}, 0.0), ({"Retry_After": "99999"}, 99_999.0)]
)
def test_what_a_busy_host_asks_for_is_passed_on_as_it_is(headers, asked_s) -> None:
    """How long its gate is closed is the Frontier's business."""
    decided = decide(visit(answer=response(503, **headers)), NOW_S)
    assert decided == outcome(RETRY, 503, trouble=UNAVAILABLE, asked_s=asked_s)


def test_an_answer_that_broke_off_tells_what_it_says_of_its_host() -> None:
    """Its head came: the URL is tried again as broken, the host rests if it asked for that."""
    broken = BodyBroken("x").timed(START_S, END_S)
    decided = decide(visit(answer=response(500, Retry_After="7"), failure=broken), NOW_S)
    assert decided == outcome(RETRY, -3, after_s=5.0, trouble=UNAVAILABLE, asked_s=7.0)


def test_an_answer_that_asks_for_a_rest_is_done_and_closes_the_gate() -> None:
    """The page was had; the next one has to wait."""
    decided = decide(visit(answer=response(403, Retry_After="7")), NOW_S)
    assert decided == outcome(DONE, 403, trouble=UNAVAILABLE, asked_s=7.0)


@pytest.mark.parametrize(
    ("status", "trouble"), [(302, UNAVAILABLE), (429, THROTTLED), (500, UNAVAILABLE), (503, UNAVAILABLE)]
)
def test_a_robots_txt_that_cannot_be_had_closes_the_gate_and_counts_no_attempt(status, trouble) -> None:
    """The URL goes back to its old place, however often it was tried; its slot and its host rest."""
    answer = response(status, Retry_After="7")
    decided = [
        decide(visit(decision=ChainDecision.NO_RULES, answer=answer, attempts=attempts), NOW_S) for attempts in range(9)
    ]
    assert decided == [outcome(DEFERRED, status, trouble=trouble, asked_s=7.0)] * 9


def test_what_robots_txt_excludes_is_disregarded_and_nothing_rests() -> None:
    """Nothing was fetched."""
    assert decide(visit(decision=ChainDecision.EXCLUDED), NOW_S) == outcome(DISREGARDED, -9998, fetched=False)


@pytest.mark.parametrize("status", [200, 404, 500, 503])
def test_a_deferred_visit_goes_back_and_its_slot_rests_but_not_its_host(status) -> None:
    """Robots.txt was fetched in its place, and whatever it answered is decided."""
    decided = decide(visit(decision=ChainDecision.DEFERRED, answer=response(status)), NOW_S)
    assert decided == outcome(DEFERRED, status)


def test_a_released_visit_has_no_outcome() -> None:
    """Nothing happened."""
    assert decide(visit(decision=ChainDecision.RELEASED), NOW_S) is None


@pytest.mark.parametrize(("status", "trouble"), [(200, NONE), (503, UNAVAILABLE)])
def test_a_broken_visit_is_failed_and_its_slot_rests(status, trouble) -> None:
    """The site did its part, and what it said of itself holds; another try would break as well."""
    broken = visit(answer=response(status), broken=KeyError("odd"))
    assert decide(broken, NOW_S) == outcome(FAILED, -5, trouble=trouble)


def test_a_visit_that_broke_before_there_was_an_answer_rests_from_its_lease_on() -> None:
    """A fetch may have been under way; when it began and ended nobody knows any more."""
    decided = decide(visit(broken=KeyError("odd")), NOW_S)
    assert decided == Outcome(kind=FAILED, status=-5, start_s=START_S, end_s=NOW_S)


def test_a_failure_without_a_fetch_lets_nothing_rest() -> None:
    """A worker that only heard of another's failure took no time of the host."""
    decided = decide(visit(failure=RobotsUnavailable("not now")), NOW_S)
    assert decided == outcome(FAILED, -61, fetched=False)


def test_a_visit_that_nothing_happened_to_is_failed() -> None:
    """A chain without a fetch must not go round for ever."""
    assert decide(visit(), NOW_S) == outcome(FAILED, 0, fetched=False)


# Words


@each_row(
    ("one", "words"),
    [
        (visit(answer=response()), ()),
        (visit(answer=response(), attempts=2), ("3t",)),
        (visit(answer=response(cuts=(Cut.LENGTH,))), ("lenTrunc",)),
        (visit(broken=KeyError("odd")), ("err=KeyError",)),
        (visit(answer=response(cuts=(Cut.LENGTH,)), attempts=1, broken=OSError()), ("2t", "lenTrunc", "err=OSError")),
    ],
)
def test_annotations_are_heritrixs_words(one, words) -> None:
    """Tries from the second on, a cut body, dropped links, a fault of ours; in this order."""
    assert visit_annotations(one) == words


def test_dropped_links_are_counted_in_the_annotations() -> None:
    """Heritrix: dol, discarded outlinks."""
    one = visit(answer=response())
    one.dropped_links = 12
    assert visit_annotations(one) == ("dol:12",)


@pytest.mark.parametrize(("body", "digest"), [(b"", EMPTY_DIGEST), (b"abc", ABC_DIGEST)])
def test_the_digest_is_sha_1_in_base_32(body, digest) -> None:
    """The expected digests are published ones."""
    assert digest_text(Body.of(body).digest) == digest


# Lines


def files(folder):
    """The two logs."""
    return LineFile(folder / "crawl.log", "crawl_log"), LineFile(folder / "pages.jsonl", "pages")


@pytest.fixture
async def journal(tmp_path):
    journal = Journal(*files(tmp_path))
    yield journal
    await journal.close()


class Ended:
    """A visit of a real lease, ended by the disposition."""

    def __init__(self, frontier, journal) -> None:
        self.frontier = frontier
        self.statistics = CrawlStatistics(started_s=START_S)
        self.recorder = Recorder(journal, clock)
        self.known = SeenUrls(lambda keys: [True] * len(keys))
        self.dispose = Disposition(frontier, self.recorder, self.statistics, clock, self.known)

    async def lease(self, **left):
        one = Visit(await self.frontier.lease(), 7)
        for name, value in left.items():
            setattr(one, name, value)
        return one

    async def end(self, **left):
        return await self.dispose(await self.lease(**left))


def lines(tmp_path):
    """The lines of crawl.log without their first field (when they were written), and of pages.jsonl."""
    log = [line.split(maxsplit=1)[1] for line in (tmp_path / "crawl.log").read_text().splitlines()]
    return log, [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]


async def test_a_page_has_a_line_in_both_files(tmp_path, journal) -> None:
    """Twelve fields in crawl.log, an object in pages.jsonl; its outlinks are queued with its end."""
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, journal)
        found = [Candidate(url="http://a.test/1", hops="L")]
        answer = response(200, b"abc", Content_Type="text/html; charset=utf-8")
        assert await ended.end(response=answer, discovered=found) is DONE
        assert frontier.core.pending == 1
        assert ended.statistics.pages == 1
    log, pages = lines(tmp_path)
    assert log == [f"200          3 {URL} - - text/html #007 20260101000000000+250 {ABC_DIGEST} - round:1"]
    assert pages == [
        {
            "url": URL,
            "status": 200,
            "mime": "text/html",
            "size": 3,
            "hops": "",
            "via": None,
            "fetch_time": "2026-01-01T00:00:00.000Z",
            "digest": ABC_DIGEST,
            "round": 1,
        }
    ]


async def test_what_a_page_led_to_is_known_once_the_frontier_has_it(tmp_path, journal) -> None:
    """Not before: a page whose lease is lost has given the Frontier nothing."""
    links = [Link("http://a.test/1", "L"), Link("http://a.test/2", "L")]
    found = [Candidate(link.url) for link in links]
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, journal)
        lost = await ended.lease(response=response(), discovered=found[1:])
        frontier.release(lost.lease)
        assert await ended.dispose(lost) is None
        assert ended.known.unseen(links) == links
        assert await ended.end(response=response(), discovered=found[:1]) is DONE
        assert ended.known.unseen(links) == links[1:]


async def test_a_url_that_failed_is_tried_again_when_it_is_due_and_its_gate_is_open(journal) -> None:
    """Whichever comes later is told; here the host in trouble is left alone for longer than the URL."""
    order = FrontierOrder(policy="host", politeness=HASTE, backoff=Backoff(base_s=60.0, jitter=0.0))
    for wait_s, failure in ((60.0, ConnectFailed("refused")), (10.0, NameTimeout("no answer"))):
        async with AsyncFrontier(lambda bell: open_frontier(None, order, on_change=bell, clock=clock)) as frontier:
            frontier.schedule([Candidate(url=URL)])
            ended = Ended(frontier, journal)
            assert await ended.end(failure=failure.timed(START_S, END_S)) is RETRY
            last = ended.statistics.troubles.last(NOW_S)
        assert last is not None
        assert last.again_in_s == wait_s


async def test_a_url_that_got_no_answer_has_a_line_in_crawl_log_alone(tmp_path, journal) -> None:
    """There is no page to speak of."""
    async with memory_frontier(URL) as frontier:
        failure = NameNotFound("no such name").timed(START_S, END_S)
        assert await Ended(frontier, journal).end(failure=failure) is FAILED
    assert lines(tmp_path) == ([f"-1          - {URL} - - unknown #007 20260101000000000+250 - - round:1"], [])


async def test_a_broken_page_is_no_page_though_it_was_answered(tmp_path, journal) -> None:
    """Its line says what was fetched and what broke."""
    async with memory_frontier(URL) as frontier:
        await Ended(frontier, journal).end(response=response(200, b"abc"), broken=KeyError("odd"))
    log, pages = lines(tmp_path)
    assert log == [f"-5          3 {URL} - - unknown #007 20260101000000000+250 {ABC_DIGEST} - err=KeyError,round:1"]
    assert pages == []


async def test_a_url_that_is_given_up_for_its_robots_txt_was_never_fetched(tmp_path, journal) -> None:
    """Refusals are no attempts and leave no line; the end is -61, without times, and without an object in pages.jsonl."""
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, journal)
        for _ in range(4):
            answer = response(503, b"sorry", Retry_After="0", Content_Type="text/plain")
            assert await ended.end(response=answer, decision=ChainDecision.NO_RULES) is DEFERRED
        assert await ended.end(failure=RobotsUnavailable("not now")) is FAILED
        assert ended.statistics.retries == 0
    assert lines(tmp_path) == ([f"-61          - {URL} - - unknown #007 - - - round:1"], [])


@pytest.mark.parametrize(
    "left",
    [
        {"decision": ChainDecision.DEFERRED, "response": response(200)},
        {"decision": ChainDecision.NO_RULES, "response": response(503)},
        {"decision": ChainDecision.RELEASED},
        {"failure": ConnectFailed("refused")},
    ],
)
async def test_a_url_that_comes_again_has_no_line_yet(tmp_path, journal, left) -> None:
    """Deferred, released or to be tried again: its end is still to come."""
    async with memory_frontier(URL) as frontier:
        await Ended(frontier, journal).end(**left)
        assert frontier.core.pending == 1
    assert lines(tmp_path) == ([], [])


async def test_a_released_visit_is_not_counted(journal) -> None:
    """The answer is that there was no outcome."""
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, journal)
        assert await ended.end(decision=ChainDecision.RELEASED) is None
        assert ended.statistics == CrawlStatistics(started_s=START_S)


async def test_the_lines_are_durable_before_the_url_is_finished(tmp_path) -> None:
    """Until the journal answers, the URL stays leased and nothing is counted."""
    held = HeldJournal(*files(tmp_path))
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, held)
        task = asyncio.create_task(ended.end(response=response()))
        await held.is_asked.wait()
        assert (frontier.core.in_flight, ended.statistics.pages) == (1, 0)
        held.may_write.set()
        await task
        assert (frontier.core.in_flight, ended.statistics.pages) == (0, 1)
    await held.close()
    assert len(lines(tmp_path)[0]) == 1


async def test_robots_txt_has_a_line_of_its_own_with_the_hop_p(tmp_path, journal) -> None:
    """It names the URL in whose place it was fetched, and it is no page."""
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, journal)
        answer = response(200, b"abc", Content_Type="text/plain")
        one = await ended.lease(response=answer)
        await ended.dispose.record_robots(one, f"{URL}robots.txt", answer)
        frontier.release(one.lease)
        assert (ended.statistics.robots, ended.statistics.pages) == (1, 0)
    log = f"200          3 {URL}robots.txt P {URL} text/plain #007 20260101000000000+250 {ABC_DIGEST} - round:1"
    assert lines(tmp_path) == ([log], [])


@pytest.mark.parametrize(
    ("records", "line"),
    [
        (
            (AddressRecord("A", "192.0.2.1", 300),),
            f"1         42 dns:a.test LP {URL} text/dns #007 20260101000000000+500 sha1:{{digest}} - round:1",
        ),
        ((), f"-1          - dns:a.test LP {URL} unknown #007 20260101000000000+500 - - round:1"),
    ],
)
async def test_a_lookup_has_a_line_of_its_own_with_the_hop_p(tmp_path, journal, records, line) -> None:
    """It has Heritrix's status 1 or -1, the record's size and digest. It counts neither as page nor as robots.txt."""
    made = Lookup(host="a.test", start_s=START_S, end_s=START_S + 0.5, records=records)
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, journal)
        one = await ended.lease()
        one.lease = one.lease._replace(hops="L")
        await ended.recorder.lookup(one, made)
        assert (ended.statistics.robots, ended.statistics.pages) == (0, 0)
    assert lines(tmp_path) == ([line.replace("sha1:{digest}", digest_text(Body.of(made.body).digest))], [])


@pytest.mark.parametrize("left", [{"response": response(200, b"abc")}, {"decision": ChainDecision.RELEASED}])
async def test_a_visit_whose_lease_was_lost_meanwhile_ends_without_harm(journal, left) -> None:
    """Its URL is queued again already, and will be counted when it ends."""
    async with memory_frontier(URL) as frontier:
        ended = Ended(frontier, journal)
        one = await ended.lease(**left)
        frontier.release(one.lease)
        assert await ended.dispose(one) is None
        assert ended.statistics == CrawlStatistics(started_s=START_S)
        assert frontier.core.pending == 1
