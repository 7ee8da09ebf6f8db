"""One of many workers on one job: its lease, the shares that it holds, and the links that come for them.

All workers write the same tables. A worker joins under a new epoch and holds *shares* of the job's hosts: it alone writes their
gates, lanes and rows. Its lease is one row of the table `worker`, good for `ttl_s` seconds by the server's clock. Each
transaction that writes begins with its renewal, which is the fence, too: who takes over ends that row in a transaction of its
own, and after that every renewal of the former worker changes no row.

A page's links to hosts of other workers are rows of the table `link`, written with the page's end, unless their keys are in
`seen`. Only the worker that holds a share enters the keys of its hosts into `seen`: so no worker waits for another, and of
equal links from several workers the first one counts. That worker polls for them: between machines no event tells. They leave
`link` in the transaction that queues or drops them.

Shares are divided anew when a worker comes or goes: each holds its even part, by the order of the epochs. There is no
coordinator: a worker claims free ones, and gives back what is above its part, after its fetches of them have ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from anabranch.frontier.errors import SharesLost, StoreInUse, StoreSetBack
from anabranch.frontier.policies.shares import ShareRule
from anabranch.frontier.records import GateKey
from anabranch.frontier.stores.contract import (
    Answer,
    Counters,
    JobCounts,
    JobRead,
    LinkRow,
    LinksRead,
    Opening,
    SharesHeld,
    Standing,
    WorkerFacts,
)
from anabranch.frontier.stores.sql import schema, statements
from anabranch.frontier.stores.sql.execution import Statement, execute, fetch, fetch_for, write
from anabranch.frontier.stores.sql.lanes import KnownLanes
from anabranch.frontier.stores.sql.reading import Question, job_counts
from anabranch.frontier.stores.totals import SHARES

#: Bits of the numbers that a worker gives rows and turns since it joined; the epoch is above them.
NUMBER_BITS = 30
#: How often a worker with nothing else to do looks for links, unless its identity says otherwise.
POLL_S = 0.05
#: What a fetch may take from its lease to its first byte, at most; a fifth of a short lease.
MARGIN_S = 0.5
#: How often a worker renews and looks at its part: this often in its lease's time, and at least each `look_s`.
_LOOKS_PER_LEASE = 5

_NOTHING = Counters()

T = TypeVar("T")


#: Writes rows of a worker's program in a transaction; returns what is called once that is kept.
Carry = Callable[[Connection], Callable[[], None]]


def _carry_nothing(_: Connection) -> Callable[[], None]:
    return lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """The name of a worker that joins, how long its lease lasts, and what its program adds to its transactions."""

    name: str  #: unique among the live workers of a job
    token: str  #: of its folder, kept there: a second process with the same name and token is the first one's successor
    ttl_s: float = 15.0  #: so long its shares stay its own without a renewal
    look_s: float = 1.0  #: at least so often it renews, and looks at its part of the shares
    poll_s: float = POLL_S  #: so often it looks for links when it has nothing else to do
    #: Called in each transaction that writes batches, in each try of one: of an earlier try it may not be known if it was kept.
    carry: Carry = _carry_nothing

    @property
    def lock_s(self) -> float:
        """How long it waits for locks of another worker before it looks whether that one is late."""
        return self.ttl_s / 3


class Shared(NamedTuple):
    """How a store is shared: by which rule, and who this worker is."""

    rule: ShareRule
    worker: WorkerIdentity


class _Held(NamedTuple):
    """The shares of one worker."""

    serving: frozenset[int] = frozenset()
    leaving: frozenset[int] = frozenset()


class _Change(NamedTuple):
    """A change of the shares held, for the core, and the state that it was computed from."""

    before: _Held
    shares: SharesHeld


class _Look(NamedTuple):
    """The result of `ShareWorker._look`: a change of its shares, and the counts of the job and of this worker."""

    change: _Change | None  #: None: nothing has changed
    job: JobCounts
    own: Counters  #: of this worker's row
    number: int  #: of its last batch


class ShareWorker:
    """An `Owner` of some shares. `end_session` ends the session of another worker, if the server can (PostgreSQL)."""

    def __init__(
        self,
        rule: ShareRule,
        identity: WorkerIdentity,
        session_of: Callable[[Connection], str],
        end_session: Callable[[Connection, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rule = rule
        self._identity = identity
        self._carried: Callable[[], None] | None = None  #: what the present transaction carries
        self._session_of = session_of
        self._end_session = end_session
        self._clock = clock
        self.epoch = 0
        self.lanes = KnownLanes()
        self._held = _Held()
        self._base = _NOTHING  #: rows of the shares when they were claimed
        self._handed: dict[int, int] = {}  #: links that the core has and that are not adopted: ordinal -> share
        self._checked_s = 0.0  #: when the last `check` began
        self._renewed_s = 0.0  #: when the last one began that was committed
        self._looked_s = self._polled_s = -float("inf")
        self._number = 0  #: of the last batch that was written
        self._until_s = 0.0  #: when the lease ends, as it was set last
        self._may_be_kept: set[float] = (
            set()
        )  #: the ends of the lease that its row may have: one commit may have failed
        self._is_known = False  #: the core knows what is held
        self._ends_others_s = -float("inf")  #: from then on it may end workers that are late

    @property
    def serving(self) -> frozenset[int]:
        """The shares whose gates may be taken."""
        return self._held.serving

    @property
    def idle_s(self) -> float:
        """Until it looks for links again."""
        return self._identity.poll_s

    @property
    def shares_epoch(self) -> int:
        """The epoch under which they are held."""
        return self.epoch

    @property
    def ender(self) -> int:
        """Its epoch."""
        return self.epoch

    @property
    def safe_until_s(self) -> float:
        """Until when no other worker can have taken over, less a margin, by the monotonic clock.

        The lease counts from the moment when its renewal began, for that is before the server's. A fetch begins a moment after
        its URL was leased: that is the margin.
        """
        return self._renewed_s + self._identity.ttl_s - min(MARGIN_S, self._identity.ttl_s / 5)

    def share_of(self, gate: GateKey) -> int:
        """By the name of its host or group."""
        return self._rule.of_gate(gate)

    def open(self, connection: Connection, place: str, identity: Mapping[str, str], now_s: float) -> Opening:
        """Make the tables if they are missing, and join. Raises: FormatMismatch; StoreInUse for a name that is taken."""
        facts = schema.open_shared(connection, place, {**identity, SHARES: str(self._rule)}, now_s, self._rule.shares)
        with connection.begin():
            began_s = self._clock()
            ((last,),) = fetch(connection, statements.FACT_FOR_UPDATE, ("epoch",))
            self._retire_namesake(connection, place)
            self.epoch = int(last) + 1
            write(connection, statements.PUT_FACTS, [("epoch", str(self.epoch))])
            ((server_s,),) = fetch(connection, statements.SERVER_TIME)
            name, token, ttl_s = self._identity.name, self._identity.token, self._identity.ttl_s
            execute(connection, statements.JOIN, (self.epoch, name, token, self._session_of(connection), ttl_s))
            ((self._until_s,),) = fetch(connection, statements.LEASE, (self.epoch,))
            histories = self.openings(connection)
            named = schema.identity_of(connection, dict(fetch(connection, statements.FACTS)))
        self._renewed_s, self._may_be_kept = began_s, {self._until_s}
        history = next(reversed(histories))
        del histories[history]
        prefix = self._note_name("")
        notes = {note.removeprefix(prefix): value for note, value in facts.items() if note.startswith(prefix)}
        counters = _NOTHING._replace(last_ordinal=self.epoch << NUMBER_BITS)
        return Opening(
            clean=True,
            counters=counters,
            notes=notes,
            epoch=self.epoch,
            server_s=server_s,
            identity=named,
            first_format=facts.get(schema.MADE, ""),
            history=history,
            earlier=histories,
        )

    def openings(self, connection: Connection) -> dict[str, int]:
        """Each time that a worker has joined, the last one last."""
        return {
            f"{epoch}-{joined_s!r}": int(batch) for epoch, joined_s, batch in fetch(connection, statements.JOININGS)
        }

    def check(self, connection: Connection) -> None:
        """Renew the lease. Raises: SharesLost if another worker has taken over; StoreSetBack if the row is an older one."""
        self._checked_s = self._clock()
        renewed = fetch(connection, statements.RENEW, (self._identity.ttl_s, self.epoch, self._until_s))
        if renewed:
            ((self._until_s,),) = renewed
            self._may_be_kept.add(self._until_s)
            return
        lease = fetch(connection, statements.LEASE, (self.epoch,))
        if lease == [(0.0,)]:
            raise SharesLost(
                f"worker {self._identity.name} was away for longer than its lease, and others have its shares"
            )
        raise StoreSetBack(f"the job's database lacks commits of worker {self._identity.name}: it was set back")

    def rejoin(self, connection: Connection, *, is_new: bool) -> None:
        """Go on after a failure; a worker that is late may have caused it by locks that it keeps. Raises: as `check`.

        After a new session no other worker is ended for a lease's time: if the server was away, all are late and come back.
        """
        if is_new:
            self._ends_others_s = self._clock() + self._identity.ttl_s
        for (until_s,) in fetch(connection, statements.LEASE, (self.epoch,)):
            if until_s in self._may_be_kept:  # the COMMIT that failed may have taken place
                self._until_s = until_s
        self._live(connection)
        # Not only a new one: the transaction that was to write it may have failed.
        execute(connection, statements.PUT_SESSION, (self._session_of(connection), self.epoch))

    def put_totals(self, connection: Connection, totals: Counters, number: int | None, now_s: float) -> None:  # noqa: ARG002
        """In the worker's row: what it has added to the job's totals. What its program has for the transaction goes with it."""
        self._number = number or self._number
        self._carried = self._identity.carry(connection)
        execute(connection, statements.PUT_COUNTERS, (self._number, *totals, self.epoch))

    def shown(self, totals: Counters) -> Counters:
        """With the rows that its shares had when it claimed them."""
        return _sum(totals, self._base)

    def leave_mark(self, connection: Connection, mark: str) -> None:
        """In the worker's row."""
        execute(connection, statements.PUT_MARK, (mark, self.epoch))

    def is_marked(self, connection: Connection, mark: str) -> bool:
        """It is the last one."""
        return fetch(connection, statements.MARK, (self.epoch,)) == [(mark,)]

    def note(self, connection: Connection, notes: Mapping[str, str]) -> None:
        """Among the facts of the crawl, under the worker's name."""
        write(connection, statements.PUT_FACTS, [(self._note_name(name), value) for name, value in notes.items()])

    def committed(self, adopted: Sequence[int]) -> None:
        """The lease is renewed; adopted links are gone."""
        self._renewed_s, self._may_be_kept = self._checked_s, {self._until_s}
        carried, self._carried = self._carried, None
        if carried is not None:
            carried()
        for ordinal in adopted:
            self._handed.pop(ordinal, None)

    def tasks(self, post: Callable[[list[Answer]], None]) -> list[Question]:
        """Look at the shares a few times in a lease's time; look for links when those that were read are adopted."""
        now_s, tasks = self._clock(), list[Question]()
        if now_s >= self._looked_s + min(self._identity.ttl_s / _LOOKS_PER_LEASE, self._identity.look_s):
            self._looked_s = now_s
            tasks.append(_then(self._look, self._take_look, post))
        if self._held.serving and not self._handed and now_s >= self._polled_s + self._identity.poll_s:
            self._polled_s = now_s
            tasks.append(_then(self._read_links, self._take_links, post))
        return tasks

    def release(self, shares: Iterable[int], post: Callable[[list[Answer]], None]) -> Question:
        """Give back shares that are leaving, after all that was written for them."""
        return _then(partial(self._release, sorted(shares)), self._take_change, post)

    def close(self, connection: Connection, *, clean: bool) -> None:
        """Give all shares back and leave; after an unclean end they are free when the lease ends."""
        if clean:
            execute(connection, statements.GIVE_UP_SHARES, (self.epoch,))
            execute(connection, statements.END_WORKER, (self.epoch,))

    # Inside a transaction

    def _retire_namesake(self, connection: Connection, place: str) -> None:
        """A live worker of this name and folder is this one's predecessor: its process has ended."""
        for epoch, name, token, session, is_late in fetch(connection, statements.LIVE_WORKERS):
            if name != self._identity.name:
                continue
            if token != self._identity.token and not is_late:
                raise StoreInUse(
                    f"{place}: a worker named {name} is at work from another folder; give this one another name"
                )
            self._end(connection, epoch, session, statements.END_WORKER)

    def _end(self, connection: Connection, epoch: int, session: str, statement: Statement) -> bool:
        """Take a worker's lease away, and free its shares. Its session is ended first: it may be stuck in a transaction."""
        self._end_session(connection, session)
        if not execute(connection, statement, (epoch,)):
            return False  # it has renewed meanwhile
        execute(connection, statements.FREE_SHARES, (epoch,))
        return True

    def _look(self, connection: Connection) -> _Look:
        """Renew, take over from the dead, claim or leave shares up to this worker's part, and see whether the job is done."""
        live = self._live(connection)
        part = _part(self._rule.shares, len(live), live.index(self.epoch))
        held = fetch(connection, statements.HELD_SHARES, (self.epoch,))
        serving = {share for share, is_leaving, _ in held if not is_leaving}
        leaving = {share for share, is_leaving, _ in held if is_leaving}
        while len(serving) > part:
            share = max(serving)
            serving.remove(share)
            leaving.add(share)
            execute(connection, statements.LEAVE_SHARE, (share, self.epoch))
        claimed = self._claim(connection, part - len(serving) - len(leaving)) if part > len(serving) else []
        for share in claimed:
            execute(connection, statements.FREE_HELD, (share,))
        change = self._changed(connection, _Held(frozenset(serving | {*claimed}), frozenset(leaving)))
        (own,) = fetch(connection, statements.WORKER_COUNTERS, (self.epoch,))
        return _Look(change, job_counts(connection), Counters._make(map(int, own)), self._number)

    def _live(self, connection: Connection) -> list[int]:
        """Renew the lease, and end workers that are late; the epochs of the others. Raises: as `check`."""
        self.check(connection)
        ends_others = self._clock() >= self._ends_others_s
        live: list[int] = []
        for epoch, _, _, session, is_late in fetch(connection, statements.LIVE_WORKERS):
            is_other = epoch != self.epoch and ends_others
            if not (is_other and is_late and self._end(connection, epoch, session, statements.BURY_WORKER)):
                live.append(epoch)
        return live

    def _claim(self, connection: Connection, most: int) -> list[int]:
        claimed = []
        if most > 0:
            for (share,) in fetch(connection, statements.UNHELD_SHARES, (most,)):
                if execute(connection, statements.CLAIM_SHARE, (self.epoch, share)):
                    claimed.append(share)
        return claimed

    def _changed(self, connection: Connection, held: _Held) -> _Change | None:
        before = self._held.serving | self._held.leaving
        now = held.serving | held.leaving
        if held == self._held and self._is_known:
            return None
        died = {share: died_s for share, _, died_s in fetch(connection, statements.HELD_SHARES, (self.epoch,))}
        shares = SharesHeld(
            held.serving,
            held.leaving,
            _rows_of(connection, now - before),
            _rows_of(connection, before - now),
            {share: died[share] for share in now - before},
        )
        return _Change(self._held, shares)

    def _release(self, shares: Sequence[int], connection: Connection) -> _Change | None:
        gone = {share for share in shares if execute(connection, statements.RELEASE_SHARE, (share, self.epoch))}
        return self._changed(connection, _Held(self._held.serving, self._held.leaving - gone))

    def _read_links(self, connection: Connection) -> list[LinkRow]:
        shares = [(share,) for share in sorted(self._held.serving)]
        return list(map(LinkRow._make, fetch_for(connection, statements.LINKS, shares)))

    # After its commit

    def _take_look(self, look: _Look) -> list[Answer]:
        answers = self._take_change(look.change)
        others = _sum(look.job.counters, self.shown(look.own), sign=-1)
        return [*answers, JobRead(others, look.number if look.job.is_done else None)]

    def _take_change(self, change: _Change | None) -> list[Answer]:
        if change is None:
            return []
        if change.before is not self._held:  # a release in the same transaction was applied first; look again
            self._looked_s = -float("inf")
            return []
        answer = change.shares
        self._held, self._is_known = _Held(answer.serving, answer.leaving), True
        self.lanes.forget()  # a share that comes back has been another worker's meanwhile
        self._base = _sum(self._base, answer.gained, answer.released, sign=-1)
        self._handed = {ordinal: share for ordinal, share in self._handed.items() if share in answer.serving}
        return [answer]

    def _take_links(self, links: list[LinkRow]) -> list[Answer]:
        self._handed = {link.ordinal: link.share for link in links}
        return [LinksRead(links)] if links else []

    def _note_name(self, name: str) -> str:
        return f"{schema.NOTE}{self._identity.name}:{name}"


def workers(connection: Connection) -> list[WorkerFacts]:
    """The workers that have not left, the first to join first."""
    return list(map(WorkerFacts._make, fetch(connection, statements.WORKERS)))


def end_late_workers(connection: Connection) -> None:
    """Take the leases of workers away whose time is up, in the running transaction; their shares are free then."""
    execute(connection, statements.FREE_LATE_SHARES)
    execute(connection, statements.BURY_LATE_WORKERS)


def end_all_workers(connection: Connection) -> None:
    """Take the leases of all workers away, in the running transaction; their shares are free then.

    Only a caller that holds the job's folder may do so: it knows that the processes of the workers have ended.
    """
    execute(connection, statements.FREE_LIVE_SHARES)
    execute(connection, statements.BURY_WORKERS)


def _then(
    ask: Callable[[Connection], T], take: Callable[[T], list[Answer]], post: Callable[[list[Answer]], None]
) -> Question:
    """A question of the store's own: after its commit the answer is taken, and what follows is posted to the core."""
    question = Question(ask)

    def answered(_: object) -> None:
        if question.answer.exception() is None and (answers := take(question.answer.result())):
            post(answers)

    question.answer.add_done_callback(answered)
    return question


def _part(shares: int, workers: int, rank: int) -> int:
    """The even part of the worker at this place among so many."""
    return shares // workers + (rank < shares % workers)


def _rows_of(connection: Connection, shares: Iterable[int]) -> Counters:
    """The rows of these shares, from their lanes."""
    found = fetch_for(connection, statements.ROWS_OF_SHARES, [(share,) for share in sorted(shares)])
    rows: Counter[int] = Counter()
    for standing, count, _ in found:  # SQLite answers by several statements, so a standing may come several times
        rows[standing] += int(count)
    return _NOTHING._replace(
        queued=sum(rows.values()),
        retired=rows.get(Standing.RETIRED, 0),
        paused=rows.get(Standing.PAUSED, 0),
        waiting=sum(int(waiting) for _, _, waiting in found),
    )


def _sum(one: Counters, *more: Counters, sign: int = 1) -> Counters:
    """The sums, field by field; with `sign` -1 the last one is taken away."""
    signs = [1] * len(more[:-1]) + [sign]
    return Counters._make(
        value + sum(factor * other[place] for factor, other in zip(signs, more, strict=True))
        for place, value in enumerate(one)
    )
