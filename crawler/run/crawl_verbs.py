"""The operator's verbs for a whole crawl: pause, resume, stop, status, metrics, add seeds, reports.

The names of a running crawl's verbs begin with `crawl-`, since the Frontier pauses and resumes queues (`verbs`). Each verb
answers when it is done: a seed that is added is recorded and queued, both durably. `control` carries verbs and facts,
which are JSON values; `stopped_verbs` serves a job that is not running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.crawler.job.orderfile import change_order
from anabranch.crawler.job.seeding import Added
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.state import current_round
from anabranch.crawler.order.changes import Change
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.quantities import format_bytes
from anabranch.crawler.order.sections import LimitsSection, UsedLimits
from anabranch.crawler.outcomes.endings import WhyEnded, biggest
from anabranch.crawler.outcomes.errors import UsageError, storage_errors
from anabranch.crawler.report.jobstatus import MOST_LOOKED_AT, with_failures_of
from anabranch.crawler.report.reports import (
    ALL_NEEDS,
    LONGEST_SHOWN,
    MOST_ROWS,
    QUEUES_SHOWN,
    ROWS_BY_DEFAULT,
    JobFacts,
    report_kind,
)
from anabranch.crawler.report.table import json_facts
from anabranch.crawler.run.explain import ABOUT_URLS, while_away, while_paused
from anabranch.crawler.run.run_state import Cause, Phase
from anabranch.crawler.run.verbs import RETRY, Arguments, Facts, answer_running
from anabranch.crawler.urls.parsing import canonical
from anabranch.frontier.cancellation import or_closed, to_the_end
from anabranch.frontier.errors import FrontierError
from anabranch.frontier.times import counted, duration_words

if TYPE_CHECKING:  # commands on a job need none of it
    from anabranch.crawler.run.composition import RunContext, RunParts
    from anabranch.crawler.run.metrics import RunMetrics
    from anabranch.crawler.run.status import RunStatus

PAUSE, RESUME, STOP, STATUS, ADD = "crawl-pause", "crawl-resume", "crawl-stop", "crawl-status", "crawl-add"
SET = "crawl-set"
#: Queue skipped URLs again: those of which a parameter changes nothing.
RETRY_SKIPPED = "crawl-retry-skipped"
REPORT, METRICS = "report", "crawl-metrics"

#: A status waits so long for the reasons of failures, which come from the store.
_FAILURES_S = 2.0
#: The limits of a job as a whole.
LIMIT_KEYS = frozenset({"limits.pages", "limits.bytes", "limits.time"})


class CrawlVerbs:
    """Answers the control socket of one run."""

    def __init__(
        self,
        context: RunContext,
        parts: RunParts,
        status: RunStatus,
        metrics: RunMetrics,
        follow: Callable[[CrawlOrder], None],
    ) -> None:
        """`status` is what most verbs answer; `follow` applies a changed order."""
        self._context = context
        self._limits = context.order.limits
        self._parts = parts
        self._status = status
        self._metrics = metrics
        self._follow = follow

    async def answer(self, verb: str, given: Arguments) -> Facts:
        """The facts. Raises: UsageError for wrong arguments; as `answer_running`."""
        state = self._context.run_state
        if verb == PAUSE:
            refuse_at_the_end("pause", state.phase)
            state.pause(Cause.OPERATOR)
        elif verb == RESUME:
            refuse_at_the_end("resume", state.phase)
            state.resume_all()
            if state.phase is Phase.PAUSED:
                needs = "free some space" if state.is_paused_by(Cause.DISK) else "see to what keeps it"
                raise UsageError(f"{state.pause_reason}; {needs}, and the crawl continues by itself")
        elif verb == STOP:
            ending, now = stop_arguments(given)
            state.stop(ending, at_once=now)
        elif verb == ADD:
            seeds = seeds_argument(given)
            return added_seeds(seeds, await self._parts.seeding.add(seeds, force=bool(given.get("force"))))
        elif verb == SET:
            return await self._set(settings_argument(given))
        elif verb == RETRY_SKIPPED:
            return {"queued": await self._parts.admission.traps.undo_all()}
        elif verb == REPORT:
            return await self._report(given)
        elif verb == METRICS:
            return self._metrics.numbers()
        elif verb != STATUS:
            return await self._of_frontier(verb, given)
        return await self._status_with_failures()

    async def _status_with_failures(self) -> Facts:
        """The status. While the store waits for its disk or server it answers late, so reasons of failures are left out."""
        facts, core = self._status.facts(), self._parts.frontier.core
        if not 0 < core.counts().failed <= MOST_LOOKED_AT or facts["trouble"]:
            return facts
        with suppress(TimeoutError, FrontierError):  # the trouble may begin just now
            async with asyncio.timeout(_FAILURES_S):
                return with_failures_of(facts, await asyncio.to_thread(core.operations.failures))
        return facts

    async def _of_frontier(self, verb: str, given: Arguments) -> Facts:
        """A verb of `run.verbs`."""
        explainer = self._parts.explainer
        facts = await answer_running(self._parts.frontier, verb, explainer.with_key(verb, given))
        facts = self._while_waiting(while_paused(facts, self._context.run_state.pause_reason))
        if verb == RETRY:
            return {**facts, "note": self._reached()}
        if verb not in ABOUT_URLS:
            return facts
        facts = await asyncio.to_thread(explainer.with_log, facts)
        return await asyncio.to_thread(explainer.with_trouble, explainer.with_scope(verb, facts))

    def _while_waiting(self, facts: Facts) -> Facts:
        """The facts; if the crawl waits for a service, that is why nothing can be leased, or why this URL waits."""
        state = self._context.run_state
        is_idle = "totals" in facts and not facts["totals"]["in_flight"]
        if is_idle and state.wait_reason and not state.pause_reason:
            facts = {**facts, "totals": {**facts["totals"], "why_idle": state.wait_reason}}
        gate = facts.get("explanation", {}).get("gate")
        service = None if gate is None else self._parts.frontier.core.holds.of(gate)
        return facts if service is None else while_away(facts, service)

    async def _set(self, settings: Sequence[str]) -> Facts:
        """Change the order: in the job's folder first, then in the run."""
        order, changes = await to_the_end(asyncio.to_thread(change_order, self._context.job.directory, settings))
        self._follow(order)
        self._limits = order.limits
        return changed_facts(changes, self._reached({change.key for change in changes}))

    def _reached(self, keys: Collection[str] = LIMIT_KEYS) -> str:
        """A line if one of these limits is reached; of a job of several workers its rows tell."""
        used = self._parts.limits.used()
        if used is None:
            return ""
        elapsed_s = self._context.clock() - self._context.statistics.started_s
        return limits_note(self._limits, keys, used._replace(elapsed_s=elapsed_s), is_running=True)

    async def _report(self, given: Arguments) -> Facts:
        """The crawl goes on meanwhile. Arguments: name, limit."""
        kind, limit = report_kind(given.get("name")), report_limit(given)
        with storage_errors(self._context.job.state):
            facts = await facts_of_running(self._context, self._parts, kind.needs)
            with facts.accounts:
                return await to_the_end(asyncio.to_thread(lambda: json_facts(kind.make(facts), limit)))


def stop_arguments(given: Arguments) -> tuple[WhyEnded, bool]:
    """The ending, and whether it is at once. Argument: now, fetches under way are given up."""
    now = bool(given.get("now"))
    return WhyEnded.OPERATOR_NOW if now else WhyEnded.OPERATOR, now


def refuse_at_the_end(verb: str, phase: Phase) -> None:
    """Raises: UsageError if the crawl is ending."""
    if phase is Phase.DRAINING:
        raise UsageError(f"the crawl is ending, so there is nothing to {verb}; run its command again to continue it")


def settings_argument(given: Arguments) -> list[str]:
    """The argument `settings`, a list of `section.key=value`. Raises: UsageError."""
    match given.get("settings"):
        case [*settings] if settings and all(isinstance(setting, str) for setting in settings):
            return settings
        case other:
            raise UsageError(f"settings must be a list of section.key=value; it is {other!r}")


def changed_facts(changes: Sequence[Change], note: str = "") -> Facts:
    """Return the facts of `set`: each change with its line, and a note of an immediate effect that may be unexpected."""
    return {"changes": [{**change._asdict(), "line": str(change)} for change in changes], "note": note}


def limits_note(limits: LimitsSection, keys: Collection[str], used: UsedLimits, *, is_running: bool) -> str:
    """A line if one of these limits is reached already; else empty. Pure."""
    changed = {*keys}
    reached = [
        words
        for key, most, now, words in (
            ("limits.pages", limits.pages, used.pages, f"{counted(used.pages, 'page')} done already"),
            (
                "limits.bytes",
                limits.fetched_bytes,
                used.fetched_bytes,
                f"{format_bytes(used.fetched_bytes)} fetched already",
            ),
            ("limits.time", limits.time_s, used.elapsed_s, f"running for {duration_words(used.elapsed_s)} already"),
        )
        if most and now >= most and not changed.isdisjoint({key, "limits.on_limit"})
    ]
    if not reached:
        return ""
    verb = "pauses" if limits.on_limit == "pause" else "ends"
    return f"{', '.join(reached)}: the crawl {verb} {'now' if is_running else 'at once when it is started'}"


def seeds_argument(given: Arguments) -> list[Seed]:
    """The argument `seeds`, a list of {url, source}. Raises: UsageError."""
    listed = given.get("seeds")
    if not isinstance(listed, list) or not listed:
        raise UsageError("seeds must be a list of URLs that is not empty")
    seeds = []
    for entry in listed:
        match entry:
            case {"url": str(url), "source": str(source)} if canonical(url) == url:
                seeds.append(Seed(url=url, source=source))
            case _:
                raise UsageError(f"{entry!r} is not a seed; give its canonical url and its source")
    return seeds


def added_seeds(seeds: Sequence[Seed], added: Sequence[Added]) -> Facts:
    """The verdict of each seed: `new`, `known` with its state, `hidden` by the filter, `refused`, or `later` if the filter has
    not decided yet; with a reason.
    """
    pairs = zip(seeds, added, strict=True)
    return {"seeds": [{"url": seed.url, **found._asdict()} for seed, found in pairs]}


async def facts_of_running(context: RunContext, parts: RunParts, needs: frozenset[str] = ALL_NEEDS) -> JobFacts:
    """The facts that some reports need; the caller closes their accounts. Raises: OSError, StoreUnavailable."""
    frontier, board, state = parts.frontier, context.board, context.job.state
    views_in_steps = frontier.core.operations.views
    return JobFacts(
        name=context.name,
        status=context.run_state.in_words,
        now_s=frontier.core.now_s(),
        seeds=await parts.seeding.facts(context.statistics.seed_failures) if "seeds" in needs else (),
        frontier=await frontier.statistics() if "frontier" in needs else None,
        failures=biggest(await asyncio.to_thread(frontier.core.operations.failures)) if "failures" in needs else (),
        longest=await frontier.look(views_in_steps.longest(LONGEST_SHOWN)) if "longest" in needs else (),
        queues=await frontier.look(views_in_steps.queues(limit=QUEUES_SHOWN)) if "queues" in needs else (),
        workers=board.facts() if "workers" in needs else (),
        steps=dict(board.times) if "workers" in needs else {},
        round=await asyncio.to_thread(current_round, state),
        accounts=await or_closed(asyncio.to_thread(parts.view_totals)),
    )


def report_limit(given: Arguments) -> int:
    """The wanted number of rows of a report. Raises: UsageError."""
    limit = given.get("limit", ROWS_BY_DEFAULT)
    if isinstance(limit, int) and not isinstance(limit, bool) and 0 <= limit <= MOST_ROWS:
        return limit
    raise UsageError(f"limit must be a whole number from 0 to {MOST_ROWS}; it is {limit!r}")
