"""Tests of options for a part of the web: the entry that wins, and headers that an entry may not set."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.crawler.fetch.options import FetchOptions, SiteOptions, Sites, checked_headers, header_table
from anabranch.crawler.fetch.proxy import Proxy, basic_auth
from anabranch.crawler.fetch.secrets import Credentials, Secrets
from anabranch.crawler.outcomes.errors import OrderError
from tests.rows import each_row

USUAL = FetchOptions(user_agent="x", headers={"A": "usual"}, max_body_bytes=1000, proxy_resolves=True)


def limits(url: str, *sites: SiteOptions) -> int:
    return Sites(USUAL, sites).of(url).limits.max_body_bytes


def limited(surt: str, size: int) -> SiteOptions:
    return SiteOptions(surts=(surt,), max_body_bytes=size)


@pytest.mark.parametrize(
    ("url", "size"),
    [
        ("http://b.test/", 1000),
        ("http://a.test/", 1),
        ("https://x.a.test/", 1),
        ("http://www.a.test/", 2),
        ("http://www.a.test/in/x", 3),
        ("http://www.a.test/in", 2),
        ("http://www.a.test/in/deep/", 4),
        ("http://www.a.test:8080/", 5),
        ("http://www.a.test:8080/in/", 5),
        ("http://a.test:8080/", 1),
        ("http://WWW.a.test./in/deep/", 4),
        ("nonsense", 1000),
    ],
)
def test_the_longest_prefix_wins_whatever_the_order_of_the_entries(url: str, size: int) -> None:
    """A host before its domain, a port before the host, a path before none."""
    sites = [
        limited("http://(com,", 9),
        limited("a.test", 1),
        limited("http://(test,a,www,)", 2),
        limited("http://(test,a,www,)/in/", 3),
        limited("http://(test,a,www,)/in/deep/", 4),
        limited("http://(test,a,www,:8080)", 5),
    ]
    assert limits(url, *sites) == limits(url, *reversed(sites)) == size


def test_of_equal_prefixes_the_later_wins() -> None:
    """Entries have the order of the file."""
    assert limits("http://a.test/", limited("a.test", 1), limited("a.test", 2)) == 2


def test_each_setting_is_decided_by_itself() -> None:
    """Headers name by name, in any case."""
    outer = SiteOptions(surts=("a.test",), cookies=True, headers={"B": "outer", "C": "outer"})
    inner = SiteOptions(surts=("http://a.test/x/",), headers={"a": "inner", "b": "inner"}, proxy="http://p:1")
    settings = Sites(USUAL, [inner, outer]).of("http://a.test/x/y")
    assert dict(settings.headers) == {"a": "inner", "b": "inner", "C": "outer"}
    assert (settings.cookies, settings.limits.max_body_bytes, settings.proxies.listed) == (
        True,
        1000,
        (Proxy("http", "p", 1),),
    )


@each_row(
    ("headers", "message"),
    [
        ({"User-Agent": "x"}, "must not have User-Agent, which has its own key: [agent] user_agent (--user-agent)"),
        ({"host": "x"}, "must not have host, which only the crawler itself sets; leave it out"),
        ({"Content-Length": "1"}, "must not have Content-Length, which only the crawler itself sets; leave it out"),
        (
            {"Transfer-Encoding": "x"},
            "must not have Transfer-Encoding, which only the crawler itself sets; leave it out",
        ),
        ({"Connection": "x"}, "must not have Connection, which only the crawler itself sets; leave it out"),
        ({"": "x"}, "has '', which is no name of a header"),
        ({"X\n": "x"}, "has 'X\\n', which is no name of a header"),
        ({"X": "a\rb"}, "has a value for X that cannot be sent; it must be printable ASCII"),
        ({"X": "a", "x": "b"}, "has the header x twice; give it once, with commas between its values"),
    ],
)
def test_a_header_that_is_not_the_operators_to_set_is_refused(headers: dict[str, str], message: str) -> None:
    """The message names the key that sets the header, if there is one."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        checked_headers(headers)


def test_headers_may_be_lines() -> None:
    """The command line gives lines; blanks around a value are not part of it."""
    assert header_table(["X-A:  b:c ", "X-B:"]) == {"X-A": "b:c", "X-B": ""}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["X-A: b", "Bearer secret"], "must be like 'Accept-Language: de'; number 2 has no name and colon"),
        ([1], "must be like 'Accept-Language: de'; number 1 has no name and colon"),
        (["X-A: b", "X-A: c"], "has the header X-A twice; give it once, with commas between its values"),
    ],
)
def test_lines_that_are_no_headers_are_refused(lines: list[object], message: str) -> None:
    """One line that shows no value, which may be a secret."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        header_table(lines)


def test_a_site_may_do_without_the_usual_proxy() -> None:
    """An empty proxy is none."""
    sites = Sites(
        FetchOptions(user_agent="x", proxy="socks5://p", proxy_resolves=True),
        [SiteOptions(surts=("a.test",), proxy="")],
    )
    assert sites.of("http://b.test/").proxies.listed == (Proxy("socks5", "p", 1080),)
    assert sites.of("http://a.test/").proxies.listed == ()


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And are never shown."""
    monkeypatch.setenv("SITE_PASSWORD", "p\u00e4ss")
    site = SiteOptions(surts=("a.test",), user="me", password_env="SITE_PASSWORD")
    settings = Sites(USUAL, [site]).of("http://a.test/")
    assert settings.headers["Authorization"] == basic_auth("me", "p\u00e4ss") == "Basic bWU6cMOkc3M="
    monkeypatch.setenv("PROXY_PASSWORD", "hidden")
    behind = replace(USUAL, proxy="http://you@p:1", proxy_password_env="PROXY_PASSWORD")
    (proxy,) = Sites(behind).usual.proxies
    assert proxy == Proxy("http", "p", 1, "you", "hidden")
    assert "hidden" not in repr(proxy)


@pytest.mark.parametrize(
    ("site", "message"),
    [
        (SiteOptions(surts=(), cookies=True), "[[site]] 1 surt: names no SURT prefix; say where it holds"),
        (SiteOptions(surts=("a.test",)), "[[site]] 1: it changes nothing"),
        (
            SiteOptions(surts=("a b",), cookies=True),
            "[[site]] 1 surt: SURT prefix 'a b' is refused: it is empty or has blanks",
        ),
        (
            SiteOptions(surts=("a.test",), user="me", password_env="NOT_THERE"),
            "[[site]] 1 password_env: the variable NOT_THERE is not set; it must hold the password",
        ),
        (SiteOptions(surts=("a.test",), password_env="X"), "[[site]] 1 password_env: there is no user; give one"),
        (
            SiteOptions(surts=("a.test",), headers={"Authorization": "secret"}),
            "[[site]] 1 headers must not have Authorization, which has its own key: user and password_env of a [[site]]",
        ),
        (
            SiteOptions(surts=("a.test",), headers={"X": "a\r\nSecret: b"}),
            "[[site]] 1 headers has a value for X that cannot be sent; it must be printable ASCII",
        ),
        (
            SiteOptions(surts=("a.test",), headers={"X Y": "a"}),
            "[[site]] 1 headers has 'X Y', which is no name of a header",
        ),
        (
            SiteOptions(surts=("a.test",), proxy="ftp://p"),
            "[[site]] 1 proxy: must be like http://host:3128 or socks5://host:1080; not 'ftp://p'",
        ),
        (
            SiteOptions(surts=("a.test",), proxy="http://me:secret@p"),
            "[[site]] 1 proxy: must not hold a password; name its variable in the key with _password_env",
        ),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(
    site: SiteOptions, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that names the entry and shows no secret."""
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(OrderError) as caught:
        Sites(USUAL, [site])
    assert str(caught.value) == message


def hidden(**places: str) -> Sites:
    return Sites(USUAL, [SiteOptions(surts=("a.test",), secret_headers=places)])


def test_secret_headers_are_read_from_variables_and_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are sent to their site alone, and their parts are known, so that no archive shows them."""
    monkeypatch.setenv("SESSION", "sid=0123456789; theme=dark")
    file = tmp_path / "token"
    file.write_text("Bearer abcdefgh\n")
    file.chmod(0o600)
    sites = hidden(cookie="SESSION", Authorization=str(file))
    settings = sites.of("http://a.test/")
    assert settings.headers == {
        "A": "usual",
        "Cookie": "sid=0123456789; theme=dark",
        "Authorization": "Bearer abcdefgh",
    }
    assert settings.secrets == Secrets(
        frozenset({"cookie", "authorization"}), frozenset({b"0123456789", b"abcdefgh", b"Bearer abcdefgh"})
    )
    assert sites.of("http://b.test/").secrets is None


@each_row(
    ("places", "message"),
    [
        ({"Cookie": "NOT_THERE"}, "secret_headers: the variable NOT_THERE is not set; it must hold the header's value"),
        ({"Cookie": "./none"}, "secret_headers: none: No such file or directory; it must be a file with"),
        ({"Host": "SECRET"}, "secret_headers: 'Host' is no header that a site can be sent"),
        ({"Proxy-Authorization": "SECRET"}, "secret_headers: 'Proxy-Authorization' is no header"),
        ({"X Y": "SECRET"}, "secret_headers: 'X Y' is no header"),
        ({"X": "SECRET", "x": "SECRET"}, "secret_headers: has the header x twice"),
        ({"X": "BROKEN"}, "secret_headers: the value of X in BROKEN cannot be sent"),
        ({"X": "EMPTY"}, "secret_headers: the value of X in EMPTY cannot be sent"),
    ],
)
def test_a_secret_header_that_cannot_be_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch, places: dict[str, str], message: str
) -> None:
    """In a line that names the key and the place, and never the value."""
    monkeypatch.setenv("SECRET", "hunter22")
    monkeypatch.setenv("BROKEN", "hunter22\r\nX: y")
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(OrderError, match=re.escape(f"[[site]] 1 {message}")) as caught:
        hidden(**places)
    assert "hunter22" not in str(caught.value)


def test_a_secret_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    """As by ssh; the line says what to do."""
    file = tmp_path / "token"
    file.write_text("x")
    file.chmod(0o640)
    with pytest.raises(OrderError, match=re.escape(f"others may read it (mode 640); `chmod 600 {file}`")):
        hidden(Cookie=str(file))


def test_the_password_of_a_form_is_read_as_utf_8(tmp_path: Path) -> None:
    """Forms are sent in it. A file in another encoding is refused without its text."""
    file = tmp_path / "password"
    file.write_bytes("pässword\n".encode())
    file.chmod(0o600)
    site = SiteOptions(surts=("a.test",), login_page="http://a.test/in", login_secrets={"pass": str(file)})
    login = Sites(USUAL, [site]).of("http://a.test/").login
    assert login is not None
    assert login.fields == (("pass", "pässword"),)
    file.write_bytes("pässword\n".encode("latin-1"))
    with pytest.raises(OrderError, match=r"password: is not UTF-8; save it as UTF-8$"):
        Sites(USUAL, [site])


def test_a_login_page_outside_its_surts_is_refused() -> None:
    """It would get no cookies, and the login would fail as if the password were wrong."""
    for surt, page in (("a.test", "http://login.test/in"), ("http://(test,a,)/members", "http://a.test/in")):
        site = SiteOptions(surts=(surt,), login_page=page, login_fields={"user": "me"})
        with pytest.raises(OrderError, match=rf"^\[\[site\]\] 1 login_page: {page} is outside its surt"):
            Sites(USUAL, [site])
    both = SiteOptions(surts=("a.test", "login.test"), login_page="http://login.test/in", login_fields={"user": "me"})
    assert Sites(USUAL, [both]).of("http://login.test/in").login is not None


def test_a_login_shows_no_password_where_it_is_printed() -> None:
    """In a log or a traceback."""
    site = SiteOptions(surts=("a.test",), login_page="http://a.test/in", login_fields={"pass": "hunter22"})
    settings = Sites(USUAL, [site]).of("http://a.test/")
    hidden = (Credentials("me", "hunter22"), settings.login, Secrets(frozenset({"cookie"}), frozenset({b"hunter22"})))
    assert "hunter22" not in repr(hidden)


def test_a_password_that_is_found_by_chance_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the URLs of pages that have it as a part would be wrong in the archive."""
    monkeypatch.setenv("SHORT", "test")
    monkeypatch.setenv("LONG", "hunter22")
    secrets = {"pin": "SHORT", "pass": "LONG"}
    site = SiteOptions(surts=("a.test",), login_page="http://a.test/in", login_secrets=secrets)
    found = Sites(USUAL, [site]).of("http://a.test/").secrets
    assert found is not None
    assert found.values == {b"hunter22"}


def test_a_header_has_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of two wins silently."""
    monkeypatch.setenv("SECRET", "hunter22")
    both = SiteOptions(surts=("a.test",), headers={"X-Key": "1"}, secret_headers={"x-key": "SECRET"})
    with pytest.raises(OrderError, match="x-key is in headers and in secret_headers"):
        Sites(USUAL, [both])
    two = SiteOptions(surts=("a.test",), user="me", password_env="SECRET", secret_headers={"Authorization": "SECRET"})
    with pytest.raises(OrderError, match="user and secret_headers both give the Authorization"):
        Sites(USUAL, [two])


def test_several_proxies_have_a_password_each_or_one_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other numbers of variables are refused."""
    monkeypatch.setenv("ONE", "1")
    monkeypatch.setenv("TWO", "2")
    both = replace(USUAL, proxy=("http://u@a:1", "http://u@b:1"))
    for variables, passwords in ((("ONE", "TWO"), ["1", "2"]), ("ONE", ["1", "1"]), ((), ["", ""])):
        found = Sites(replace(both, proxy_password_env=variables)).usual.proxies
        assert [proxy.password for proxy in found.of("http://x.test/")] == passwords
    with pytest.raises(OrderError, match="proxy_password_env: 3 variables for 2 proxies; name one for each"):
        Sites(replace(both, proxy_password_env=("ONE", "TWO", "ONE")))


@each_row(
    ("url", "proxies"),
    [
        ("http://a.test/", ["http://web:3128"]),
        ("https://a.test/x", ["socks5://tls:1080"]),
        ("http://in.b.test:8080/", []),
        ("http://b.test/", []),
        ("http://bb.test/", ["http://web:3128"]),
        ("http://127.0.0.1/", []),
    ],
)
def test_proxies_of_the_environment_are_used_as_by_curl(
    monkeypatch: pytest.MonkeyPatch, url: str, proxies: list[str]
) -> None:
    """Each scheme has its own, whose URL may hold a password; hosts in no_proxy, and below them, are asked directly."""
    monkeypatch.setenv("http_proxy", "http://me:hidden@web:3128")
    monkeypatch.setenv("ALL_PROXY", "socks5h://tls")
    monkeypatch.setenv("no_proxy", "b.test,127.0.0.1")
    found = Sites(replace(USUAL, proxy="env")).of(url).proxies.of(url)
    assert [proxy.url for proxy in found] == proxies
    assert [proxy.password for proxy in found if proxy.user] == ["hidden"] * proxies.count("http://web:3128")


@each_row("text", ["ftp://me:hidden@web", "http://me:hidden@web\u2100"])
def test_a_proxy_of_the_environment_that_is_none_is_refused_without_its_text(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """It may hold a password."""
    monkeypatch.setenv("http_proxy", text)
    with pytest.raises(OrderError, match="proxy: env: the variable for http is no URL of a proxy") as caught:
        Sites(replace(USUAL, proxy="env"))
    assert "hidden" not in str(caught.value)


def test_an_address_of_another_machine_is_refused_before_the_crawl() -> None:
    """Every connection would fail."""
    with pytest.raises(OrderError, match=r"\[fetch\] bind: 192\.0\.2\.7 is no address of this machine"):
        Sites(replace(USUAL, bind=("192.0.2.7",)))
