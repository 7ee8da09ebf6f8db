import asyncio

import aiodns
import pytest
from dns.message import make_query
from dns.rcode import NOERROR, NXDOMAIN, SERVFAIL
from dns.rdatatype import AAAA, MX, A, RdataType

from tests.site.dns_server import DnsServer

TABLE = {"both.test": ("10.0.0.1", "10.0.0.2", "::1"), "four.test": ("10.0.0.4",)}


def ask(server: DnsServer, name: str, kind: RdataType = A) -> tuple[int, list[str]]:
    answer = server.answer(make_query(name, kind))
    assert answer is not None
    return answer.rcode(), [item.to_text() for rrset in answer.answer for item in rrset]


def test_addresses_are_answered_by_family() -> None:
    """A gets the IPv4 addresses, AAAA the IPv6 ones, whatever the case of the name."""
    server = DnsServer(TABLE)
    assert ask(server, "both.test") == (NOERROR, ["10.0.0.1", "10.0.0.2"])
    assert ask(server, "BOTH.test", AAAA) == (NOERROR, ["::1"])


def test_a_known_name_without_such_an_address_gets_an_empty_answer() -> None:
    """No data is not the same as no such name."""
    server = DnsServer(TABLE)
    assert ask(server, "four.test", AAAA) == (NOERROR, [])
    assert ask(server, "four.test", MX) == (NOERROR, [])


def test_unknown_names_do_not_exist() -> None:
    """NXDOMAIN, until the name is added."""
    server = DnsServer(TABLE)
    assert ask(server, "gone.test") == (NXDOMAIN, [])
    server.table["gone.test"] = ("10.0.0.9",)
    assert ask(server, "gone.test") == (NOERROR, ["10.0.0.9"])


def test_silent_and_broken_names_fail_in_their_own_way() -> None:
    """Silence is no answer at all; broken is SERVFAIL; both are counted as asked."""
    server = DnsServer(TABLE, silent=["four.test"], broken=["both.test"])
    assert server.answer(make_query("four.test", A)) is None
    assert ask(server, "both.test") == (SERVFAIL, [])
    assert server.questions == {("four.test", "A"): 1, ("both.test", "A"): 1}


async def test_a_real_resolver_gets_the_answers(dns_server: DnsServer) -> None:
    """The library aiodns asks over UDP; the time to live is the server's."""
    dns_server.ttl_s = 7
    resolver = aiodns.DNSResolver(nameservers=[dns_server.address], timeout=2, tries=1)
    try:
        found = await resolver.query_dns("www.alpha.test", "A")
        with pytest.raises(aiodns.error.DNSError) as missing:
            await resolver.query_dns("gone.test", "A")
    finally:
        await resolver.close()
    assert [(getattr(record.data, "addr", None), record.ttl) for record in found.answer] == [("127.0.0.1", 7)]
    assert missing.value.args[0] == aiodns.error.ARES_ENOTFOUND
    assert dns_server.questions["www.alpha.test", "A"] == 1


async def test_what_is_no_question_is_dropped(dns_server: DnsServer) -> None:
    """Noise gets no answer and does not stop the server."""
    dns_server.datagram_received(b"noise", ("127.0.0.1", 9))
    await asyncio.sleep(0)
    assert not dns_server.questions
