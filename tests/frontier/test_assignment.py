"""Which queue a URL goes to, and which gate it passes."""

import pytest

from frontier.assignment import PolitenessScope, authority_of, gate_key, host_of, parse_policy
from frontier.errors import PolicyError
from frontier.hashes import bkdr
from frontier.models import QueueKey


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("http://A.test/x", "a.test"),
        ("https://a.test:8080", "a.test:8080"),
        ("http://me:secret@a.test/", "a.test"),
        ("http://a.test?q=b@c", "a.test"),
        ("http://a.test#b/c", "a.test"),
        ("http://a.test/?u=http://b.test/", "a.test"),
        ("http://[::1]:80/x", "[::1]:80"),
        ("mailto:me@a.test", None),
        ("/relative", None),
        ("http:///path", None),
        ("http://me@/path", None),
        ("http://:80/path", None),
        ("", None),
    ],
)
def test_the_authority_is_host_and_port_in_lower_case(url: str, authority: str | None) -> None:
    """It ends at the first slash, question mark or hash, and leaves the userinfo out."""
    assert authority_of(url) == authority


@pytest.mark.parametrize(
    ("authority", "host"),
    [
        ("a.test", "a.test"),
        ("a.test:80", "a.test"),
        ("a.test:", "a.test"),
        ("[::1]", "[::1]"),
        ("[2001:db8::8]:8080", "[2001:db8::8]"),
    ],
)
def test_a_host_has_no_port(authority: str, host: str) -> None:
    """An IPv6 literal keeps its brackets and its colons."""
    assert host_of(authority) == host


def test_policy_host_gives_one_queue_per_host_and_port() -> None:
    """The queue is the authority."""
    assign = parse_policy("host")
    assert assign(["http://a.test/1", "http://A.test:81/2", "no url"]) == ["a.test", "a.test:81", ""]


def test_policy_bkdr_names_the_queue_by_the_hash_of_the_url() -> None:
    """Queue = BKDR(URL in UTF-8) mod N, whatever the host."""
    urls = ["http://a.test/1", "http://a.test/2", "http://b.test/ö"]
    assert parse_policy("bkdr:7")(urls) == [f"bkdr:{bkdr(url.encode()) % 7}" for url in urls]
    assert parse_policy("bkdr:1")(urls) == ["bkdr:0"] * 3
    assert parse_policy("bkdr:997")([]) == []


@pytest.mark.parametrize("name", ["bkdr", "bkdr:", "bkdr:0", "bkdr:-1", "bkdr:1000001", "bkdr:x", "bkdr:²"])
def test_a_number_of_queues_that_makes_no_sense_is_refused(name: str) -> None:
    """The error names the policy and shows how it is written."""
    with pytest.raises(PolicyError, match=r"a number of queues from 1 to 1000000, as in bkdr:997"):
        parse_policy(name)


@pytest.mark.parametrize("name", ["", "hosts", "host:5", "Host", "elf"])
def test_an_unknown_policy_is_refused_with_the_known_ones(name: str) -> None:
    """The error says what there is to choose from."""
    with pytest.raises(PolicyError, match=r"is unknown; choose one of host, bkdr:N"):
        parse_policy(name)


def test_a_gate_is_a_host_unless_it_is_a_queue() -> None:
    """HOST and OFF share the gate between ports, schemes and queues; QUEUE has one per queue."""
    queue = QueueKey("bkdr:3")
    assert gate_key(PolitenessScope.HOST, queue, "a.test:81") == "a.test"
    assert gate_key(PolitenessScope.OFF, queue, "a.test") == "a.test"
    assert gate_key(PolitenessScope.QUEUE, queue, "a.test:81") == "queue:bkdr:3"
