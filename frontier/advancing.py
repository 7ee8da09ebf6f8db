"""Queued URLs to the front of their queues: what `Candidate.front` says, said again of a URL that is queued already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.frontier.fingerprints import name_id
from anabranch.frontier.models import Candidate, Row, UrlState
from anabranch.frontier.parts import Parts
from anabranch.frontier.policies.precedence import in_front
from anabranch.frontier.stores.base import FrontierStore
from anabranch.frontier.stores.messages import Moved


class Advancing:
    """Two calls, since a store is asked for the rows: `rows(...)()` in any thread, then `advance`."""

    def __init__(self, store: FrontierStore, parts: Parts) -> None:
        self._store = store
        self._parts = parts

    def rows(self, candidates: Sequence[Candidate]) -> Callable[[], list[Row]]:
        """A question (blocks; any thread): the rows of those of these that are queued. Errors: StoreUnavailable.

        Costs a few seeks each. One whose key was queued for another host's URL costs a scan of all that is queued.
        """
        places = [(one, self._parts.intake.assign(one.url)) for one in candidates]
        lanes = [(one, (name_id(place[0]), name_id(place[1]))) for one, place in places if place is not None]
        return lambda: [row for one, lane in lanes if (row := self._queued(one, lane)) is not None]

    def advance(self, rows: Sequence[Row]) -> None:
        """Let these be served before the others of their lanes, among those in front in the order of acceptance.

        What is leased, or in front, stays as it is. None of them may have been leased and ended since it was found: the
        caller knows what it has leased meanwhile.
        """
        parts = self._parts
        parts.books.drain()
        leased = parts.leases.ordinals()
        for row in {row.ordinal: row for row in rows}.values():
            front = row._replace(precedence=in_front(row.precedence))
            if row.ordinal in leased or front.precedence >= row.precedence:
                continue
            parts.outbox.batch.moved.append(Moved(row, front))
            line = parts.schedule.window.get(row.gate)
            lane = None if line is None else line.lanes.get(row.queue)
            if lane is not None:
                parts.schedule.row_stored(lane, front)
        parts.books.say()

    def _queued(self, candidate: Candidate, lane: tuple[int, int]) -> Row | None:
        found = self._store.look_up(candidate.dedup_key(), lane)
        if found is None or found.state is not UrlState.QUEUED:
            return None
        stands = Row(
            found.queue, found.gate, found.precedence, found.ordinal, found.url, candidate.key, "", 0, 0, None, None
        )
        return stands._replace(hops=found.hops or "", via=found.via, attempts=found.attempts, payload=found.payload)
