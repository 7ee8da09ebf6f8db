"""Whose a URL is: host and port."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.policies.authority import (
    KEPT,
    Authority,
    address_of,
    authority,
    authority_of,
    host_of,
    is_address,
    path_of,
)

HOSTS = st.sampled_from(
    ["a.test", "A.Test.", "[::1]", "127.0.0.1", "", ".", "me:pw@a.test", "a:b", "ö.test", "x" * 400]
)
REST = st.text("/?#@:.ab", max_size=12)


@pytest.mark.parametrize(
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
    assert authority_of(url) == name


@pytest.mark.parametrize(
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


@given(st.sampled_from(["http://", "https://", "HTTP://", "ftp://", "", "x:"]), HOSTS, REST)
def test_an_answer_that_was_kept_is_the_answer(scheme: str, host: str, rest: str) -> None:
    """What is asked for again, or through another page of the host, is answered as if it were asked for the first time."""
    url = f"{scheme}{host}{rest}"
    assert authority(url) == authority(url) == authority.__globals__["_parsed"](url)


def test_answers_are_kept_up_to_a_number() -> None:
    """A crawl of very many hosts, or of hosts as long as pages, does not fill the memory."""
    kept = authority.__globals__["_kept"]
    kept.cache_clear()
    for number in range(KEPT + 100):
        assert authority_of(f"http://host{number}.test/") == f"host{number}.test"
    assert kept.cache_info().currsize == KEPT
    kept.cache_clear()
    assert authority_of(f"http://{'x' * 10_000}/") == "x" * 10_000
    assert kept.cache_info().currsize == 0


@pytest.mark.parametrize(
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
