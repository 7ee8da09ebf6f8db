"""What an operator asks of a running crawl: pause, resume, stop, status, add seeds. All other verbs are the Frontier's.

Their names begin with `crawl-`, since the Frontier pauses and resumes queues. Arguments and facts are what JSON holds. Each
answers when what was asked is done: a seed that is added is in the job's book and queued, both durably; a pause holds from
that moment on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from anabranch.crawler.jobs.seeding import Marks, Seeding, keys_of
from anabranch.crawler.jobs.seeds import Seed, SeedBook
from anabranch.crawler.jobs.sourcetags import SourceTags
from anabranch.crawler.operating.arguments import Arguments, Facts
from anabranch.crawler.operating.course import Cause, Course, Phase
from anabranch.crawler.operating.judging import Judge
from anabranch.crawler.operating.verbs import answer_beside
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.urls.canonicalization import KeyOf
from anabranch.crawler.urls.parsing import canonical
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.core import Frontier
from anabranch.frontier.models import Verdict

PAUSE, RESUME, STOP, STATUS, ADD = "crawl-pause", "crawl-resume", "crawl-stop", "crawl-status", "crawl-add"
REPORT = "report"


class CrawlVerbs:
    """Answers the control socket of one run."""

    def __init__(
        self,
        course: Course,
        frontier: AsyncFrontier,
        seeding: Seeding,
        judge: Judge,
        status: Callable[[], Facts],
        report: Callable[[Arguments], Awaitable[Facts]],
    ) -> None:
        self._course = course
        self._frontier = frontier
        self._seeding = seeding
        self._judge = judge
        self._status = status
        self._verbs: Mapping[str, Callable[[Arguments], Awaitable[Facts]]] = {
            PAUSE: self._pause,
            RESUME: self._resume,
            STOP: self._stop,
            STATUS: self._tell,
            ADD: self._add,
            REPORT: report,
        }

    async def answer(self, verb: str, given: Arguments) -> Facts:
        """The facts. Raises: UsageError for what makes no sense; as `answer_beside`."""
        ask = self._verbs.get(verb)
        if ask is not None:
            return await ask(given)
        facts = self._judge.ruled(verb, await answer_beside(self._frontier, verb, self._judge.keyed(verb, given)))
        return await asyncio.to_thread(self._judge.troubled, facts)

    async def _pause(self, given: Arguments) -> Facts:
        refuse_at_the_end("pause", self._course.phase)
        self._course.pause(Cause.OPERATOR)
        return await self._tell(given)

    async def _resume(self, given: Arguments) -> Facts:
        refuse_at_the_end("resume", self._course.phase)
        self._course.go_on()
        if self._course.phase is Phase.PAUSED:
            raise UsageError(f"{self._course.words}; make room: the crawl then goes on by itself")
        return await self._tell(given)

    async def _stop(self, given: Arguments) -> Facts:
        stop_as_asked(self._course.stop, given)
        return await self._tell(given)

    async def _tell(self, _: Arguments) -> Facts:
        return self._status()

    async def _add(self, given: Arguments) -> Facts:
        seeds = given_seeds(given)
        return added(seeds, await self._seeding.add(seeds))


class Stop(Protocol):
    """Ends a crawl in order."""

    def __call__(self, ending: WhyEnded, *, at_once: bool = False) -> None:
        """End it; the first reason counts."""


def stop_as_asked(stop: Stop, given: Arguments) -> None:
    """End the crawl because the operator says so. Argument: now, what is being fetched is given up."""
    now = bool(given.get("now"))
    stop(WhyEnded.OPERATOR_NOW if now else WhyEnded.OPERATOR, at_once=now)


def refuse_at_the_end(verb: str, phase: Phase) -> None:
    """Raises: UsageError if the crawl is ending."""
    if phase is Phase.DRAINING:
        raise UsageError(f"the crawl is ending, there is nothing to {verb}; run its command again to go on")


def given_seeds(given: Arguments) -> list[Seed]:
    """The argument `seeds`, a list of {url, source}. Raises: UsageError."""
    listed = given.get("seeds")
    if not isinstance(listed, list) or not listed:
        raise UsageError("seeds must be a list of URLs; it is empty or none")
    return [_seed(entry) for entry in listed]


def _seed(entry: object) -> Seed:
    match entry:
        case {"url": str(url), "source": str(source)} if canonical(url) == url:
            return Seed(url=url, source=source)
    raise UsageError(f"{entry!r} is no seed; give it as url, in its canonical form, and source")


def added(seeds: Sequence[Seed], verdicts: Sequence[Verdict]) -> Facts:
    """What became of each seed: `new`, `seen`, `refused` with a reason, or `later` if the filter has yet to say."""
    return {
        "seeds": [
            {"url": seed.url, "verdict": verdict.kind.value, "reason": verdict.reason}
            for seed, verdict in zip(seeds, verdicts, strict=True)
        ]
    }


def add_to_stopped(frontier: Frontier, book: SeedBook, seeds: Sequence[Seed], key: KeyOf) -> Facts:
    """Add seeds to a job that is not running (blocks): the book first, then the queue. Raises: as both."""
    keys = keys_of(seeds, key)
    book.add_all(seeds)
    marks = Marks(key, SourceTags(book))
    ended = frontier.ended(keys)
    candidates = [marks.seed(seed, ended.get(known)) for seed, known in zip(seeds, keys, strict=True)]
    verdicts = frontier.schedule(candidates)  # a Frontier that was opened just now is not busy
    frontier.flush()
    return added(seeds, verdicts)
