"""The explanation that `why` adds to the Frontier's facts about a URL."""

import pytest

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, last_entry
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.order.fetch import RobotsSection
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import ScopeSection
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.userfunctions import RULE, UserFunctionFailed
from anabranch.crawler.report.logtail import Trouble
from anabranch.crawler.run.explain import (
    Evidence,
    OrderEvidence,
    UrlExplainer,
    open_explainer,
    while_paused,
    while_stopped,
)
from anabranch.crawler.scope.scope import open_scope
from anabranch.crawler.urls.canonicalization import Canonicalizer

SEED = "http://a.test/"
SESSION = "http://a.test/p;jsessionid=0123456789abcdef"


@pytest.fixture
def explainer():
    scope = open_scope(ScopeSection(max_hops=2))
    scope.add_seed(SEED)
    return UrlExplainer(scope, Canonicalizer().key, {SEED})


@pytest.mark.parametrize(
    ("url", "hops", "first"),
    [
        (SEED, None, "in scope as a seed, by rule 2 (seeds)"),
        (SEED, "LLL", "in scope as a seed, by rule 2 (seeds)"),
        ("http://a.test/1", "LL", "in scope after 2 hops (LL), by rule 2 (seeds)"),
        ("http://a.test/1", "LLL", "out of scope after 3 hops (LLL), by rule 3 (max_hops)"),
        ("http://b.test/", "E", "in scope after 1 hop (E), by rule 4 (embeds)"),
        (
            "http://b.test/",
            None,
            "how it was found is not known; as a link of a seed: out of scope after 1 hop (L), by rule 1 (all)",
        ),
    ],
)
def test_the_rule_that_decides_is_said_for_the_way_it_was_found(explainer, url, hops, first) -> None:
    """A seed is one whatever led to it, too; where nothing is known, a link is taken for granted and said to be."""
    assert explainer.scope_words(url, hops).splitlines()[0] == first


def test_a_rule_that_fails_is_said_to(explainer) -> None:
    """`why` still tells the rest."""

    class Failing:
        def trace(self, target):
            raise UserFunctionFailed(RULE, "ours:rule", "failed")

    assert UrlExplainer(Failing(), Canonicalizer().key, ()).scope_words(SEED, "L") == (  # type: ignore[arg-type]
        "it is unknown whether it is in scope: rule ours:rule failed"
    )


def test_why_tells_the_last_trouble_of_a_url_that_is_still_to_be_fetched() -> None:
    """By its gate; of one that has ended its status tells."""
    scope = open_scope(ScopeSection())
    refused = Trouble(SEED, "connection refused", ago_s=20.0, is_final=False, again_in_s=40.0)
    asked: list[object] = []

    class Refused(Evidence):
        def trouble(self, *given: object) -> Trouble:
            asked.append(given)
            return refused

    explainer = UrlExplainer(scope, Canonicalizer().key, {SEED}, evidence=Refused())
    said = {"subject": SEED, "hops": None, "state": "queued", "gate": "a.test"}
    assert explainer.explained("why", {"explanation": said, "now_s": 7.0})["last_trouble"] == refused._asdict()
    assert asked == [(SEED, "a.test", 7.0)]
    assert "last_trouble" not in explainer.explained("why", {"explanation": {**said, "state": "ended"}, "now_s": 7.0})


@pytest.mark.parametrize(
    ("verb", "given", "key"),
    [
        ("why", {"url": SESSION}, "http://a.test/p"),
        ("why", {"url": "A.test#top"}, SEED),
        ("why", {"url": "mailto:x"}, None),
        ("why", {"url": 3}, None),
        ("why", {}, None),
        ("show", {"subject": SESSION}, "http://a.test/p"),
        ("show", {"subject": "a.test"}, None),
        ("ls", {"url": SESSION}, None),
    ],
)
def test_a_verb_about_a_url_gets_its_key(explainer, verb, given, key) -> None:
    """A queue is no URL, and what is none is left to the verb to refuse."""
    assert explainer.with_key(verb, given) == given | ({} if key is None else {"key": key})


@pytest.mark.parametrize(
    ("verb", "facts", "is_told"),
    [
        ("why", {"now_s": 5.0, "explanation": {"subject": SEED, "hops": None, "state": "queued", "gate": None}}, True),
        ("show", {"now_s": 5.0, "explanation": {"subject": SEED, "hops": "L", "state": "queued", "gate": None}}, True),
        ("show", {"explanation": {"subject": "queue", "hops": None}, "queue": {}}, False),
        ("ls", {"queues": []}, False),
    ],
)
def test_the_scope_is_told_of_urls_alone(explainer, verb, facts, is_told) -> None:
    """Facts about a queue, or about all queues, get no words of the scope."""
    assert ("scope" in explainer.explained(verb, facts)) is is_told


def test_a_job_that_nobody_crawls_is_judged_by_its_own_order_and_seeds(tmp_path) -> None:
    """Its seeds open the places; its filter is opened and let go of."""
    (tmp_path / "state").mkdir()
    with opened_seeds(tmp_path / "state") as recorded:
        recorded.add_all([Seed(url=SEED, source="command line")])
    order = CrawlOrder(scope=ScopeSection(similar="published"))
    for _ in range(2):
        with open_explainer(tmp_path, order) as explainer:
            assert explainer.scope_words(f"{SEED}1", "L").startswith("in scope after 1 hop (L)")
            assert explainer.scope_words(SEED, None).startswith("in scope as a seed")


ROBOTS = "http://a.test/robots.txt"


class Logged(Evidence):
    """Knows a crawl.log."""

    def __init__(self, crawl_log):
        self.crawl_log = crawl_log

    def logged(self, url):
        return last_entry(self.crawl_log, url)


class Robots(Evidence):
    """Knows the rules of each host."""

    asks_robots = True

    def robots(self, url, now_s):
        return f"{url} at {now_s:g}"

    def robots_verdict(self, url, now_s):
        return f"verdict on {url} at {now_s:g}"


def never_scheduled(url, state="never scheduled"):
    said = {"subject": url, "hops": None, "state": state, "queue": "q", "gate": None, "reason": "x"}
    return {"now_s": 5.0, "explanation": said}


def test_the_hops_of_a_url_that_has_ended_are_those_of_crawl_log(explainer, tmp_path) -> None:
    """The queue does not keep them. Of a path that the log cuts, and without a line, nothing is known."""
    log, url = tmp_path / "crawl.log", f"{SEED}x"
    for line in ("LL", "L" * 60):
        with log.open("ab") as file:
            file.write(
                crawl_log_line(CrawlLogEntry(logged_s=0.0, status=200, url=f"{SEED}{len(line)}", worker=1, hops=line))
            )
    asking = UrlExplainer(explainer.scope, explainer.key, {SEED}, evidence=Logged(log))
    told = asking.explained("why", never_scheduled(f"{SEED}2", "ended"))
    assert told["explanation"]["hops"] == "LL"
    assert told["scope"].startswith("in scope after 2 hops (LL), by rule 2 (seeds)")
    for unknown, state in ((f"{SEED}2", "queued"), (f"{SEED}60", "ended"), (url, "ended")):
        assert asking.with_log(never_scheduled(unknown, state))["explanation"]["hops"] is None


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        (200, "not scheduled in this round", "with status 200 OK; this round queues it when it finds a link to it"),
        (-6000, "removed", "an operator removed it from the queue at "),
    ],
)
def test_a_url_that_only_crawl_log_knows_was_scheduled_once(explainer, tmp_path, status, state, reason) -> None:
    """Another round has a new store: its pages are in crawl.log and in the archive."""
    log, url = tmp_path / "crawl.log", f"{SEED}page"
    log.write_bytes(crawl_log_line(CrawlLogEntry(logged_s=0.0, status=status, url=url, worker=1, hops="L")))
    asking = UrlExplainer(explainer.scope, explainer.key, {SEED}, evidence=Logged(log))
    told = asking.explained("why", never_scheduled(url))["explanation"]
    assert (told["state"], told["hops"]) == (state, "L")
    assert reason in told["reason"]
    assert asking.explained("why", never_scheduled(f"{SEED}other"))["explanation"]["state"] == "never scheduled"


@pytest.mark.parametrize(
    ("url", "hops", "reason"),
    [
        (f"{SEED}page", "L", "x"),
        ("http://b.test/", "L", "it is out of scope by now, so it ends with -5000 at its turn; x"),
        (f"{SEED}page", "L" * 30, "it is out of scope by now, so it ends with -5000 at its turn; x"),
        (f"{SEED}no", "L", "it is blocked by the operator by now, so it ends with -5001 at its turn; x"),
        (SEED, "", "x"),
    ],
)
@pytest.mark.parametrize("state", ["queued", "waiting"])
def test_a_queued_url_that_the_order_excludes_by_now_says_so_first(explainer, url, hops, reason, state) -> None:
    """Its queue's turn is no answer: it is not fetched then."""
    blocking = CrawlOrder(scope=ScopeSection(block=("/no$",)))
    asking = UrlExplainer(explainer.scope, explainer.key, {SEED}, evidence=OrderEvidence(blocking))
    facts = never_scheduled(url, state)
    facts["explanation"]["hops"] = hops
    assert asking.explained("why", facts)["explanation"]["reason"] == reason


def test_a_robots_txt_is_no_page_but_what_its_host_needs_first(explainer) -> None:
    """Neither queue nor scope has to do with it; what is known of it is said."""
    asking = UrlExplainer(explainer.scope, explainer.key, {SEED}, evidence=Robots())
    told = asking.explained("why", never_scheduled(ROBOTS))
    assert "scope" not in told
    said = told["explanation"]
    assert (said["state"], said["queue"]) == ("precondition", None)
    assert said["reason"].endswith(f"when its rules are too old; {ROBOTS} at 5")


def test_a_robots_txt_that_is_a_page_too_is_told_as_one(explainer) -> None:
    """A link leads to it, or the crawl asks for none."""
    asking = UrlExplainer(explainer.scope, explainer.key, {SEED}, evidence=Robots())
    for one, facts in ((asking, never_scheduled(ROBOTS, "queued")), (explainer, never_scheduled(ROBOTS))):
        told = one.explained("why", facts)
        assert told["explanation"] == facts["explanation"]
        assert "in scope" in told["scope"]
    assert "scope" in asking.explained("why", never_scheduled(f"{ROBOTS}?x"))


@pytest.mark.parametrize("shown", ["mailto:x", f"{SEED}{'x' * 100}…"])
def test_no_scope_is_asked_of_a_link_that_no_crawl_takes(explainer, shown) -> None:
    """It has no host that a rule could look at; or it is too long, and what is shown of it is another URL."""
    facts = never_scheduled(shown, "refused")
    assert explainer.explained("why", facts) == facts


@pytest.mark.parametrize(
    ("mode", "line", "words"),
    [
        ("obey", "200          3", "it was answered with 200 OK; the crawl that goes on asks for it again"),
        ("obey", "404          3", "it was answered with 404 Not Found"),
        ("obey", "", "crawl.log has no answer of it"),
        ("ignore", "", None),
    ],
)
def test_a_job_that_nobody_crawls_knows_of_a_robots_txt_what_its_log_knows(tmp_path, mode, line, words) -> None:
    """The rules themselves went with the process."""
    (tmp_path / "state").mkdir()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "crawl.log").write_text(
        f"2026-01-01T00:00:01.000Z   {line} {ROBOTS} P {SEED} text/plain #001 20260101000000000+250 - - -\n"
        if line
        else ""
    )
    with open_explainer(tmp_path, CrawlOrder(robots=RobotsSection(robots=mode))) as explainer:
        told = explainer.explained("why", never_scheduled(ROBOTS))
    if words is None:
        assert told["explanation"]["state"] == "never scheduled"
    else:
        assert words in told["explanation"]["reason"]


def test_why_tells_what_robots_txt_decides_about_a_page(explainer) -> None:
    """While a crawl has its rules; for the robots.txt itself nothing is decided."""
    asking = UrlExplainer(explainer.scope, explainer.key, {SEED}, evidence=Robots())
    assert asking.explained("why", never_scheduled(f"{SEED}x", "queued"))["robots"] == f"verdict on {SEED}x at 5"
    assert "robots" not in asking.explained("why", never_scheduled(ROBOTS))
    assert "robots" not in explainer.explained("why", never_scheduled(f"{SEED}x"))


@pytest.mark.parametrize(
    ("state", "is_told"), [("queued", True), ("ready", True), ("ended", False), ("never scheduled", False)]
)
def test_a_pause_is_the_reason_why_a_url_waits(state, is_told) -> None:
    """No time is known then; what is done or was never queued does not wait for it."""
    facts = {"explanation": {"state": state, "reason": "its queue waits for its turn", "earliest_s": 1.0}}
    assert while_paused(facts, "") == facts
    explanation = while_paused(facts, "paused by the operator")["explanation"]
    if is_told:
        words = "the crawl is paused by the operator; when it is resumed: its queue waits for its turn"
        assert (explanation["reason"], explanation["earliest_s"]) == (words, None)
    else:
        assert explanation == facts["explanation"]


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("", "no process crawls the job; when one does: it can be fetched"),
        (WhyEnded.FINISHED.value, "no process crawls the job; when one does: it can be fetched"),
        ("ended by a signal", "no process crawls the job (ended by a signal); when one does: it can be fetched"),
    ],
)
def test_a_job_that_nobody_crawls_is_the_reason_why_a_url_waits(ending, words) -> None:
    """It has a time only if its gate or its retry waits, whoever crawls; what is done does not wait for a crawl."""
    facts = {"now_s": 5.0, "explanation": {"state": "queued", "reason": "", "earliest_s": 5.0}}
    explanation = while_stopped(facts, ending)["explanation"]
    assert (explanation["reason"], explanation["earliest_s"]) == (words, None)
    waits = {"now_s": 4.0, "explanation": facts["explanation"]}
    assert while_stopped(waits, ending)["explanation"]["earliest_s"] == 5.0
    done = {"explanation": {"state": "ended", "reason": "fetched", "earliest_s": None}}
    assert while_stopped(done, ending) == done


def test_a_pause_is_the_reason_why_nothing_can_be_leased() -> None:
    """Whatever the Frontier has to say."""
    assert while_paused({"totals": {"why_idle": ""}}, "paused by the operator") == {
        "totals": {"why_idle": "paused by the operator"}
    }
