"""SURT forms and the prefixes that operators write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.surt import SurtPrefix, host_of_surt_key, parse_surt, surt_host, surt_key

LABELS = st.text("abcxyz0189-", min_size=1, max_size=8)
ODD_LABELS = st.text("ab1-,%", min_size=1, max_size=6)  # the URL standard allows them; they are in no registry
ODD_HOSTS = st.lists(ODD_LABELS, min_size=1, max_size=4).map(".".join)
HOSTS = st.lists(LABELS, min_size=1, max_size=5).map(".".join) | st.sampled_from(["192.0.2.1", "[2001:db8::1]"])


def test_a_queue_key_has_no_scheme_and_its_port_behind_a_hash() -> None:
    """The keys of Heritrix's default policy."""
    names = ["www.example.com", "www.example.com:8080", "192.0.2.1:81", "[::1]", "[::1]:8080"]
    assert [surt_key(name) for name in names] == [
        "com,example,www,",
        "com,example,www,#8080",
        "192.0.2.1#81",
        "[::1]",
        "[::1]#8080",
    ]


@given(HOSTS | ODD_HOSTS, st.sampled_from(["", ":81"]))
def test_a_queue_key_tells_its_host(host: str, port: str) -> None:
    """Turning round twice gives the host again, so no two hosts have one key."""
    assert host_of_surt_key(surt_key(host + port)) == host


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("http://(com,example,", SurtPrefix("example.com", True)),
        ("https://(com,example,", SurtPrefix("example.com", True)),
        ("com,example,", SurtPrefix("example.com", True)),
        ("com,", SurtPrefix("com", True)),
        ("  COM,Example, ", SurtPrefix("example.com", True)),
        ("http://(", SurtPrefix("", True)),
        ("(com,example,www,)", SurtPrefix("www.example.com", False)),
        ("http://(com,example,www,)/", SurtPrefix("www.example.com", False, None, "/")),
        ("(com,example,www,)/Path", SurtPrefix("www.example.com", False, None, "/Path")),
        ("com,example,)/a,b", SurtPrefix("example.com", False, None, "/a,b")),
        ("http://(com,example,:8080)/", SurtPrefix("example.com", False, 8080, "/")),
        ("http://(com,example,:80)", SurtPrefix("example.com", False)),
        ("https://(com,example,:443)", SurtPrefix("example.com", False)),
        ("https://(com,example,:80)", SurtPrefix("example.com", False, 80)),
        ("http://(com,example,:8080", SurtPrefix("example.com", False, 8080)),
        ("http://(com,example,@me)", SurtPrefix("example.com", False)),
        ("http://(192.0.2.1)/x", SurtPrefix("192.0.2.1", False, None, "/x")),
        ("http://(192.0.2.1", SurtPrefix("192.0.2.1", False)),
        ("http://([::1]:81)/", SurtPrefix("[::1]", False, 81, "/")),
        ("example.com", SurtPrefix("example.com", True)),
        ("http://example.com", SurtPrefix("example.com", True)),
        ("example.com:8080", SurtPrefix("example.com", False, 8080)),
        ("192.0.2.1", SurtPrefix("192.0.2.1", False)),
        ("localhost", SurtPrefix("localhost", True)),
        ("http://Example.com/", SurtPrefix("example.com", False, None, "/")),
        ("http://example.com/a/b.htm?c=/d", SurtPrefix("example.com", False, None, "/a/")),
        ("https://example.com:8443/A/", SurtPrefix("example.com", False, 8443, "/A/")),
    ],
)
def test_operators_write_prefixes_in_several_ways(text: str, prefix: SurtPrefix) -> None:
    """One parser reads Heritrix's form, with and without its beginning, and plain hosts and URLs."""
    assert parse_surt(text) == prefix


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty or has blanks"),
        (" ", "it is empty or has blanks"),
        ("com,example, www,", "it is empty or has blanks"),
        ("com,example", "each label ends with a comma, as in com,example,"),
        ("http://(com,example)/", "each label ends with a comma"),
        ("http://(www.example.com)/", "a label has a dot in it; the labels are turned round, as in com,example,"),
        ("com,www.example,", "a label has a dot in it"),
        ("com,,www,", "a label is empty"),
        (",", "a label is empty"),
        ("a..test", "a label is empty"),
        ("com,example,/path", "it is not of the form"),
        ("http://(com,example,)path", "it is not of the form http://.com,example,:8080./path"),
        ("http://(com,(example,", "it is not of the form"),
        ("http://()", "it has no host"),
        ("http://(:80", "it has no host"),
        ("http://([::1", "it is not of the form"),
        ("http:///path", "it has no host"),
        ("http://(com,example,:x)/", "the port is no number"),
        ("公司.cn", "write international names as URLs have them, with xn--"),
        ("cn,公司,", "with xn--"),
    ],
)
def test_a_prefix_that_makes_no_sense_is_refused(text: str, reason: str) -> None:
    """The error shows what was written and says what is wrong."""
    with pytest.raises(PolicyError, match=reason) as refused:
        parse_surt(text)
    assert repr(text.strip()) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_long_prefix_is_not_shown_whole() -> None:
    """The line stays a line."""
    with pytest.raises(PolicyError) as refused:
        parse_surt("x," * 10_000 + "y")
    assert len(str(refused.value)) < 300


@given(HOSTS, st.booleans(), st.none() | st.integers(1, 65535), st.sampled_from(["", "/", "/a/B?c", "/ä"]))
def test_a_prefix_is_read_as_it_is_written(host: str, is_alone: bool, port: int | None, path: str) -> None:
    """What a prefix prints as is a prefix in Heritrix's form."""
    wide = not is_alone and port is None and not path and parse_surt(host).with_subdomains
    prefix = SurtPrefix(host, wide, None if port == 80 else port, path)
    assert parse_surt(str(prefix)) == prefix


@given(ODD_HOSTS)
def test_a_comma_inside_a_label_is_escaped(host: str) -> None:
    """And what is printed is read again."""
    assert parse_surt(str(SurtPrefix(host, False, 81, "/"))) == SurtPrefix(host, False, 81, "/")


def test_a_host_with_a_comma_is_named_by_its_url_or_its_surt() -> None:
    """By itself it is taken for something in SURT form, and the refusal says how it is written."""
    assert parse_surt("http://(test,a%2Cb,)") == parse_surt("http://(TEST,A%2cB,)") == SurtPrefix("a,b.test", False)
    assert parse_surt("http://a,b.test/") == SurtPrefix("a,b.test", False, None, "/")
    with pytest.raises(PolicyError, match="a comma inside a label is written %2C"):
        parse_surt("a,b.test,")


def test_whole_hosts_are_told_from_parts_of_them() -> None:
    """A port or a path is a part."""
    texts = ["http://(", "a.test", "http://a.test/", "(test,a,)", "a.test:81", "http://a.test/b/"]
    assert [parse_surt(text).covers_hosts for text in texts] == [True] * 4 + [False] * 2


def test_the_empty_host_is_turned_round_to_nothing() -> None:
    """So that the prefix of everything prints as it is written."""
    assert surt_host("") == ""
    assert str(parse_surt("http://(")) == "http://("
