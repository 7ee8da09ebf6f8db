"""The ledger of a test server: every request with its times, and the questions that tests ask of it.

It never asks a clock: the server gives the times, so a test can write a ledger by hand. A request's
start is when its head was read; its end is the moment before its last bytes are sent. So what the
client sees as one request after the other never looks like two at once here, and a measured rest is
never shorter than what the client kept. How many at once and how long apart is the product's account
(`crawler/lab/web/ledger.py`), which judges the lab's crawls, too.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from anabranch.crawler.lab.web.ledger import HostAccount, PolitenessRule

#: The status of a request whose client went away before its answer was sent (nginx has the same number).
CLIENT_GONE = 499
#: The status of a request that was meant to get no (whole) answer.
NO_ANSWER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One request that has ended."""

    #: Epoch seconds at which the request's head was read.
    start_s: float
    #: Epoch seconds just before the last bytes of the answer were sent, or when the connection ended.
    end_s: float
    host: str
    #: The raw request target: path and query, byte for byte.
    path: str
    status: int

    @property
    def url(self) -> str:
        """The URL that was requested."""
        return f"http://{self.host}{self.path}"


@dataclass(frozen=True, slots=True)
class _Arrival:
    start_s: float
    host: str
    path: str


class Ledger:
    """Every request of a server. `write` gets each visit as it ends. Questions cost O(visits)."""

    def __init__(self, write: Callable[[Visit], None] | None = None) -> None:
        self._write = write
        self._open: dict[int, _Arrival] = {}
        self._visits: list[Visit] = []
        self._asked: Counter[str] = Counter()
        self._tickets = 0

    def begin(self, host: str, path: str, now_s: float) -> int:
        """Note an arrival; the ticket is for `end`. Cost: O(1)."""
        self._tickets += 1
        self._asked[f"http://{host}{path}"] += 1
        self._open[self._tickets] = _Arrival(now_s, host, path)
        return self._tickets

    def end(self, ticket: int, status: int, now_s: float) -> None:
        """Note how a request ended; only the first call for a ticket counts. Cost: O(1)."""
        arrival = self._open.pop(ticket, None)
        if arrival is not None:
            self._add(Visit(start_s=arrival.start_s, end_s=now_s, host=arrival.host, path=arrival.path, status=status))

    def _add(self, visit: Visit) -> None:
        self._visits.append(visit)
        if self._write is not None:
            self._write(visit)

    @property
    def visits(self) -> tuple[Visit, ...]:
        """The requests that have ended, in the order of their starts."""
        return tuple(sorted(self._visits, key=lambda visit: visit.start_s))

    @property
    def in_service(self) -> int:
        """Requests that have not ended yet."""
        return len(self._open)

    def count(self, url: str) -> int:
        """How often the URL was asked for, requests in service included."""
        return self._asked[url]

    def counts(self) -> Counter[str]:
        """URL -> how often it was asked for, requests in service included."""
        return Counter(self._asked)

    def statuses(self, url: str) -> list[int]:
        """The statuses that the URL's requests got, in the order of their starts."""
        return [visit.status for visit in self.visits if visit.url == url]

    def answered(self, status: int = 200) -> set[str]:
        """The URLs that were answered with the status at least once."""
        return {visit.url for visit in self._visits if visit.status == status}

    def max_in_service(self, host: str | None = None) -> int:
        """The most requests that one host (None: any one host) had in service at once."""
        return max((account.most for account in self._accounts(host).values()), default=0)

    def shortest_gap(self, host: str) -> float:
        """The least seconds between two starts on the host; infinite with fewer than two."""
        account = self._accounts(host).get(host)
        gap_s = None if account is None else account.shortest_start_gap_s
        return inf if gap_s is None else gap_s

    def shortest_rest(self, host: str) -> float:
        """The least seconds from a request's end to the next start on the host; minus infinity: they overlapped."""
        account = self._accounts(host).get(host)
        if account is not None and account.too_many:
            return -inf
        rest_s = None if account is None else account.shortest_gap_s
        return inf if rest_s is None else rest_s

    def _accounts(self, host: str | None) -> dict[str, HostAccount]:
        """Account for the requests of the host (None: each), by the rule of one request at once."""
        accounts: dict[str, HostAccount] = {}
        starts = [(start.start_s, 1, start.start_s, start.host) for start in self._starts(host)]
        ended = [visit for visit in self._visits if host in (None, visit.host)]
        # At one moment an end comes before another's start, but not before its own.
        ends = [(each.end_s, 0 if each.end_s > each.start_s else 2, each.start_s, each.host) for each in ended]
        for now_s, kind, start_s, name in sorted(starts + ends):
            account = accounts.setdefault(name, HostAccount(name, PolitenessRule(), None))
            if kind == 1:
                account.begin(now_s)
            else:
                account.end(start_s, now_s, 0)
        return accounts

    def hits_after(self, time_s: float) -> int:
        """How many requests started after the time: 0 once a crawl has ended."""
        return sum(start.start_s > time_s for start in self._starts(None))

    def _starts(self, host: str | None) -> Iterable[_Arrival | Visit]:
        starts: list[_Arrival | Visit] = [*self._visits, *self._open.values()]
        return [start for start in starts if host in (None, start.host)]

    @classmethod
    def read(cls, path: Path) -> "Ledger":
        """A ledger from the file that `line_writer` fills; a torn last line is left out."""
        ledger = cls()
        for line in path.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                visit = Visit(**json.loads(line))
                ledger._asked[visit.url] += 1
                ledger._add(visit)
        return ledger


def line_writer(path: Path) -> Callable[[Visit], None]:
    """A `write` for a Ledger: one JSON object a line, in the hands of the system when the call returns.

    The file is opened for each line, so it may be moved away or removed while the server runs.
    """

    def write(visit: Visit) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(visit)) + "\n")

    return write
