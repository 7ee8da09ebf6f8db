"""Faults on the leases and commits of workers: three processes crawl one made-up site over PostgreSQL, and lose their leases.

`python -m tests.stress.lease_faults --faults 1000 --seed 1` prints one line, and fails if an invariant does not hold. A fault
kills a worker, with a successor at once or after its shares were taken over; stops it for more than twice its lease; or has the
server end its session, which the worker must survive. A trigger on the tables records each row that was written by a session
which did not hold the row's share at that moment: it asks the tables `share` and `worker`, not the code under test. In the end
each page is done once, and all that was accepted is there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event
from typing import NamedTuple

from anabranch.frontier.composition import FrontierOrder, open_frontier, share_rule_of
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.records import Candidate, Outcome, OutcomeKind
from anabranch.frontier.scheduling.gates import Politeness
from anabranch.frontier.stores.sql.store import SqlStore
from anabranch.frontier.stores.sql.worker import Shared, WorkerIdentity
from scripts.postgres_server import administer, fresh_database, running
from tests.patience import HANG_S

WORKERS = 3
SHARES = 12
HOSTS = 60
TTL_S = 0.5
#: Leases of a worker that are out at a time, and what a fetch takes.
LEASES = 8
FETCH_S = 0.02
#: Pages of the site for each fault: more than are fetched until the next one.
PAGES_PER_FAULT = 3000

#: The tables with URLs.
TABLES = ("url", "done", "link")
#: Rows of `url`, `lane` and `gate` that were written by a session which did not hold the share of their gate.
WATCH = (
    "CREATE TABLE stale (what text, share bigint, holder bigint, session text, pid int)",
    """
    CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE of_share bigint; holder bigint; holds text; gate_id bigint;
    BEGIN
        gate_id := CASE WHEN TG_TABLE_NAME = 'gate' THEN to_jsonb(NEW) ->> 'id'
                        WHEN TG_OP = 'DELETE' THEN to_jsonb(OLD) ->> 'gate' ELSE to_jsonb(NEW) ->> 'gate' END;
        SELECT share INTO of_share FROM gate WHERE id = gate_id;
        IF of_share IS NULL THEN RETURN NULL; END IF;  -- the gate comes later in this transaction, and is watched
        SELECT worker.epoch, worker.session INTO holder, holds
        FROM share JOIN worker ON worker.epoch = share.epoch WHERE share.id = of_share AND worker.until_s > 0;
        IF holds IS NULL OR split_part(holds, ' ', 1) <> pg_backend_pid()::text THEN
            INSERT INTO stale VALUES (TG_TABLE_NAME || ' ' || TG_OP, of_share, holder, holds, pg_backend_pid());
        END IF;
        RETURN NULL;
    END $$
    """,
    "CREATE TRIGGER watch AFTER INSERT OR DELETE ON url FOR EACH ROW EXECUTE FUNCTION watch()",
    "CREATE TRIGGER watch AFTER INSERT OR UPDATE ON lane FOR EACH ROW EXECUTE FUNCTION watch()",
    "CREATE TRIGGER watch AFTER INSERT OR UPDATE ON gate FOR EACH ROW EXECUTE FUNCTION watch()",
)


class Summary(NamedTuple):
    """The result of a campaign."""

    faults: dict[str, int]
    pages: int
    stale: int  #: rows written without the share
    repeats: int  #: pages that were leased again
    longest_s: float  #: from a loss until live workers held all shares
    took_s: float


def order() -> FrontierOrder:
    """An order without delays."""
    return FrontierOrder(
        policy="host", politeness=Politeness(min_delay_s=0.0, delay_factor=0.0, slots=LEASES), shares=SHARES,
        max_unacknowledged=LEASES,
    )  # fmt: skip


def url_of(page: int) -> str:
    """A page of the site."""
    return f"http://h{page % HOSTS}.test/{page}"


def links(url: str, pages: int) -> list[Candidate]:
    """A page links to the next ones of a tree, and to one before it."""
    page = int(url.rpartition("/")[2])
    places = [2 * page + 1, 2 * page + 2, page // 2]
    return [Candidate(url_of(place)) for place in places if place < pages]


def store_of(place: str, name: str) -> SqlStore:
    """The store as this worker opens it."""
    identity = WorkerIdentity(name=name, token=f"folder of {name}", ttl_s=TTL_S)
    return SqlStore(place, shared=Shared(share_rule_of(order()), identity))


def work(place: str, name: str, pages: int, log: str) -> None:
    """Crawl until killed. Whoever loses its lease begins anew, as another worker from the same folder."""
    with Path(log).open("a") as leased:
        while True:
            with suppress(StoreUnavailable):
                _crawl(place, name, pages, leased.write)
            leased.flush()


def _crawl(place: str, name: str, pages: int, say: object) -> None:
    changed = Event()
    store = store_of(place, name)
    frontier = open_frontier(None, order(), store=store, on_change=changed.set)
    try:
        while True:
            changed.clear()
            held = [lease for _ in range(LEASES) if (lease := frontier.lease()) is not None]
            if held:
                time.sleep(FETCH_S)  # the fetches
            for lease in held:
                say(f"{lease.url}\n")  # type: ignore[operator]
                outcome = Outcome(OutcomeKind.DONE, 200, frontier.now_s(), frontier.now_s())
                frontier.finish(lease, outcome, links(lease.url, pages))
            if not held:
                changed.wait(0.01)
    finally:
        store.close(clean=False)


class Campaign:
    """Faults until there were enough, then the end of the crawl."""

    def __init__(self, place: str, folder: Path, faults: int, seed: int) -> None:
        self._place = place
        self._folder = folder
        self._faults = faults
        self._pages = PAGES_PER_FAULT * faults
        self._dice = random.Random(seed)
        self._processes: dict[str, BaseProcess] = {}
        self._times: list[float] = []

    def run(self) -> Summary:
        """Raises: AssertionError if the crawl does not end, or loses or repeats a page."""
        since_s, faults = time.monotonic(), Counter[str]()
        self._make()
        for number in range(WORKERS):
            self._start(f"w{number}")
        self._until_held()
        for _ in range(self._faults):
            time.sleep(self._dice.uniform(0.0, 2 * TTL_S))
            faults[self._fault()] += 1
        stale = administer(self._place, "SELECT what, count(*), min(session), min(pid) FROM stale GROUP BY what")
        if stale:
            print(
                f"stale: {stale}; workers: {administer(self._place, 'SELECT epoch, name, session, until_s FROM worker')}"
            )
        for process in self._processes.values():
            process.kill()
            process.join()
        done, distinct = administer(self._place, "SELECT count(*), count(DISTINCT url) FROM done")[0]
        assert done == distinct, f"{done - distinct} pages are done twice"
        lost = administer(self._place, "SELECT count(*) FROM seen")[0][0] - self._accepted()
        assert not lost, f"{lost} URLs are seen and nowhere"
        self._check_links()
        with open_frontier(None, order(), store=store_of(self._place, "last")) as frontier:
            frontier.operations.check()
        leased = [line for log in self._folder.glob("*.log") for line in log.read_text().split("\n")[:-1]]
        repeats = len(leased) - len(set(leased))
        return Summary(
            dict(faults),
            done,
            sum(count for _, count, _, _ in stale),
            repeats,
            max(self._times, default=0.0),
            time.monotonic() - since_s,
        )

    def _accepted(self) -> int:
        """Those whose keys are entered; a link's is when its receiver takes it."""
        tables = " + ".join(f"(SELECT count(*) FROM {table})" for table in ("url", "done"))
        count: int = administer(self._place, f"SELECT {tables}")[0][0]
        return count

    def _check_links(self) -> None:
        """Each link of a page that is done is queued, done or on its way to the worker that holds its share."""
        there = {
            url for (url,) in administer(self._place, " UNION ".join(f"SELECT url FROM {table}" for table in TABLES))
        }
        pages = [url for (url,) in administer(self._place, "SELECT url FROM done")]
        lost = {link.url for url in pages for link in links(url, self._pages)} - there
        assert not lost, f"{len(lost)} links of pages that are done are lost"

    def _make(self) -> None:
        """Make the tables with the first page, then have them watched."""
        with open_frontier(None, order(), store=store_of(self._place, "first")) as frontier:
            frontier.schedule([Candidate(url_of(0))])
        for statement in WATCH:
            administer(self._place, statement)

    def _start(self, name: str) -> None:
        arguments = (self._place, name, self._pages, str(self._folder / f"{name}.log"))
        self._processes[name] = process = get_context("forkserver").Process(target=work, args=arguments, daemon=True)
        process.start()

    def _fault(self) -> str:
        """One fault and its end; the kind. Times are those until live workers hold all shares again."""
        name = self._dice.choice([*self._processes])
        process, kind = self._processes[name], self._dice.choice(["kill", "lose", "stop", "cut"])
        live = f"FROM worker WHERE name = '{name}' AND until_s > 0"
        epochs = [epoch for (epoch,) in administer(self._place, f"SELECT epoch {live}")]
        assert process.pid is not None
        if kind in {"kill", "lose"}:
            process.kill()
            process.join()
            if kind == "lose":
                self._times.append(self._until_held(without=epochs))
            self._start(name)
        elif kind == "stop":
            os.kill(process.pid, signal.SIGSTOP)
            self._times.append(self._until_held(without=epochs))
            time.sleep(2 * TTL_S)
            os.kill(process.pid, signal.SIGCONT)
        else:
            sessions = f"SELECT split_part(session, ' ', 1)::int AS pid {live}"
            administer(self._place, f"SELECT pg_terminate_backend(pid) FROM ({sessions}) AS its")
        return kind

    def _until_held(self, without: Sequence[int] = ()) -> float:
        """Wait until live workers hold all shares, none of these epochs among them; how long that took."""
        since_s = time.monotonic()
        now = "CAST(extract(epoch FROM clock_timestamp()) AS float8)"
        others = "".join(f" AND epoch <> {epoch}" for epoch in without)
        held = f"SELECT count(*) FROM share JOIN worker USING (epoch) WHERE until_s > {now}{others}"
        while administer(self._place, held) != [(SHARES,)]:
            assert time.monotonic() < since_s + HANG_S, "the shares are not taken over"
            time.sleep(0.02)
        return time.monotonic() - since_s


def campaign(faults: int, seed: int) -> Summary:
    """On a server of its own."""
    with tempfile.TemporaryDirectory(prefix="anabranch-pg-") as folder, running(Path(folder, "pg")) as server:
        logs = Path(folder, "logs")
        logs.mkdir()
        with fresh_database(server.url) as place:
            return Campaign(place, logs, faults, seed).run()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one campaign and print what it came to."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    print(campaign(given.faults, given.seed))


if __name__ == "__main__":
    main()
