"""The jar of a run: what is sent back, and to whom; its bounds."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from anabranch.crawler.fetch import cookies
from anabranch.crawler.fetch.cookies import (
    MAX_COOKIE_BYTES,
    MAX_PER_SITE,
    MAX_SITE_BYTES,
    CookieFile,
    Cookies,
    date_s,
    read_cookie_file,
)
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.dedup.files.durable import replace_file
from tests.rows import each_row

NOW_S = 1_700_000_000.0
URL = "http://www.a.test/x/y?z"


def jar(*fields: str, url: str = URL) -> Cookies:
    one = Cookies()
    one.learn(url, fields, NOW_S)
    return one


@each_row(
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
        ("a=b\tc; Path=/", "http://www.a.test/", "a=b\tc"),
        ("a=à; Path=/", "http://www.a.test/", "a=\xc3\xa0"),
        ("a=\udce9\udca0; Path=/", "http://www.a.test/", "a=\xe9\xa0"),
        ("b; Path=/", "http://www.a.test/", "b"),
        ("=b; Path=/", "http://www.a.test/", "b"),
    ],
)
def test_a_cookie_goes_where_it_belongs(field: str, url: str, sent: str) -> None:
    """Host and domain, path, age (RFC 6265 section 5)."""
    assert jar(field).header(url, NOW_S) == sent


@each_row(
    "field",
    [
        "a=b; Domain=b.test",
        "a=b; Domain=test",
        "a=b; Domain=x.www.a.test",
        "a=b; Domain=w.a.test",
        "a=b; Secure",
        "",
        "=",
        " ; Path=/",
        "a=b\x01",
        "a=b\x7f",
        "a=" + "b" * MAX_COOKIE_BYTES,
        "a=" + "\u4e2d" * (MAX_COOKIE_BYTES // 3 + 1),
    ],
)
def test_a_void_cookie_is_not_kept(field: str) -> None:
    """It is of another site or a public suffix, secure without TLS, empty, too long, or cannot be sent in a field."""
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
    """The number is limited for each answer and for each site; the newest are kept."""
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


#: 2033-11-14 22:13:19 UTC in the forms of real servers.
THEN_S = 2_015_619_199.0


@each_row(
    "text",
    [
        "Mon, 14 Nov 2033 22:13:19 GMT",
        "Mon, 14 Nov 2033 22:13:19",
        "Mon, 14 Nov 2033 22:13:19 UTC",
        "Mon, 14 Nov 2033 22:13:19 +0000",
        "Mon, 14 Nov 2033 22:13:19 PST",
        "Mon, 14 Nov 2033 22:13:19 -0800",
        "Mon, 14 Nov 2033 22:13:19 GMT+0100 (CET)",
        "Mon, 14-Nov-2033 22:13:19 GMT",
        "Mon, 14-Nov-33 22:13:19 GMT",
        "Monday, 14-Nov-33 22:13:19 GMT",
        "Mon Nov 14 22:13:19 2033",
        "Mon Nov 14 22:13:19 2033 GMT",
        "Mon Nov 14 2033 22:13:19 GMT",
        "Mon, Nov 14 2033 22:13:19 GMT",
        "14 Nov 2033 22:13:19",
        "14-Nov-2033 22:13:19 GMT",
        "14/Nov/2033 22:13:19",
        "14/Nov/2033:22/22:13:19",
        "2033 Nov 14 22:13:19",
        "22:13:19 14 Nov 2033",
        "22:13:19 Nov 14 2033",
        "Nov 14 22:13:19 2033",
        "mon, 14 NOV 2033 22:13:19 gmt",
        "Mon,14 Nov 2033 22:13:19 GMT",
        "Mon, 14 November 2033 22:13:19 GMT",
        "Xyz, 14 Nov 2033 22:13:19 GMT",
        "Sun, 14 Nov 2033 22:13:19 GMT",
        "  Mon,  14   Nov  2033   22:13:19   GMT  ",
        "Mon, 14 Nov 2033 22:13:19.500 GMT",
        "Mon, 14 Nov 2033 22:13:19GMT",
        "(Mon), 14 [Nov] {2033} 22:13:19",
        '"Mon, 14 Nov 2033 22:13:19 GMT"',
    ],
)
def test_a_date_is_read_in_whatever_form(text: str) -> None:
    """Names of zones and days say nothing: it is UTC always (RFC 6265 section 5.1.1)."""
    assert date_s(text) == THEN_S


@each_row(
    ("text", "year"),
    [("70", 1970), ("99", 1999), ("69", 2069), ("00", 2000), ("1970", 1970), ("1601", 1601), ("9999", 9999)],
)
def test_a_year_of_two_digits_is_near(text: str, year: int) -> None:
    """70 to 99 are of the last century."""
    assert date_s(f"Thu, 01 Jan {text} 00:00:00 GMT") == date_s(f"Thu, 01 Jan {year} 00:00:00 GMT")
    assert date_s("Thu, 01 Jan 70 00:00:00 GMT") == 0.0


@each_row(
    "text",
    [
        "",
        "0",
        "-1",
        "never",
        "2015619199",
        "2033-11-14T22:13:19Z",
        "Mon, 14 Nov 2033",
        "Mon, 14 Nov 2033 22:13 GMT",
        "Mon, Nov 2033 22:13:19",
        "Mon, 14 2033 22:13:19",
        "Mon, 14 Nov 22:13:19",
        "Mon, 31 Feb 2033 22:13:19 GMT",
        "Mon, 32 Nov 2033 22:13:19 GMT",
        "Mon, 00 Nov 2033 22:13:19 GMT",
        "Mon, 14 Nov 2033 24:13:19 GMT",
        "Mon, 14 Nov 2033 22:60:19 GMT",
        "Mon, 14 Nov 2033 22:13:60 GMT",
        "Mon, 14 Nov 1600 22:13:19 GMT",
        "Mon, 14 Nov 20330 22:13:19 GMT",
        "Mon, 14 Nov 2033 22:13:190 GMT",
        "Mon, 14 Nov 3 22:13:19 GMT",
        "Mon, 14 Növ 2033 22:13:19 GMT",
    ],
)
def test_what_is_no_date_says_nothing(text: str) -> None:
    """The cookie lasts as long as the run."""
    assert date_s(text) is None
    assert jar(f"a=b; Path=/; Expires={text}" if text.isascii() else "a=b; Path=/").header("http://www.a.test/", NOW_S)


FILE = """# Netscape HTTP Cookie File
# made by a browser

.a.test\tTRUE\t/\tTRUE\t1800000000\tsid\tabc def
#HttpOnly_www.a.test\tFALSE\t/x\tFALSE\t0\tonce\t1
b.test\tFALSE\t/\tFALSE\t1600000000\told\t1
"""


def test_a_cookies_txt_is_read_and_written_back() -> None:
    """Domains, paths, TLS and age are those of the file; an expired cookie is left out, one without an expiry stays."""
    one = Cookies()
    one.load(FILE, "cookies.txt", NOW_S, is_secret=True)
    assert one.header("https://x.a.test/", NOW_S) == "sid=abc def"
    assert one.header("http://www.a.test/x/y", NOW_S) == "once=1"
    assert one.header("http://b.test/", NOW_S) == ""
    kept = one.dump(NOW_S)
    assert kept.splitlines() == [FILE.splitlines()[number] for number in (0, 3, 4)]
    again = Cookies()
    again.load(kept, "cookies.txt", NOW_S, is_secret=False)
    assert again.dump(NOW_S) == kept


@each_row("field", ["b; Path=/", "=b; Path=/", "a=b\tc; Path=/", "a=caf\udce9; Path=/", "é=b; Path=/", "a=b; Path=/é"])
def test_what_a_cookies_txt_cannot_hold_is_left_out_of_it(field: str) -> None:
    """The file can be read again: a site that is asked without its cookie sets a new one."""
    one = jar(field, "c=d; Path=/")
    assert len(one) == 2
    again = Cookies()
    again.load(one.dump(NOW_S), "cookies.txt", NOW_S, is_secret=False)
    assert again.header("http://www.a.test/", NOW_S) == "c=d"


def test_a_login_of_bytes_is_known_as_these_bytes() -> None:
    """So that archives can leave it out."""
    assert jar("a=caf\udce9\udce9\udce9; Path=/").values("http://www.a.test/") == {b"caf\xe9\xe9\xe9"}


def test_sites_of_the_operators_cookies_are_secret() -> None:
    """Those that sites set by themselves are nobody's login."""
    one = jar("a=b")
    one.load(FILE, "cookies.txt", NOW_S, is_secret=True)
    assert [one.is_secret(url) for url in ("http://www.a.test/", "http://b.test/", "http://c.test/")] == [
        True,
        True,
        False,
    ]
    assert not jar("a=b").is_secret(URL)


@each_row(
    ("line", "reason"),
    [
        ("root:x:0:0:root:/root:/bin/bash", "has 1 fields; a line of a cookies.txt has 7 fields"),
        ("a.test TRUE / FALSE 0 a b", "has 1 fields"),
        (".com\tTRUE\t/\tFALSE\t0\ta\tb", "the domain '.com' is no host that a cookie may be for"),
        (".co.uk\tTRUE\t/\tFALSE\t0\ta\tb", "the domain '.co.uk' is no host that a cookie may be for"),
        ("a b\tFALSE\t/\tFALSE\t0\ta\tb", "the domain 'a b' is no host"),
        ("a.test\tFALSE\t/\tFALSE\tsoon\ta\tb", "the expiry 'soon' is no number"),
        ("a.test\tFALSE\tx\tFALSE\t0\ta\tb", "the cookie 'a' cannot be sent"),
        ("a.test\tFALSE\t/\tFALSE\t0\ta\tb;c", "the cookie 'a' cannot be sent"),
        ("a.test\tFALSE\t/\tFALSE\t0\t\tb", "the cookie '' cannot be sent"),
    ],
)
def test_a_line_that_is_no_cookie_is_refused_with_its_place(line: str, reason: str) -> None:
    """A file of another kind is not taken for one without cookies."""
    with pytest.raises(OrderError, match=re.escape(f"cookies.txt:2: {reason}")):
        Cookies().load(f"# comment\n{line}\n", "cookies.txt", NOW_S, is_secret=True)


@each_row("domain", ["127.0.0.1", "localhost", "[::1]"])
def test_a_cookie_of_an_address_is_for_it_alone(domain: str) -> None:
    """Browsers' add-ons write TRUE for such hosts, too."""
    one = Cookies()
    one.load(f"{domain}\tTRUE\t/\tFALSE\t0\ta\tb\n", "cookies.txt", NOW_S, is_secret=True)
    assert one.header(f"http://{domain}:8080/", NOW_S) == "a=b"


@each_row(
    ("url", "field"),
    [
        ("http://github.io/", "a=b; Domain=github.io"),
        ("http://a_b.test/", "a=b"),
        ("http://a_b.test/", "a=b; Domain=a_b.test"),
        ("http://127.0.0.1/", "a=b; Domain=127.0.0.1"),
        ("http://localhost/", "a=b; Domain=localhost"),
        ("http://[::1]/", "a=b"),
        ("http://a.test./", "a=b; Path=/\u2028x"),
        ("http://a.test/", "a=\xe9"),
        ("http://a.test/", "nameless"),
        ("http://a.test/", "a=b; Path=/x\ty"),
        ("http://a.test/", "a=#HttpOnly_b; HttpOnly; Max-Age=999999999999999"),
    ],
)
def test_whatever_a_site_sets_the_file_can_be_read_again(url: str, field: str) -> None:
    """A line that is refused would keep the next run from its start."""
    one = jar(field, url=url)
    Cookies().load(one.dump(NOW_S), "cookies.txt", NOW_S, is_secret=False)


def test_a_cookie_of_a_public_suffix_is_for_that_host_alone() -> None:
    """Some suffixes are hosts, too; their users' sites do not get it (RFC 6265, section 5.3, step 5)."""
    one = jar("a=b; Domain=github.io; Path=/", url="http://github.io/")
    assert one.header("http://github.io/", NOW_S) == "a=b"
    assert one.header("http://user.github.io/", NOW_S) == ""


async def test_changed_cookies_are_in_the_file_when_it_is_closed(tmp_path: Path) -> None:
    """Its owner alone may read it. Answers that change nothing write nothing."""
    path, one = tmp_path / "cookies.txt", Cookies()
    file = CookieFile(path, one, lambda: NOW_S)
    await file.close()
    assert not path.exists()
    file = CookieFile(path, one, lambda: NOW_S)
    one.learn(URL, ["a=b"], NOW_S)
    await file.close()
    assert (path.read_text(), path.stat().st_mode & 0o777) == (one.dump(NOW_S), 0o600)
    path.unlink()
    file = CookieFile(path, one, lambda: NOW_S)
    one.learn(URL, ["a=b"], NOW_S)
    await file.close()
    assert not path.exists()


async def test_the_disk_does_not_hold_up_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread writes the file a moment after a change; what changes while it writes is there when it is closed."""
    monkeypatch.setattr(cookies, "SAVE_S", 0.0)
    path, one, begun, goes_on = tmp_path / "cookies.txt", Cookies(), asyncio.Event(), threading.Event()
    loop, threads = asyncio.get_running_loop(), []

    def replaced(path: Path, data: bytes) -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(10)
        replace_file(path, data)

    monkeypatch.setattr(cookies, "replace_file", replaced)
    file = CookieFile(path, one, lambda: NOW_S)
    one.learn(URL, ["a=b"], NOW_S)
    await asyncio.wait_for(begun.wait(), 10)
    one.learn(URL, ["c=d"], NOW_S)
    goes_on.set()
    await file.close()
    assert path.read_text() == one.dump(NOW_S)
    assert threading.main_thread() not in threads


async def test_cookies_that_cannot_be_kept_do_not_end_the_crawl(tmp_path: Path) -> None:
    """It warns once."""
    one = Cookies()
    file = CookieFile(tmp_path / "gone" / "cookies.txt", one, lambda: NOW_S)
    one.learn(URL, ["a=b"], NOW_S)
    with capture_logs() as told:
        await file.close()
    assert [entry["log_level"] for entry in told] == ["warning"]


@each_row(
    ("data", "reason"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe\0", "is no text in UTF-8"),
        (b"#" * ((16 << 20) + 1), "is larger than 16 MiB"),
    ],
)
def test_a_file_that_is_no_cookies_txt_is_refused(tmp_path: Path, data: bytes | None, reason: str) -> None:
    """In one line with its name."""
    path = tmp_path / "cookies.txt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(OrderError, match=re.escape(f"{path}: {reason}")):
        read_cookie_file(path, Cookies(), NOW_S, is_secret=True)
