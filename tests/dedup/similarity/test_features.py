"""Features of URLs, and how a URL falls into parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.errors import BadParameters
from anabranch.dedup.similarity.features import FEATURES, Parts, feature_named, parts_of

HOST = b"http://www.example.com/"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        (b"http://s/a/b.html", (b"s", b"a", b"b.html")),
        (b"svn+ssh://s/a", (b"s", b"a")),
        (b"//s/a", (b"s", b"a")),
        (b"s/a", (b"s", b"a")),
        (b"s:80/http://t/", (b"s:80", b"http:", b"", b"t", b"")),
        (b"http://s", (b"s",)),
        (b"http://s/", (b"s", b"")),
        (b"http://s/a/", (b"s", b"a", b"")),
        (b"http://s/a?q=/x/y", (b"s", b"a?q=/x/y")),
        (b"http://s/a/?q", (b"s", b"a", b"?q")),
        (b"http://s?q=/x", (b"s", b"?q=/x")),
        (b"http://s/a#/x?y", (b"s", b"a#/x?y")),
        (b"", (b"",)),
        (b"\xff\x00 no url", (b"\xff\x00 no url",)),
    ],
)
def test_a_url_is_split_at_the_slashes_of_its_path(url: bytes, parts: Parts) -> None:
    """The scheme is dropped, the query belongs to un with its slashes, and any bytes have parts."""
    assert parts_of(url) == parts


@pytest.mark.parametrize(
    ("url", "parts"),
    [(b"s/a?q=/x", (b"s", b"a")), (b"s?q", (b"s", b"")), (b"s/a#x", (b"s", b"a")), (b"s/a", (b"s", b"a"))],
)
def test_the_query_may_be_dropped(url: bytes, parts: Parts) -> None:
    """What follows the path is cut off, the path stays."""
    assert parts_of(url, drop_query=True) == parts


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_have_a_site_without_slash(url: bytes, drop_query: bool) -> None:
    """The binding to a site relies on it."""
    assert b"/" not in parts_of(url, drop_query=drop_query)[0]


@pytest.mark.parametrize(
    ("url", "features"),
    [
        (b"http://s/a/b/c.htm", (b"s", 4, b"a", b"c.htm")),
        (b"http://s/c.htm", (b"s", 2, b"c.htm", b"c.htm")),
        (b"http://s/a/", (b"s", 3, b"a", b"")),
        (b"http://s", (b"s", 1, b"", b"")),
    ],
)
def test_the_features_of_a_url(url: bytes, features: tuple[bytes | int, ...]) -> None:
    """u1, n, u2 and un; a missing u2 and an empty tail are the empty string."""
    assert tuple(FEATURES[name](parts_of(url)) for name in ("site", "depth", "directory", "tail")) == features


def test_an_own_feature_that_fails_names_itself_and_the_url() -> None:
    """It gets the parts as one argument."""
    own = feature_named("operator:length_hint")
    assert own((b"s", b"a")) == 2
    with pytest.raises(BadParameters, match=r"feature 'math:sqrt' failed for \(b's', b'a'\): TypeError: must be real"):
        feature_named("math:sqrt")((b"s", b"a"))
