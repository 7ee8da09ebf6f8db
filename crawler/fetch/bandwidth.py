"""Caps of bandwidth: token buckets of the job and of each host, in bytes as they are read from sockets.

    meter = bandwidth.meter(host)        if there is a cap at all
    await meter.admit()                  before a fetch begins: waits for the tokens of its first bytes
    connection.use(meter)                counts what it reads, and reads on when there are tokens again
    meter.end()                          what was not used goes back

A bucket serves those who wait in their order, one portion at a time, and never before it is paid up: so in any time no more
comes than the rate allows, one portion for each connection apart. `meter.waited_s` is the time for which the cap held a fetch
up: it is no time of the fetch. A cap of several workers has no clock of its own: what the job's rows grant is put into it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial

#: A portion is what comes in so much time, within these bounds.
_PORTION_S = 0.02
_LEAST_PORTION, _MOST_PORTION = 4096, 64 * 1024
#: Tokens that are kept while nobody reads: those of so much time.
_KEPT_S = 0.05
#: Hosts whose buckets are kept. One that waits, or is not paid up, is never dropped.
MAX_HOSTS = 10_000


class Bucket:
    """Tokens, one a byte, that come at a rate. All calls O(1). Used in one event loop."""

    def __init__(self, rate: float) -> None:
        """`rate` in bytes a second."""
        self.rate = rate
        self.portion = int(min(max(rate * _PORTION_S, _LEAST_PORTION), _MOST_PORTION))
        self._loop = asyncio.get_running_loop()
        self._tokens = 0.0  #: below 0: it is not paid up
        self._filled_s = self._loop.time()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Nobody waits, and it is paid up."""
        self._fill()
        return not self._waiting and self._tokens >= 0

    def ask(self, tokens: int, then: Callable[[], None]) -> None:
        """Call `then`, perhaps at once, when it is one's turn and the bucket is paid up."""
        self._waiting.append((tokens, then))
        self.serve()

    def give_back(self, tokens: int) -> None:
        """Tokens were not used; fewer than 0: more were."""
        self._tokens += tokens
        self.serve()

    def serve(self) -> None:
        """Serve those who wait, as far as it is paid up."""
        self._fill()
        while self._waiting and self._tokens >= 0:
            tokens, then = self._waiting.popleft()
            self._tokens -= tokens
            then()
        if self._waiting and self._timer is None:
            self._wait()

    def _fill(self) -> None:
        now_s = self._loop.time()
        self._tokens = min(self._tokens + self.rate * (now_s - self._filled_s), max(self.rate * _KEPT_S, self._tokens))
        self._filled_s = now_s

    def _wait(self) -> None:
        self._timer = self._loop.call_later(-self._tokens / self.rate, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.serve()


class GrantedBucket(Bucket):
    """A bucket that is filled by `grant` alone: its job has several workers, which share the rate."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self._used = 0.0  #: tokens since the last look

    def ask(self, tokens: int, then: Callable[[], None]) -> None:
        """Ask like `Bucket.ask`; what is asked for counts for the next grant."""
        self._used += tokens
        super().ask(tokens, then)

    def wanted(self) -> int:
        """The tokens that are to be granted now: those that are owed, and what was asked for since the last look."""
        wanted, self._used = max(-self._tokens, 0.0) + self._used + sum(one for one, _ in self._waiting), 0.0
        return int(wanted)

    def grant(self, tokens: int) -> None:
        """Tokens have come."""
        self._tokens += tokens
        self.serve()

    def _fill(self) -> None:
        """Do nothing: no tokens come by themselves."""

    def _wait(self) -> None:
        """Do nothing: the next grant serves."""


class Bandwidth:
    """The caps of one run. Built inside a running loop."""

    def __init__(self, rate: int = 0, host_rate: int = 0, *, is_shared: bool = False) -> None:
        """Bytes a second of the whole job, and of each host; 0: no cap. `is_shared`: several workers share the first."""
        self.granted = GrantedBucket(rate) if rate and is_shared else None
        self._job: Bucket | None = self.granted or (Bucket(rate) if rate else None)
        self._host_rate = host_rate
        self._hosts: OrderedDict[str, Bucket] = OrderedDict()

    @property
    def is_capped(self) -> bool:
        """Whether there is any cap."""
        return self._job is not None or self._host_rate > 0

    def meter(self, host: str) -> Meter:
        """The meter of a fetch from this host. There must be a cap."""
        buckets = [self._bucket_of(host)] if self._host_rate else []
        return Meter([*buckets, self._job] if self._job is not None else buckets)

    def _bucket_of(self, host: str) -> Bucket:
        bucket = self._hosts.get(host)
        if bucket is None:
            bucket = self._hosts[host] = Bucket(self._host_rate)
        self._hosts.move_to_end(host)
        while len(self._hosts) > MAX_HOSTS:
            name, oldest = self._hosts.popitem(last=False)
            if not oldest.is_idle:
                self._hosts[name] = oldest
                break
        return bucket


class Meter:
    """The bytes that one fetch may read. It waits for its portion of each bucket: of its host's, then of the job's."""

    def __init__(self, buckets: list[Bucket]) -> None:
        self.waited_s = 0.0  #: since the fetch began
        self.portion = min(bucket.portion for bucket in buckets)
        self._buckets = buckets
        self._left = 0  #: bytes that may be read; below 0: more were
        self._is_over = False
        self._loop = asyncio.get_running_loop()

    async def admit(self) -> None:
        """Wait for the first portion: the fetch has not begun."""
        served = self._loop.create_future()
        self._ask(self.portion, lambda: None if served.done() else served.set_result(None))
        try:
            await served
        except BaseException:
            self.end()
            raise

    def read(self, size: int) -> bool:
        """Count bytes; False: no more may be read before `more`."""
        self._left -= size
        return self._left > 0

    def more(self, then: Callable[[], None]) -> None:
        """Call `then` when another portion may be read. The time until then is not the fetch's."""
        start_s = self._loop.time()

        def served() -> None:
            self.waited_s += self._loop.time() - start_s
            then()

        self._ask(self.portion - self._left, served)

    def end(self) -> None:
        """The fetch has ended: what was not used goes back, what it owes stays owed."""
        self._is_over = True
        left, self._left = self._left, 0
        for bucket in self._buckets:
            bucket.give_back(left)

    def _ask(self, tokens: int, then: Callable[[], None], place: int = 0) -> None:
        self._buckets[place].ask(tokens, partial(self._take, tokens, then, place))

    def _take(self, tokens: int, then: Callable[[], None], place: int) -> None:
        """A bucket has served: go to the next one, or to who waits. After the end it is given back."""
        if self._is_over:
            for bucket in self._buckets[: place + 1]:
                bucket.give_back(tokens)
        elif place + 1 < len(self._buckets):
            self._ask(tokens, then, place + 1)
        else:
            self._left += tokens
            then()
