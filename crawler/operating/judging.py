"""What `anabranch why` says of a URL beside the Frontier's words: by which rule of the scope it is in the crawl, or is not.

A crawl that runs asks its own scope; for one that is stopped `opened_judge` makes it again, out of the job's order and seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

from anabranch.crawler.extracting.links import NAVIGATION
from anabranch.crawler.jobs.seeding import key_of, own_functions_told
from anabranch.crawler.jobs.seeds import SEED_BOOK, SeedBook
from anabranch.crawler.operating.arguments import Arguments, Facts
from anabranch.crawler.orders.order import CrawlOrder
from anabranch.crawler.outcomes.ownfunctions import OwnFunctionFailed
from anabranch.crawler.outcomes.status import describe
from anabranch.crawler.reporting.crawl_log_parsing import last_entry
from anabranch.crawler.reporting.troubles import Trouble, last_logged
from anabranch.crawler.robots.cache import robots_url
from anabranch.crawler.scope.explaining import explain_scope
from anabranch.crawler.scope.opening import open_scope
from anabranch.crawler.scope.ruling import Scope
from anabranch.crawler.scope.similar import Similar, open_similar
from anabranch.crawler.urls.canonicalization import Canonicalizer, KeyOf
from anabranch.crawler.urls.parsing import seed_url
from anabranch.frontier.models import GateKey, UrlState
from anabranch.frontier.operating.explain import NEVER_SCHEDULED, REFUSED
from anabranch.frontier.operating.timewords import clock_words

#: The URL of a robots.txt and the time -> what the job knows of it.
RobotsWords = Callable[[str, float], str]

#: A URL, its gate if it has one, and the time -> why the last try at it, or at its host, failed.
LastTrouble = Callable[[str, GateKey | None, float], Trouble | None]

#: What `why` calls the state of a robots.txt that nobody has queued as a page.
PRECONDITION = "precondition"

#: The verbs that may be about a URL, and the argument that names it.
ABOUT_URLS = MappingProxyType({"why": "url", "show": "subject"})


class Judge:
    """The keys and the scope of one job; `seeds` are the URLs of its seeds, `similar` its similarity filter, if it has one.

    `robots` says what the job knows of a robots.txt; None: the crawl asks for none. `trouble` knows why tries failed.
    """

    def __init__(
        self,
        scope: Scope,
        key: KeyOf,
        seeds: Container[str],
        similar: Similar | None = None,
        robots: RobotsWords | None = None,
        trouble: LastTrouble = lambda *_: None,
    ) -> None:
        self._scope = scope
        self._key = key
        self._seeds = seeds
        self._similar = similar
        self._robots = robots
        self._trouble = trouble

    def keyed(self, verb: str, given: Arguments) -> Arguments:
        """The arguments of a verb, with the key for dedup of the URL that they name, if they name one. Raises: OrderError."""
        typed = given.get(ABOUT_URLS.get(verb, ""))
        url = seed_url(typed) if isinstance(typed, str) and (verb == "why" or "://" in typed) else None
        if url is None:
            return given
        with own_functions_told("its key cannot be told"):
            return {**given, "key": key_of(url, self._key).decode("utf-8", "surrogatepass")}

    def told(self, verb: str, facts: Facts) -> Facts:
        """The facts that the verb answered; if they are about a URL, with what the scope says of it, and its last trouble."""
        return self.troubled(self.ruled(verb, facts))

    def ruled(self, verb: str, facts: Facts) -> Facts:
        """The first half of `told`: what the scope says."""
        if verb not in ABOUT_URLS or "queue" in facts:
            return facts
        said = facts["explanation"]
        if said["state"] == REFUSED:
            return facts  # no crawl takes it, and so no scope is asked
        url = said["subject"]
        if self._robots is not None and url == robots_url(url) and said["state"] == NEVER_SCHEDULED:
            return {**facts, "explanation": _precondition(said, self._robots(url, facts["now_s"]))}
        return {**facts, "scope": self.words(url, said["hops"])}

    def troubled(self, facts: Facts) -> Facts:
        """The second half, for which logs may be read (blocks). Any thread may ask."""
        if "scope" not in facts or facts["explanation"]["state"] == UrlState.ENDED.value:
            return facts
        said = facts["explanation"]
        trouble = self._trouble(said["subject"], said["gate"], facts["now_s"])
        return facts if trouble is None else {**facts, "last_trouble": trouble._asdict()}

    def words(self, url: str, hops: str | None) -> str:
        """Which rule decides, and all that speak; what the similarity filter says. `hops` are None if they are not known."""
        is_seed = url in self._seeds
        taken = "" if is_seed else NAVIGATION if hops is None else hops
        try:
            lines = [explain_scope(self._scope, url, taken, None)]
        except OwnFunctionFailed as error:
            lines = [f"whether it is in scope cannot be told: {error}"]
        if hops is None and not is_seed:
            lines[0] = f"how it was found is not known; as a link of a seed: {lines[0]}"
        if self._similar is not None and not is_seed and self._similar.is_similar(url):
            lines.append("similar: it is like a URL that was taken, or it is that URL; links to such are dropped")
        return "\n".join(lines)


def _precondition(said: Facts, words: str) -> Facts:
    """What is said of a robots.txt: no queue and no scope has to do with it."""
    what = "it is no page: it is fetched before the first page of its host, and when its rules are too old"
    return {**said, "state": PRECONDITION, "queue": None, "reason": f"{what}; {words}"}


@contextmanager
def opened_judge(directory: Path, order: CrawlOrder) -> Iterator[Judge]:
    """The judge of a job that nobody crawls, by the order that it was crawled by last; the caller has the job's lock.

    Raises: OrderError if a function of the order's cannot be imported; SeedBookDamaged; StorageError.
    """
    scope = open_scope(order.scope)
    with SeedBook(directory / "state" / SEED_BOOK) as book:
        for seed in book:
            scope.add_seed(seed.url)
        with _similar(directory / "state", order) as similar:
            robots = partial(_logged, directory / "logs" / "crawl.log") if order.robots.robots == "obey" else None
            key = Canonicalizer(order.urls.canonicalization).key
            yield Judge(scope, key, book, similar, robots, lambda url, _, now_s: last_logged(directory, now_s, url))


def _logged(crawl_log: Path, url: str, now_s: float) -> str:
    """What a job that nobody crawls knows of a robots.txt: its last line in crawl.log, all of which may be looked at."""
    entry = last_entry(crawl_log, url)
    if entry is None:
        return "crawl.log has no answer of it, and the crawl that goes on asks for it"
    at_s = entry.logged_s if entry.start_s is None else entry.start_s
    answered = f"at {clock_words(at_s, now_s)} it was answered with {describe(entry.status)}"
    return f"{answered}; the crawl that goes on asks for it again"


@contextmanager
def _similar(state: Path, order: CrawlOrder) -> Iterator[Similar | None]:
    if not order.scope.similar:
        yield None
        return
    similar = asyncio.run(open_similar(state, order.scope))
    try:
        yield similar
    finally:
        if similar is not None:
            asyncio.run(similar.close())
