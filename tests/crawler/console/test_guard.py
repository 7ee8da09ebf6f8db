"""Requests of other sites, and by other names, do not reach the console."""

import pytest

from anabranch.crawler.console.guard import HostGuard, allowed_hosts, remote_address
from tests.rows import each_row

HOSTS = allowed_hosts("127.0.0.1", 8700, ["Crawls.example.org"])


async def outcome(kind, headers):
    """Return the result of a request with these headers: `reached`, or the messages that refuse it."""
    sent = []

    async def app(scope, receive, send):
        sent.append("reached")

    async def send(message):
        sent.append(message)

    async def receive():
        raise AssertionError("nothing is read")

    scope = {"type": kind, "headers": [(name, value.encode("latin-1")) for name, value in headers]}
    await HostGuard(app, HOSTS)(scope, receive, send)
    return sent


def named(host, *origins):
    return [(b"host", host), *((b"origin", origin) for origin in origins)]


ALLOWED = [
    named("127.0.0.1:8700"),
    named("LOCALHOST:8700", "http://localhost:8700"),
    named("[::1]:8700", "http://[::1]:8700"),
    named("crawls.example.org", "https://CRAWLS.example.org"),
]
REFUSED = [
    [],
    named(""),
    named("127.0.0.1"),
    named("127.0.0.1:8701"),
    named("evil.test:8700"),
    named("crawls.example.org:8700"),
    named("crawls.example.org."),
    named("127.0.0.1:8700 "),
    named("127.0.0.1:8700, evil.test"),
    named("evil.test@127.0.0.1:8700"),
    named("\xe9:8700"),
    [*named("127.0.0.1:8700"), *named("evil.test")],
    [*named("127.0.0.1:8700"), *named("127.0.0.1:8700")],
    named("127.0.0.1:8700", "null"),
    named("127.0.0.1:8700", ""),
    named("127.0.0.1:8700", "http://evil.test"),
    named("127.0.0.1:8700", "http://localhost:8700"),
    named("127.0.0.1:8700", "http://127.0.0.1:8701"),
    named("127.0.0.1:8700", "http://127.0.0.1:8700.evil.test"),
    named("127.0.0.1:8700", "http://x@127.0.0.1:8700"),
    named("127.0.0.1:8700", "chrome-extension://127.0.0.1:8700"),
    named("127.0.0.1:8700", "http://[::1"),
    named("127.0.0.1:8700", "http://127.0.0.1:8700", "http://127.0.0.1:8700"),
]


@pytest.mark.parametrize("headers", ALLOWED, ids=str)
@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_the_console_s_own_names_are_allowed(kind, headers):
    """In any case, with its port, and the origin of its own pages."""
    assert await outcome(kind, headers) == ["reached"]


@pytest.mark.parametrize("headers", REFUSED, ids=str)
async def test_other_names_and_origins_are_refused(headers):
    """By 403 on HTTP, by a close on WebSocket, whatever they are."""
    start, body = await outcome("http", headers)
    assert (start["status"], b"--allow-host" in body["body"]) == (403, True)
    assert await outcome("websocket", headers) == [{"type": "websocket.close", "code": 1008}]


async def test_the_messages_of_a_server_pass():
    """They have no Host."""
    assert await outcome("lifespan", []) == ["reached"]


def test_the_default_ports_may_be_left_out():
    """Browsers leave them out, too."""
    assert {"127.0.0.1", "127.0.0.1:443", "[2001:db8::1]"} <= allowed_hosts("127.0.0.1", 443, []) | allowed_hosts(
        "2001:db8::1", 80, []
    )
    assert "127.0.0.1" not in HOSTS


FORWARDED = [
    ("127.0.0.1:8700", ["192.0.2.1"], "10.0.0.1"),  # not by the proxy's name
    ("crawls.example.org", [], "10.0.0.1"),
    ("crawls.example.org", ["192.0.2.1"], "192.0.2.1"),
    ("CRAWLS.example.org", ["203.0.113.9, 192.0.2.1"], "192.0.2.1"),  # who asks chose the first
    ("crawls.example.org", ["203.0.113.9", "192.0.2.1"], "192.0.2.1"),
    ("crawls.example.org", ["2001:db8::1:2:3:4"], "2001:db8::/64"),
    ("crawls.example.org", ["unknown"], "10.0.0.1"),
    ("crawls.example.org", ["192.0.2.1, "], "10.0.0.1"),
]


@each_row(("host", "forwarded", "address"), FORWARDED)
def test_the_address_is_the_proxy_s_word_behind_a_named_proxy_alone(host, forwarded, address):
    """The last one that is forwarded; of IPv6 a network, because whoever has one address has all of it."""
    headers = [(b"host", host.encode()), *((b"x-forwarded-for", text.encode()) for text in forwarded)]
    scope = {"type": "http", "client": ("10.0.0.1", 1234), "headers": headers}
    assert remote_address(scope, {"crawls.example.org"}) == address
    assert remote_address({**scope, "client": None, "headers": []}, ()) == ""
