"""The host and port of a URL, and SURT prefixes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import PolicyError
from anabranch.frontier.policies.hosts import (
    KEPT,
    Authority,
    SurtPrefix,
    address_of,
    authority,
    domain_of,
    host_of,
    host_of_surt_key,
    is_address,
    parse_surt,
    path_of,
    surt_host,
    surt_key,
)
from tests.rows import each_row

SOME_HOSTS = st.sampled_from(
    ["a.test", "A.Test.", "[::1]", "127.0.0.1", "", ".", "me:pw@a.test", "a:b", "ö.test", "x" * 400]
)
REST = st.text("/?#@:.ab", max_size=12)


def name_of(url: str) -> str | None:
    """host[:port] of a URL, if it has a host."""
    found = authority(url)
    return None if found is None else found.name


@each_row(
    ("url", "name"),
    [
        ("http://A.test/x", "a.test"),
        ("https://a.test:8080", "a.test:8080"),
        ("http://me:secret@a.test/", "a.test"),
        ("http://a.test?q=b@c", "a.test"),
        ("http://a.test#b/c", "a.test"),
        ("http://a.test/?u=http://b.test/", "a.test"),
        ("http://a.test?u=http://b.test/", "a.test"),
        ("http://[::1]:81/x", "[::1]:81"),
        ("HTTP://a.test/", "a.test"),
        ("gopher://a.test/", "a.test"),
        ("svn+ssh://a.test:22/x", "a.test:22"),
        ("mailto:me@a.test", None),
        ("/relative", None),
        ("/relative?u=http://a.test/", None),
        ("http:///path", None),
        ("http:///a/path", None),
        ("http://me@/path", None),
        ("http://:80/path", None),
        ("http://./path", None),
        ("http://a.test:port/", None),
        ("http://a.test:123456/", None),
        ("http://[::1/", None),
        ("http://", None),
        ("", None),
    ],
)
def test_the_authority_is_host_and_port_in_lower_case(url: str, name: str | None) -> None:
    """It ends at the first slash, question mark or hash, leaves the userinfo out, and is none where there is no host."""
    assert name_of(url) == name


@each_row(
    ("url", "expected"),
    [
        ("http://a.test.:8080/", Authority("a.test:8080", "a.test")),
        ("http://a.test../", Authority("a.test.", "a.test.")),
        ("http://a.test:80/", Authority("a.test", "a.test")),
        ("https://a.test:0443/", Authority("a.test", "a.test")),
        ("https://a.test:80/", Authority("a.test:80", "a.test")),
        ("ftp://a.test:21/", Authority("a.test", "a.test")),
        ("http://a.test:/", Authority("a.test", "a.test")),
        ("http://[::1]:0081/", Authority("[::1]:81", "[::1]")),
    ],
)
def test_what_makes_no_difference_is_left_out(url: str, expected: Authority) -> None:
    """One dot at the end of the host, zeros before the port, and the port that the scheme means anyway."""
    assert authority(url) == expected


@given(st.sampled_from(["http://", "https://", "HTTP://", "ftp://", "", "x:"]), SOME_HOSTS, REST)
def test_an_answer_that_was_kept_is_the_answer(scheme: str, host: str, rest: str) -> None:
    """A cached answer equals the first one, also for another page of the host."""
    url = f"{scheme}{host}{rest}"
    assert authority(url) == authority(url) == authority.__globals__["_parsed"](url)


def test_answers_are_kept_up_to_a_number() -> None:
    """A crawl of very many hosts, or of hosts as long as pages, does not fill the memory."""
    kept = authority.__globals__["_kept"]
    kept.cache_clear()
    for number in range(KEPT + 100):
        assert name_of(f"http://host{number}.test/") == f"host{number}.test"
    assert kept.cache_info().currsize == KEPT
    kept.cache_clear()
    assert name_of(f"http://{'x' * 10_000}/") == "x" * 10_000
    assert kept.cache_info().currsize == 0


@each_row(
    ("name", "host"),
    [
        ("a.test", "a.test"),
        ("a.test:80", "a.test"),
        ("a.test:", "a.test"),
        ("[::1]", "[::1]"),
        ("[2001:db8::8]:8080", "[2001:db8::8]"),
    ],
)
def test_a_host_has_no_port(name: str, host: str) -> None:
    """An IPv6 literal keeps its brackets and its colons."""
    assert host_of(name) == host


def test_addresses_are_told_from_names() -> None:
    """Four numbers, or brackets; a name may be of digits too."""
    assert [is_address(host) for host in ("127.0.0.1", "[::1]", "1.2.3", "1.2.3.4.test", "4.test")] == [True, True] + [
        False
    ] * 3


def test_the_address_of_an_address_is_not_asked_for() -> None:
    """It is itself, without brackets, so that a host's name and its address meet."""
    known = {"a.test": "::1"}
    assert [address_of(host, known.get) for host in ("a.test", "b.test", "[::1]", "192.0.2.1")] == [
        "::1",
        None,
        "::1",
        "192.0.2.1",
    ]


def test_the_path_begins_with_a_slash_and_has_the_query() -> None:
    """The fragment is no part of it."""
    urls = ["http://a.test/b/c?d=/e#f", "http://a.test?d", "http://a.test", "http://me@a.test:81/#x"]
    assert [path_of(url) for url in urls] == ["/b/c?d=/e", "/?d", "/", "/"]


@each_row(
    ("host", "domain"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("example.com", "example.com"),
        ("one.name.github.io", "name.github.io"),
        ("www.city.kawasaki.jp", "city.kawasaki.jp"),
        ("a.b.unlisted", "b.unlisted"),
        ("co.uk", None),
        ("localhost", None),
        ("192.0.2.1", None),
        ("[::1]", None),
        ("", None),
        ("a..b", None),
    ],
)
def test_a_domain_is_the_public_suffix_and_one_label(host: str, domain: str | None) -> None:
    """Private suffixes count; addresses and suffixes have none."""
    assert domain_of(host) == domain


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


@each_row(
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


@each_row(
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
    """The text of a prefix is a prefix in Heritrix's form."""
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
