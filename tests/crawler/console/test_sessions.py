"""Sessions: how they begin and end, and what passes without one."""

import asyncio
import json

import httpx
import pytest

from anabranch.crawler.console.access import ConsoleRole, Holder
from anabranch.crawler.console.audit import AuditLog
from anabranch.crawler.console.passwords import Passwords
from anabranch.crawler.console.sessions import COOKIE, HOLDER, SessionGuard, Sessions

PASSWORD = "correct horse battery"
ADA = Holder("ada", ConsoleRole.READER)
HOUR_S = 3600.0


class Clock:
    """Seconds that a test sets."""

    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def passwords(tmp_path):
    made = Passwords(tmp_path, cost=2)  # a hash costs a real console 50 ms
    made.put("ada", PASSWORD, ConsoleRole.READER)
    return made


@pytest.fixture
def sessions(passwords, clock):
    return Sessions(passwords, clock)


async def app(scope, receive, send):
    """Answers with the name of who asks."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope[HOLDER].name.encode() if HOLDER in scope else b"nobody"})


def client_of(sessions, base="", **options):
    guard = SessionGuard(app, sessions, base_path=base, **options)
    return httpx.AsyncClient(transport=httpx.ASGITransport(guard), base_url=f"https://console.test{base}")


def test_a_session_lasts_as_long_as_it_is_used(sessions, clock):
    """Twelve hours after its last use it is over."""
    name = sessions.begin(ADA)
    for _ in range(3):
        clock.now_s += 11 * HOUR_S
        assert sessions.holder(name) == ADA
    clock.now_s += 12 * HOUR_S
    assert sessions.holder(name) is None


def test_nobody_else_has_the_id_of_a_session(sessions):
    """Each begin has one of its own; none is given, empty, or of another start."""
    names = {sessions.begin(ADA) for _ in range(50)}
    assert len(names) == 50
    assert all(len(name) >= 43 for name in names)
    assert sessions.holder("") is None
    assert sessions.by_start_token("") is None
    assert sessions.by_start_token("\ud800é") is None


def test_the_oldest_of_too_many_sessions_ends(sessions):
    """So that logins, again and again, take no memory."""
    first = sessions.begin(ADA)
    last = [sessions.begin(ADA) for _ in range(1000)][-1]
    assert sessions.holder(first) is None
    assert sessions.holder(last) == ADA


def test_a_new_password_ends_the_sessions_of_the_old_one(sessions, passwords):
    """And a removed one; those by the link of the start go on."""
    by_password, by_link = sessions.begin(ADA, by_password=True), sessions.begin(ADA)
    assert sessions.holder(by_password) == ADA
    passwords.put("ada", "another password", ConsoleRole.READER)
    assert sessions.holder(by_password) is None
    assert sessions.holder(by_link) == ADA


async def test_a_login_begins_a_session_of_its_own_and_ends_the_last(sessions):
    """The id that a browser brought is not taken (session fixation)."""
    async with client_of(sessions) as client:
        client.cookies.set(COOKIE, "chosen")
        await client.post("/login", data={"name": "ada", "password": PASSWORD})
        first = client.cookies.get(COOKIE, domain="console.test")
        assert (await client.get("/")).text == "ada"
        await client.get("/login", params={"token": sessions.start_token})
        assert sessions.holder(first) is None
        assert sessions.holder("chosen") is None


@pytest.mark.parametrize("is_secure", [True, False])
async def test_the_cookie_stays_on_this_site_and_below_its_path(sessions, is_secure):
    """No script reads it, and by TLS alone where there is TLS."""
    async with client_of(sessions, "/crawls", is_secure=is_secure) as client:
        answer = await client.get("/login", params={"token": sessions.start_token})
        parts = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
        assert parts == {"path=/crawls/", "httponly", "samesite=strict", *(["secure"] if is_secure else [])}
        assert answer.headers["location"] == "/crawls/"


@pytest.mark.parametrize("base", ["", "/crawls"])
async def test_paths_without_a_session_lead_to_the_login(sessions, base):
    """All but the login itself, and those that ask for a token."""
    async with client_of(sessions, base) as client:
        for path in (
            "/",
            "/jobs/x",
            "/api",
            "/apiv1/v1/",
            "/login/x",
            "//api/v1/jobs",
            "/metrics/",
            "/metricsx",
            "/jobs/api/v1/",
        ):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, f"{base}/login"), path
            assert (await client.post(path)).status_code == 401
        for path in ("/api/v1", "/api/v1/jobs", "/metrics"):
            assert (await client.get(path)).text == "nobody"


async def test_a_socket_ends_with_its_session(sessions):
    """The next word of a window that is logged out is not heard."""
    name, heard = sessions.begin(ADA), []

    async def listener(scope, receive, send):
        heard.extend([(await receive())["type"], (await receive())["type"]])

    async def receive():
        if heard_before := list(asked):
            sessions.end(name)
        asked.append(len(heard_before))
        return {"type": "websocket.receive", "text": "pause"}

    asked = []
    scope = {"type": "websocket", "path": "/_nicegui_ws/", "headers": [(b"cookie", f"{COOKIE}={name}".encode())]}
    await SessionGuard(listener, sessions)(scope, receive, None)
    assert heard == ["websocket.receive", "websocket.disconnect"]


async def test_a_damaged_file_of_passwords_is_an_answer(sessions, tmp_path):
    """The answer to a login names the fault."""
    (tmp_path / "passwords.json").write_text("{")
    async with client_of(sessions) as client:
        answer = await client.post("/login", data={"name": "ada", "password": PASSWORD})
        assert (answer.status_code, "passwords.json: cannot be read" in answer.text) == (503, True)


async def test_a_login_whose_body_never_ends_is_given_up(sessions, monkeypatch):
    """It holds its place for a minute at most."""
    monkeypatch.setattr("anabranch.crawler.console.sessions._MOST_S_OF_STRANGERS", 0.05)

    async def body():
        yield b"name="
        await asyncio.Event().wait()

    async with client_of(sessions) as client:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await client.post("/login", content=body(), headers=form)
        assert answer.status_code == 408


async def test_logins_failed_ones_and_logouts_are_noted(sessions, tmp_path):
    """With the user, the address and the way; a name that nobody has may be a password, and is left out."""
    async with client_of(sessions, audit=AuditLog(tmp_path)) as client:
        await client.post("/login", data={"name": "ada", "password": "a guess"})
        await client.post("/login", data={"name": PASSWORD, "password": "ada"})
        await client.get("/login", params={"token": "old"})
        await client.post("/login", data={"name": "ada", "password": PASSWORD})
        await client.post("/logout")
        await client.post("/logout")
        await client.get("/login", params={"token": sessions.start_token})
    text = (tmp_path / "audit.jsonl").read_text()
    noted = [json.loads(line) for line in text.splitlines()]
    assert [(one["who"], one["action"], one["arguments"].get("by"), "error" in one) for one in noted] == [
        ("ada", "login", "password", True),
        ("", "login", "password", True),
        ("", "login", "link", True),
        ("ada", "login", "password", False),
        ("ada", "logout", None, False),
        ("console", "login", "link", False),
    ]
    assert {one["arguments"]["address"] for one in noted} == {"127.0.0.1"}
    assert PASSWORD not in text
    assert sessions.start_token not in text


async def test_failed_logins_do_not_fill_the_disk(sessions, tmp_path):
    """Beyond some at once, a line counts those before it."""
    async with client_of(sessions, audit=AuditLog(tmp_path)) as client:
        for _ in range(200):
            await client.get("/login", params={"token": "old"})
    noted = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert len(noted) < 100
    assert sum(one["arguments"]["tries"] for one in noted) <= 200


async def test_a_page_that_was_asked_for_before_the_login_comes_after_it(sessions):
    """With its query, whoever logs in and how; a path that is none of ours leads to the first page."""
    html = {"accept": "text/html"}
    for path, found in (
        ("/jobs/%3Cx%3E/url?url=http%3A%2F%2Fa.test%2F", "/jobs/%3Cx%3E/url?url=http%3A%2F%2Fa.test%2F"),
        ("//other.test/", "/"),
        ("/%5Cother.test/", "/%5Cother.test/"),
    ):
        async with client_of(sessions, "/crawls") as client:
            answer = await client.get(path, headers=html)
            assert answer.headers["location"] == "/crawls/login"
            answer = await client.get("/login", params={"token": sessions.start_token})
            assert answer.headers["location"] == f"/crawls{found}", path
            again = await client.get("/login", params={"token": sessions.start_token})
            assert again.headers["location"] == "/crawls/"


@pytest.mark.parametrize(
    "chosen", ["http:%2F%2Fother.test%2F", "%2F%2Fother.test", "%2F%5Cother.test", "%2Fa%0D%0AX: y", "x" * 5000]
)
async def test_a_cookie_that_somebody_made_leads_to_no_other_site(sessions, chosen):
    """It counts as none."""
    async with client_of(sessions) as client:
        answer = await client.get(
            "/login", params={"token": sessions.start_token}, headers={"cookie": f"{COOKIE}_page={chosen}"}
        )
        assert answer.headers["location"] == "/"
