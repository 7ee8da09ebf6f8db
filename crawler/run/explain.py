"""Explains a URL for `anabranch why`, in addition to the Frontier: scope rule, last trouble, robots.txt.

A running crawl asks its own scope; for a job that is not running `open_explainer` builds it from the job's order and seeds.
`verbs` has the Frontier's part of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, last_entry
from anabranch.crawler.extract.links import NAVIGATION
from anabranch.crawler.job.seeding import key_of, user_function_errors
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.failures import ServiceAway
from anabranch.crawler.outcomes.status import FetchStatus, describe
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.report.logtail import Trouble, last_logged
from anabranch.crawler.robots.retrieval import robots_url
from anabranch.crawler.run.verbs import Arguments, Facts
from anabranch.crawler.scope.body import BODY_RULE_NOTE, BodyRules, body_rules_of
from anabranch.crawler.scope.parameters import SAMPLED, Template
from anabranch.crawler.scope.scope import Scope, blocked_by, explain_scope, open_scope
from anabranch.crawler.scope.similarity import SimilarUrlFilter, open_similar_filter, similarity_of
from anabranch.crawler.urls.canonicalization import Canonicalizer, KeyOf
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier import NEVER_SCHEDULED, NOT_STORED, REFUSED, QueueState
from anabranch.frontier.jobfolder import STATE
from anabranch.frontier.records import GateKey, UrlState
from anabranch.frontier.times import clock_words

if TYPE_CHECKING:  # commands on a running crawl do not need it
    from anabranch.crawler.job.seedtable import Seeds

#: The state of a URL that only an earlier round of the job has fetched.
EARLIER_ROUND = "not scheduled in this round"

#: States of URLs and queues of which something can be fetched later.
_FETCHED_LATER = frozenset(
    {UrlState.QUEUED.value, UrlState.WAITING.value, *(one.value for one in QueueState if one is not QueueState.EMPTY)}
)

_QUEUED = frozenset({UrlState.QUEUED.value, UrlState.WAITING.value})

#: The verbs that may be about a URL, and the argument that names it.
ABOUT_URLS = MappingProxyType({"why": "url", "show": "subject"})


class Evidence:
    """The facts that a job has about URLs apart from its queue and its scope. This one has none. Its methods may block."""

    asks_robots = False  #: the crawl asks for robots.txt

    def robots(self, url: str, now_s: float) -> str:
        """Say what is known about the robots.txt at this URL."""
        del url, now_s
        return ""

    def robots_verdict(self, url: str, now_s: float) -> str | None:
        """Robots.txt's verdict on a page; None: only a running crawl has the rules."""
        del url, now_s
        return None

    def trouble(self, url: str, gate: GateKey | None, now_s: float) -> Trouble | None:
        """Why the last try of a URL, or of its host, failed; `gate` is None if it has none."""
        del url, gate, now_s
        return None

    def logged(self, url: str) -> CrawlLogEntry | None:
        """Its last line in crawl.log."""
        del url
        return None

    def is_blocked(self, url: str) -> bool:
        """The operator's patterns block it."""
        del url
        return False

    def skipped_by(self, url: str) -> Template | None:
        """The rule by which it was skipped."""
        del url
        return None

    def skips(self, url: str) -> Template | None:
        """The rule by which most URLs like it are skipped now."""
        del url
        return None


@dataclass(frozen=True, slots=True)
class UrlExplainer:
    """Explains URLs by the keys, the scope, the seeds' URLs and the similarity filter of one job."""

    scope: Scope
    key: KeyOf
    seeds: Container[str]
    similar: SimilarUrlFilter | None = None
    evidence: Evidence = field(default_factory=Evidence)
    body: BodyRules | None = None
    not_run: Sequence[str] = ()  #: user functions that were left out, because only the job itself names them

    def with_key(self, verb: str, given: Arguments) -> Arguments:
        """The arguments of a verb, with the key for dedup of the URL that they name, if they name one. Raises: OrderError."""
        typed = given.get(ABOUT_URLS.get(verb, ""))
        url = seed_url(typed) if isinstance(typed, str) and (verb == "why" or "://" in typed) else None
        if url is None:
            return given
        with user_function_errors("its key is unknown"):
            return {**given, "key": key_of(url, self.key).decode("utf-8", "surrogatepass")}

    def explained(self, verb: str, facts: Facts) -> Facts:
        """The Frontier's facts; if they are about a URL, with its hops, its scope and its last trouble (blocks)."""
        facts = self.with_trouble(self.with_scope(verb, self.with_log(facts)))
        return {**facts, "not_run": list(self.not_run)} if self.not_run and "scope" in facts else facts

    def with_log(self, facts: Facts) -> Facts:
        """The facts with what only crawl.log knows of a URL (blocks): its hops after its end, and its end in an earlier round;
        and the rule that skipped it.

        Any thread may call it.
        """
        facts = self._with_rule(facts)
        explanation = facts.get("explanation", {})
        state = explanation.get("state")
        if state not in {UrlState.ENDED.value, NEVER_SCHEDULED} or explanation["hops"] is not None:
            return facts
        url = explanation["subject"]
        entry = None if self._is_robots(url) else self.evidence.logged(url)
        if entry is None:
            return facts
        facts = self._with_body_rule(facts, entry)
        ended = _of_earlier_round(entry, facts["now_s"]) if state == NEVER_SCHEDULED else {}
        hops = None if "+" in entry.hops else entry.hops  # the log shortens long paths
        return {**facts, "explanation": {**explanation, "hops": hops, **ended}}

    def _with_body_rule(self, facts: Facts, entry: CrawlLogEntry) -> Facts:
        """The facts with the rule that left the body of this URL unread."""
        numbers = [note.removeprefix(BODY_RULE_NOTE) for note in entry.annotations if note.startswith(BODY_RULE_NOTE)]
        if not numbers or not numbers[0].isdecimal():
            return facts
        number = int(numbers[0])
        words = f"left unread by rule {number}" if self.body is None else self.body.words_of(number)
        return {**facts, "body": words}

    def _body_words(self, url: str, hops: str | None, state: str) -> str:
        """The verdict that the rules before the body may give on a URL that has no answer yet."""
        if self.body is None or state == UrlState.ENDED.value:
            return ""
        return self.body.words_before(url, hops or "")

    def _with_rule(self, facts: Facts) -> Facts:
        """The facts with the parameter by which a URL was skipped, or may be."""
        explanation = facts.get("explanation", {})
        state, url = explanation.get("state"), explanation.get("subject", "")
        words = ""
        if state == UrlState.ENDED.value and (rule := self.evidence.skipped_by(url)) is not None:
            if describe(FetchStatus.SKIPPED) in explanation["reason"]:
                words = f"{_rule_words(rule)}; `anabranch retry JOB --trap` queues such URLs again"
        elif (
            state == UrlState.QUEUED.value and url not in self.seeds and (rule := self.evidence.skips(url)) is not None
        ):
            words = f"{_rule_words(rule)}: one in {SAMPLED} is fetched, the others end with {FetchStatus.SKIPPED:d}"
        if not words:
            return facts
        return {**facts, "explanation": {**explanation, "reason": f"{explanation['reason']}; {words}"}}

    def with_scope(self, verb: str, facts: Facts) -> Facts:
        """The facts with the scope's words about their URL."""
        if verb not in ABOUT_URLS or "queue" in facts or facts["explanation"]["state"] == REFUSED:
            return facts
        explanation = facts["explanation"]
        url = explanation["subject"]
        if self._is_robots(url) and explanation["state"] == NEVER_SCHEDULED:
            robots = self.evidence.robots(url, facts["now_s"])
            reason = f"it is no page: it is fetched before the first page of its host, and when its rules are too old; {robots}"
            # No queue and no scope concern it.
            explanation = {**explanation, "state": "precondition", "queue": None, "reason": reason}
            return {**facts, "explanation": explanation}
        verdict = self.evidence.robots_verdict(url, facts["now_s"])
        if explanation["state"] in _QUEUED and (end := self._end_of_queued(url, explanation["hops"] or "")):
            reason = f"{end}; {explanation['reason']}"
            facts = {**facts, "explanation": {**explanation, "reason": reason}}
        body = facts.get("body") or self._body_words(url, explanation["hops"], explanation["state"])
        return {
            **facts,
            "scope": self.scope_words(url, explanation["hops"]),
            **({} if verdict is None else {"robots": verdict}),
            **({"body": body} if body else {}),
        }

    def with_trouble(self, facts: Facts) -> Facts:
        """The facts with the last trouble of their URL, for which logs may be read (blocks). Any thread may call it."""
        if "scope" not in facts or facts["explanation"]["state"] == UrlState.ENDED.value:
            return facts
        explanation = facts["explanation"]
        trouble = self.evidence.trouble(explanation["subject"], explanation["gate"], facts["now_s"])
        return facts if trouble is None else {**facts, "last_trouble": trouble._asdict()}

    def _is_robots(self, url: str) -> bool:
        """It is a robots.txt that the crawl asks for."""
        return self.evidence.asks_robots and url == robots_url(url)

    def _end_of_queued(self, url: str, hops: str) -> str:
        """How a queued URL ends that the order has excluded since it was queued; empty if it is fetched."""
        if self.evidence.is_blocked(url):
            return f"it is blocked by the operator by now, so it ends with {FetchStatus.BLOCKED:d} at its turn"
        if self.not_run or url in self.seeds or self._accepts(url, hops):
            return ""
        return f"it is out of scope by now, so it ends with {FetchStatus.OUT_OF_SCOPE:d} at its turn"

    def _accepts(self, url: str, hops: str) -> bool:
        with suppress(UserFunctionFailed):  # `scope_words` reports it
            return self.scope.accepts(url, hops, None)
        return True

    def scope_words(self, url: str, hops: str | None) -> str:
        """Which rule decides, and all that apply; and whether the URL is too similar. `hops` are None if they are not known."""
        is_seed = url in self.seeds
        path = "" if is_seed else NAVIGATION if hops is None else hops
        try:
            lines = [explain_scope(self.scope, url, path, None)]
        except (UserFunctionFailed, ServiceAway) as error:
            lines = [f"it is unknown whether it is in scope: {error}"]
        if hops is None and not is_seed:
            lines[0] = f"how it was found is not known; as a link of a seed: {lines[0]}"
        if self.similar is not None and not is_seed and self.similar.is_similar(url):
            lines.append("similar: it is like a URL that was taken, or it is that URL; links to such are dropped")
        return "\n".join(lines)


def _rule_words(rule: Template) -> str:
    return f"the parameter {rule.name} changed nothing in the URLs that were fetched of {rule.url}"


def _of_earlier_round(entry: CrawlLogEntry, now_s: float) -> Facts:
    """Return the state and the reason of a URL that the store does not have, by its last line of crawl.log. Pure."""
    at = clock_words(entry.logged_s, now_s)
    if entry.status == FetchStatus.DELETED:
        return {"state": "removed", "reason": f"an operator removed it from the queue at {at}"}
    ended = f"an earlier round ended it at {at} with status {describe(entry.status)}"
    return {"state": EARLIER_ROUND, "reason": f"{ended}; this round queues it when it finds a link to it"}


def with_remedy(facts: Facts, job: str, *, is_folder: bool = True) -> Facts:
    """The facts about a URL that the filter hides, with the commands that bring it back; `job` as a command names it. Pure.

    `is_folder`: the job's filter is in its folder.
    """
    explanation = facts.get("explanation", {})
    if explanation.get("state") != NOT_STORED:
        return facts
    name, url = quote(job), quote(explanation["subject"])
    exact = f"anabranch frontier rebuild-filter {name} -s dedup.filter=exact"
    reason = (
        "the filter takes it for seen, the store does not have it: it was lost to the filter; "
        f"`anabranch add --force {name} {url}` queues it"
        + (f", and `{exact}` makes a filter that loses none" if is_folder else "")
    )
    return {**facts, "explanation": {**explanation, "reason": reason}}


def while_paused(facts: Facts, paused: str) -> Facts:
    """The facts of a verb; if the crawl is paused, that is the reason why nothing is fetched, and no time is known. Pure."""
    if paused and "totals" in facts:
        facts = {**facts, "totals": {**facts["totals"], "why_idle": paused}}
    return _held_up(facts, f"the crawl is {paused}; when it is resumed", None) if paused else facts


def while_away(facts: Facts, service: str) -> Facts:
    """The facts of a URL or queue whose host needs a service that is away. Pure."""
    return _held_up(facts, f"the crawl waits for {service}; when it is back", None)


def while_stopped(facts: Facts, ending: str) -> Facts:
    """The facts of a verb on a job that no process crawls, which is why a URL waits. Pure.

    A time stays if a new crawl would have to wait for it, too.
    `ending` says why the last run ended; it is empty if there was none, or if it was killed. A run that had finished is not
    named, because there is something to crawl again.
    """
    since = "" if not ending or ending == WhyEnded.FINISHED.value else f" ({ending})"
    earliest_s = facts.get("explanation", {}).get("earliest_s")
    waits = earliest_s is not None and earliest_s > facts["now_s"]
    return _held_up(facts, f"no process crawls the job{since}; when one does", earliest_s if waits else None)


def _held_up(facts: Facts, what: str, earliest_s: float | None) -> Facts:
    explained = facts.get("explanation")
    if not explained or explained["state"] not in _FETCHED_LATER:
        return facts
    reason = f"{what}: {explained['reason'] or 'it can be fetched'}"
    return {**facts, "explanation": {**explained, "reason": reason, "earliest_s": earliest_s}}


def explainer_of(
    order: CrawlOrder, seeds: Seeds, directory: Path | None, similar: SimilarUrlFilter | None = None
) -> UrlExplainer:
    """The explainer of a job by its order, its seeds, and the logs of its folder, if it has one here.

    It runs none of the functions that are withheld. Raises: OrderError.
    """
    scope = open_scope(order.scope.model_copy(update={"rules": order.run_of(order.scope.rules)}))
    for seed in seeds:
        scope.add_seed(seed.url)
    key = Canonicalizer(order.run_of(order.urls.canonicalization)).key
    not_run = tuple(str(one) for one in order.code.withheld if one.section not in {"job", "fetch"})
    evidence = OrderEvidence(order) if directory is None else FolderEvidence(order, directory)
    return UrlExplainer(scope, key, seeds, similar, evidence, body_rules_of(order, runs=False), not_run)


@contextmanager
def open_explainer(directory: Path, order: CrawlOrder) -> Iterator[UrlExplainer]:
    """The explainer of a job that the caller has locked, by its order. Raises: OrderError, SeedsDamaged, StorageError."""
    with ExitStack() as opened:
        from anabranch.crawler.job.seedtable import opened_seeds  # noqa: PLC0415 - commands on a running crawl do not need it

        seeds = opened.enter_context(opened_seeds(directory / STATE))
        has_similar = order.run_of(order.dedup.similar_features) == order.dedup.similar_features and similarity_of(
            order
        )
        similar = asyncio.run(open_similar_filter(directory / "state", order)) if has_similar else None
        if similar is not None:
            opened.callback(lambda: asyncio.run(similar.close()))
        yield explainer_of(order, seeds, directory, similar)


class OrderEvidence(Evidence):
    """Knows what the order blocks."""

    def __init__(self, order: CrawlOrder) -> None:
        self._is_blocked = blocked_by(order.scope.block)

    def is_blocked(self, url: str) -> bool:
        """The operator's patterns block it."""
        return self._is_blocked(url)


class FolderEvidence(OrderEvidence):
    """Knows what the logs and files of a job that is not running have. All of crawl.log may be read."""

    def __init__(self, order: CrawlOrder, directory: Path) -> None:
        super().__init__(order)
        self.asks_robots = order.robots.robots == "obey"
        self._directory = directory
        self._crawl_log = directory / "logs" / "crawl.log"

    def robots(self, url: str, now_s: float) -> str:
        """The last answer of a robots.txt, from crawl.log."""
        entry = self.logged(url)
        if entry is None:
            return "crawl.log has no answer of it, and the crawl that goes on asks for it"
        at = clock_words(entry.logged_s if entry.start_s is None else entry.start_s, now_s)
        return f"at {at} it was answered with {describe(entry.status)}; the crawl that goes on asks for it again"

    def trouble(self, url: str, gate: GateKey | None, now_s: float) -> Trouble | None:
        """Its last line in errors.jsonl."""
        del gate
        return last_logged(self._directory, now_s, url)

    def logged(self, url: str) -> CrawlLogEntry | None:
        """Its last line in crawl.log."""
        return last_entry(self._crawl_log, url)

    def skipped_by(self, url: str) -> Template | None:
        """The rule by which it was skipped, from the files of the job and of its workers."""
        from anabranch.crawler.job.skipped import SkippedUrls  # noqa: PLC0415 - commands on a running crawl do not need it

        for state in (self._directory / STATE, *sorted(self._directory.glob(f"workers/*/{STATE}"))):
            with closing(SkippedUrls(state)) as kept:
                if (rule := kept.rule_of(url)) is not None:
                    return rule
        return None
