"""Keys for dedup: what each rule takes away, that keys are stable, and what an unknown rule is told."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.crawler.outcomes.errors import OrderError
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.urls.canonicalization import DEFAULT, MAX_PASSES, RULES, Canonicalizer, check_names
from anabranch.crawler.urls.parsing import canonical
from tests.rows import each_row

ID32 = "999A9EF028317A82AC83F0FDFE59385A"
HOME = "tests.crawler.urls.test_canonicalization"


def key(url: str, *names: str) -> str:
    """The key that these rules make, as text; the URL itself if that is its key."""
    made = Canonicalizer(names).key(url)
    return url if made is None else made.decode()


@each_row(
    ("rule", "url", "expected"),
    [
        ("userinfo", "http://u:p@a.test/x@y", "http://a.test/x@y"),
        ("userinfo", "http://@a.test/", "http://a.test/"),
        ("userinfo", "ws://u@v@a.test", "ws://a.test"),
        ("userinfo", "http://a.test?u@b", "http://a.test?u@b"),
        ("default-port", "http://a.test:80/x", "http://a.test/x"),
        ("default-port", "https://a.test:0443", "https://a.test"),
        ("default-port", "HTTP://[::1]:/", "HTTP://[::1]/"),
        ("default-port", "http://a.test:443/", "http://a.test:443/"),
        ("default-port", "http://a.test/:80", "http://a.test/:80"),
        ("default-port", "ws://a.test:80/", "ws://a.test:80/"),
        ("default-port", "http://[::80]/", "http://[::80]/"),
        ("default-port", "ws://a.test:/", "ws://a.test:/"),
        ("fragment", "http://a.test/#b#c", "http://a.test/"),
        ("fragment", "http://a.test?b#", "http://a.test?b"),
        ("session-ids", f"http://a.test/x;jsessionid={ID32}", "http://a.test/x"),
        ("session-ids", f"http://a.test/x;JSESSIONID={ID32}.node1;v=2/y?a=b", "http://a.test/x;v=2/y?a=b"),
        ("session-ids", f"http://a.test/x?JSESSIONID={ID32}", "http://a.test/x"),
        ("session-ids", f"http://a.test/x?a=b&PHPSESSID={ID32}&c=d", "http://a.test/x?a=b&c=d"),
        ("session-ids", f"http://a.test/?sid={ID32}&a", "http://a.test/?a"),
        ("session-ids", "http://a.test/?sid=17", "http://a.test/?sid=17"),
        ("session-ids", f"http://a.test/?xsid={ID32}", f"http://a.test/?xsid={ID32}"),
        ("session-ids", "http://a.test/?ASPSESSIONIDAQBSDSRT=EOHBLBDDPFCLHKPGGKLILNAM&b", "http://a.test/?b"),
        ("session-ids", "http://a.test/?CFID=1169580&CFTOKEN=48630702&d=1", "http://a.test/?d=1"),
        ("session-ids", "http://a.test/?CFID=33&CFTOKEN=57&jsessionid=a63098d96360$B0$D9$A", "http://a.test/"),
        ("session-ids", "http://a.test/?cfid=1&b", "http://a.test/?cfid=1&b"),
        ("session-ids", "http://a.test/?phpsessid=short", "http://a.test/?phpsessid=short"),
        ("www", "http://www.a.test/x", "http://a.test/x"),
        ("www", "https://WWW12.a.test/?x", "https://a.test/?x"),
        ("www", "http://www.a.test/", "http://www.a.test/"),
        ("www", "http://www.test/x", "http://www.test/x"),
        ("www", "http://" + "www." * 20 + "a.test/x", "http://a.test/x"),
        ("www", "http://wwwa.test/x", "http://wwwa.test/x"),
        ("query-sort", "http://a.test/?b=2&a=1&b=1", "http://a.test/?a=1&b=1&b=2"),
        ("query-fixup", "http://a.test/x?", "http://a.test/x"),
        ("query-fixup", "http://a.test/x?&", "http://a.test/x"),
        ("query-fixup", "http://a.test/x?&a&&b&", "http://a.test/x?a&b"),
        ("slashes", "http://a.test//x///y/?u=//", "http://a.test/x/y/?u=//"),
        ("lowercase-host", "HTTP://User@A.Test/X", "http://User@a.test/X"),
        ("lowercase-host", "http://A.test/", "http://a.test/"),
    ],
)
def test_a_rule_takes_away_what_it_is_named_after(rule: str, url: str, expected: str) -> None:
    """And nothing else: the path's case, the order and what merely looks like it stay."""
    assert key(url, rule) == expected


def test_the_default_rules_are_those_that_change_no_page() -> None:
    """A rule that makes two pages of some site one must be asked for."""
    url = f"http://www.a.test//X/?b&&a&PHPSESSID={ID32}"
    assert Canonicalizer().key(url) == b"http://www.a.test//X/?b&&a"
    assert DEFAULT == ("userinfo", "default-port", "fragment", "session-ids")


def test_a_url_that_is_its_own_key_has_none() -> None:
    """None costs nothing to store and compares as the URL."""
    for url in ("http://a.test/", "http://a.test/X?y=1", "http://a.test:81/", "no url", "mailto:a@b.test"):
        assert Canonicalizer().key(url) is None


def test_without_rules_a_url_is_its_own_key() -> None:
    """An empty list switches all off."""
    assert Canonicalizer(()).key("http://u@a.test:80/#f") is None


def test_rules_apply_until_nothing_changes() -> None:
    """A rule may make work for one before it, and the key of a key is the key."""
    assert key("http://u@www.a.test:80/x", "www", "default-port", "userinfo") == "http://a.test/x"


@pytest.mark.parametrize("names", [("nosuch",), ("fragment", "Slashes"), ("a.b:",)])
def test_an_unknown_rule_is_named_with_those_there_are(names: tuple[str, ...]) -> None:
    """One line, for the operator."""
    with pytest.raises(
        OrderError, match=rf"^\[urls\] canonicalization: rule '{names[-1]}' is unknown; choose of userinfo, .*"
    ):
        Canonicalizer(names)
    with pytest.raises(ValueError, match=f"'{names[-1]}'"):
        check_names(names)


def cut_digits(url: str) -> str:
    return "".join(each for each in url if not each.isdigit())


def grow(url: str) -> str:
    return url + "x"


def fail(url: str) -> str:
    raise KeyError("not here")


def nothing(url: str) -> None:
    return None


def test_a_function_of_ones_own_is_a_rule() -> None:
    """It is given the URL as the rules before it left it, and applies to every URL."""
    assert key("http://a.test/1/2#3x", "fragment", f"{HOME}:cut_digits") == "http://a.test//"


def test_a_function_that_never_rests_is_asked_no_more_than_eight_times() -> None:
    """It cannot keep the crawl."""
    assert key("http://a.test/", f"{HOME}:grow") == "http://a.test/" + "x" * MAX_PASSES


@pytest.mark.parametrize(
    ("name", "words"), [("fail", "failed: KeyError: 'not here'"), ("nothing", "answered None; it must be")]
)
def test_a_function_that_fails_is_named(name: str, words: str) -> None:
    """A defect of the operator's function is no key."""
    with pytest.raises(UserFunctionFailed, match=f"{HOME}:{name} {words}"):
        key("http://a.test/", f"{HOME}:{name}")


@pytest.mark.parametrize("name", [f"{HOME}:missing", "no.such.module:function", f"{HOME}:HOME"])
def test_a_function_that_cannot_be_had_is_refused_at_once(name: str) -> None:
    """Before the crawl begins."""
    with pytest.raises(OrderError, match=rf"^\[urls\] canonicalization {name} "):
        Canonicalizer([name])


PIECES = st.sampled_from(
    ["http://", "https://", "HTTP://", "ws://", "u:p@", "www.", "WWW2.", "a.test", "A.Test", "test", ".", ":80", ":443", ":",
     ":081", "/", "//", "..", ";", ";jsessionid=", ";phpsessid=x", "?", "&", "&&", "sid=", "cfid=1", "cftoken=2", "CFTOKEN=",
     "PHPSESSID=", "aspsessionidABCDEFGH=", "abcdefghijklmnopqrstuvwx", ID32, "#", "b=2", "a=1", "ä", "\n", "[::1]"]
)  # fmt: skip
URLS = st.lists(PIECES, max_size=14).map("".join)
NAMES = st.lists(st.sampled_from(list(RULES)), max_size=9)


@given(st.one_of(URLS, URLS.map("http://a.test/".__add__), URLS.map("http://".__add__)), NAMES)
@example("http://u@www.a.test/x", ["www", "userinfo"])
@example("http://www.www.com/x", ["www"])
def test_the_key_of_a_key_is_the_key(url: str, names: list[str]) -> None:
    """Whatever the rules and their order: dedup sees one key for all URLs that come to it."""
    once = key(url, *names)
    assert key(once, *names) == once


@given(st.one_of(URLS, URLS.map("http://a.test/".__add__), URLS.map("http://".__add__)), NAMES)
def test_the_quick_look_overlooks_nothing(url: str, names: list[str]) -> None:
    """A URL that is let go without being taken apart would not have changed."""
    rules = Canonicalizer(names)
    assert key(url, *names) == rules.canonical(url)


@given(st.lists(st.one_of(URLS, URLS.map("http://a.test/".__add__)), max_size=5), NAMES)
@example(["http://a.test/", "https://a.test:80"], ["default-port"])
@example(["http://a.test:", "http://a.test/"], ["default-port"])
@example(["http://a.test:8/", "http://a.test:80/"], ["default-port"])
@example(["http://a.test:443/", "https://a.test:443/"], ["default-port"])
@example(["http://u@a.test/", "http://a.test/"], ["userinfo"])
@example(["", "http://https://a.test"], ["default-port"])
@example(["http://a.test/\nhttp://b.test/", "ws://a.test/"], ["default-port"])
def test_the_keys_of_many_are_those_of_each(urls: list[str], names: list[str]) -> None:
    """Though one look is for all of them, if none has anything to change."""
    rules = Canonicalizer(names)
    assert rules.keys(urls) == [rules.key(url) for url in urls]


def test_of_many_without_a_sign_none_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most pages' links are plain; one sign is enough for a look at each."""
    rules, asked = Canonicalizer(), list[str]()
    monkeypatch.setattr(rules, "key", asked.append)
    assert rules.keys(["http://a.test:81/x?a=b:8", "https://b.test/y;z"]) == [None, None]
    assert asked == []
    rules.keys(["http://a.test/x", "http://u@b.test/"])
    assert asked == ["http://a.test/x", "http://u@b.test/"]


@given(st.one_of(URLS, URLS.map("http://a.test/".__add__)))
def test_canonical_urls_have_nothing_for_the_first_three_rules(url: str) -> None:
    """The parser has done it: they are there for keys that embedders give."""
    parsed = canonical(url)
    assert parsed is None or Canonicalizer(("userinfo", "default-port", "fragment")).key(parsed) is None
