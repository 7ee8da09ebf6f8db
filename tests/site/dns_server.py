"""A small name server on loopback for tests of the resolver: it answers from a table and counts questions."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from dns.exception import DNSException
from dns.flags import AA, RA
from dns.message import Message, from_wire, make_response
from dns.rcode import NXDOMAIN, SERVFAIL
from dns.rdatatype import RdataType
from dns.rrset import from_text

_TYPE_OF_VERSION = {4: RdataType.A, 6: RdataType.AAAA}


class DnsServer(asyncio.DatagramProtocol):
    """A UDP name server on 127.0.0.1: A and AAAA from `table`, NXDOMAIN for all other names.

    `table` maps a lower-case name to its addresses, of both families. A name in `silent` gets no answer
    at all (a time-out at the client), a name in `broken` gets SERVFAIL. All three may be changed while
    the server runs. A known name without an address of the asked type gets an empty answer.
    """

    def __init__(
        self,
        table: Mapping[str, Sequence[str]],
        *,
        silent: Collection[str] = (),
        broken: Collection[str] = (),
        ttl_s: int = 60,
    ) -> None:
        self.table = dict(table)
        self.silent = set(silent)
        self.broken = set(broken)
        self.ttl_s = ttl_s
        #: (name, "A" or "AAAA" …) -> how often it was asked.
        self.questions: Counter[tuple[str, str]] = Counter()
        self._transport: asyncio.DatagramTransport | None = None
        self._closed = asyncio.Event()

    @property
    def address(self) -> str:
        """The server's address as `[dns] servers` takes it: "127.0.0.1:PORT"."""
        assert self._transport is not None, "enter the server first"
        host, port = self._transport.get_extra_info("sockname")
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            self._transport.close()
            await self._closed.wait()

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Keep the socket (asyncio calls this)."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed (asyncio calls this)."""
        self._closed.set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one question (asyncio calls this); what is no DNS message is dropped."""
        try:
            question = from_wire(data)
        except DNSException:
            return
        answer = self.answer(question)
        if answer is not None and self._transport is not None:
            self._transport.sendto(answer.to_wire(), addr)

    def answer(self, question: Message) -> Message | None:
        """The answer to a question; None = silence."""
        asked = question.question[0]
        name = asked.name.to_text(omit_final_dot=True).lower()
        self.questions[name, RdataType.to_text(asked.rdtype)] += 1
        if name in self.silent:
            return None
        answer = make_response(question)
        answer.flags |= AA | RA
        if name in self.broken:
            answer.set_rcode(SERVFAIL)
        elif name not in self.table:
            answer.set_rcode(NXDOMAIN)
        elif fitting := [text for text in self.table[name] if _rdata_type(text) == asked.rdtype]:
            answer.answer.append(from_text(asked.name, self.ttl_s, "IN", asked.rdtype, *fitting))
        return answer


def _rdata_type(address: str) -> RdataType:
    return _TYPE_OF_VERSION[ipaddress.ip_address(address).version]
