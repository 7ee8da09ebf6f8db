"""Digest authentication: the examples of the standard, odd challenges, and real exchanges."""

from __future__ import annotations

import asyncio
import re

import pytest

from anabranch.crawler.fetch import digest
from anabranch.crawler.fetch.digest import Digests
from anabranch.crawler.fetch.options import SiteOptions
from anabranch.crawler.fetch.secrets import Credentials
from tests.crawler.fetch.servers import Web
from tests.rows import each_row

#: RFC 7616, section 3.9.1.
MUFASA = Credentials("Mufasa", "Circle of Life")
CHALLENGE = (
    'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={}, '
    'nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v", opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
)
CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"


@each_row(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_examples_of_the_standard_come_out(monkeypatch: pytest.MonkeyPatch, algorithm: str, response: str) -> None:
    """RFC 7616, section 3.9.1."""
    monkeypatch.setattr(digest.secrets, "token_hex", lambda _: CNONCE)
    one = Digests()
    assert one.learn("http://www.example.org", [CHALLENGE.format(algorithm)])
    sent = one.authorization("http://www.example.org", "/dir/index.html", MUFASA)
    assert f'response="{response}"' in sent
    assert f"algorithm={algorithm}, " in sent
    assert 'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS", qop=auth, nc=00000001' in sent


def test_a_user_outside_ascii_is_sent_in_utf_8() -> None:
    """As it is hashed (RFC 7616, section 3.4.4, for servers that take UTF-8)."""
    one = Digests()
    one.learn("http://a", [CHALLENGE.format("MD5")])
    sent = one.authorization("http://a", "/", Credentials("Jäsøn Ł", "x"))
    assert 'username="Jäsøn Ł"'.encode() in sent.encode("latin-1")


def test_the_strongest_challenge_is_answered_and_counted() -> None:
    """Servers list several; the counter grows with each answer, and begins again with a new nonce."""
    one = Digests()
    assert one.learn("http://a", [CHALLENGE.format("MD5"), 'Basic realm="x", ' + CHALLENGE.format("SHA-256")])
    assert [re.findall("algorithm=[^,]*|nc=[^,]*", one.authorization("http://a", "/", MUFASA)) for _ in range(2)] == [
        ["algorithm=SHA-256", "nc=00000001"],
        ["algorithm=SHA-256", "nc=00000002"],
    ]
    one.learn("http://a", [CHALLENGE.format("MD5")])
    assert "nc=00000001" in one.authorization("http://a", "/", MUFASA)
    assert one.authorization("http://b", "/", MUFASA) == ""


@each_row(
    "field",
    [
        'Basic realm="x"',
        "Digest",
        'Digest realm="x"',
        'Digest nonce="x"',
        'Digest realm="x", nonce="y", algorithm=SHA3',
        'Digest realm="x", nonce="y", qop="auth-int"',
        'Digest realm="x\u00e9", nonce="y"',
        'Digest realm="x',
        "",
    ],
)
def test_what_cannot_be_answered_is_no_challenge(field: str) -> None:
    """Nothing is sent in its place."""
    one = Digests()
    assert not one.learn("http://a", [field])
    assert one.authorization("http://a", "/", MUFASA) == ""


@each_row(
    ("field", "realm"),
    [
        ('Digest realm="a \\"b\\" c", nonce="y"', '"a \\"b\\" c"'),
        ("DIGEST Realm=a,Nonce=y", '"a"'),
        ('Digest  realm = "a" ,, nonce = "y"', '"a"'),
    ],
)
def test_odd_spellings_are_read(field: str, realm: str) -> None:
    """Case, spaces, tokens in place of quoted texts, escapes; without qop the old form is sent."""
    one = Digests()
    assert one.learn("http://a", [field])
    sent = one.authorization("http://a", "/", MUFASA)
    assert f"realm={realm}" in sent
    assert "qop" not in sent


async def test_a_page_behind_digest_is_fetched_and_the_next_one_at_once(
    site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request more for the first page alone; the password is in no request, and credentials in no record."""
    monkeypatch.setenv("SECRET", "hunter22")
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(request)
        is_known = "authorization: digest" in request.lower()
        status = "200 OK" if is_known else f"401 No\r\nWWW-Authenticate: {CHALLENGE.format('SHA-256')}"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi".encode())

    origin = f"http://127.0.0.1:{await site.listen(answer)}"
    fetcher = site.fetcher(SiteOptions(surts=("127.0.0.1",), user="me", password_env="SECRET", auth="digest"))
    for path in ("/a?x", "/b"):
        response = await fetcher.get(origin + path)
        assert response.status == 200
        assert b"uthorization" not in response.request
        response.body.close()
    assert ["uthorization" in request for request in seen] == [False, True, True]
    assert 'uri="/a?x"' in seen[1]
    assert "hunter22" not in "".join(seen)


async def test_a_wrong_password_is_asked_for_once_more_and_not_for_ever(
    site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The 401 is the site's answer then."""
    monkeypatch.setenv("SECRET", "wrong")
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        head = f"HTTP/1.1 401 No\r\nWWW-Authenticate: {CHALLENGE.format('MD5')}\r\n"
        writer.write(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())

    fetcher = site.fetcher(SiteOptions(surts=("127.0.0.1",), user="me", password_env="SECRET", auth="digest"))
    response = await fetcher.get(f"http://127.0.0.1:{await site.listen(answer)}/")
    assert (response.status, len(seen)) == (401, 2)
    response.body.close()
