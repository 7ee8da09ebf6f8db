"""The jar of a run: what is sent back, and to whom; its bounds."""

from __future__ import annotations

import pytest

from anabranch.crawler.fetch import cookies
from anabranch.crawler.fetch.cookies import MAX_COOKIE_BYTES, MAX_PER_SITE, MAX_SITE_BYTES, Cookies

NOW_S = 1_700_000_000.0
URL = "http://www.a.test/x/y?z"


def jar(*fields: str, url: str = URL) -> Cookies:
    one = Cookies()
    one.learn(url, fields, NOW_S)
    return one


@pytest.mark.parametrize(
    ("field", "url", "sent"),
    [
        ("a=b", "http://www.a.test/x/z", "a=b"),
        ("a=b", "http://www.a.test/x", "a=b"),
        ("a=b", "http://www.a.test/xx", ""),
        ("a=b", "http://www.a.test/", ""),
        ("a=b", "https://www.a.test:8080/x/", "a=b"),
        ("a=b; Path=/", "http://www.a.test/", "a=b"),
        ("a=b; Path=/; Domain=a.test", "http://a.test/", "a=b"),
        ("a=b; Path=/; Domain=.A.test", "http://b.a.test/", "a=b"),
        ("a=b; Path=/", "http://a.test/", ""),
        ("a=b; Path=/", "http://x.www.a.test/", ""),
        ("a=b; Path=/; Domain=www.a.test", "http://x.www.a.test/", "a=b"),
        ("a=b; Path=/; Max-Age=0", "http://www.a.test/", ""),
        ("a=b; Path=/; Max-Age=10", "http://www.a.test/", "a=b"),
        ("a=b; Path=/; Expires=Tue, 14 Nov 2023 22:13:19 GMT", "http://www.a.test/", ""),
        ("a=b; Path=/; Expires=Tue, 14 Nov 2033 22:13:19 GMT", "http://www.a.test/", "a=b"),
        ("a=b; Path=/; Expires=soon", "http://www.a.test/", "a=b"),
        ("a=; Path=/", "http://www.a.test/", "a="),
        ('a="b c"; Path=/', "http://www.a.test/", 'a="b c"'),
    ],
)
def test_a_cookie_goes_where_it_belongs(field: str, url: str, sent: str) -> None:
    """Host and domain, path, age (RFC 6265 section 5)."""
    assert jar(field).header(url, NOW_S) == sent


@pytest.mark.parametrize(
    "field",
    [
        "a=b; Domain=b.test",
        "a=b; Domain=test",
        "a=b; Domain=x.www.a.test",
        "a=b; Domain=w.a.test",
        "a=b; Secure",
        "a",
        "=b",
        "",
        "a=\u4e2d",
        "a=\udcff",
        "a=b\x01",
        "a=" + "b" * MAX_COOKIE_BYTES,
    ],
)
def test_a_void_cookie_is_not_kept(field: str) -> None:
    """Of another site or a public suffix, secure without TLS, without a name, or not to be sent back as it came."""
    assert len(jar(field)) == 0


def test_a_secure_cookie_is_sent_over_tls_only() -> None:
    """And set only there."""
    one = jar("a=b; Secure; Path=/", url="https://a.test/")
    assert (one.header("https://a.test/", NOW_S), one.header("http://a.test/", NOW_S)) == ("a=b", "")


def test_sites_below_one_public_suffix_share_nothing() -> None:
    """co.uk is nobody's site."""
    assert len(jar("a=b; Domain=co.uk", url="http://a.co.uk/")) == 0


def test_an_address_is_a_site_by_itself() -> None:
    """It has no domains above it."""
    one = jar("a=b; Path=/", "c=d; Domain=0.0.1", url="http://127.0.0.1/")
    assert (one.header("http://127.0.0.1:81/", NOW_S), one.header("http://1.0.0.1/", NOW_S)) == ("a=b", "")


def test_a_cookie_of_the_same_name_takes_the_others_place() -> None:
    """Same domain and path; an age of none deletes it. The longer path stands first."""
    one = jar("a=1; Path=/", "a=2; Path=/", "a=3; Path=/x")
    assert one.header(URL, NOW_S) == "a=3; a=2"
    one.learn(URL, ["a=; Path=/; Max-Age=-1"], NOW_S)
    assert one.header(URL, NOW_S) == "a=3"


def test_cookies_by_the_thousand_are_bounded() -> None:
    """Of one answer so many are looked at, of one site so many are kept: the newest."""
    one = Cookies()
    for start in range(0, 1000, 20):
        one.learn(URL, [f"a{n}=b; Path=/" for n in range(start, start + 20)], NOW_S)
    assert len(one) == MAX_PER_SITE
    assert one.header(URL, NOW_S).endswith("a999=b")
    assert len(jar(*(f"a{n}=b" for n in range(1000)))) <= MAX_PER_SITE


def test_large_cookies_are_bounded() -> None:
    """Also the Cookie field that would be sent."""
    one = jar(*(f"a{n}=" + "b" * 3000 for n in range(10)))
    assert 0 < len(one.header(URL, NOW_S)) <= MAX_SITE_BYTES


def test_sites_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was least asked for lately goes."""
    monkeypatch.setattr(cookies, "MAX_SITES", 2)
    one = jar("a=1; Path=/", url="http://a.test/")
    one.learn("http://b.test/", ["a=2; Path=/"], NOW_S)
    assert one.header("http://a.test/", NOW_S) == "a=1"
    one.learn("http://c.test/", ["a=3; Path=/"], NOW_S)
    assert [one.header(f"http://{host}.test/", NOW_S) for host in "abc"] == ["a=1", "", "a=3"]


def test_what_is_no_url_has_no_cookies() -> None:
    """Nothing is learnt, nothing is sent."""
    assert jar("a=b", url="nonsense").header("nonsense", NOW_S) == ""
