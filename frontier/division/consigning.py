"""New links that belong to other shares leave here: into a parcel for each owner, in the batch of the call that found them.

What is in a batch is committed before any later batch is. So a link that was put into a parcel may count as sent from that
moment on: no page can be ended durably on the strength of it before the parcel is durable, too.
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.dedup.recent import RecentKeys
from anabranch.frontier.admission import Fresh
from anabranch.frontier.division.lately import GENERATION, BesideLately
from anabranch.frontier.division.ownership import Division
from anabranch.frontier.division.parcels import packed
from anabranch.frontier.records import Candidate
from anabranch.frontier.scheduling.readylist import Outbox
from anabranch.frontier.seen import SeenFilter
from anabranch.frontier.stores.contract import Exchanged, Parcel


class Consigning:
    """Sorts out what belongs to others. Cost: 1 µs a link that is new here, and 2 µs more for one that goes elsewhere."""

    def __init__(self, division: Division, outbox: Outbox) -> None:
        self.division = division
        self._outbox = outbox
        #: What was sent elsewhere lately; forgetting it costs a link that is sent again: its owner knows it.
        self._lately = RecentKeys[bytes](GENERATION)
        self.last: dict[int, int] = {}  #: share -> number of the last parcel for it, of this run
        self.tell: Callable[[int], None] = lambda _: None  #: hears of a share for which there is a parcel

    def beside(self, own: SeenFilter) -> BesideLately:
        """The filter that new links are asked of."""
        return BesideLately(own, self._lately)

    def parted(self, fresh: Fresh) -> tuple[Fresh, Fresh]:
        """What is this share's own, and what is others'. Changes nothing."""
        division, own, others = self.division, Fresh(), Fresh()
        for candidate, host, key in zip(fresh.candidates, fresh.hosts, fresh.keys, strict=True):
            part = own if division.owner_of(host) == division.share else others
            part.candidates.append(candidate)
            part.hosts.append(host)
            part.keys.append(key)
        return own, others

    def consign(self, others: Fresh, page: str | None) -> None:
        """Put what belongs to others into parcels. `page` is the URL it was all found on."""
        parted: dict[int, list[Candidate]] = {}
        for candidate, host in zip(others.candidates, others.hosts, strict=True):
            parted.setdefault(self.division.owner_of(host), []).append(candidate)
        for owner, candidates in parted.items():
            self._put(owner, packed(page, candidates))
        self._lately.add(others.keys)

    def is_owner_of(self, url: str) -> bool:
        """The URL is this share's, or has no host and is nobody's. Cost: 1 µs."""
        return self.division.owner_of_url(url) in {self.division.share, None}

    def _put(self, owner: int, content: bytes) -> None:
        number = self._outbox.number()
        exchanged_in(self._outbox).parcels.append(Parcel(owner, number, content))
        self.last[owner] = number
        self.tell(owner)


def exchanged_in(outbox: Outbox) -> Exchanged:
    """What the batch under way says of the exchange."""
    batch = outbox.batch
    if batch.exchanged is None:
        batch.exchanged = Exchanged()
    return batch.exchanged
