"""The order's [fetch] and [[site]]: what may stand there, and what the fetcher gets of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from anabranch.crawler.fetching.options import FetchOptions, Site
from anabranch.crawler.orders.fetch import FetchSection, fetch_options, site_of
from anabranch.crawler.orders.order import dump_order
from anabranch.crawler.orders.sources import load_order
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
    "referer": ("true", "referer", True),
    "proxy": ('"http://p:1"', "proxy", "http://p:1"),
    "proxy_password_env": ('"P"', "proxy_password_env", "P"),
    "tls_verify": ("false", "tls_verify", False),
    "ipv4": ("false", "ipv4", False),
    "ipv6": ("false", "ipv6", False),
    "allow_private": ("true", "allow_private", True),
    "conditional": ("false", None, None),
}

ENTRY = """
[[site]]
surt = "com,example,"
headers = { "X-A" = "b" }
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
    """Who embeds the fetcher gets what the order says."""
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
        Site(
            surts=("com,example,",),
            headers={"X-A": "b"},
            user="me",
            password_env="SITE_PASSWORD",
            proxy="",
            proxy_password_env="PROXY_PASSWORD",
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
            "[fetch] headers the header cookie is set by the crawler; see the keys user, cookies, accept_encoding, referer",
        ),
        ("[[site]]\ncookies = true", "[[site]] 1 surt must be given"),
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
    assert "secret" not in shown
