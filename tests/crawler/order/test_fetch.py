"""The sections [dns], [robots], [fetch] and [extract], and the entries [[site]]: what they accept, what the fetcher gets."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from anabranch.crawler.extract.links import ExtractOptions
from anabranch.crawler.fetch.addresses import ResolverOptions
from anabranch.crawler.fetch.options import FetchOptions, SiteOptions
from anabranch.crawler.order.fetch import DnsSection, FetchSection, RobotsSection, fetch_options, site_of
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import dump_order
from anabranch.crawler.outcomes.errors import OrderError

#: Every key with a value that is not its default, and the field of `FetchOptions` that has it then (None: not the fetcher's).
KEYS = {
    "timeout": ('"61s"', "timeout_s", 61.0),
    "connect_timeout": ('"5s"', "connect_timeout_s", 5.0),
    "first_byte_timeout": ('"6s"', "first_byte_timeout_s", 6.0),
    "read_timeout": ('"7s"', "read_timeout_s", 7.0),
    "min_rate": ('"1KB"', "min_rate", 1000),
    "max_body": ('"1MB"', "max_body_bytes", 1_000_000),
    "accept_encoding": ('["gzip"]', "accept_encoding", ("gzip",)),
    "headers": ('{ "X-A" = "b" }', "headers", {"X-A": "b"}),
    "cookies": ("true", "cookies", True),
    "cookie_file": ('"cookies.txt"', "cookies", True),
    "referer": ("true", "referer", True),
    "proxy": ('"http://p:1"', "proxy", ("http://p:1",)),
    "proxy_password_env": ('"P"', "proxy_password_env", ("P",)),
    "bind": ('["127.0.0.1"]', "bind", ("127.0.0.1",)),
    "proxy_resolves": ("true", "proxy_resolves", True),
    "tls_verify": ("false", "tls_verify", False),
    "tls_old": ("false", "tls_old", False),
    "ipv4": ("false", "ipv4", False),
    "ipv6": ("false", "ipv6", False),
    "allow_private": ("true", "allow_private", True),
    "body_rules": ('["ours:rule"]', None, None),
    "bandwidth": ('"1MB"', None, None),
    "host_bandwidth": ('"1MB"', None, None),
    "conditional": ("false", None, None),
    "name_retries": ('["5s"]', None, None),
    "outage_first": ('"5s"', None, None),
    "outage_max": ("0", None, None),
}

ENTRY = """
[[site]]
surt = "com,example,"
headers = { "User-Agent" = "b" }
secret_headers = { "Cookie" = "SITE_COOKIE" }
user = "me"
password_env = "SITE_PASSWORD"
proxy = ""
proxy_password_env = "PROXY_PASSWORD"
cookies = true
max_body = "1MB"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "order.toml"
    file.write_text(text)
    return file


def values(options: FetchOptions) -> dict[str, object]:
    return {field.name: getattr(options, field.name) for field in fields(options)}


def test_the_defaults_of_order_and_fetcher_are_the_same() -> None:
    """A program that embeds the fetcher gets the defaults of the order."""
    assert values(fetch_options(FetchSection(), "x")) == values(FetchOptions(user_agent="x"))


@pytest.mark.parametrize("key", KEYS)
def test_each_key_reaches_the_fetcher(key: str, tmp_path: Path) -> None:
    """And changes nothing else."""
    text, field, value = KEYS[key]
    section = load_order(written(tmp_path, f"[fetch]\n{key} = {text}\n"), {}).fetch
    usual = values(FetchOptions(user_agent="x"))
    assert values(fetch_options(section, "x")) == usual | ({} if field is None else {field: value})


def test_every_key_is_tested() -> None:
    """A new key must be passed on."""
    assert set(KEYS) == {field.alias or name for name, field in FetchSection.model_fields.items()}


def test_an_entry_is_a_site_for_the_fetcher(tmp_path: Path) -> None:
    """One prefix need not stand in a list."""
    order = load_order(written(tmp_path, ENTRY), {})
    assert [site_of(entry) for entry in order.site] == [
        SiteOptions(
            surts=("com,example,",),
            headers={"User-Agent": "b"},
            secret_headers={"Cookie": "SITE_COOKIE"},
            user="me",
            password_env="SITE_PASSWORD",
            proxy=(),
            proxy_password_env=("PROXY_PASSWORD",),
            cookies=True,
            max_body_bytes=1_000_000,
        )
    ]


def test_a_dumped_order_has_its_entries_and_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read again as the same order; the job's folder may be read by anybody."""
    monkeypatch.setenv("SITE_PASSWORD", "hush")
    order = load_order(written(tmp_path, ENTRY), {})
    dumped = dump_order(order)
    assert "hush" not in dumped
    assert load_order(written(tmp_path, dumped), {}) == order


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[fetch]\nipv4 = false\nipv6 = false", "[fetch] ipv4: ipv4 and ipv6 are both off; leave one of them on"),
        ("[fetch]\nconnect_timeout = 0", "[fetch] connect_timeout must be more than 0; not 0"),
        (
            '[fetch]\naccept_encoding = ["lzma"]',
            "[fetch] accept_encoding must be 'gzip', 'deflate', 'br' or 'zstd'; not 'lzma'",
        ),
        (
            '[fetch]\nproxy = "http://me:secret@p"',
            "[fetch] proxy must not hold a password; name its variable in the key with _password_env",
        ),
        (
            '[fetch.headers]\ncookie = "a=b"',
            (
                "[fetch] headers must not have cookie, which has its own key: "
                "[fetch] cookie_file, and secret_headers of a [[site]]"
            ),
        ),
        ("[[site]]\ncookies = true", "[[site]] 1 surt must be given"),
        ("[[body]]\nstatus = 1000", "[[body]] 1 status must be HTTP statuses, like 404, 4xx or 500-599; not '1000'"),
        (
            '[[body]]\nstatus = ["599-500"]',
            "[[body]] 1 status must be HTTP statuses, like 404, 4xx or 500-599; '599-500' ho",
        ),
        (
            '[[body]]\naddresses = "192.0.2.1/24"',
            "[[body]] 1 addresses must be IP ranges, like 192.0.2.0/24 or 2001:db8::/",
        ),
        ('[[body]]\nhops = "("', "[[body]] 1 hops has '(', which is no regular expression"),
        ('[[body]]\nheaders = { "a b" = "x" }', "[[body]] 1 headers has 'a b', which is no name of a header field"),
        (
            '[[body]]\nmin_length = "2MB"\nmax_length = "1MB"',
            "[[body]] 1 max_length: it is less than min_length; no answer h",
        ),
        ('[[body]]\nseeds = "http://["', "[[body]] 1 seeds has a fault"),
        ("[[site]]\nsurt = []", "[[site]] 1 surt must not be empty; not []"),
        (
            '[[site]]\nsurt = "a.test"\npasword_env = "X"',
            "[[site]] 1 pasword_env is unknown; did you mean password_env?",
        ),
        ("[site]\nsurt = 1", "[site] must be entries of a file, each below a line [[site]]"),
        ('[[site]]\nsurt = "a.test"\nuser = "a:b"', "[[site]] 1 user must be one word"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(text: str, message: str, tmp_path: Path) -> None:
    """One line: file, section, key, what is wrong."""
    file = written(tmp_path, text)
    with pytest.raises(OrderError) as caught:
        load_order(file, {})
    shown = str(caught.value)
    assert shown.startswith(f"{file}: {message}")
    assert "secret@" not in shown  # a proxy has a password of this name
    assert ":secret" not in shown


def load(tmp_path: Path, text: str) -> tuple[RobotsSection, DnsSection]:
    file = tmp_path / "x.toml"
    file.write_text(text)
    order = load_order(file, {})
    return order.robots, order.dns


def test_by_default_robots_are_obeyed_as_the_rfc_says() -> None:
    """A day of cache, an hour for a host that cannot be asked, pages' own words obeyed, rel=nofollow not."""
    robots = RobotsSection()
    assert (robots.robots, robots.max_crawl_delay_s, robots.cache_s, robots.unreachable_s) == ("obey", 300, 86400, 3600)
    assert (robots.meta, robots.nofollow_links) == (True, False)


def test_by_default_both_families_are_asked_for() -> None:
    """The order's defaults are the resolver's."""
    assert DnsSection().options(ipv4=True, ipv6=True) == ResolverOptions()


def test_every_key_reaches_its_place(tmp_path: Path) -> None:
    """Durations are words."""
    robots, dns = load(
        tmp_path,
        "[robots]\ncache = '2h'\nunreachable = '5m'\nmeta = false\nnofollow_links = true\n"
        "[dns]\nmin_ttl = '5m'\nmax_ttl = '1h'\n",
    )
    assert (robots.cache_s, robots.unreachable_s, robots.meta, robots.nofollow_links) == (7200, 300, False, True)
    assert dns.options(ipv4=True, ipv6=False) == ResolverOptions(ipv4=True, ipv6=False, min_ttl_s=300, max_ttl_s=3600)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[robots]\ncache = '25h'\n", "cache"),
        ("[robots]\ncache = '0s'\n", "cache"),
        ("[robots]\nunreachable = '0s'\n", "unreachable"),
        ("[robots]\nrobots = 'maybe'\n", "robots"),
        ("[robots]\nmeta = 'maybe'\n", "meta"),
        ("[dns]\nmin_ttl = '7h'\n", "max_ttl (6h) is less than min_ttl (7h)"),
        ("[dns]\nservers = ['dns.test']\n", "dns.test"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(tmp_path: Path, text: str, named: str) -> None:
    """With the section and the key, or what is wrong between two keys."""
    with pytest.raises(OrderError) as raised:
        load(tmp_path, text)
    line = str(raised.value)
    assert named in line
    assert "\n" not in line
    assert ("robots" if "robots" in text else "dns") in line


def ordered(tmp_path, text, **flags):
    file = tmp_path / "crawl.toml"
    file.write_text(f"[extract]\n{text}")
    return load_order(file, flags).extract


def test_the_defaults_are_the_readers_own(tmp_path) -> None:
    """One truth: what the order does not say is as in `ExtractOptions`."""
    assert ordered(tmp_path, "").options(robot="anabranch") == ExtractOptions()


def test_every_key_reaches_the_readers(tmp_path) -> None:
    """Quantities with their units, `nofollow_links` from the robots' section."""
    text = "max_outlinks=5\ncss=false\nsitemaps=true\nforms=true\nspeculative=true\ndata_attributes=false\n"
    text += 'embed_attributes=["data-zoom"]\nlink_attributes=["tr/@data-url"]\n'
    section = ordered(tmp_path, text + 'max_content="1KiB"\ntimeout="2s"\n')
    assert section.options(robot="x", nofollow_links=True) == ExtractOptions(
        max_outlinks=5,
        css=False,
        sitemaps=True,
        forms=True,
        speculative=True,
        data_attributes=False,
        embed_attributes=("data-zoom",),
        link_attributes=("tr/@data-url",),
        max_content_bytes=1024,
        timeout_s=2.0,
        robot="x",
        nofollow_links=True,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max_outlinks=0", "max_outlinks"),
        ('max_content="0"', "max_content"),
        ('timeout="0s"', "timeout"),
        ("css=3", "css"),
        ('embed_attributes=["<b>"]', r"embed_attributes.*ELEMENT/@ATTRIBUTE"),
        ('link_attributes=["img data-x"]', r"link_attributes.*img data-x"),
        (f"link_attributes={['data-x'] * 101}", "link_attributes"),
        ("javascript=true", "javascript"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path, text, named) -> None:
    """One line, with the key."""
    with pytest.raises(OrderError, match=named):
        ordered(tmp_path, text)


def test_timeout_as_a_flag_is_the_fetchs(tmp_path) -> None:
    """A key that two sections have has one flag."""
    assert ordered(tmp_path, "", timeout="3s").timeout_s == 10.0
