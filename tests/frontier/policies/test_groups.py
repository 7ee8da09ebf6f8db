"""The second gate: groups of hosts."""

from collections.abc import Callable, Mapping

import pytest

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.groups import is_group, parse_group
from tests.rows import each_row


def test_without_a_rule_there_are_no_groups() -> None:
    """Nothing need be asked then."""
    assert parse_group(None) is None


def test_hosts_at_one_address_share_a_gate() -> None:
    """Until the address is known a host has its own gate alone; an address in the URL is known."""
    known = {"a.test": "192.0.2.1"}
    group_of = parse_group("ip", ip_of=known.get)
    assert group_of is not None
    hosts = ("a.test", "192.0.2.1", "b.test", "[::1]")
    assert [group_of(host) for host in hosts] == ["ip:192.0.2.1", "ip:192.0.2.1", None, "ip:::1"]
    known["b.test"] = "192.0.2.1"
    assert group_of("b.test") == "ip:192.0.2.1"


def test_hosts_of_one_domain_share_a_gate() -> None:
    """A host without a registrable domain has its own gate alone."""
    group_of = parse_group("domain")
    assert group_of is not None
    hosts = ("www.example.co.uk", "example.co.uk", "localhost", "192.0.2.1")
    assert [group_of(host) for host in hosts] == ["domain:example.co.uk", "domain:example.co.uk", None, None]


def test_a_table_names_sets_of_hosts() -> None:
    """By SURT prefix, the longest first; several prefixes may have one name."""
    group_of = parse_group({"com,example,": "hoster", "other.test": "hoster", "http://(com,example,www,)": "own"})
    assert group_of is not None
    hosts = ("a.example.com", "x.other.test", "www.example.com", "example.org")
    assert [group_of(host) for host in hosts] == ["group:hoster", "group:hoster", "group:own", None]


def test_a_function_of_ones_own_names_the_group() -> None:
    """Given by the embedder, or by its name in the order."""

    def by_letter(host: str) -> str | None:
        return None if host == "c.test" else host[0]

    for group_of in (parse_group(by_letter), parse_group("my.own:group", imported=lambda name: by_letter)):
        assert group_of is not None
        assert [group_of(host) for host in ("a.test", "c.test")] == ["group:a", None]


def test_a_group_is_never_a_host() -> None:
    """Even a group that is called like a host has a gate of its own."""
    group_of = parse_group(lambda host: host)
    assert group_of is not None
    assert group_of("a.test") == "group:a.test"


def test_the_key_of_a_groups_gate_tells_that_it_is_one() -> None:
    """Hosts, and the gates of queues, have none of its beginnings."""
    assert all(map(is_group, ["ip:192.0.2.1", "domain:d.test", "group:portals"]))
    assert not any(map(is_group, ["a.test", "ip.test", "queue:domain:3", "[2001:db8::1]"]))


@each_row(
    ("rule", "words"),
    [
        ("", "group  is unknown; choose one of ip, domain, package.module:function, or give a table"),
        ("hosts", "group hosts is unknown; choose one of ip, domain"),
        ("ip", "group ip needs the hosts' addresses; pass `ip_of`"),
        ("my.own:group", "group my.own:group: functions cannot be imported here; pass `imported`"),
        ({"http://a.test/x/": "name"}, "group name: http://a.test/x/ does not cover a whole host"),
        ({"a.test:81": "name"}, "group name: a.test:81 does not cover a whole host"),
        ({"a.test": ""}, "group of a.test gave 0 characters"),
        ({"com,example": "name"}, "each label ends with a comma"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: str | Mapping[str, str], words: str) -> None:
    """The error names it and says what is wrong or lacking."""
    with pytest.raises(PolicyError, match=words):
        parse_group(rule)


@pytest.mark.parametrize(
    ("answer", "words"), [(5, "gave int"), ("", "gave 0 characters"), (ZeroDivisionError("no"), "failed: ZeroDiv")]
)
def test_a_function_that_fails_is_named_with_the_host(answer: object, words: str) -> None:
    """Whatever it raises, and whatever it answers that is no name."""

    def group(host: str) -> str | None:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    group_of = parse_group("my.own:group", imported=lambda name: group)
    assert group_of is not None
    with pytest.raises(PolicyError, match=f"^group my.own:group for a.test {words}"):
        group_of("a.test")


async def late(host: str) -> str:
    return host


@pytest.mark.parametrize(("rule", "words"), [(late, "late is async"), (lambda: "", "cannot be called with")])
def test_a_function_that_is_given_itself_is_checked_like_one_that_is_named(
    rule: Callable[..., str], words: str
) -> None:
    """An embedder's: it would fail for every host."""
    with pytest.raises(PolicyError, match=rf"^group .*{words}"):
        parse_group(rule)
