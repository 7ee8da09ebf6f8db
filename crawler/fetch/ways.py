"""The ways to hosts: this machine's network, and each proxy. What has answered through a way tells whether it is away.

A fetch that failed may be the host's trouble or the way's. The way's are those in which hosts that have answered lately, the
*witnesses*, are silent now, too (`reach` looks). Fetches that fail at the same time share one look.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from anabranch.crawler.fetch.reach import has_route, is_anybody_there, proxy_fault, tunnel_fault
from anabranch.crawler.outcomes.failures import NETWORK, FetchError, ServiceAway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from anabranch.crawler.fetch.dns import Resolver
    from anabranch.crawler.fetch.proxy import Proxy
    from anabranch.crawler.fetch.reach import Place

#: Witnesses of a way.
WITNESSES: Final = 4
#: Statuses that a proxy may have given in the host's place.
OF_PROXIES = frozenset({502, 503, 504})


class Witnesses:
    """The places that have answered last through one way, the latest last."""

    def __init__(self) -> None:
        self.places: OrderedDict[Place, None] = OrderedDict()
        self.answered_s = 0.0  #: when something has answered last

    def note(self, place: Place | None, now_s: float) -> None:
        """Note that a place has answered; None: one that cannot be asked later."""
        self.answered_s = now_s
        if place is not None and next(reversed(self.places), None) != place:
            self.places[place] = None
            self.places.move_to_end(place)
            if len(self.places) > WITNESSES:
                self.places.popitem(last=False)


class SharedLook:
    """A look at a way that all share who ask while it is under way."""

    def __init__(self, look: Callable[[], Awaitable[str]]) -> None:
        """`look` answers why the way is away; empty if it is not."""
        self._look = look
        self._under_way: asyncio.Task[str] | None = None

    async def fault(self) -> str:
        """Why the way is away now. A look that began before the question and found nothing is followed by another."""
        if self._under_way is not None and (fault := await asyncio.shield(self._under_way)):
            return fault
        if self._under_way is None:
            self._under_way = asyncio.ensure_future(self._look())
            self._under_way.add_done_callback(self._done)
        return await asyncio.shield(self._under_way)

    async def close(self) -> None:
        """Cancel the look under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait([self._under_way])

    def _done(self, _: asyncio.Task[str]) -> None:
        self._under_way = None


class NetworkWay:
    """The network of this machine, for fetches without a proxy."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._witnesses = Witnesses()
        self._silence = SharedLook(self._look_for_answers)

    def note_answer(self, place: Place | None, now_s: float) -> None:
        """Note that an address has answered; None: a host did, through a proxy."""
        self._witnesses.note(place, now_s)

    async def works(self) -> bool:
        """Whether it has a route, and an address or name server that has answered does so again."""
        if not has_route(self._witnesses.places):
            return False
        return not self._has_any(self._witnesses.places) or not await self._silence.fault()

    async def away(self, error: Exception, start_s: float, *, is_silent: bool) -> ServiceAway | None:
        """The network's fault in a fetch that began at `start_s` and failed by `error`; None if it was the host's.

        `is_silent`: no answer came, or there was no way to the host.
        """
        if not has_route(self._witnesses.places):
            return ServiceAway(NETWORK, "this machine has no route to anywhere")
        # A host alone may be silent, or have no way to it. If others answered meanwhile, it is the host.
        if not is_silent or self._witnesses.answered_s >= start_s:
            return None
        others = [place for place in self._witnesses.places if place[0] not in str(error)]
        fault = await self._silence.fault() if self._has_any(others) else ""
        return ServiceAway(NETWORK, fault) if fault else None

    async def close(self) -> None:
        """Cancel the look under way."""
        await self._silence.close()

    def _has_any(self, places: Collection[Place]) -> bool:
        """Whether there is anything to ask: one of these places, or name servers."""
        return bool(places) or self._resolver.has_answered

    async def _look_for_answers(self) -> str:
        places = list(self._witnesses.places)
        if places and await is_anybody_there(places):
            return ""
        if self._resolver.has_answered and await self._resolver.answers():
            return ""
        return "neither hosts nor name servers that have answered before answer now"


class ProxyWay:
    """One proxy."""

    def __init__(self, proxy: Proxy, resolver: Resolver, *, verify: bool) -> None:
        """`verify`: the certificate of a proxy behind TLS is verified."""
        self._proxy = proxy
        self._resolver = resolver
        self._verify = verify
        self._witnesses = Witnesses()  # hosts
        self._doubted: Place | None = None  #: it may reach nothing, though it can be reached: the host that failed
        self._looks = SharedLook(self._look)
        self.has_worked = False  #: an answer has come through it in this run
        self.is_away = False  #: it was, when it was used or looked at last

    def note_answer(self, place: Place, status: int, now_s: float) -> None:
        """Note that a host has answered, or the proxy in its place."""
        self.has_worked, self.is_away = True, False
        if status not in OF_PROXIES:
            self._witnesses.note(place, now_s)
            self._doubted = None

    def note_away(self) -> None:
        """Note that it could not be used."""
        self.is_away = True

    async def fault(self) -> str:
        """Why it cannot be used now: it cannot be reached, or it reaches nothing; empty if it can be used."""
        fault = await self._looks.fault()
        self.is_away = bool(fault)
        return fault

    async def away(self, place: Place, start_s: float) -> ServiceAway | None:
        """The proxy's fault in a fetch from this host that began at `start_s` and failed; None if it was the host's."""
        if self._witnesses.answered_s < start_s and self._doubted is None:  # else it leads somewhere
            self._doubted = place
        fault = await self.fault()
        if fault:
            return self._proxy.away(fault)
        self._doubted = None
        return None

    async def close(self) -> None:
        """Cancel the look under way."""
        await self._looks.close()

    async def _look(self) -> str:
        if self._resolver.is_away:
            await self._resolver.answers()
        try:
            fault = await proxy_fault(self._proxy, self._resolver.resolve, verify=self._verify)
            if not fault:
                return "" if self._doubted is None else await self._leads_nowhere(self._doubted)
        except FetchError as error:
            fault = str(error)
        return f"it cannot be reached: {fault}"

    async def _leads_nowhere(self, failed: Place) -> str:
        """Why it leads nowhere, not even to its witnesses; empty if it leads somewhere. Raises: FetchError of its name."""
        known = [place for place in self._witnesses.places if place[0] != failed[0]]
        looks = [
            tunnel_fault(self._proxy, self._resolver.resolve, place, verify=self._verify, is_known=bool(known))
            for place in known or [failed]
        ]
        faults = await asyncio.gather(*looks)
        return faults[0] if all(faults) else ""
