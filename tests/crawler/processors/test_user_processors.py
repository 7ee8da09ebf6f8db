"""Processors of the operator's own: found by name, checked at the start, their faults kept apart from ours."""

import asyncio
import hashlib
from contextlib import suppress
from dataclasses import fields

import pytest

from anabranch.crawler.extract.links import Link
from anabranch.crawler.job.journal import Journal, LineFile
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.failures import FetchError, Unfetchable
from anabranch.crawler.outcomes.userfunctions import RULE, UserFunctionFailed
from anabranch.crawler.processors.recorder import Recorder
from anabranch.crawler.processors.user_processors import user_processor
from anabranch.crawler.visit import LostLink, Step, Visit
from anabranch.frontier.records import OutcomeKind
from tests.crawler.builder import clock, response, visit

HERE = __name__


async def quiet(visit):
    visit.notes += ("seen",)


async def stop(visit):
    return Step.STOP


async def broken(visit):
    raise KeyError("x")


async def refusing(visit):
    raise Unfetchable("not for us")


async def chatty(visit):
    return "yes"


def plain(visit):
    return None


class Callable:
    async def __call__(self, visit):
        return Step.STOP


called = Callable()


@pytest.mark.parametrize(("name", "step"), [("quiet", Step.PROCEED), ("stop", Step.STOP), ("called", Step.STOP)])
async def test_it_goes_on_or_stops_as_it_answers(name, step) -> None:
    """Nothing means to go on; an object with an async call is as good as a function."""
    one = visit()
    assert await user_processor(f"{HERE}:{name}")(one) is step
    assert one.notes == (("seen",) if name == "quiet" else ())


@pytest.mark.parametrize(
    ("name", "words"), [("broken", "failed: KeyError: 'x'"), ("chatty", "answered 'yes'; it must be")]
)
async def test_what_it_does_wrong_is_said_with_its_name(name, words) -> None:
    """The worker takes it as it takes any processor's fault."""
    with pytest.raises(UserFunctionFailed, match=f"^processor {HERE}:{name} {words}"):
        await user_processor(f"{HERE}:{name}")(visit())


async def test_it_may_end_a_url_as_a_fetch_does() -> None:
    """With an error that has a status of its own."""
    with pytest.raises(Unfetchable):
        await user_processor(f"{HERE}:refusing")(visit())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{HERE}:plain", "is not async; write `async def plain"),
        (f"{HERE}:nothing", "cannot be imported: AttributeError"),
        (f"{HERE}:HERE", "is not a function"),
        ("nonsense", "is not of the form package.module:function"),
    ],
)
def test_what_is_no_async_function_is_refused_at_the_start(name, words) -> None:
    """In one line that names the key."""
    with pytest.raises(OrderError, match=r"^\[job\] processors ") as refused:
        user_processor(name)
    assert words in str(refused.value)


# What it may change, and what it may not


def spoils(change):
    """A processor that does this to the visit."""

    async def spoiler(visit):
        change(visit)

    return spoiler


LINK = Link("http://a.test/1", "L", "a/@href")
LOST = LostLink("http://a.test/2", "L", UserFunctionFailed(RULE, "ours:rule", "failed: KeyError"))

SPOILT = {
    "notes": lambda visit: setattr(visit, "notes", None),
    "notes of numbers": lambda visit: setattr(visit, "notes", (1,)),
    "notes gone": lambda visit: delattr(visit, "notes"),
    "links": lambda visit: setattr(visit, "links", None),
    "links gone": lambda visit: delattr(visit, "links"),
    "links that are none": lambda visit: visit.links.append("http://a.test/"),
    "links with odd hops": lambda visit: visit.links.append(Link("http://a.test/", "LL")),
    "links that are prerequisites": lambda visit: visit.links.append(Link("http://a.test/", "P")),
    "links to nowhere": lambda visit: visit.links.append(Link("/relative", "L")),
    "links of two lines": lambda visit: visit.links.append(Link("http://a.test/", "L", "a\r\nb: c")),
    "links of numbers": lambda visit: visit.links.append(Link(7, 8, 9)),
    "links of surrogates": lambda visit: visit.links.append(Link("http://a.test/\udc80", "L")),
    "lease": lambda visit: setattr(visit, "lease", None),
    "lease gone": lambda visit: delattr(visit, "lease"),
    "response": lambda visit: setattr(visit, "response", "gone"),
    "response.body": lambda visit: visit.response.body.close(),
    "response.body by the visit": lambda visit: visit.close(),
    "worker": lambda visit: setattr(visit, "worker", "me"),
    "decision": lambda visit: setattr(visit, "decision", None),
    "failure": lambda visit: setattr(visit, "failure", ValueError()),
    "broken": lambda visit: setattr(visit, "broken", 3),
    "exchange": lambda visit: setattr(visit, "exchange", object()),
    "discovered": lambda visit: visit.discovered.append("http://a.test/"),
    "lost": lambda visit: visit.lost.append("http://a.test/"),
    "lost links forgotten": lambda visit: visit.lost.clear(),
    "lost gone": lambda visit: delattr(visit, "lost"),
    "discovered gone": lambda visit: delattr(visit, "discovered"),
    "directives": lambda visit: setattr(visit, "directives", None),
    "dropped_links": lambda visit: setattr(visit, "dropped_links", "many"),
}


@pytest.mark.parametrize("what", SPOILT)
async def test_what_a_function_spoils_costs_its_page_and_harms_nothing(what, monkeypatch) -> None:
    """It had a visit of its own: in ours all is as it was. The line names the function and the field."""
    monkeypatch.setitem(globals(), "spoiler", spoils(SPOILT[what]))
    one = visit(answer=response(200, b"abc"))
    one.links, one.notes, one.lost = [LINK], ("before",), [LOST]
    before = {field.name: getattr(one, field.name) for field in fields(one)}
    field, _, _ = what.partition(" ")
    with pytest.raises(UserFunctionFailed, match=f"^processor {HERE}:spoiler has spoilt visit.{field}: it m"):
        await user_processor(f"{HERE}:spoiler")(one)
    assert {field.name: getattr(one, field.name) for field in fields(one)} == before
    assert (one.links, one.lost, one.discovered) == ([LINK], [LOST], [])


BODY_CHANGES = {
    "more bytes": lambda body: body.append(b"MORE"),
    "another size": lambda body: setattr(body, "size", 7),
    "another digest": lambda body: setattr(body, "digest", bytes(20)),
}


@pytest.mark.parametrize("of", ["response", "archived"])
@pytest.mark.parametrize("what", BODY_CHANGES)
async def test_a_body_cannot_be_changed(of, what, monkeypatch) -> None:
    """The logs and the WARC have the page as the site sent it."""
    change = BODY_CHANGES[what]
    monkeypatch.setitem(globals(), "spoiler", spoils(lambda visit: change(getattr(visit, of).body)))
    one = visit(answer=response(200, b"abc"))
    one.archived = response(200, b"abc")
    with pytest.raises(UserFunctionFailed, match=f"^processor {HERE}:spoiler failed: (Value|Attribute)Error"):
        await user_processor(f"{HERE}:spoiler")(one)
    body = getattr(one, of).body
    assert (body.size, body.digest, body.read()) == (3, hashlib.sha1(b"abc").digest(), b"abc")


async def test_what_a_function_sets_to_what_it_was_is_untouched(monkeypatch) -> None:
    """An equal number, text or list is no change."""

    def same(visit):
        visit.lost, visit.discovered = list(visit.lost), []
        visit.dropped_links, visit.stopped_by = int("1000"), "".join([])

    monkeypatch.setitem(globals(), "spoiler", spoils(same))
    one = visit(answer=response(200, b"abc"))
    one.lost, one.dropped_links = [LOST], 1000
    assert await user_processor(f"{HERE}:spoiler")(one) is Step.PROCEED


async def test_a_page_that_a_function_has_spoilt_can_be_recorded(tmp_path, monkeypatch) -> None:
    """-5, with the function's name in both logs, though its body is gone."""
    monkeypatch.setitem(globals(), "spoiler", spoils(lambda visit: visit.close()))
    one = visit(answer=response(200, b"abc"))
    with pytest.raises(UserFunctionFailed) as failed:
        await user_processor(f"{HERE}:spoiler")(one)
    one.broken = failed.value
    journal = Journal(LineFile(tmp_path / "crawl.log", "crawl_log"), LineFile(tmp_path / "errors.jsonl", "errors"))
    await Recorder(journal, clock).end(one, OutcomeKind.FAILED)
    await journal.close()
    line = (tmp_path / "crawl.log").read_text().split()
    assert (line[1], line[11]) == ("-5", f"err=UserFunctionFailed,processor={HERE}:spoiler,round:1")
    assert f"processor {HERE}:spoiler has spoilt visit.response.body" in (tmp_path / "errors.jsonl").read_text()


async def test_a_page_that_it_stops_has_its_line_in_the_log_and_no_other(tmp_path) -> None:
    """Neither among the pages nor the links; the line names the function."""
    one = visit(answer=response(200, b"abc"))
    one.links.append(LINK)
    await user_processor(f"{HERE}:stop")(one)
    journal = Journal(*(LineFile(tmp_path / name, name) for name in ("crawl_log", "pages", "links")))
    await Recorder(journal, clock, links=True).end(one, OutcomeKind.DONE)
    await journal.close()
    line = (tmp_path / "crawl_log").read_text().split()
    assert (line[1], line[11]) == ("200", f"stopped={HERE}:stop,round:1")
    assert [(tmp_path / name).read_bytes() for name in ("pages", "links")] == [b"", b""]


async def test_a_busy_host_is_asked_again_though_its_answer_is_stopped() -> None:
    """The processor rejects this answer, not the page that comes later."""
    one = visit(answer=response(503))
    await user_processor(f"{HERE}:stop")(one)
    assert one.is_busy


async def add_and_keep(visit):
    visit.links = (*visit.links, Link("http://a.test/2", "M", "ours"))
    visit.notes = [*visit.notes, "mine"]
    KEPT.append(visit)


KEPT: list[Visit] = []


async def test_links_and_notes_of_its_own_are_taken_over(monkeypatch) -> None:
    """Once: what it does to them when it has answered is nobody's business."""
    one = visit(answer=response())
    one.links, one.notes = [LINK], ("before",)
    await user_processor(f"{HERE}:add_and_keep")(one)
    KEPT.pop().notes.append("later")
    assert one.links == [LINK, Link("http://a.test/2", "M", "ours")]
    assert one.notes == ("before", "mine")


# How it ends


class NoStatus(FetchError):
    """An error of no status."""


class OddStatus(FetchError):
    """An error whose status is none."""

    status = "gone"


RAISED: list[BaseException] = []


async def raising(visit):
    raise RAISED.pop()


@pytest.mark.parametrize(
    "error",
    [SystemExit(1), GeneratorExit(), asyncio.CancelledError(), BaseException("x"), NoStatus("x"), OddStatus("x")],
)
async def test_whatever_it_raises_is_its_failure(error) -> None:
    """Nobody has cancelled the worker: the function itself waited for a task that was. A verdict needs a status."""
    RAISED.append(error)
    with pytest.raises(UserFunctionFailed, match=f"^processor {HERE}:raising failed: {type(error).__name__}"):
        await user_processor(f"{HERE}:raising")(visit())


async def test_who_interrupts_the_program_interrupts_it() -> None:
    """Ctrl-C is no defect of the function."""
    RAISED.append(KeyboardInterrupt())
    process = user_processor(f"{HERE}:raising")(visit())
    with pytest.raises(KeyboardInterrupt):
        process.send(None)


async def keeping_cancellation(visit):
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()


async def changing_cancellation(visit):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError as error:
        raise ValueError from error


async def waiting(visit):
    await asyncio.Event().wait()


@pytest.mark.parametrize("name", ["waiting", "keeping_cancellation", "changing_cancellation"])
async def test_who_cancels_the_worker_has_the_last_word(name) -> None:
    """Whatever the function makes of it: its URL is to be given back, not given up."""
    task = asyncio.create_task(user_processor(f"{HERE}:{name}")(visit()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def timing_out(visit):
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_a_time_limit_of_its_own_is_no_cancellation() -> None:
    """Though that is how it works inside."""
    assert await user_processor(f"{HERE}:timing_out")(visit()) is Step.PROCEED
