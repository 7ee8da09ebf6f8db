"""From the crawl order to the Frontier: every key arrives, what makes no sense is refused, and rows are not mixed up."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from anabranch.crawler.job.frontier import frontier_order, is_over, open_job
from anabranch.crawler.job.seeds import Seed, has_seeds
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.job.state import AGAIN_MARK, FINISHED_MARK, has_queue_in_memory
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.errors import QueueLost, StoreLost
from anabranch.dedup.uniq import UniqParameters
from anabranch.frontier.errors import FormatMismatch, PolicyError, StoreUnavailable
from anabranch.frontier.policies.assignment import PolitenessScope
from anabranch.frontier.policies.budgets import Budgets
from anabranch.frontier.policies.sheets import Override, Settings
from anabranch.frontier.records import Candidate
from anabranch.frontier.scheduling.gates import Backoff, Politeness
from tests import postgres_server
from tests.redis_server import redis_servers
from tests.rows import each_row

URL = "http://a.test/"


def order_of(text: str = "") -> CrawlOrder:
    return CrawlOrder.model_validate(tomllib.loads(text))


def a_seed_is_noted(state: Path) -> None:
    """The job with this state folder has seeds."""
    state.mkdir(parents=True, exist_ok=True)
    with opened_seeds(state) as recorded:
        recorded.add_all([Seed(url=URL, source="command line")])


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a fresh PostgreSQL database, as an order may hold it: without the password."""
    with postgres_server.server() as url:
        parsed = make_url(url)
        if parsed.password:
            monkeypatch.setenv("PGPASSWORD", str(parsed.password))
        yield parsed._replace(password=None, drivername="postgresql").render_as_string()


def stored_in(database: str) -> CrawlOrder:
    return order_of(f'[frontier]\nstore = "{database}"')


# The order


def test_without_any_key_the_frontier_is_as_polite_as_the_crawl_order() -> None:
    """Its own defaults and those of the crawl order are the same numbers."""
    asked = frontier_order(order_of())
    assert (asked.policy, asked.scope, asked.group) == ("bkdr:997", PolitenessScope.HOST, None)
    assert asked.politeness == asked.group_politeness == Politeness()
    assert (asked.backoff, asked.budgets) == (Backoff(), Budgets())
    assert (asked.per_queue, asked.lease_s, asked.checkpoint_s, asked.gates_in_memory) == (1, None, 60.0, 10_000)
    assert (asked.overrides, asked.max_unacknowledged) == ([], 100)


def test_every_key_of_the_order_reaches_the_frontier() -> None:
    """None is dropped on the way, and none goes astray."""
    asked = frontier_order(
        order_of(
            "[frontier]\npolicy = 'host'\npoliteness = 'off'\nbalance_replenish = 50\ntotal_budget = 500\n"
            "error_penalty = 7\ncost = 'wag'\nuri_precedence = 'hops'\nqueue_precedence = 'base:4'\nprecedence_floor = 9\n"
            "per_queue = 2\nlease = '1h'\ncheckpoint = '5s'\ngates_in_memory = 77\n[politeness]\ndelay_factor = 1\n"
            "min_delay = 2\nmax_delay = 3\nmax_connections = 4\nbackoff_base = 5\nbackoff_cap = 6\nbackoff_jitter = 0.5\n"
            "backoff_forgive = 8\nmax_retry_after = 9\ngroup = 'domain'\ngroup_delay_factor = 10\ngroup_min_delay = 11\n"
            "group_max_delay = 12\ngroup_max_connections = 13\n[crawl]\nworkers = 14\n[fetch]\ntimeout = 15\n"
        )
    )
    assert (asked.policy, asked.scope, asked.group) == ("host", PolitenessScope.OFF, "domain")
    assert asked.budgets == Budgets(balance_replenish=50, total_budget=500, error_penalty=7)
    assert (asked.cost, asked.uri_precedence, asked.queue_precedence) == ("wag", "hops", "base:4")
    assert (asked.precedence_floor, asked.per_queue, asked.lease_s, asked.checkpoint_s) == (9, 2, 3600.0, 5.0)
    assert asked.politeness == Politeness(delay_factor=1, min_delay_s=2, max_delay_s=3, slots=4)
    assert asked.backoff == Backoff(base_s=5, cap_s=6, jitter=0.5, forgive_s=8, longest_retry_after_s=9)
    assert asked.group_politeness == Politeness(delay_factor=10, min_delay_s=11, max_delay_s=12, slots=13)
    assert (asked.gates_in_memory, asked.max_unacknowledged) == (77, 14)
    assert asked.fetch_limit_s == 2 * 15, "robots.txt with its redirects, and the page"


def test_every_key_of_an_override_reaches_its_settings() -> None:
    """With the prefixes that it names, which may be several."""
    asked = frontier_order(
        order_of(
            "[[override]]\nsurt = ['com,example,', 'a.test']\ndelay_factor = 1\nmin_delay = 2\nmax_delay = 3\n"
            "max_connections = 4\nbalance_replenish = 5\ntotal_budget = 6\nqueue_precedence = 7\nkey = 'q'\n"
            "uri_precedence = 8\ndomain_workers = 0.5\n"
        )
    )
    settings = Settings(1, 2, 3, 4, 5, 6, 7, 0.5, "q", 8)  # type: ignore[arg-type]
    assert asked.overrides == [Override(("com,example,", "a.test"), settings)]


def test_a_table_of_groups_is_the_second_gate() -> None:
    """From SURT prefix to name."""
    assert frontier_order(order_of("[politeness.groups]\n'com,example,' = 'x'")).group == {"com,example,": "x"}


@pytest.mark.parametrize("key", ["policy = 'ip'", "policy = 'host'\n[politeness]\ngroup = 'ip'"])
def test_addresses_need_no_name_server_where_nothing_is_crawled(key: str) -> None:
    """A command that only looks at a job takes every host for itself."""
    frontier_order(order_of(f"[frontier]\n{key}"))


@each_row(
    ("text", "line"),
    [
        ("[frontier]\npolicy = 'bkdr:0'", "policy bkdr:0"),
        ("[frontier]\npolicy = 'length:0'", "policy length:0: length needs a number of queues"),
        ("[frontier]\npolicy = 'bkdr:9:2'", "policy bkdr:9:2: the seed of bkdr must be an odd number"),
        ("[frontier]\npolicy = 'no.such:thing'", "no.such:thing"),
        ("[frontier]\ncost = 'much'", "cost much is unknown"),
        ("[frontier]\nuri_precedence = 'x'", "URI precedence x is unknown"),
        ("[frontier]\nqueue_precedence = 'highest-uri'", "queue precedence highest-uri is not offered"),
        ("[frontier]\nlease = '3m'", "lease_s 180: a lease must last at least twice as long as a fetch may take"),
        ("[politeness]\ngroup = 'planet'", "group planet is unknown"),
        (
            "[frontier]\npoliteness = 'queue'\n[politeness]\ngroup = 'domain'",
            "politeness queue and a group: a queue's gate",
        ),
        ("[frontier]\npoliteness = 'queue'\n[politeness.groups]\n'a.test' = 'x'", "politeness queue and a group: "),
        ("[politeness.groups]\n'http://a.test/x/' = 'x'", "group x: http://a.test/x/ does not cover a whole host"),
        ("[[override]]\nsurt = 'com.example,'\nmin_delay = 3", "SURT prefix 'com.example,' is refused"),
        ("[[override]]\nsurt = 'a.test'", "override a.test: it changes nothing"),
        (
            "[[override]]\nsurt = 'http://a.test/x/'\nmin_delay = 3",
            "override http://a.test/x/: http://a.test/x/ does not",
        ),
        ("[frontier]\nstore = 'memory'\n[dedup]\nleaves = ['redis://h/0']", "such a queue cannot share a filter"),
        ("[[override]]\nsurt = 'a.test'\ntotal_budget = 3", "policy bkdr:997: its queues hold many hosts; "),
    ],
)
def test_what_only_the_frontier_can_judge_is_refused_in_one_line(text: str, line: str) -> None:
    """A policy that does not exist, a prefix that is none, numbers that contradict one another."""
    with pytest.raises(PolicyError) as raised:
        frontier_order(order_of(text))
    assert str(raised.value).startswith(line) or line in str(raised.value)
    assert "\n" not in str(raised.value)


# The store


def test_the_rows_are_in_the_folder_unless_the_order_says_otherwise(tmp_path: Path) -> None:
    """And the next opening finds them there."""
    state = tmp_path / "state"
    with open_job(state, order_of()) as frontier:
        frontier.schedule([Candidate(URL)])
    a_seed_is_noted(state)
    assert has_seeds(tmp_path)
    with open_job(state, order_of()) as frontier:
        assert frontier.pending == 1


def test_a_job_whose_rows_are_gone_is_refused(tmp_path: Path) -> None:
    """Going on would silently crawl nothing."""
    state = tmp_path / "state"
    a_seed_is_noted(state)
    with pytest.raises(StoreLost, match=r"frontier\.db is missing or empty.*start over with `anabranch crawl --fresh`"):
        open_job(state, order_of())
    assert not (state / "frontier.db").exists()


@pytest.mark.parametrize("text", ["[frontier]\npolicy = 'host'", "[frontier]\npoliteness = 'off'"])
def test_a_job_keeps_its_policy_and_whom_it_spares(tmp_path: Path, text: str) -> None:
    """Its URLs stand in queues that the other policy would not find; all else may change."""
    open_job(tmp_path / "state", order_of()).close()
    with pytest.raises(FormatMismatch):
        open_job(tmp_path / "state", order_of(text))
    changed = "[frontier]\ntotal_budget = 9\n[politeness]\nmin_delay = 1\n[[override]]\nsurt = 'a.test'\nmin_delay = 2"
    open_job(tmp_path / "state", order_of(changed)).close()


def test_a_database_holds_the_rows_of_a_job(tmp_path: Path, database: str) -> None:
    """The filter stays in the folder; the next opening finds both."""
    state = tmp_path / "state"
    with open_job(state, stored_in(database)) as frontier:
        frontier.schedule([Candidate(URL)])
    a_seed_is_noted(state)
    with open_job(state, stored_in(database)) as frontier:
        assert (frontier.pending, frontier.schedule([Candidate(URL)])[0].kind.value) == (1, "seen")
    assert not (state / "frontier.db").exists()
    assert (state / "seen").is_dir()


def a_file(state: Path, database: str) -> CrawlOrder:
    open_job(state, order_of()).close()
    return stored_in(database)


def another_jobs_rows(state: Path, database: str) -> CrawlOrder:
    with open_job(state.parent / "other", stored_in(database)) as frontier:
        frontier.schedule([Candidate(URL)])
    return stored_in(database)


def an_emptied_database(state: Path, database: str) -> CrawlOrder:
    with open_job(state, order_of()) as frontier:
        frontier.schedule([Candidate(URL)])
    a_seed_is_noted(state)
    (state / "frontier.db").unlink()
    return stored_in(database)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (a_file, "the queue is in frontier.db, not in a database"),
        (another_jobs_rows, "holds the queue of another job"),
        (an_emptied_database, "the filter belongs to another state of the crawl"),
    ],
)
def test_rows_and_jobs_are_not_mixed_up(
    tmp_path: Path, database: str, given: Callable[[Path, str], CrawlOrder], line: str
) -> None:
    """A file is not left for a database, a database is not shared, and one that was emptied is not a job's."""
    order = given(tmp_path / "state", database)
    with pytest.raises((StoreLost, FormatMismatch), match=line):
        open_job(tmp_path / "state", order)


# A queue in memory

IN_MEMORY = "[frontier]\nstore = 'memory'"


def test_a_queue_in_memory_leaves_neither_rows_nor_a_filter(tmp_path: Path) -> None:
    """A filter that outlived it would hide URLs that no store has (I8); what is left says that the queue is gone."""
    state = tmp_path / "state"
    with open_job(state, order_of(IN_MEMORY)) as frontier:
        assert [verdict.kind.value for verdict in frontier.schedule([Candidate(URL), Candidate(URL)])] == [
            "new",
            "seen",
        ]
        frontier.operations.checkpoint()
        assert frontier.operations.statistics().seen["false_drop_probability"] == 0
    assert has_queue_in_memory(state)
    assert [path.name for path in state.iterdir()] == ["queue-in-memory"]


def test_a_job_that_was_ended_before_its_first_seed_begins(tmp_path: Path) -> None:
    """There was nothing to forget."""
    state = tmp_path / "state"
    open_job(state, order_of(IN_MEMORY)).close()
    with open_job(state, order_of(IN_MEMORY)) as frontier:
        assert frontier.schedule([Candidate(URL)])[0].kind.value == "new"


def test_a_job_that_begins_on_disk_after_all_goes_on(tmp_path: Path) -> None:
    """A mark of a queue in memory that never had a seed must not keep it from that."""
    state = tmp_path / "state"
    open_job(state, order_of(IN_MEMORY)).close()
    open_job(state, order_of()).close()
    assert not has_queue_in_memory(state)
    a_seed_is_noted(state)
    open_job(state, order_of()).close()


@pytest.mark.parametrize("text", [IN_MEMORY, "", "[frontier]\nstore = 'postgresql://h/d'"])
def test_a_job_whose_queue_was_in_memory_does_not_go_on(tmp_path: Path, text: str) -> None:
    """Wherever the queue is to be now: it would crawl all again, or nothing, and call it going on."""
    state = tmp_path / "state"
    open_job(state, order_of(IN_MEMORY)).close()
    a_seed_is_noted(state)
    with pytest.raises(
        QueueLost,
        match=r"queue was in memory and ended with its process; start over with `anabranch crawl --fresh`, which moves it",
    ):
        open_job(state, order_of(text))
    (state / FINISHED_MARK).touch()
    with pytest.raises(
        QueueLost, match=r"finished, and its queue was in memory; begin another round \(`anabranch crawl --again`\)"
    ):
        open_job(state, order_of(text))


def test_the_next_round_of_such_a_job_begins(tmp_path: Path) -> None:
    """It has a queue of its own, and may have it elsewhere."""
    state = tmp_path / "state"
    open_job(state, order_of(IN_MEMORY)).close()
    a_seed_is_noted(state)
    (state / AGAIN_MARK).write_text("2")
    with open_job(state, order_of(IN_MEMORY)) as frontier:
        assert frontier.schedule([Candidate(URL)])[0].kind.value == "new"


def test_a_finished_job_in_memory_is_over_unless_a_seed_is_new(tmp_path: Path) -> None:
    """To say so again is right; to leave a new seed out in silence is not."""
    state = tmp_path / "state"
    open_job(state, order_of(IN_MEMORY)).close()
    a_seed_is_noted(state)
    assert not is_over(state, [])
    (state / FINISHED_MARK).touch()
    old, new = (Seed(url=url, source="command line") for url in (URL, "http://b.test/"))
    assert (is_over(state, []), is_over(state, [old]), is_over(state, [old, new])) == (True, True, False)


def test_a_queue_on_disk_is_not_left_for_one_in_memory(tmp_path: Path) -> None:
    """Its URLs would be left behind."""
    state = tmp_path / "state"
    open_job(state, order_of()).close()
    with pytest.raises(StoreLost, match=r"the queue is in frontier\.db, not in memory; leave out \[frontier\] store"):
        open_job(state, order_of(IN_MEMORY))
    assert not has_queue_in_memory(state)


def test_a_queue_in_a_database_is_not_left_for_one_in_memory(tmp_path: Path) -> None:
    """Nothing of it is in the folder, but the job has seeds."""
    state = tmp_path / "state"
    a_seed_is_noted(state)
    with pytest.raises(StoreLost, match=r"the queue is in a database, not in memory"):
        open_job(state, order_of(IN_MEMORY))
    assert not has_queue_in_memory(state)


# A filter in common with other crawls


def sharing(*urls: str, more: str = "") -> CrawlOrder:
    """An order whose filter is on these servers."""
    return order_of(f"[dedup]\nleaves = {list(urls)}\nexpect = 1000\n{more}")


def test_two_jobs_that_name_the_same_servers_share_their_urls(tmp_path: Path) -> None:
    """Each keeps its own rows; the name tells one filter from another."""
    with redis_servers(tmp_path / "redis", 2) as running:
        urls = [f"{server.url}/0" for server in running]
        with open_job(tmp_path / "one", sharing(*urls)) as one, open_job(tmp_path / "two", sharing(*urls)) as two:
            for frontier in (one, two):
                frontier.schedule([Candidate(URL)])
                frontier.flush()
            assert (one.pending, two.pending) == (1, 0)
        with open_job(tmp_path / "three", sharing(*urls, more="leaves_name = 'other'")) as three:
            three.schedule([Candidate(URL)])
            three.flush()
            assert three.pending == 1


def test_rows_in_a_database_may_share_a_filter_too(tmp_path: Path, database: str) -> None:
    """The store's thread asks it, wherever the rows are."""
    with redis_servers(tmp_path / "redis", 1) as (server,):
        with open_job(tmp_path / "one", sharing(server.url)) as one:
            one.schedule([Candidate(URL)])
        order = sharing(server.url, more=f'[frontier]\nstore = "{database}"')
        with open_job(tmp_path / "two", order) as two:
            two.schedule([Candidate(URL)])
            two.flush()
            assert two.pending == 0


def test_the_password_of_the_servers_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password is read from `REDISCLI_AUTH`, as redis-cli does, and never from the order."""
    monkeypatch.delenv("REDISCLI_AUTH", raising=False)
    with redis_servers(tmp_path / "redis", 1, requirepass="o/p:e n") as (server,):
        with pytest.raises(
            PolicyError, match=r"^shared filter anabranch: the Redis server .* refuses user or password"
        ):
            open_job(tmp_path / "job", sharing(server.url))
        monkeypatch.setenv("REDISCLI_AUTH", "o/p:e n")
        open_job(tmp_path / "job", sharing(server.url)).close()


def test_a_server_that_does_not_answer_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    """One line that names the leaf; when the server is back the job is opened."""
    with redis_servers(tmp_path / "redis", 1) as (server,):
        order = sharing(server.url)
        open_job(tmp_path / "job", order).close()
        server.kill()
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{server.port} does not answer"):
            open_job(tmp_path / "job", order)
        server.start()
        open_job(tmp_path / "job", order).close()


def test_other_numbers_than_those_of_the_filter_are_refused(tmp_path: Path) -> None:
    """The line names the server and the number."""
    with redis_servers(tmp_path / "redis", 1) as (server,):
        open_job(tmp_path / "one", sharing(server.url)).close()
        with pytest.raises(FormatMismatch, match=rf"127.0.0.1:{server.port} .*false_positive"):
            open_job(tmp_path / "two", sharing(server.url, more="false_positive = 0.01"))


def test_the_jobs_own_filter_is_as_the_order_says(tmp_path: Path) -> None:
    """Exact, or with a rate; another one later is refused."""
    asked = frontier_order(order_of("[dedup]\nexact = true\nexpect = 5000\nfalse_positive = 0.01"))
    assert asked.uniq == UniqParameters(mode="exact", expected=5000, false_positive=0.01)
    open_job(tmp_path / "job", order_of("[dedup]\nexact = true")).close()
    with pytest.raises(FormatMismatch, match=r"has the filter exact .* asks for both .*keep the first, or"):
        open_job(tmp_path / "job", order_of())
