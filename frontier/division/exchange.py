"""The face of a share towards the others: what it has for them, what it gets from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from anabranch.frontier.division.consigning import Consigning, exchanged_in
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.division.parcels import Consigned, unpacked
from anabranch.frontier.parts import Parts
from anabranch.frontier.stores.contract import FrontierStore, Parcel

#: Parcels that are read at a time, some 128 KB each.
PARCELS_AT_ONCE = 4


class LinkExchange:
    """Parcels out and in. `waiting` and `under_way` block, in any thread; the rest is for the core's, and does not wait."""

    def __init__(self, consigning: Consigning, store: FrontierStore, parts: Parts) -> None:
        self.division: Division = consigning.division
        self._consigning = consigning
        self._store = store
        self._store_link = parts.store_link
        self._admission = parts.admission
        self._outbox = parts.outbox

    def on_parcel(self, tell: Callable[[int], None]) -> None:
        """From now on `tell` hears of a share as often as there is a parcel more for it."""
        self._consigning.tell = tell

    @property
    def last(self) -> Mapping[int, int]:
        """The number of the last parcel for each share that this run has put."""
        return self._consigning.last

    def waiting(self, share: int, after: int, limit: int) -> list[Parcel]:
        """What a share is to get, by number, behind one: durable, and so is all that led to it (blocks, any thread)."""
        return self._store.parcels(share, after, limit)

    def under_way(self) -> Iterator[tuple[int, Consigned]]:
        """All that waits for other shares, and for which (blocks, any thread): durable, and so is all that led to it."""
        for share in range(self.division.shares):
            after = 0
            while parcels := self.waiting(share, after, PARCELS_AT_ONCE):
                for parcel in parcels:
                    yield from ((share, consigned) for consigned in unpacked(parcel.content))
                after = parcels[-1].number

    def delivered(self, share: int, number: int) -> None:
        """The share has all parcels up to this one, durably: they are taken away."""
        exchanged_in(self._outbox).delivered.append((share, number))
        self._store_link.drain()
        self._store_link.send()

    def receive(self, consigned: Iterable[Consigned]) -> bool:
        """Take what another share has sent; False while the store is behind: nothing was taken, send it again later.

        It is durable when the call's number is (`Frontier.sent`, `durable`); only then may the other share be notified.
        """
        self._store_link.drain()
        if self._store_link.unacknowledged.is_full:
            return False
        for page, candidates in consigned:
            number = self._outbox.number()
            new = self._outbox.batch.new
            before = len(new)
            self._admission.accept(candidates, -number, page)
            if page is not None and len(new) > before:
                exchanged_in(self._outbox).pages.append((number, page))
        self._store_link.send()
        return True


def exchange_of(store: FrontierStore, parts: Parts) -> LinkExchange | None:
    """The exchange of a Frontier that is a share; None for one that is all of its crawl."""
    elsewhere = parts.admission.elsewhere
    return LinkExchange(elsewhere, store, parts) if isinstance(elsewhere, Consigning) else None
