"""Links to hosts of other workers: sent by whoever finds them, decided by the worker that holds their share."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Connection, text

from anabranch.frontier.composition import share_rule_of
from anabranch.frontier.records import Candidate, seen_fingerprint, seen_fingerprints
from tests.frontier.shares.team import TTL_S, Site, Worker, at_once, crawl, frozen, order, team, until
from tests.frontier.stores.sql.test_schema import set_format
from tests.patience import HANG_S
from tests.postgres_server import server


def test_a_url_that_two_workers_find_is_queued_once(place: Path | str) -> None:
    """The store decides: the second one's link dies, and its filter knows the URL from then on."""
    with team(place, "ab") as (one, other):
        urls = [Candidate(f"http://h{number}.test/") for number in range(40)]
        for worker in (one, other):
            worker.frontier.schedule(urls)
            worker.frontier.flush()
        until(lambda: not one.store.job_counts().links, [one, other])
        assert one.store.job_counts().counters.queued == len(urls)
        assert not any(other.frontier.unseen([url.url.encode() for url in urls]))


def keys_of(urls: list[str]) -> set[int]:
    """Their keys in the table `seen`."""
    return set(seen_fingerprints([url.encode() for url in urls]))


def seen_in(place: Path | str) -> set[int]:
    """What the table holds."""
    found: set[int] = set()
    at_once(place, lambda connection: found.update(connection.scalars(text("SELECT fp FROM seen"))))
    return found


def shares_of(worker: Worker, urls: list[str]) -> list[str]:
    """Those of the URLs that are in shares of the worker."""
    rule = share_rule_of(order())
    return [url for url in urls if rule.of_url(url) in worker.serving]


def test_only_the_holder_of_a_share_enters_its_keys(place: Path | str) -> None:
    """Whoever finds a link writes a row for it, which goes when the holder has decided."""
    urls = [f"http://h{number}.test/" for number in range(40)]
    with team(place, "ab") as (one, other):
        with frozen(other):
            one.frontier.schedule([Candidate(url) for url in urls])
            one.frontier.flush()
            assert seen_in(place) == keys_of(shares_of(one, urls))
            assert one.store.job_counts().links == len(shares_of(other, urls)) > 0
        until(lambda: not one.store.job_counts().links, [one, other])
        assert seen_in(place) == keys_of(urls)
        one.frontier.operations.check()


def test_of_the_links_of_several_workers_to_one_url_the_first_counts(place: Path | str) -> None:
    """All are on their way until the holder decides, and none of them ends the job meanwhile."""
    urls = [f"http://h{number}.test/" for number in range(40)]
    with team(place, "abc") as workers:
        with frozen(workers[2]):
            for worker in workers[:2]:
                worker.frontier.schedule([Candidate(url, hops=worker.name.upper()) for url in urls])
                worker.frontier.flush()
            theirs = shares_of(workers[2], urls)
            until(lambda: workers[0].store.job_counts().links <= 2 * len(theirs), workers[:2])  # they have their own
            assert workers[0].store.job_counts().links == 2 * len(theirs) > 0
            records = [workers[0].store.look_up(url.encode()) for url in theirs]
            assert [record and record.hops for record in records] == ["A"] * len(theirs)
            workers[0].frontier.operations.check()
        until(lambda: sum(worker.frontier.pending for worker in workers) == len(urls), workers)
        assert workers[0].store.job_counts().counters.queued == len(urls)
        assert not workers[0].store.job_counts().links
        workers[0].frontier.operations.check()


def test_a_link_that_the_holder_has_is_not_sent(place: Path | str) -> None:
    """The filter of the worker that finds it does not know it, the store does."""
    urls = [f"http://h{number}.test/" for number in range(40)]
    with team(place, "ab") as (one, other):
        theirs = shares_of(one, urls)
        one.frontier.schedule([Candidate(url) for url in theirs])
        one.frontier.flush()
        with frozen(one):
            assert all(other.frontier.unseen([url.encode() for url in theirs]))
            other.frontier.schedule([Candidate(url) for url in theirs])
            other.frontier.flush()
            assert not other.store.job_counts().links
        assert not any(other.frontier.unseen([url.encode() for url in theirs]))


def test_workers_that_find_the_same_links_do_not_wait_for_each_other() -> None:
    """One is in the middle of the transaction that sends them; another one sends them meanwhile, and is done."""
    urls = [f"http://h{number}.test/" for number in range(60)]
    stops, goes_on = Event(), Event()
    with server() as place, team(place, "abc") as workers, frozen(workers[2]):
        one, other, third = workers
        theirs = [Candidate(url) for url in shares_of(third, urls)]
        put_totals = one.store._owner.put_totals

        def stop(*arguments: Any) -> None:
            put_totals(*arguments)
            stops.set()
            assert goes_on.wait(HANG_S)

        one.store._owner.put_totals = stop  # type: ignore[method-assign]
        one.frontier.schedule(theirs)
        assert stops.wait(HANG_S)
        try:
            other.frontier.schedule(theirs)
            with ThreadPoolExecutor(1) as pool:
                pool.submit(other.store.flush).result(timeout=TTL_S / 6)  # before it would give up waiting for locks
            assert other.store.job_counts().links == len(theirs)
        finally:
            goes_on.set()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_forced_link_is_queued_whether_its_url_is_known_or_not(place: Path | str, *, is_known: bool) -> None:
    """Its sender enters its key; so another worker's link to it, which comes later, is none."""
    urls = [f"http://h{number}.test/" for number in range(40)]
    with team(place, "abc") as workers:
        theirs = shares_of(workers[2], urls)
        if is_known:
            workers[2].frontier.schedule([Candidate(url) for url in theirs])
            workers[2].frontier.flush()
        workers[0].frontier.schedule([Candidate(url, force=True) for url in theirs])
        workers[0].frontier.flush()
        workers[1].frontier.schedule([Candidate(url) for url in theirs])
        workers[1].frontier.flush()
        until(lambda: not workers[0].store.job_counts().links, workers)
        assert workers[0].store.job_counts().counters.queued == (1 + is_known) * len(theirs)


def test_links_of_an_older_format_that_are_on_their_way_are_queued(place: Path | str) -> None:
    """Their senders have entered their keys. What both have found meanwhile is still queued once."""
    site = Site(hosts=30, pages=120)
    with team(place, "ab") as (one, other):
        other.store._owner.tasks = lambda post: []  # type: ignore[method-assign]
        other.store.flush()  # and from now on it takes no link
        one.frontier.schedule([Candidate(url) for url in site.urls[:60]])
        one.frontier.flush()
        one.frontier.close()
        other.frontier.close()
    sent = count_links(place)
    at_once(place, enter_links)
    set_format(place, "7")
    assert count_links(place) == sent > 0
    with team(place, "cd") as workers:
        workers[0].frontier.schedule([Candidate(url) for url in site.urls[30:]])
        assert crawl(workers, site) == Counter(site.urls)
        until(lambda: workers[0].store.job_counts().is_done, workers)
        workers[0].frontier.operations.check()


def count_links(place: Path | str) -> int:
    """How many are on their way."""
    found: list[int] = []
    at_once(place, lambda connection: found.append(connection.execute(text("SELECT count(*) FROM link")).scalar_one()))
    return found[0]


def enter_links(connection: Connection) -> None:
    """Enter the keys of all links, as senders did up to format 7."""
    links = connection.execute(text("SELECT url, ordinal FROM link")).all()
    rows = [{"fp": seen_fingerprint(url.encode()), "ordinal": ordinal} for url, ordinal in links]
    connection.execute(text("INSERT INTO seen VALUES (:fp, :ordinal)"), rows)


def test_a_links_way_can_be_looked_at(place: Path | str) -> None:
    """Between two workers a URL is accepted and queued nowhere yet; it is found all the same."""
    with team(place, "ab") as (one, other), frozen(other):
        urls = [f"http://h{number}.test/" for number in range(20)]
        one.frontier.schedule([Candidate(url, hops="L") for url in urls])
        one.frontier.flush()
        counts = one.store.job_counts()
        assert counts.links > 0
        assert counts.links + counts.counters.queued == len(urls)
        assert not counts.is_done
        found = [one.store.look_up(url.encode()) for url in urls]
        assert [record and (record.url, record.hops) for record in found] == [(url, "L") for url in urls]
