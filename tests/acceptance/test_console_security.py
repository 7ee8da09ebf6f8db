"""A console as an attacker meets it: the real server, with requests that no browser of its users sends."""

import html
import http.client
import json
import re
import socket
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import httpx
import pytest
import socketio

from anabranch.crawler.console.access import Access, ConsoleRole
from anabranch.crawler.console.passwords import Passwords
from tests.acceptance import forkserver
from tests.acceptance.browser import ON_ONE_LOOP, expect, reverse_proxy, running_console
from tests.acceptance.command import REPOSITORY, environment
from tests.patience import HANG_S
from tests.ports import free_port

PASSWORD = "correct horse battery"
EVIL = "http://evil.example"
#: Headers of every answer.
SAFE = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
}
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport="


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A console that no test changes, with somebody who has a password."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "state").mkdir(mode=0o700)
    Passwords(folder / "state").put("ada", PASSWORD, ConsoleRole.READER)
    with running_console(folder) as console:
        yield console


@pytest.fixture
def stranger(served):
    """A client without a session."""
    with httpx.Client(base_url=served.base, timeout=HANG_S) as client:
        yield client


@pytest.fixture
def user(served):
    """A client that is logged in."""
    with httpx.Client(base_url=served.base, timeout=HANG_S) as client:
        assert client.get(served.login).status_code == 303
        yield client


PATHS = [
    "/",
    "/jobs/x",
    "/lab",
    "/_nicegui/",
    "/_nicegui/3.0/static/nicegui.css",
    f"{SOCKET}polling",
    "/docs",
    "/nothing",
]


@pytest.mark.parametrize("path", PATHS)
def test_without_a_session_nothing_is_served(stranger, path):
    """Pages lead to the login; files, sockets and whatever else would change something are refused."""
    answer = stranger.get(path)
    expected = (401, None) if path.startswith("/_nicegui") else (303, "/login")
    assert (answer.status_code, answer.headers.get("location")) == expected
    assert stranger.post(path).status_code == 401


@pytest.mark.parametrize("path", ["/", "/login", "/api/v1/jobs", "/metrics", "/nothing"])
def test_every_answer_has_the_headers_that_keep_other_sites_out(stranger, user, path):
    """Also a refusal; and nothing may come from, or go to, another site."""
    answers = [stranger.get(path), user.get(path), user.get(path, headers={"Host": "evil.example"})]
    for answer in answers:
        assert SAFE.items() <= dict(answer.headers).items()
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


def test_the_cookie_is_for_this_console_and_for_no_script(served, user):
    """HttpOnly, SameSite=Strict, named after the port, and new at each login, whatever the browser brought."""
    brought = {"Cookie": f"anabranch_session_{served.port}=chosen-by-an-attacker"}
    first, second = (httpx.get(served.login, headers=brought).headers["set-cookie"] for _ in range(2))
    assert first.startswith(f"anabranch_session_{served.port}=")
    assert first.split(";")[0] != second.split(";")[0]
    assert "chosen" not in first
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in first.split(";")}


def test_a_logged_out_session_is_over_on_the_server(served):
    """A copy of its cookie opens nothing; a link that logs out is not followed, because other sites may have one."""
    with httpx.Client(base_url=served.base, timeout=HANG_S) as client:
        client.get(served.login)
        copied = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
        client.get("/logout")
        assert client.get("/").status_code == 200
        assert client.post("/logout").headers["location"] == "/login"
        assert httpx.get(f"{served.base}/", headers=copied).status_code == 303


def test_a_page_of_another_site_can_neither_log_in_nor_out(served, user):
    """Its Origin tells: with the cookie, without one, and as `null`."""
    form = {"name": "ada", "password": PASSWORD}
    for origin in (EVIL, "null", f"http://127.0.0.1:{served.port + 1}", f"http://127.0.0.1:{served.port}.evil.example"):
        for path in ("/login", "/logout", "/"):
            assert user.post(path, data=form, headers={"Origin": origin}).status_code == 403
    assert user.get("/").status_code == 200


def test_the_api_knows_no_cookies_and_the_pages_no_tokens(served, user, stranger):
    """So that no page of another site, and no token that leaks, opens both."""
    token = Access(served.state).make("robot", ConsoleRole.OPERATOR)
    bearer = {"Authorization": f"Bearer {token}"}
    assert (user.get("/api/v1/jobs").status_code, user.get("/metrics").status_code) == (401, 401)
    assert stranger.get("/api/v1/jobs", headers=bearer).status_code == 200
    assert stranger.get("/api/v1/nothing").status_code == 401
    assert "no such endpoint" in stranger.put("/api/v1/jobs", headers=bearer).json()["error"]
    assert stranger.get("/api/v1/openapi.json").status_code == 200
    assert stranger.get("/", headers=bearer).status_code == 303
    assert stranger.get("/", params={"token": token}).status_code == 303
    assert stranger.get("/login", params={"token": token}).status_code == 401


@pytest.mark.parametrize("origin", [None, EVIL, "null", "own"])
@pytest.mark.parametrize("has_cookie", [True, False])
@pytest.mark.parametrize("transport", ["websocket", "polling"])
def test_a_socket_needs_a_session_and_our_origin(served, user, origin, has_cookie, transport):
    """By WebSocket and by the transport that stands in for it; a program without an Origin needs the session, too."""
    headers = HANDSHAKE if transport == "websocket" else {}
    headers = headers | ({} if origin is None else {"Origin": served.base if origin == "own" else origin})
    if has_cookie:
        headers |= {"Cookie": "; ".join(f"{name}={value}" for name, value in user.cookies.items())}
    status = asked(served.port, f"{SOCKET}{transport}", headers)
    if has_cookie and origin in {None, "own"}:
        assert status == (101 if transport == "websocket" else 200)
    else:
        assert status == (401 if transport == "polling" and origin in {None, "own"} else 403)


OF_JOB = ["", "/queues", "/hosts", "/workers", "/filter", "/url", "/logs", "/reports", "/order"]


@pytest.fixture
def reader(served):
    """A client that is logged in as a reader."""
    with httpx.Client(base_url=served.base, timeout=HANG_S) as client:
        assert client.post("/login", data={"name": "ada", "password": PASSWORD}).status_code == 303
        yield client


@pytest.mark.parametrize("path", ["/", "/lab", *(f"/jobs/x{path}" for path in OF_JOB)])
async def test_a_window_answers_only_the_session_that_opened_it(served, user, reader, path):
    """A reader who knows the id of an operator's window gets no handshake, and each of its messages is dropped."""
    window, listeners = window_of(user, path)
    own, _ = window_of(reader, path)
    async with socket_of(served, user, window) as operators, socket_of(served, reader, own) as readers:
        assert await operators.call("handshake", handshake(window))
        assert not await readers.call("handshake", handshake(window))
        assert await readers.call("handshake", handshake(own))
        assert listeners
        for element, listener in listeners:
            event = {"client_id": window, "id": element, "listener_id": listener, "args": [None]}
            assert await readers.call("event", event) is False
        for message in ("javascript_response", "ack", "log"):
            assert await readers.call(message, {"client_id": window}) is False
        assert await readers.call("event", {"client_id": [window]}) is False
    with pytest.raises(socketio.exceptions.ConnectionError):
        async with socket_of(served, reader, window, "&implicit_handshake=true&document_id=d&tab_id=t"):
            pass


def test_a_file_is_uploaded_only_to_a_window_of_the_session(user, reader):
    """A reader cannot add seeds to the form that an operator fills in."""
    window, _ = window_of(user, "/")
    upload = f"/_nicegui/client/{window}/upload/1"
    assert (reader.post(upload).status_code, user.post(upload).status_code) == (403, 404)


def test_a_name_that_leads_here_is_refused(served, user):
    """DNS rebinding: the browser has the attacker's name, with cookies or without."""
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", ""):
        assert asked(served.port, "/login", {"Host": host}) == 403
        assert asked(served.port, f"{SOCKET}websocket", {"Host": host, **HANDSHAKE}) == 403


def test_bodies_are_bounded(served, stranger, user):
    """More than 96 MiB are refused unread; of a stranger more than a form, also if it does not say its length."""
    large = str(101_000_000)
    for path, client in (("/login", stranger), ("/login", user), ("/_nicegui/client/x/upload/1", user)):
        cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in client.cookies.items())}
        assert asked(served.port, path, {"Content-Length": large, **cookie}, "POST") == 413
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    parts = (b"name=" + b"x" * 1000 for _ in range(100))
    assert stranger.post("/login", content=parts, headers=form).status_code == 413
    assert stranger.post("/", content=b"x" * 1000).status_code == 401


def test_a_head_without_end_is_cut_off(served):
    """The server keeps 64 KiB of it."""
    with closing(socket.create_connection(("127.0.0.1", served.port), HANG_S)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"x" * 70_000)
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_slow_clients_hold_up_nobody(served, stranger):
    """A hundred that never end their request, and still others are answered."""
    slow = [socket.create_connection(("127.0.0.1", served.port), HANG_S) for _ in range(100)]
    for one in slow:
        one.sendall(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 1000\r\n\r\nname=" % served.port)
    assert stranger.get("/login").status_code == 200
    for one in slow:
        one.close()


def test_idle_connections_of_a_stranger_take_nobodys_place(served, stranger, user):
    """More than the server keeps, silent or in the middle of a head: strangers and users are answered."""
    assert user.get("/").status_code == 200
    for begun in (b"", b"GET /login HTTP/1.1\r\nX: "):
        idle = [socket.create_connection(("127.0.0.1", served.port), HANG_S) for _ in range(520)]
        for one in idle:
            with suppress(ConnectionError):
                one.sendall(begun)
        with httpx.Client(base_url=served.base, timeout=HANG_S) as other:
            assert (other.get("/login").status_code, user.get("/").status_code) == (200, 200)
        for one in idle:
            one.close()
    assert stranger.get("/login").status_code == 200


def test_a_large_body_does_not_reach_the_memory(served, user):
    """90 MiB are refused by the API and by the form for a file, with their length or without."""
    token = Access(served.state).make("uploader", ConsoleRole.OPERATOR)
    bearer = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    window, _ = window_of(user, "/")
    upload = f"/_nicegui/client/{window}/upload/1"
    before = peak_kib(served.pid)
    for path, headers in (("/api/v1/jobs", bearer), (upload, {})):
        for content in (b"x" * (90 << 20), (b"x" * (1 << 20) for _ in range(90))):
            with suppress(httpx.WriteError, httpx.RemoteProtocolError):  # it hangs up
                answer = user.post(path, content=content, headers=headers)
                assert answer.status_code in {404, 413}  # there is no such element
    with suppress(httpx.WriteError, httpx.RemoteProtocolError):
        assert user.post(upload, files={"file": ("seeds.txt", b"x" * (90 << 20))}).status_code == 413
    assert peak_kib(served.pid) - before < 40 << 10


def peak_kib(pid):
    """The most memory that a process has had."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])


def test_guesses_of_a_password_have_to_wait(tmp_path):
    """After three failures, with as many clients as one likes, also whoever knows the password waits a little."""
    (tmp_path / "state").mkdir(mode=0o700)
    Passwords(tmp_path / "state").put("ada", PASSWORD, ConsoleRole.READER)
    with running_console(tmp_path) as console, httpx.Client(base_url=console.base, timeout=HANG_S) as client:
        for number in range(30):  # each failure makes the wait twice as long, so a slow machine meets it later
            answer = client.post("/login", data={"name": "ada", "password": f"guess {number}"})
            assert answer.status_code == 401
            if "wait" in answer.text:
                break
        assert number >= 3
        assert "wait" in answer.text
        assert client.get(console.login).status_code == 303


def test_a_password_opens_the_pages_and_its_removal_closes_them(tmp_path):
    """By the real command, from a line of standard input; neither the password nor a trace of it is in the console's folder."""
    state = ("--state", tmp_path / "state")
    assert command("console", "passwd", "ada", "--read-only", *state, stdin=f"{PASSWORD}\n") == (0, "")
    with running_console(tmp_path) as console, httpx.Client(base_url=console.base, timeout=HANG_S) as client:
        assert client.post("/login", data={"name": "ada", "password": PASSWORD}).status_code == 303
        assert client.get("/").status_code == 200
        assert "ada (reader)" in client.get("/").text
        kept = b"".join(file.read_bytes() for file in console.state.rglob("*") if file.is_file())
        assert PASSWORD.encode() not in kept
        assert (console.state / "passwords.json").stat().st_mode & 0o077 == 0
        assert command("console", "passwd", "ada", "--remove", *state)[0] == 0
        assert client.get("/").status_code == 303


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("serve", ".", "--listen", "0.0.0.0:8700"), "so it needs TLS"),
        (("serve", ".", "--listen", "0.0.0.0:8700", "--allow-host", "x.test"), "anabranch console passwd NAME"),
        (("serve", ".", "--base-path", "crawls"), "--base-path crawls: give a path"),
        (("serve", ".", "--base-path", "/crawls/"), "--base-path /crawls/: give a path"),
        (("serve", ".", "--base-path", '/"><script>'), "give a path"),
        (("passwd", "ada"), "the password has 0 characters"),
        (("passwd", "a/b"), "'a/b': give a name"),
        (("passwd", "ada", "--remove"), "users with a password: none"),
    ],
)
def test_what_would_be_unsafe_is_refused_in_one_line(tmp_path, options, words):
    """With what to do."""
    code, said = command("console", *options, "--state", tmp_path / "state", cwd=tmp_path)
    assert (code, len(said.splitlines()), words in said) == (2, 1, True), said


@pytest.mark.slow
@ON_ONE_LOOP
@pytest.mark.parametrize("strips", [True, False])
async def test_behind_a_reverse_proxy_the_console_is_below_its_path(tmp_path, browser, strips):
    """Pages, files and sockets; whether the proxy leaves the path there or not, and by the proxy's name."""
    port = free_port()
    at = f"http://127.0.0.1:{port}/crawls"
    with running_console(tmp_path, "--base-path", "/crawls", "--allow-host", f"127.0.0.1:{port}") as console:
        async with reverse_proxy(console.port, port, "/crawls", strips=strips):
            window = await browser.new_page()
            troubles = []
            window.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
            window.on("pageerror", lambda error: troubles.append(str(error)))
            await window.goto(f"{at}/")
            assert window.url == f"{at}/login"
            await window.goto(console.login.replace(f":{console.port}/", f":{port}/"))
            await expect(window.get_by_text("No jobs yet.")).to_be_visible()
            await window.get_by_role("button", name="New job").click()  # by the socket
            await window.get_by_role("button", name="Cancel").click()
            await window.get_by_role("button", name="More").click()
            await window.get_by_text("Lab: compare").click()
            await window.wait_for_url(f"{at}/lab")
            await window.goto(at + "/")
            await window.get_by_role("button", name="Log out").click()
            await window.wait_for_url(f"{at}/login")
            assert [one for one in troubles if "404" not in one] == []  # the lab's page
            await window.close()


def window_of(client, path):
    """The id of the window that a page makes, and the elements that it listens to, each with its listener."""
    text = client.get(path).text
    elements = re.search(r"parseElements\(String\.raw`(.*?)`\)", text, re.DOTALL)[1]
    found = json.loads(html.unescape(elements))
    listeners = [(int(name), event["listener_id"]) for name, one in found.items() for event in one.get("events", ())]
    return re.search(r"'client_id': '([^']+)'", text)[1], listeners


def handshake(window):
    """The first message of a window."""
    return {"client_id": window, "document_id": "d", "tab_id": "t", "old_tab_id": None, "next_message_id": 0}


@asynccontextmanager
async def socket_of(served, client, window, query=""):
    """A socket with the cookie of this client, which names the window."""
    made = socketio.AsyncClient(reconnection=False)
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    await made.connect(
        f"{served.base}/?client_id={window}{query}",
        headers={"Origin": served.base, "Cookie": cookie},
        socketio_path="/_nicegui_ws/socket.io",
        transports=["websocket"],
        wait_timeout=HANG_S,
    )
    try:
        yield made
    finally:
        await made.disconnect()


def asked(port, path, headers, method="GET"):
    """The status of the answer to a request that is not read to its end."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)) as connection:
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status


def command(*arguments, cwd=REPOSITORY, stdin=""):
    """The exit code and the standard error of `anabranch ARGUMENTS`."""
    called = ["-m", "anabranch", *map(str, arguments)]
    ended = forkserver.run(called, cwd=cwd, env=environment(), stdin=stdin.encode(), timeout=HANG_S)
    return ended.returncode, ended.stderr
