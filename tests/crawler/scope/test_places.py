"""Places: what a seed opens, by the kind of scope."""

import pytest

from anabranch.crawler.scope.places import PLACES, Place
from tests.site.hostile.addresses import addresses


def places(kind: str, *seeds: str) -> Place:
    made = PLACES[kind]()
    for seed in seeds:
        made.add(seed)
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
    hosts = places("host", "http://a.test/deep/page", "https://c.test:8443/", "http://[::1]/x")
    assert hosts.holds(url) is is_in


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
    folders = places("prefix", "http://a.test/x/page", "http://b.test/", "https://c.test/d/?next=/e/f")
    assert folders.holds(url) is is_in


def test_a_longer_prefix_does_not_narrow_a_shorter_one() -> None:
    """Each seed opens its own place, in any order."""
    for seeds in (("http://a.test/x/", "http://a.test/x/y/z/"), ("http://a.test/x/y/z/", "http://a.test/x/")):
        both = places("prefix", *seeds, "http://b.test/")
        assert both.holds("http://a.test/x/q")
    assert places("prefix", "http://a.test/x/y/z/", "http://b.test/").holds("http://a.test/x/y/z/q")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("kind", sorted(set(PLACES) - {"any"}))
def test_nothing_is_in_before_a_seed_is_there(kind: str) -> None:
    """No seeds, no scope; adding one opens it at once, twice is as once."""
    empty = places(kind)
    assert not empty.holds("http://a.test/")
    for _ in range(2):
        empty.add("http://a.test/")
        assert empty.holds("http://a.test/")


@pytest.mark.parametrize("kind", PLACES)
def test_every_address_that_a_site_can_make_up_opens_its_place(kind: str) -> None:
    """The target of a seed's redirect is a seed, and no operator wrote it: nothing is refused, and it lies in its own place."""
    for url in addresses():
        assert places(kind, url).holds(url) or (kind == "surt" and url.startswith(("http://./", "http://.:"))), url
