"""Places: what a seed opens, by the kind of scope."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.scope.seeds import SEED_SCOPES, SeedScope, SurtSet
from anabranch.frontier.policies.hosts import SurtPrefix, authority, parse_surt, path_of
from tests.rows import each_row
from tests.site.hostile.addresses import addresses


def places(kind: str, *seeds: str) -> SeedScope:
    made = SEED_SCOPES[kind]()
    for seed in seeds:
        made.add(seed)
    return made


@each_row(
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
    hosts = places("host", "http://a.test/deep/page", "https://c.test:8443/", "http://[::1]/x")
    assert hosts.holds(url) is is_in


@each_row(
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
    folders = places("prefix", "http://a.test/x/page", "http://b.test/", "https://c.test/d/?next=/e/f")
    assert folders.holds(url) is is_in


def test_a_longer_prefix_does_not_narrow_a_shorter_one() -> None:
    """Each seed opens its own place, in any order."""
    for seeds in (("http://a.test/x/", "http://a.test/x/y/z/"), ("http://a.test/x/y/z/", "http://a.test/x/")):
        both = places("prefix", *seeds, "http://b.test/")
        assert both.holds("http://a.test/x/q")
    assert places("prefix", "http://a.test/x/y/z/", "http://b.test/").holds("http://a.test/x/y/z/q")


@each_row(
    ("url", "is_in"),
    [
        ("http://a.test/", True),
        ("https://b.a.test:81/x", True),
        ("http://xa.test/", False),
        ("http://shop.example.co.uk/", True),
        ("http://other.co.uk/", False),
        ("http://me.github.io/", True),
        ("http://you.github.io/", False),
        ("http://127.0.0.1:81/", True),
        ("http://0.0.1/", False),
        ("http://[::1]/", True),
        ("http://localhost/x", True),
        ("http://x.localhost/", False),
    ],
)
def test_domain_scope_is_the_seeds_registrable_domains(url: str, is_in: bool) -> None:
    """By the public suffix list, private suffixes too; an address or a name without one is a host alone."""
    seeds = (
        "http://www.a.test/x",
        "http://example.co.uk/",
        "http://me.github.io/",
        "http://127.0.0.1/",
        "http://[::1]:81/",
    )
    assert places("domain", *seeds, "http://localhost:8080/").holds(url) is is_in


@each_row(
    ("url", "is_in"),
    [
        ("http://a.test/x/", True),
        ("https://a.test/x/y?z", True),
        ("https://a.test:8443/x/y", True),
        ("http://a.test/x", False),
        ("http://www.a.test/x/", False),
        ("http://b.test:81/", True),
        ("https://b.test:81/z", True),
        ("http://b.test/", False),
        ("http://c.test/z", True),
    ],
)
def test_surt_scope_is_what_the_seeds_cover_as_surt_prefixes(url: str, is_in: bool) -> None:
    """The folder, whatever the scheme; slashes of a seed's query do not count; a port counts if it is written."""
    seeds = ("http://a.test/x/page?next=/d/e", "http://b.test:81/", "https://c.test/")
    assert places("surt", *seeds).holds(url) is is_in


def test_page_scope_is_the_seeds_alone() -> None:
    """Not even their folders."""
    pages = places("page", "http://a.test/", "http://b.test/x?y")
    urls = ("http://a.test/", "http://b.test/x?y", "http://b.test/x", "http://a.test/z")
    assert [pages.holds(url) for url in urls] == [True, True, False, False]


def test_any_scope_is_the_whole_web() -> None:
    """Whatever the seeds."""
    assert places("any").holds("http://a.test/")


@each_row("kind", sorted(set(SEED_SCOPES) - {"any"}))
def test_nothing_is_in_before_a_seed_is_there(kind: str) -> None:
    """No seeds, no scope; adding one opens it at once, twice is as once."""
    empty = places(kind)
    assert not empty.holds("http://a.test/")
    for _ in range(2):
        empty.add("http://a.test/")
        assert empty.holds("http://a.test/")


@pytest.mark.parametrize("kind", SEED_SCOPES)
def test_every_address_that_a_site_can_make_up_opens_its_place(kind: str) -> None:
    """The target of a seed's redirect is a seed, and no operator wrote it: nothing is refused, and it lies in its own place."""
    for url in addresses():
        assert places(kind, url).holds(url) or (kind == "surt" and url.startswith(("http://./", "http://.:"))), url


def surts(*prefixes: str) -> SurtSet:
    made = SurtSet()
    for prefix in prefixes:
        made.add(parse_surt(prefix))
    return made


def covers(prefix: SurtPrefix, url: str) -> bool:
    """One prefix, one URL, by the words of `frontier.policies.surt`."""
    found = authority(url)
    assert found is not None
    is_host = found.host == prefix.host or (
        prefix.with_subdomains and (not prefix.host or found.host.endswith(f".{prefix.host}"))
    )
    port = int(found.name[len(found.host) + 1 :] or 0) or None
    return is_host and prefix.port in {None, port} and path_of(url).startswith(prefix.path or "/")


HOSTS = ["a.test", "b.a.test", "[::1]"]
PATHS = ["/", "/a", "/a/", "/a/b", "/a/b/", "/admin", "/blog", "/a?b", "/a0"]
PREFIXES = st.builds(
    SurtPrefix,
    host=st.sampled_from(HOSTS),
    with_subdomains=st.just(False),
    port=st.sampled_from([None, 81, 82]),
    path=st.sampled_from(["", *PATHS]),
) | st.builds(
    SurtPrefix, host=st.sampled_from(["a.test", "b.a.test", "xa.test", "test", ""]), with_subdomains=st.just(True)
)
URLS = st.builds(
    "http://{}{}{}".format,
    st.sampled_from(HOSTS),
    st.sampled_from(["", ":81", ":83"]),
    st.sampled_from([*PATHS, "/a/b/c"]),
)


@given(st.lists(PREFIXES, max_size=12), URLS)
def test_a_url_is_covered_if_one_prefix_covers_it(prefixes: list[SurtPrefix], url: str) -> None:
    """Whatever the prefixes and the order they come in; what is answered is one of them, or shorter."""
    made = SurtSet()
    for prefix in prefixes:
        made.add(prefix)
    found = made.covering(url)
    assert (found is not None) is any(covers(prefix, url) for prefix in prefixes)
    assert found is None or (found in prefixes and covers(found, url))


def test_a_longer_prefix_that_is_no_prefix_hides_no_shorter_one() -> None:
    """The slip of Heritrix's robots: / and /admin stand in the set, /blog sorts behind both."""
    made = surts("(test,a,:81)/", "(test,a,:81)/admin", "(test,b,)/x/", "(test,b,)/x/y/")
    assert made.covering("http://a.test:81/blog") is not None
    assert made.covering("http://b.test/x/z") is not None


def test_a_shorter_prefix_takes_the_place_of_longer_ones() -> None:
    """Whatever the order they come in, what sorts between them is covered."""
    made = surts("(test,b,)/x/y/", "(test,b,)/x/a/", "(test,b,)/x/", "(test,b,)/z/")
    assert [made.covering(f"http://b.test/{path}") is not None for path in ("x/b/", "x/z", "x", "z/1", "y")] == [
        True,
        True,
        False,
        True,
        False,
    ]


def test_a_prefix_without_a_port_covers_every_port() -> None:
    """One with a port covers that one."""
    made = surts("(test,a,)/x/", "(test,b,:81)/x/")
    urls = ("http://a.test/x/", "http://a.test:81/x/", "http://b.test/x/", "https://b.test:81/x/")
    assert [made.covering(url) is not None for url in urls] == [True, True, False, True]


def test_the_prefix_that_covers_is_named() -> None:
    """It has the form in which an operator writes it."""
    assert str(surts("com,a,", "(test,b,)/x/").covering("https://b.test/x/y")) == "http://(test,b,)/x/"
    assert str(surts("com,a,").covering("http://www.a.com/")) == "http://(com,a,"


@pytest.mark.parametrize("url", ["mailto:a@b.test", "http://", "x"])
def test_what_has_no_host_is_in_no_place(url: str) -> None:
    """Not even in the whole web."""
    assert surts("http://(").covering(url) is None
