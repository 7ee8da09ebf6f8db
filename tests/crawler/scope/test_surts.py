"""Sets of SURT prefixes: the answer is that of trying each prefix."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.scope.surts import SurtSet
from anabranch.frontier.policies.authority import authority, path_of
from anabranch.frontier.policies.surt import SurtPrefix, parse_surt


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
    """As an operator writes it."""
    assert str(surts("com,a,", "(test,b,)/x/").covering("https://b.test/x/y")) == "http://(test,b,)/x/"
    assert str(surts("com,a,").covering("http://www.a.com/")) == "http://(com,a,"


@pytest.mark.parametrize("url", ["mailto:a@b.test", "http://", "x"])
def test_what_has_no_host_is_in_no_place(url: str) -> None:
    """Not even in the whole web."""
    assert surts("http://(").covering(url) is None
