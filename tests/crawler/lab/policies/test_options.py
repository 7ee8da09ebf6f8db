"""Tests of the options of a comparison, and of the order of a run."""

from __future__ import annotations

import errno
import io
import re
from pathlib import Path

import pytest
import structlog

from anabranch.crawler.lab.policies import options as options_module
from anabranch.crawler.lab.policies.options import PolicyOptions, check, delay_words, order_for, warn
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.logs import configure_logs
from anabranch.crawler.scope.scope import open_scope
from tests.rows import each_row


@each_row(
    ("given", "said"),
    [
        ({"workers": 0}, "--workers must be from 1 to 10,000"),
        ({"connections": 0}, "--connections must be from 1 to 10,000"),
        ({"repeat": 0}, "--repeat must be 1 or more"),
        ({"seconds": 0.5}, "--seconds must be 1 or more: a run is looked at once a second"),
        ({"delay_factor": -1.0}, "--delay-factor must be 0 or more"),
        ({"delay_factor": float("nan")}, "--delay-factor must be 0 or more"),
        ({"min_delay_s": 2.0}, "--max-delay (500ms) is less than --min-delay (2s); raise the one or lower the other"),
        ({"politeness": "rude"}, "--politeness 'rude' is unknown; choose one of paper, polite, off"),
        ({"kinds": ("moon",)}, "--kind 'moon' is unknown; choose one of portals, subdomains"),
        ({"policies": ("host", "host")}, "--policies: host,host names one of them twice"),
        ({"policies": ()}, "--policies: name some, as in host,bkdr:997"),
        ({"policies": ("bkdr:0",)}, "--policies: policy bkdr:0: bkdr needs a number of queues"),
        ({"policies": ("hosst",)}, "--policies: policy hosst is unknown; choose one of host,"),
        ({"replay": Path("none.log")}, "--replay: none.log: no such file or directory"),
        ({"seeds": Path("none.txt")}, "--seeds: none.txt: no such file or directory"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(given: dict[str, object], said: str) -> None:
    """Before anything is started; the line names the option."""
    with pytest.raises(UsageError) as refused:
        check(PolicyOptions(**given))
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"politeness": "paper"},
            "--seeds: real sites are crawled with --politeness polite; paper is for your own: name each",
        ),
        (
            {"politeness": "off"},
            "--seeds: real sites are crawled with --politeness polite; off is for your own: name each",
        ),
        ({"replay": Path("seeds.txt")}, "--seeds is a real crawl, --replay one of a web in a box"),
        ({"policies": ("ip",)}, "--policies: ip cannot be compared on real sites"),
    ],
)
def test_real_sites_that_are_not_said_to_be_one_s_own_are_crawled_politely_alone(
    given: dict[str, object], said: str
) -> None:
    """Nobody's site is hit by a connection for each queue because of a slip."""
    with pytest.raises(UsageError, match=said):
        check(PolicyOptions(seeds=Path("seeds.txt"), **given))


@pytest.mark.parametrize("given", [{"allow_private": True}, {"own_hosts": ("a.test",)}])
def test_what_is_for_real_sites_needs_their_seeds(given: dict[str, object]) -> None:
    """A web in a box is at a loopback address, so no site owner needs protection."""
    with pytest.raises(UsageError, match=r"^--(allow-private|own-host) is for real sites; name .* with --seeds$"):
        check(PolicyOptions(**given))


def seeds_of(folder: Path, *urls: str) -> Path:
    file = folder / "seeds.txt"
    file.write_text("\n".join(urls))
    return file


@pytest.mark.parametrize("politeness", ["polite", "paper", "off"])
def test_own_hosts_are_crawled_with_any_politeness_if_they_have_all_seeds(tmp_path: Path, politeness: str) -> None:
    """Each seed's host must be named, whatever its port and however it is spelt; one that is not stops the command."""
    seeds = seeds_of(tmp_path, "http://a.test/", "https://A.test:8443/x", "http://[::1]:8080/")
    options = PolicyOptions(seeds=seeds, politeness=politeness, own_hosts=("A.test", "[::1]"))
    check(options)
    scopes = {"polite": "host", "paper": "queue", "off": "off"}
    assert order_for(options, "bkdr:7").frontier.politeness == scopes[politeness]
    seeds_of(tmp_path, "http://a.test/", "http://[::1]/", "http://www.a.test/")
    with pytest.raises(
        UsageError, match=r"seeds\.txt:3: www\.a\.test is not named by --own-host; name it if it is your own"
    ):
        check(options)


@pytest.mark.parametrize("host", ["", "a.test:8080", "a.test/x", "https://a.test/", "ftp://a.test", "a b", "/etc"])
def test_an_own_host_is_a_host_alone(tmp_path: Path, host: str) -> None:
    """A port or a path would name less than what is crawled."""
    with pytest.raises(UsageError, match=r"^--own-host .*: give a host alone, as in www\.example\.org") as refused:
        check(PolicyOptions(seeds=seeds_of(tmp_path, "http://a.test/"), own_hosts=(host,)))
    assert "\n" not in str(refused.value)


def is_fetched(order: CrawlOrder, url: str) -> bool:
    """Whether the scope accepts a URL that a page embeds, and no pattern blocks it."""
    scope = open_scope(order.scope)
    is_blocked = any(re.search(pattern, url) for pattern in order.scope.block)
    assert scope.accepts(url, "E", "http://a.test/") is not is_blocked
    return not is_blocked


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("http://a.test/", True),
        ("https://a.test:8443/x?y=http://b.test/", True),
        ("http://[::1]:8080/", True),
        ("http://b.test/", False),
        ("http://www.a.test/", False),
        ("http://a.test.b.test/", False),
        ("http://a.test:80@b.test/", False),
        ("http://axtest/", False),
        ("http://b.test/http://a.test/", False),
        ("http://[::1:8]/", False),
    ],
)
def test_a_crawl_of_own_hosts_fetches_from_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, is_own: bool
) -> None:
    """Not even what the environment takes into the scope, embeds, or targets of redirects; sub-domains are other hosts."""
    monkeypatch.setenv("ANABRANCH_SCOPE__SCOPE", "any")
    seeds = seeds_of(tmp_path, "http://a.test/")
    order = order_for(PolicyOptions(seeds=seeds, politeness="paper", own_hosts=("a.test", "[::1]")), "host")
    assert is_fetched(order, url) is is_own
    assert is_fetched(order_for(PolicyOptions(seeds=seeds), "host"), url)


def test_patterns_of_the_environment_still_hold_on_own_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hosts' patterns are added to them."""
    monkeypatch.setenv("ANABRANCH_SCOPE__EXCLUDE", r'["\\.zip$"]')
    order = order_for(PolicyOptions(seeds=seeds_of(tmp_path, "http://a.test/"), own_hosts=("a.test",)), "host")
    scope = open_scope(order.scope)
    assert scope.accepts("http://a.test/a.png", "E", "http://a.test/")
    assert not scope.accepts("http://a.test/a.zip", "E", "http://a.test/")


def test_a_poor_policy_is_warned_of_once() -> None:
    """In the log, for any number of them."""
    with structlog.testing.capture_logs() as events:
        warn(("host", "length:7", "length:9"))
        warn(("host", "bkdr:7:31"))
    (event,) = events
    assert event["log_level"] == "warning"
    assert event["event"].startswith("policy length:N is a poor choice")


def test_a_warning_that_nobody_can_read_costs_no_comparison() -> None:
    """Standard error may be on a full disk."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

    configure_logs(0, Full())
    try:
        warn(("length:7",))
    finally:
        structlog.reset_defaults()


def test_a_file_without_seeds_is_refused(tmp_path: Path) -> None:
    """A file of something else crawls nothing."""
    file = tmp_path / "seeds.txt"
    file.write_text("# none\n")
    with pytest.raises(UsageError, match="no seed in it"):
        check(PolicyOptions(seeds=file))


def test_workers_that_would_wait_for_each_other_s_connections_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be active and do nothing; the line says how many open files it takes."""
    monkeypatch.setattr(options_module, "raise_file_limit", lambda: 1024)
    with pytest.raises(UsageError, match=r"--workers 1,000 need 2,096 open files, the limit is 1,024: raise it"):
        check(PolicyOptions())
    check(PolicyOptions(workers=400))


def test_the_defaults_can_be_run() -> None:
    """Nothing need be given."""
    check(PolicyOptions())


def test_steps_are_the_seconds_of_all_runs() -> None:
    """They are the unit of progress; a replayed web counts as one, whatever kinds are given."""
    options = PolicyOptions(policies=("host", "surt"), kinds=("portals", "subdomains"), repeat=3, seconds=10.0)
    assert options.steps == 120
    assert PolicyOptions(policies=("host",), kinds=("portals", "subdomains"), replay=Path("a"), seconds=5.0).steps == 5


def test_a_boxed_crawl_is_a_default_one_that_cannot_leave_its_web() -> None:
    """The durable store, robots obeyed, no limit of pages; the hosts of the web are its scope and its names."""
    order = order_for(
        PolicyOptions(workers=7, politeness="paper", connections=3),
        "bkdr:97",
        seeds=["http://www.a.test/"],
        addresses={"www.a.test": "127.0.0.1:8080", "b.a.test": "127.0.0.1:8080"},
    )
    default = CrawlOrder()
    assert (order.frontier.policy, order.frontier.politeness, order.frontier.store) == ("bkdr:97", "queue", "")
    assert (order.robots, order.dedup, order.write) == (default.robots, default.dedup, default.write)
    assert (order.limits.pages, order.crawl.workers) == (0, 7)
    assert (order.scope.scope, order.scope.accept) == ("host", ("www.a.test", "b.a.test"))
    assert order.dns.hosts == {"www.a.test": "127.0.0.1:8080", "b.a.test": "127.0.0.1:8080"}
    rests = order.politeness
    assert (rests.delay_factor, rests.min_delay_s, rests.max_delay_s, rests.max_connections) == (5.0, 0.05, 0.5, 3)


@pytest.mark.parametrize("host", ["[::1]", "127.0.0.1"])
def test_a_web_with_a_host_that_is_an_address_is_not_crawled(host: str) -> None:
    """No table of names leads such a URL to the box: the crawl would go to the real host."""
    with pytest.raises(UsageError, match=r"^a\.log: \S+ is an address, .* leave its lines out, or take") as refused:
        order_for(
            PolicyOptions(replay=Path("a.log")), "host", addresses={"a.test": "127.0.0.1:8080", host: "127.0.0.1:8080"}
        )
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("politeness", "scope"), [("polite", "host"), ("paper", "queue"), ("off", "off")])
def test_politeness_says_who_rests(politeness: str, scope: str) -> None:
    """A gate per host, a gate per queue as in the paper, or no rests."""
    assert order_for(PolicyOptions(politeness=politeness), "host").frontier.politeness == scope


def test_a_real_crawl_has_the_delays_of_a_real_crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the environment says of it, such as the contact; its seeds are the file's."""
    monkeypatch.setenv("ANABRANCH_AGENT__CONTACT", "https://example.org/bot")
    order = order_for(PolicyOptions(seeds=tmp_path / "seeds.txt"), "host")
    default = load_order(None, {})
    assert (order.politeness, order.scope, order.dns) == (default.politeness, default.scope, default.dns)
    assert order.job.sources == (str(tmp_path / "seeds.txt"),)
    assert order.agent.contact == "https://example.org/bot"
    assert not order.fetch.allow_private
    private = order_for(PolicyOptions(seeds=tmp_path / "seeds.txt", allow_private=True), "host")
    assert private == order.model_copy(update={"fetch": order.fetch.model_copy(update={"allow_private": True})})


@pytest.mark.parametrize("with_seeds", [False, True])
def test_policies_are_compared_without_limits_of_workers(tmp_path: Path, with_seeds: bool) -> None:
    """These would keep workers idle that a figure counts."""
    seeds = seeds_of(tmp_path, "http://a.test/") if with_seeds else None
    frontier = order_for(PolicyOptions(seeds=seeds), "host").frontier
    assert (frontier.domain_workers, frontier.slow_workers) == (1.0, 1.0)


def test_delays_are_told_with_their_scale() -> None:
    """Other delays than the lab's are no sixtieth of anything."""
    assert delay_words(PolicyOptions()) == (
        "delays: a host rests 5 x the fetch time, within 50ms and 500ms (Heritrix's 3 s and 30 s divided by 60); "
        "median latency 100ms; a 503 closes no gate for longer than that."
    )
    assert "divided" not in delay_words(PolicyOptions(max_delay_s=1.0))
    assert delay_words(PolicyOptions(politeness="paper")).startswith("delays: a queue rests")
    assert delay_words(PolicyOptions(politeness="off")) == "no delays."
    assert delay_words(PolicyOptions(seeds=Path("s"))) == "delays: a host rests 5 x the fetch time, within 3s and 30s."
