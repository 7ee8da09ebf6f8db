"""What an operator asks of a running job of several processes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from crawler.jobs.seeds import Seed
from crawler.operating.crawl_verbs import ADD
from crawler.outcomes.endings import WhyEnded
from crawler.outcomes.errors import UsageError
from crawler.processes.limits import JobLimits
from crawler.processes.shares import Shares
from crawler.processes.status import JobStatus
from crawler.processes.verbs import JobVerbs
from crawler.processes.watch import QuietWatch

SEEDS = {"seeds": [{"url": f"http://{host}.test/", "source": "command line"} for host in "abcdef"]}


class Course(Shares, QuietWatch):
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


def verbs(course: Course, book: list[Seed], ends_meanwhile: WhyEnded | None = None) -> JobVerbs:
    async def add(seeds: Sequence[Seed]) -> None:
        book.extend(seeds)
        course.ending = ends_meanwhile

    return JobVerbs(course, cast(JobLimits, None), cast(JobStatus, None), course, add)


async def test_a_share_is_stirred_before_it_hears_of_a_seed() -> None:
    """From then on the crawl cannot end before the share has said that it is quiet again."""
    course, book = Course(), list[Seed]()
    answer = await verbs(course, book).answer(ADD, SEEDS)
    assert [seed["url"] for seed in answer["seeds"]] == [seed.url for seed in book]
    assert sorted(course.said) == [(ADD, 0), (ADD, 1), ("stirred", 0), ("stirred", 1)]
    assert course.said[0] == ("stirred", course.said[1][1])


async def test_a_seed_that_comes_when_the_crawl_ends_waits_for_the_next_run() -> None:
    """It is in the book, which every run begins with; a share that took it now would have nobody for its links."""
    course, book = Course(), list[Seed]()
    with pytest.raises(UsageError, match="run its command again"):
        await verbs(course, book, WhyEnded.FINISHED).answer(ADD, SEEDS)
    assert len(book) == len(SEEDS["seeds"])
    assert course.said == []
