"""Scope: which URLs belong to the crawl."""

import pytest

from crawler.scope.ruling import HOST, PREFIX, Scope


def scope(kind: str, *seeds: str, max_hops: int = 20) -> Scope:
    made = Scope(kind, max_hops)
    for seed in seeds:
        made.add_seed(seed)
    return made


@pytest.mark.parametrize(
    ("url", "is_in"),
    [
        ("http://a.test/", True),
        ("http://a.test/x?y", True),
        ("https://a.test/", True),
        ("http://a.test:81/", False),
        ("http://www.a.test/", False),
        ("http://a.test.b.test/", False),
        ("http://b.test/a.test", False),
        ("https://c.test:8443/x", True),
        ("http://c.test:8443/x", True),
        ("https://c.test/x", False),
        ("http://[::1]/", True),
    ],
)
def test_host_scope_is_the_seeds_hosts_and_ports(url: str, is_in: bool) -> None:
    """host[:port] decides, the scheme does not."""
    hosts = scope(HOST, "http://a.test/deep/page", "https://c.test:8443/", "http://[::1]/x")
    assert hosts.accepts(url, "") is is_in


@pytest.mark.parametrize(
    ("url", "is_in"),
    [
        ("http://a.test/x/", True),
        ("http://a.test/x/page", True),
        ("http://a.test/x/y/z?q", True),
        ("http://a.test/x", False),
        ("http://a.test/xy/", False),
        ("http://a.test/", False),
        ("http://a.test/?/x/", False),
        ("https://a.test/x/page", False),
        ("http://a.test:81/x/", False),
        ("http://b.test/anything", True),
        ("http://b.test.c.test/", False),
        ("https://c.test/d/", True),
        ("https://c.test/e", False),
    ],
)
def test_prefix_scope_is_the_seeds_folders(url: str, is_in: bool) -> None:
    """A seed's URL up to the last slash of its path; slashes of its query do not count."""
    folders = scope(PREFIX, "http://a.test/x/page", "http://b.test/", "https://c.test/d/?next=/e/f")
    assert folders.accepts(url, "") is is_in


def test_a_longer_prefix_does_not_narrow_a_shorter_one() -> None:
    """Each seed opens its own place, in any order."""
    for seeds in (("http://a.test/x/", "http://a.test/x/y/z/"), ("http://a.test/x/y/z/", "http://a.test/x/")):
        both = scope(PREFIX, *seeds, "http://b.test/")
        assert both.accepts("http://a.test/x/q", "")
    assert scope(PREFIX, "http://a.test/x/y/z/", "http://b.test/").accepts("http://a.test/x/y/z/q", "")


@pytest.mark.parametrize("kind", [HOST, PREFIX])
def test_hops_are_limited(kind: str) -> None:
    """A URL may be as many hops away as the limit says, of whatever kind; a seed has none."""
    limited = scope(kind, "http://a.test/", max_hops=2)
    assert [limited.accepts("http://a.test/x", hops) for hops in ("", "L", "RE", "LLL")] == [True, True, True, False]
    assert [scope(kind, "http://a.test/", max_hops=0).accepts("http://a.test/", hops) for hops in ("", "L")] == [
        True,
        False,
    ]


@pytest.mark.parametrize("kind", [HOST, PREFIX])
def test_nothing_is_in_before_a_seed_is_there(kind: str) -> None:
    """No seeds, no scope; adding one opens it at once, twice is as once."""
    empty = scope(kind)
    assert not empty.accepts("http://a.test/", "")
    for _ in range(2):
        empty.add_seed("http://a.test/")
        assert empty.accepts("http://a.test/", "")


def test_an_unknown_kind_is_refused() -> None:
    """The message names the kind and the choices."""
    with pytest.raises(ValueError, match="scope 'domain' is not known; choose one of host, prefix"):
        Scope("domain", 1)
