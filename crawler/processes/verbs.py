"""What an operator asks of a running job of several processes: its parent asks the share that owns what it is about, or all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.outcomes.errors import ExitCode
from anabranch.crawler.processes.limits import JobLimits
from anabranch.crawler.processes.postoffice import VERB
from anabranch.crawler.processes.reporting import merged_report
from anabranch.crawler.processes.shares import Shares
from anabranch.crawler.processes.status import JobStatus
from anabranch.crawler.processes.watch import QuietWatch
from anabranch.crawler.run.control import ControlRefused, facts_of
from anabranch.crawler.run.crawl_verbs import (
    ADD,
    PAUSE,
    REPORT,
    RESUME,
    STATUS,
    STOP,
    refuse_at_the_end,
    seeds_argument,
    stop_arguments,
)
from anabranch.crawler.run.merging import largest_part, merged_listing, owner_of_subject
from anabranch.crawler.run.run_state import Cause
from anabranch.crawler.run.verbs import Arguments, Facts, refuse_while_running
from anabranch.frontier.division.ownership import Division

_NOT_THERE = "a process of the crawl has died and is being started again; ask again"


class JobVerbs:
    """Answers the job's control socket."""

    def __init__(
        self,
        shares: Shares,
        limits: JobLimits,
        status: JobStatus,
        watch: QuietWatch,
        add: Callable[[Sequence[Seed]], Awaitable[None]],
    ) -> None:
        """`add` writes seeds into the job's book."""
        self._shares = shares
        self._limits = limits
        self._status = status
        self._watch = watch
        self._division = Division(shares=shares.count, share=0)  # whose a URL is
        self._add_to_book = add
        self._verbs: Mapping[str, Callable[[Arguments], Awaitable[Facts]]] = {
            PAUSE: self._pause,
            RESUME: self._resume,
            STOP: self._stop,
            STATUS: self._tell,
            ADD: self._add,
            REPORT: self._report,
            "ls": self._ls,
        }

    async def answer(self, verb: str, given: Arguments) -> Facts:
        """The facts. Raises: UsageError, JobIsRunning; ControlRefused with what a share said."""
        refuse_while_running(verb)
        ask = self._verbs.get(verb)
        if ask is not None:
            return await ask(given)
        owner = owner_of_subject(self._division, verb, given)
        return await self._of_any(verb, given) if owner is None else await self._of(owner, verb, given)

    async def _of(self, share: int, verb: str, given: Arguments) -> Facts:
        self._watch.stir(share)
        return _facts(await self._shares.ask(share, VERB, verb=verb, arguments=dict(given)))

    async def _of_any(self, verb: str, given: Arguments) -> Facts:
        """Of all shares that know the queue, the one that has most of it answers; all do what they are told."""
        replies = await self._ask_all(verb, given)
        known = [reply["facts"] for reply in replies.values() if "facts" in reply]
        if not known:
            return _facts(next(iter(replies.values()), None))
        return largest_part(known)

    async def _ls(self, given: Arguments) -> Facts:
        return merged_listing(await self._of_all("ls", given), given)

    async def _report(self, given: Arguments) -> Facts:
        return merged_report(await self._of_all(REPORT, given), given, self._status.job)

    async def _of_all(self, verb: str, given: Arguments) -> list[Facts]:
        replies = await self._ask_all(verb, given)
        if len(replies) < self._shares.count:
            raise ControlRefused(_NOT_THERE, ExitCode.STORE_OR_JOB_IN_USE)
        return [_facts(reply) for reply in replies.values()]

    async def _ask_all(self, verb: str, given: Arguments) -> dict[int, Mapping[str, Any]]:
        for share in self._shares.ready:
            self._watch.stir(share)
        return await self._shares.ask_all(VERB, verb=verb, arguments=dict(given))

    async def _pause(self, given: Arguments) -> Facts:
        refuse_at_the_end("pause", self._status.phase)
        self._limits.pause(Cause.OPERATOR)
        return await self._tell(given)

    async def _resume(self, given: Arguments) -> Facts:
        refuse_at_the_end("resume", self._status.phase)
        for reply in (await self._limits.go_on()).values():
            _facts(reply)  # a share whose disk has no room refuses
        return await self._tell(given)

    async def _stop(self, given: Arguments) -> Facts:
        ending, now = stop_arguments(given)
        self._shares.stop(ending, at_once=now)
        return await self._tell(given)

    async def _tell(self, _: Arguments) -> Facts:
        return self._status.facts()

    async def _add(self, given: Arguments) -> Facts:
        """Into the book first, which every share hears of; then each is scheduled by its owner."""
        seeds = seeds_argument(given)
        await self._add_to_book(seeds)
        parted: dict[int, list[Mapping[str, Any]]] = {}
        for seed in seeds:
            owner = self._division.owner_of_url(seed.url) or 0
            parted.setdefault(owner, []).append({"url": seed.url, "source": seed.source})
        answers: dict[str, Any] = {}
        for owner, listed in parted.items():
            refuse_at_the_end("add to", self._status.phase)  # shares take what is new, but who follows its links?
            for answer in (await self._of(owner, ADD, {"seeds": listed}))["seeds"]:
                answers[answer["url"]] = answer
        return {"seeds": [answers[seed.url] for seed in seeds]}


def _facts(reply: Mapping[str, Any] | None) -> Facts:
    """What a share answered. Raises: ControlRefused."""
    if reply is None:
        raise ControlRefused(_NOT_THERE, ExitCode.STORE_OR_JOB_IN_USE)
    return facts_of(reply)
