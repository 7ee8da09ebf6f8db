"""What an operator asks of a running job of several processes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.sections import LimitsSection
from anabranch.crawler.outcomes.endings import WhyEnded, failure_code
from anabranch.crawler.outcomes.errors import ExitCode, UsageError
from anabranch.crawler.processes.limits import JobLimits
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.processes.status import JobStatus
from anabranch.crawler.processes.verbs import JobVerbs
from anabranch.crawler.processes.watch import QuietWatch
from anabranch.crawler.run.control import ControlRefused
from anabranch.crawler.run.crawl_verbs import ADD, PAUSE, RESUME
from anabranch.crawler.run.run_state import Phase

SEEDS = {"seeds": [{"url": f"http://{host}.test/", "source": "command line"} for host in "abcdef"]}


class RunState(Shares, QuietWatch):
    """Shares and the watch over them: what is said to whom, in its order."""

    def __init__(self) -> None:
        self.count = 2
        self.ending: WhyEnded | None = None
        self.said: list[tuple[str, int]] = []

    def stir(self, share: int) -> None:
        self.said.append(("stirred", share))

    async def ask(self, share: int, kind: str, body: bytes = b"", **facts: Any) -> Mapping[str, Any]:
        self.said.append((facts["verb"], share))
        return {"facts": {"seeds": [{"url": seed["url"]} for seed in facts["arguments"]["seeds"]]}}


def verbs(course: RunState, book: list[Seed], ends_meanwhile: WhyEnded | None = None) -> JobVerbs:
    async def add(seeds: Sequence[Seed]) -> None:
        book.extend(seeds)
        course.ending = ends_meanwhile

    return JobVerbs(course, cast("JobLimits", None), Status(course), course, add)


async def test_a_share_is_stirred_before_it_hears_of_a_seed() -> None:
    """From then on the crawl cannot end before the share has said that it is quiet again."""
    course, book = RunState(), list[Seed]()
    answer = await verbs(course, book).answer(ADD, SEEDS)
    assert [seed["url"] for seed in answer["seeds"]] == [seed.url for seed in book]
    assert sorted(course.said) == [(ADD, 0), (ADD, 1), ("stirred", 0), ("stirred", 1)]
    assert course.said[0] == ("stirred", course.said[1][1])


async def test_a_seed_that_comes_when_the_crawl_ends_waits_for_the_next_run() -> None:
    """It is in the book, which every run begins with; a share that took it now would have nobody for its links."""
    course, book = RunState(), list[Seed]()
    with pytest.raises(UsageError, match="run its command again"):
        await verbs(course, book, WhyEnded.FINISHED).answer(ADD, SEEDS)
    assert len(book) == len(SEEDS["seeds"])
    assert course.said == []


class Disks(Shares):
    """Two shares that are open; the disk of one is full, as long as it says so."""

    def __init__(self) -> None:
        self.count = 2
        self.ending: WhyEnded | None = None
        self.full = {"error": "paused by min_free_disk; make room: the crawl then goes on by itself", "code": 2}
        self.said: list[str] = []

    async def ask_all(self, kind: str, **facts: Any) -> dict[int, Mapping[str, Any]]:
        del kind
        self.said.append(facts["verb"])
        is_refused = facts["verb"] == RESUME and self.full
        return {0: {"facts": {}}, 1: self.full if is_refused else {"facts": {}}}


class Status(JobStatus):
    """Tells the phase."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares

    @property
    def phase(self) -> Phase:
        return Phase.RUNNING if self._shares.ending is None else Phase.DRAINING

    def facts(self) -> dict[str, Any]:
        return {"phase": self.phase.value}


async def test_a_job_does_not_go_on_while_a_share_has_no_room() -> None:
    """As a job of one process says: the others go on, and the operator hears what keeps this one from it."""
    shares = Disks()
    limits = JobLimits(LimitsSection(), 2, shares, lambda _: None)
    verbs = JobVerbs(shares, limits, Status(shares), cast("QuietWatch", None), cast("Any", None))
    await verbs.answer(PAUSE, {})
    with pytest.raises(ControlRefused, match="min_free_disk; make room") as refused:
        await verbs.answer(RESUME, {})
    assert failure_code(refused.value) is ExitCode.USAGE
    shares.full = {}
    assert await verbs.answer(RESUME, {}) == {"phase": "running"}
    assert shares.said == [PAUSE, RESUME, RESUME]
