"""Resolves hosts to addresses: by the order's [hosts] table, from an IP literal, or by DNS.

c-ares asks the name servers (through aiodns); it reads the hosts file and answers `localhost` itself. Answers are cached, and
workers share one lookup of a host. Addresses are sorted by RFC 6724, with alternating families (RFC 8305).

A name without an answer does not tell whether the servers are away or the name is. So the resolver then asks a question of its
own, for the root's name servers, or for a name that has answered before. If that fails, too, the servers are away: until they
answer again (`answers`), no question is sent, and addresses are served past their TTL (RFC 8767).
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import aiodns
import pycares

from anabranch.crawler.fetch.addresses import (
    Address,
    AddressRecord,
    Lookup,
    ResolverOptions,
    hosts_key,
    interleaved,
    ip_literal,
    parse_address,
)
from anabranch.crawler.outcomes.errors import TOO_MANY_FILES
from anabranch.crawler.outcomes.failures import NAME_SERVERS, OPEN_FILES, NameNotFound, NameTimeout, ServiceAway

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    NameFailure = type[NameNotFound] | type[NameTimeout]

#: c-ares codes that are final: no such name, or an impossible one. All others are a `NameTimeout`.
FINAL_CODES: dict[int, NameFailure] = {
    aiodns.error.ARES_ENOTFOUND: NameNotFound,
    aiodns.error.ARES_ENODATA: NameNotFound,
    aiodns.error.ARES_ENONAME: NameNotFound,
    aiodns.error.ARES_EBADNAME: NameNotFound,
}
#: c-ares codes of a question of our own that no healthy server leads to: all others are answers, if only empty ones.
_NO_ANSWER = frozenset({
    aiodns.error.ARES_ESERVFAIL,
    aiodns.error.ARES_EREFUSED,
    aiodns.error.ARES_ECONNREFUSED,
    aiodns.error.ARES_ETIMEOUT,
    aiodns.error.ARES_ECANCELLED,
    aiodns.error.ARES_EDESTRUCTION,
})  # fmt: skip

#: How long a failure is cached. A `NameTimeout` is tried again after 10 s, which must be a new lookup.
FAILURE_TTL_S: dict[NameFailure, float] = {NameNotFound: 30.0, NameTimeout: 5.0}

#: The most hosts in the cache.
MAX_HOSTS = 10_000
#: The most addresses of a host: a hostile answer has thousands, and each would be tried.
MAX_ADDRESSES = 16
#: The most lookups that wait for `take_lookup`.
MAX_UNTAKEN = 1000

#: Queries per name server; c-ares waits twice as long for the second.
TRIES = 2
#: Beyond its own time-outs c-ares is given so long.
GRACE_S = 1.0

#: The most lookups at once in a channel of their own. Each takes a thread and two sockets.
MAX_ISOLATED = 16

_DNS_PORT = 53

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    until_s: float  #: epoch seconds, good until then
    addresses: tuple[Address, ...] = ()
    records: tuple[AddressRecord, ...] = ()
    failure: NameFailure | None = None
    reason: str = ""  #: the failure's message


_BOTH_FAMILIES = ResolverOptions()


class Resolver:
    """Resolves host names; one object per crawl, used inside one event loop.

    `servers` are name servers as IP[:PORT] (none: the system's); `hosts` maps names, or `*.NAME` for all below NAME, to
    IP[:PORT] and has precedence. `clock` gives epoch seconds. A lookup takes at most 3 x `timeout_s` + 1 s, and as long again
    if it was not answered, since the resolver then asks a question of its own.

    c-ares closes the socket that received a malformed answer, and so fails all lookups under way. So each of them is repeated
    in its own channel, `MAX_ISOLATED` at a time. Raises: ValueError if a server or an address of the table is not IP[:PORT].
    """

    def __init__(
        self,
        servers: Sequence[str],
        hosts: Mapping[str, str],
        *,
        clock: Callable[[], float],
        timeout_s: float = 3.0,
        options: ResolverOptions = _BOTH_FAMILIES,
    ) -> None:
        self._servers = [_server(text) for text in servers]
        self._hosts = {hosts_key(name): (parse_address(text),) for name, text in hosts.items()}
        self._has_wildcards = any(name.startswith("*.") for name in self._hosts)
        self._clock = clock
        self._timeout_s = timeout_s
        self._options = options
        self._untaken: OrderedDict[str, Lookup] = OrderedDict()
        self._cache: OrderedDict[str, _Answer] = OrderedDict()
        self._lookups: dict[str, asyncio.Task[_Answer | ServiceAway]] = {}
        self._ares: aiodns.DNSResolver | None = None
        self._isolated = asyncio.Semaphore(MAX_ISOLATED)
        self._channels: set[aiodns.DNSResolver] = set()  # open ones
        self._closed = False
        self._asking: asyncio.Task[bool] | None = None  #: our own question, while it is under way
        self._answered = ""  #: the last name that had an address
        self.is_away = False  #: the name servers do not answer
        self.lookups = 0  #: that name servers were asked for
        self.failures = 0  #: of these, without an address
        self.cache_hits = 0  #: hosts whose answer was cached

    async def resolve(self, host: str) -> tuple[Address, ...]:
        """The host's addresses, at least one, best first, with alternating families. Raises: NameNotFound, NameTimeout.

        Cost: O(1) if cached; else one lookup, shared with all callers. A caller's cancellation does not cancel it for others.
        """
        host = host.lower()
        literal = ip_literal(host)
        fixed = self._fixed(host) or (literal and (literal,))
        if fixed:
            wanted = tuple(filter(self._options.wants, fixed))
            if not wanted:
                off = "IPv4" if fixed[0].family == socket.AF_INET else "IPv6"
                raise NameNotFound(f"no address for {host}: {off} is switched off")
            return wanted
        answer = self._cached(host)
        if answer is not None:
            self.cache_hits += 1
        else:
            answer = (None if self.is_away else await self._shared_answer(host)) or self._stale(host)
        if answer is None:
            raise ServiceAway(NAME_SERVERS, "they do not answer")
        if answer.failure is not None:
            raise answer.failure(answer.reason)
        return answer.addresses

    @property
    def has_answered(self) -> bool:
        """The name servers have answered in this run."""
        return bool(self._answered)

    def has_address(self, host: str) -> bool:
        """Whether the host's address is known without a name server, by the table or by an answer, if only a stale one."""
        host = host.lower()
        return bool(self._fixed(host) or ip_literal(host) or self._cached(host) or self._stale(host))

    async def answers(self) -> bool:
        """Ask the name servers a question of our own; False: they are away. Costs up to 3 x `timeout_s` + 1 s."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_own(), name="dns probe")
        return await asyncio.shield(self._asking)

    def known_address(self, host: str) -> str | None:
        """A cached address of the host, expired or not, always the same of several; None without one. Asks no server. O(1)."""
        host = host.lower()
        if fixed := self._fixed(host):
            return fixed[0].host
        if literal := ip_literal(host):
            return literal.host
        answer = self._cache.get(host)
        return None if answer is None else min((address.host for address in answer.addresses), default=None)

    def _fixed(self, host: str) -> tuple[Address] | None:
        """The entry of the [hosts] table: for the name, else for the longest wildcard. O(labels)."""
        host = hosts_key(host)
        fixed = self._hosts.get(host)
        if fixed is not None or not self._has_wildcards:
            return fixed
        while (dot := host.find(".")) >= 0:
            host = host[dot + 1 :]
            if (fixed := self._hosts.get(f"*.{host}")) is not None:
                return fixed
        return None

    def take_lookup(self, host: str) -> Lookup | None:
        """Remove and return the last DNS lookup of the host, to log and archive it; None if it was taken or dropped. O(1)."""
        return self._untaken.pop(host.lower(), None)

    async def close(self) -> None:
        """End all lookups (their callers get `NameTimeout`) and wait for their tasks."""
        self._closed = True
        for channel in list(self._channels):
            await channel.close()
        await asyncio.gather(*self._lookups.values(), *filter(None, [self._asking]))

    async def _shared_answer(self, host: str) -> _Answer | None:
        """The answer that all callers share; None if the name servers are away. Raises: ServiceAway of something else."""
        if (task := self._lookups.get(host)) is None:
            task = self._lookups[host] = asyncio.create_task(self._look_up(host), name=f"dns {host}")
        found = await asyncio.shield(task)
        if isinstance(found, ServiceAway):
            if found.service != NAME_SERVERS:
                raise ServiceAway(*found.args)  # an error of its own for each caller
            return None
        return found

    def _stale(self, host: str) -> _Answer | None:
        """The host's addresses past their TTL, within `max_stale_s`."""
        answer = self._cache.get(host)
        is_usable = (
            answer is not None and answer.addresses and self._clock() < answer.until_s + self._options.max_stale_s
        )
        return answer if is_usable else None

    async def _ask_own(self) -> bool:
        """Ask for the root's name servers, and for the last name that had an address: not every server answers the first."""
        questions = [(".", "NS"), *([(self._answered, "A")] if self._answered else [])]
        try:
            answers = any(await asyncio.gather(*(self._is_answered(*question) for question in questions)))
            self.is_away = not answers
            return answers
        finally:
            self._asking = None

    async def _is_answered(self, name: str, kind: str) -> bool:
        """Whether a server answers this question: anything but SERVFAIL and REFUSED. Uses a channel of its own."""
        channel: aiodns.DNSResolver | None = None
        try:
            channel = self._new_channel()
            async with asyncio.timeout(3 * self._timeout_s + GRACE_S):
                await channel.query_dns(name, kind)
        except aiodns.error.DNSError as error:
            return error.args[0] not in _NO_ANSWER
        except (TimeoutError, pycares.AresError):
            return False
        finally:
            if channel is not None:
                self._channels.discard(channel)
                await channel.close()
        return True

    def _cached(self, host: str) -> _Answer | None:
        answer = self._cache.get(host)
        if answer is None or self._clock() >= answer.until_s:
            return None
        self._cache.move_to_end(host)
        return answer

    async def _look_up(self, host: str) -> _Answer | ServiceAway:
        """Look up and cache, unless a service is away. Never raises, since all its callers may have been cancelled."""
        try:
            start_s = self._clock()
            answer = await self._ask_servers(host)
            if isinstance(answer, ServiceAway):
                return answer
            if answer.addresses:
                self._answered = host
            self.lookups += 1
            self.failures += answer.failure is not None
            _store(self._cache, host, answer, MAX_HOSTS)
            made = Lookup(host=host, start_s=start_s, end_s=self._clock(), records=answer.records, reason=answer.reason)
            _store(self._untaken, host, made, MAX_UNTAKEN)
            return answer
        finally:
            del self._lookups[host]

    async def _ask_servers(self, host: str) -> _Answer | ServiceAway:
        if self._closed:
            return self._failed(host, NameTimeout, "the resolver is closed")
        try:
            if self._ares is None:
                self._ares = self._new_channel()
            try:
                found = await self._query(self._ares, host)
            except aiodns.error.DNSError as error:
                if error.args[0] != aiodns.error.ARES_EBADRESP or self._closed:
                    raise
                found = await self._query_isolated(host)
        except aiodns.error.DNSError as error:
            return await self._failure_of(host, *error.args)
        except (TimeoutError, pycares.AresError) as error:  # no channel could be made: no descriptors, no memory
            return await self._unanswered(host, str(error) or "no answer in time")
        except UnicodeError:
            return self._failed(host, NameNotFound, "not a host name")
        if not found.nodes:
            return self._failed(host, NameNotFound, "an answer without addresses")
        return self._found(found)

    async def _failure_of(self, host: str, code: int, message: str) -> _Answer | ServiceAway:
        """Map an error code of c-ares to a failure. A malformed answer is an answer, so the servers are there."""
        failure = FINAL_CODES.get(code, NameTimeout)
        if failure is NameTimeout and code != aiodns.error.ARES_EBADRESP:
            return await self._unanswered(host, message)
        return self._failed(host, failure, message)

    async def _unanswered(self, host: str, reason: str) -> _Answer | ServiceAway:
        """Find out what failed: this machine, the name servers, or the name alone."""
        if not self._closed:
            if lacks_files():
                return ServiceAway(OPEN_FILES, "no socket for a name server")
            if not await self.answers():
                return ServiceAway(NAME_SERVERS, reason)
        return self._failed(host, NameTimeout, reason)

    async def _query(self, channel: aiodns.DNSResolver, host: str) -> pycares.AddrInfoResult:
        """Raises: DNSError, AresError, TimeoutError, UnicodeError."""
        async with asyncio.timeout(3 * self._timeout_s + GRACE_S):
            return await channel.getaddrinfo(host, family=self._options.family)

    async def _query_isolated(self, host: str) -> pycares.AddrInfoResult:
        """Look up through sockets of its own. Raises: as `_query`."""
        async with self._isolated:
            if self._closed:
                raise TimeoutError
            channel = self._new_channel()
            try:
                return await self._query(channel, host)
            finally:
                self._channels.discard(channel)
                await channel.close()

    def _new_channel(self) -> aiodns.DNSResolver:
        # A crawled name is fully qualified: the system's search domains must not be appended.
        channel = aiodns.DNSResolver(
            nameservers=self._servers, timeout=self._timeout_s, tries=TRIES, flags=pycares.ARES_FLAG_NOSEARCH
        )
        self._channels.add(channel)
        return channel

    def _found(self, found: pycares.AddrInfoResult) -> _Answer:
        texts = ((node.addr[0], node.ttl) for node in found.nodes)
        ttls = {
            parse_address(text.decode("ascii") if isinstance(text, bytes) else text).host: ttl_s
            for text, ttl_s in texts
        }
        ttl_s = min([*ttls.values(), *(name.ttl for name in found.cnames)])
        addresses = interleaved(map(parse_address, ttls))[:MAX_ADDRESSES]
        kinds = {socket.AF_INET: "A", socket.AF_INET6: "AAAA"}
        return _Answer(
            until_s=self._clock() + min(max(ttl_s, self._options.min_ttl_s), self._options.max_ttl_s),
            addresses=addresses,
            records=tuple(AddressRecord(kinds[one.family], one.host, ttls[one.host]) for one in addresses),
        )

    def _failed(self, host: str, failure: NameFailure, reason: str) -> _Answer:
        return _Answer(
            until_s=self._clock() + FAILURE_TTL_S[failure], failure=failure, reason=f"no address for {host}: {reason}"
        )


def lacks_files() -> bool:
    """Whether this process or this machine has no descriptor left for one more socket."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError as error:
        return error.errno in TOO_MANY_FILES
    return False


def _store(table: OrderedDict[str, Value], host: str, value: Value, most: int) -> None:
    table[host] = value
    table.move_to_end(host)
    if len(table) > most:
        table.popitem(last=False)


def _server(text: str) -> str:
    address = parse_address(text)
    host = f"[{address.host}]" if address.family == socket.AF_INET6 else address.host
    return f"{host}:{address.port or _DNS_PORT}"
