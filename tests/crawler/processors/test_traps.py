"""Tests of learning and skipping on a real Frontier: URLs that are never skipped, and how skipped URLs come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.crawler.extract.links import Link
from anabranch.crawler.fetch.response import Cut
from anabranch.crawler.job import seeds
from anabranch.crawler.job.skipped import SkippedUrl, SkippedUrls, due_again
from anabranch.crawler.processors.traps import ParameterSkipped, ParameterTraps
from anabranch.crawler.scope.parameters import LEARNT, SAMPLED, ParameterRules
from anabranch.crawler.visit import ChainDecision, Visit
from anabranch.frontier.aio import AsyncFrontier
from anabranch.frontier.records import Candidate, Lease, Outcome, OutcomeKind
from tests.crawler.builder import END_S, START_S, lease, memory_frontier, response, visit

SITE = "http://a.test"


@asynccontextmanager
async def opened(frontier: AsyncFrontier, state: Path, seeds: tuple[str, ...] = ()) -> AsyncIterator[ParameterTraps]:
    traps = ParameterTraps(ParameterRules(), SkippedUrls(state, 1), frontier, lambda _: None, seeds)
    await traps.begin()
    try:
        yield traps
    finally:
        await traps.close()


def page(token: object, body: bytes = b"", hops: str = "L", status: int = 200, cuts: tuple[Cut, ...] = ()) -> Visit:
    """A page of the trap, which links to itself with another token."""
    url = f"{SITE}/s?token={token}"
    body = body or f'<a href="/s?token={token}0">s</a>'.encode()
    links = [Link(f"{SITE}/s?token={token}0", "L")] if status == 200 else []
    made = visit(url=url, hops=hops, answer=response(status, body, cuts=cuts))
    made.links += links
    return made


async def learn(traps: ParameterTraps, count: int = LEARNT) -> None:
    for number in range(count):
        await traps(page(number))


async def is_skipped(traps: ParameterTraps, asked: Lease) -> bool:
    try:
        await traps.check(asked)
    except ParameterSkipped:
        return True
    return False


@pytest.mark.parametrize(
    ("asked", "is_wanted"),
    [
        (lease(f"{SITE}/s?token=x", hops="L"), False),
        (lease(f"{SITE}/s?token=x", hops=""), True),
        (lease(f"{SITE}/s?token=x", hops="R"), True),
        (lease(f"{SITE}/s?token=x", hops="LM"), True),
        (lease(f"{SITE}/s?token=x", hops="MR"), True),
        (lease(f"{SITE}/s?token=x", hops="LR"), False),
        (lease(f"{SITE}/s?token=x", hops="L", attempts=1), True),
        (lease(f"{SITE}/s?token=seed", hops="L"), True),
    ],
)
async def test_seeds_urls_of_sitemaps_and_later_tries_are_fetched(
    tmp_path: Path, asked: Lease, is_wanted: bool
) -> None:
    """Whatever rules say; so is what these redirect to."""
    async with memory_frontier() as frontier, opened(frontier, tmp_path, (f"{SITE}/s?token=seed",)) as traps:
        await learn(traps)
        assert await is_skipped(traps, asked) is not is_wanted


async def test_a_setting_turns_it_off_at_any_time(tmp_path: Path) -> None:
    """Nothing is skipped and nothing learnt meanwhile."""
    async with memory_frontier() as frontier, opened(frontier, tmp_path) as traps:
        await learn(traps)
        traps.turn(is_on=False)
        assert not await is_skipped(traps, lease(f"{SITE}/s?token=x", hops="L"))
        await traps(page("y", b"another page"))
        traps.turn(is_on=True)
        assert await is_skipped(traps, lease(f"{SITE}/s?token=x", hops="L"))


@pytest.mark.parametrize(
    "different",
    [
        page("y", b"another page"),
        page("y", status=404),
        page("y", status=302),
        page("y", cuts=(Cut.LENGTH,)),
        visit(url=f"{SITE}/s?token=y", hops="L", answer=response(200, b'<a href="/s?token=y0">s</a>')),
    ],
)
async def test_any_other_answer_is_a_difference(tmp_path: Path, different: Visit) -> None:
    """Another payload, other links, no page, or one of which the end is not known."""
    async with memory_frontier() as frontier, opened(frontier, tmp_path) as traps:
        await learn(traps)
        await traps(different)
        assert not await is_skipped(traps, lease(f"{SITE}/s?token=x", hops="L"))


@pytest.mark.parametrize("how", ["no answer", "robots.txt in its place", "busy"])
async def test_what_is_no_answer_to_the_url_teaches_nothing(tmp_path: Path, how: str) -> None:
    """Its host or its rules were asked, or it is tried again."""
    made = page("y", b"something else", status=503 if how == "busy" else 200)
    if how == "no answer":
        made.response = None
    if how == "robots.txt in its place":
        made.decide(ChainDecision.DEFERRED)
    async with memory_frontier() as frontier, opened(frontier, tmp_path) as traps:
        await learn(traps)
        await traps(made)
        assert await is_skipped(traps, lease(f"{SITE}/s?token=x", hops="L"))


async def skip_some(frontier: AsyncFrontier, traps: ParameterTraps, count: int = 10) -> list[str]:
    """Lease URLs, skip them, end them as skipped."""
    urls = [f"{SITE}/s?token=x{number}" for number in range(count)]
    frontier.schedule([Candidate(url, hops="LL", payload=b"tag") for url in urls])
    for _ in urls:
        leased = await frontier.lease()
        with pytest.raises(ParameterSkipped, match="parameter token"):
            await traps.check(leased)
        frontier.finish(leased, Outcome(OutcomeKind.DISREGARDED, -5005))
    return urls


async def queued_again(frontier: AsyncFrontier) -> list[tuple[str, str, bytes | None]]:
    """Lease and end all that is queued."""
    found = []
    await frontier.flush()
    while frontier.core.counts().pending:
        leased = await frontier.lease()
        found.append((leased.url, leased.hops, leased.payload))
        frontier.finish(leased, Outcome(OutcomeKind.DONE, 200, START_S, END_S))
    return found


async def test_the_first_difference_queues_again_what_was_skipped(tmp_path: Path) -> None:
    """Each once, with its hops and payload; a sitemap with such a URL does the same."""
    for different in (page("y", b"another page"), visit(url=f"{SITE}/map.xml", hops="M", answer=response(200))):
        different.links.append(Link(f"{SITE}/s?token=z", "M"))
        (state := tmp_path / str(id(different))).mkdir()
        async with memory_frontier() as frontier, opened(frontier, state) as traps:
            await learn(traps)
            urls = await skip_some(frontier, traps)
            await traps(different)
            await traps(different)
            assert await queued_again(frontier) == [(url, "LL", seeds.queued_again(b"tag")) for url in urls]
            assert [rule.skipped for rule in traps.kept.rules()] == [0]


async def test_a_url_that_is_being_skipped_when_its_rule_is_undone_comes_back_too(tmp_path: Path) -> None:
    """It ends after the rule, so the rule cannot have found it."""
    async with memory_frontier() as frontier, opened(frontier, tmp_path) as traps:
        await learn(traps)
        frontier.schedule([Candidate(f"{SITE}/s?token=x", hops="L")])
        leased = await frontier.lease()
        under_way = Visit(leased, 1)
        with pytest.raises(ParameterSkipped) as skipped:
            await traps.check(leased)
        under_way.failed(skipped.value)
        await traps(page("y", b"another page"))

        async def dispose(ended: Visit) -> OutcomeKind:
            frontier.finish(ended.lease, Outcome(OutcomeKind.DISREGARDED, -5005))
            return OutcomeKind.DISREGARDED

        assert await traps.queueing_after(dispose)(under_way) is OutcomeKind.DISREGARDED
        assert [url for url, *_ in await queued_again(frontier)] == [leased.url]


async def test_the_next_run_goes_on_with_the_rules_and_with_what_a_kill_interrupted(tmp_path: Path) -> None:
    """A rule is written as undone before its URLs are queued again."""
    async with memory_frontier() as frontier:
        async with opened(frontier, tmp_path) as traps:
            await learn(traps)
            urls = await skip_some(frontier, traps)
        async with opened(frontier, tmp_path) as traps:
            assert await is_skipped(traps, lease(f"{SITE}/s?token=new", hops="L"))
            (rule,) = traps.kept.rules()
            traps.kept.undo(rule.template)  # killed here
        async with opened(frontier, tmp_path) as traps:
            assert not await is_skipped(traps, lease(f"{SITE}/s?token=newer", hops="L"))
            assert [url for url, *_ in await queued_again(frontier)] == urls


async def test_an_operator_gets_all_that_was_skipped_fetched(tmp_path: Path) -> None:
    """Its rules skip no more."""
    async with memory_frontier() as frontier, opened(frontier, tmp_path) as traps:
        await learn(traps)
        urls = await skip_some(frontier, traps)
        assert await traps.undo_all() == len(urls)
        assert await traps.undo_all() == 0
        assert [url for url, *_ in await queued_again(frontier)] == urls
        assert not await is_skipped(traps, lease(f"{SITE}/s?token=new", hops="L"))


@pytest.mark.parametrize("kind", [OutcomeKind.FAILED, OutcomeKind.DISREGARDED])
async def test_a_url_that_is_queued_again_is_not_skipped(tmp_path: Path, kind: OutcomeKind) -> None:
    """A failure that an operator retries, and a skipped URL that is forced: whatever rule was learnt meanwhile."""
    async with memory_frontier() as frontier, opened(frontier, tmp_path) as traps:
        await learn(traps)
        frontier.schedule([Candidate(f"{SITE}/s?token=x", hops="L")])
        frontier.finish(await frontier.lease(), Outcome(kind, -5005, START_S, END_S))
        await frontier.flush()
        failed = frontier.core.operations.retrying.steps(lambda _: True, payload_of=seeds.queued_again)
        if kind is OutcomeKind.FAILED:
            await frontier.look(failed)
        else:
            failed.close()
            skipped = SkippedUrl(f"{SITE}/s?token=x", "L", None, None)
            (forced,), _ = due_again([skipped], frontier.core.operations.ended, lambda _: None)
            frontier.schedule([forced])
        frontier.schedule([Candidate(f"{SITE}/s?token=y", hops="L")])
        found = {}
        for _ in range(2):
            leased = await frontier.lease()
            found[leased.url[-1], leased.attempts] = await is_skipped(traps, leased)
            frontier.finish(leased, Outcome(OutcomeKind.DONE, 200))
        assert found == {("x", 0): False, ("y", 0): True}


async def test_a_worker_that_gets_a_share_learns_its_rules_anew(tmp_path: Path) -> None:
    """Each has a file of its own; what the first one skipped comes back from its file, and the second one fetches it."""
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    async with memory_frontier() as frontier, opened(frontier, folders[0]) as first:
        await learn(first)
        frontier.schedule([Candidate(f"{SITE}/s?token=x", hops="L")])
        skipped = await frontier.lease()
        assert await is_skipped(first, skipped)
        frontier.finish(skipped, Outcome(OutcomeKind.DISREGARDED, -5005))
        async with opened(frontier, folders[1]) as second:
            await learn(second, LEARNT - 1)
            assert not await is_skipped(second, lease(f"{SITE}/s?token=y", hops="L"))
            await learn(second, 1)
            assert await is_skipped(second, lease(f"{SITE}/s?token=z", hops="L"))
            assert await first.undo_all() == 1
            again = await frontier.lease()
            assert again.url == skipped.url
            assert not await is_skipped(second, again)


async def test_urls_that_are_skipped_together_are_written_together(tmp_path: Path) -> None:
    """Each is in the file when its check ends; of so many one is fetched."""
    async with memory_frontier() as frontier, opened(frontier, tmp_path) as traps:
        await learn(traps)
        asked = [lease(f"{SITE}/s?token=x{number}", hops="L") for number in range(2 * SAMPLED)]
        found = await asyncio.gather(*(is_skipped(traps, one) for one in asked))
        assert found.count(False) == 2
        assert [rule.skipped for rule in traps.kept.rules()] == [2 * SAMPLED - 2]
