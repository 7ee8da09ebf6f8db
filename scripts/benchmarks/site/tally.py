"""The requests to a server of the benchmark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_PAGES = b"/pages/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The requests between two counts."""

    requests: int = 0
    pages: int = 0  #: different ones of the site
    others: int = 0  #: requests for other paths
    repeated: int = 0  #: requests for a page beyond its first
    first_s: float = 0.0  #: epoch seconds of the first request for a page
    last_s: float = 0.0  #: and of the last one
    tenths_s: Sequence[float] = ()  #: when no page, a tenth of them, … and all had been requested

    def fault(self, pages: int, *, may_repeat: bool = False) -> str:
        """The error if this was not a whole crawl of so many pages; empty if each was fetched, and fetched once."""
        if self.pages == pages and (may_repeat or not self.repeated):
            return ""
        return f"{self.pages:,} of {pages:,} pages were fetched, {self.repeated:,} times one more than once"

    @property
    def took_s(self) -> float:
        """From the first request to the last."""
        return self.last_s - self.first_s


@dataclass(slots=True)
class Counting:
    """Counts requests by path. Cost: a fraction of a microsecond per request."""

    _times: dict[bytes, int] = field(default_factory=dict)
    _first_s: float = 0.0
    _last_s: float = 0.0
    _pages_s: list[float] = field(default_factory=list)  #: the first request for each page, in order

    def add(self, path: bytes, now_s: float) -> None:
        """Count a request."""
        times = self._times[path] = self._times.get(path, 0) + 1
        if times == 1 and path.startswith(_PAGES):
            self._pages_s.append(now_s)
        self._last_s = now_s
        if not self._first_s:
            self._first_s = now_s

    def take(self) -> Tally:
        """The requests since the last call."""
        pages = {path: times for path, times in self._times.items() if path.startswith(_PAGES)}
        requests, known = sum(self._times.values()), sum(pages.values())
        tally = Tally(
            requests=requests,
            pages=len(pages),
            others=requests - known,
            repeated=known - len(pages),
            first_s=self._first_s,
            last_s=self._last_s,
            tenths_s=tuple(self._pages_s[(len(pages) - 1) * tenths // 10] for tenths in range(11) if pages),
        )
        self._times, self._pages_s, self._first_s, self._last_s = {}, [], 0.0, 0.0
        return tally
