"""Pages behind logins: cookies from a file, headers from variables; nothing that the job writes shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.acceptance.archive import archived
from tests.acceptance.command import anabranch, crawl_log, write_order
from tests.site.application import serving

PASSED, GIVEN, HEADER, FRESH = "passed-0123456789", "given-0123456789", "Bearer header-0123456789", "fresh-0123456789"
COOKIES = f"# Netscape HTTP Cookie File\nmembers.test\tFALSE\t/\tFALSE\t0\tsid\t{GIVEN}\n"


class Members:
    """A site with a page for everybody, and pages that only those see whom it knows. It gives them a new session each time."""

    port = 0

    @property
    def hosts(self) -> dict[str, str]:
        return dict.fromkeys(("members.test", "other.test"), f"127.0.0.1:{self.port}")

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        if request.path == "/":
            return self._page("/inside", "/token")
        is_known = (
            request.headers.get("Authorization") == HEADER
            if request.path == "/token"
            else request.cookies.get("sid") in {PASSED, GIVEN, FRESH}
        )
        if not is_known:
            return web.Response(status=403)
        answer = self._page("/inside/deep")
        answer.set_cookie("sid", FRESH, max_age=3600)
        answer.headers["X-Seen"] = request.headers.get("Authorization", "")
        return answer

    def _page(self, *links: str) -> web.Response:
        return web.Response(text="".join(f'<a href="{link}">a page</a>' for link in links), content_type="text/html")


@pytest.fixture
async def members() -> AsyncIterator[Members]:
    found = Members()
    async with serving(found.answer) as port:
        found.port = port
        yield found


def order_of(folder: Path, members: Members, site: str, **fetch: object) -> Path:
    order = write_order(folder, members.hosts, fetch=fetch)
    order.write_text(f"{order.read_text()}\n[[site]]\nsurt = 'members.test'\n{site}\n")
    return order


def shown_in(job: Path, *secrets: str, but: str = "cookies.txt") -> list[tuple[str, str]]:
    """The files of a job that show one of these texts; WARC files as they are unpacked."""
    found = []
    for file in sorted(path for path in job.rglob("*") if path.is_file() and path.name != but):
        data = file.read_bytes()
        found += [(file.name, secret) for secret in secrets if secret.encode() in data]
    for read in archived(job).answers:
        text = repr((read.http, read.payload, read.fields))
        found += [(read.url, secret) for secret in secrets if secret in text.replace(repr(read.payload), "")]
    return found


async def test_a_cookies_txt_opens_a_site_and_is_kept_up_to_date(tmp_path: Path, members: Members) -> None:
    """The site's newer cookie is in the file afterwards, and opens it in the next round. No record shows either."""
    cookies = tmp_path / "cookies.txt"
    cookies.write_text(COOKIES)
    order = order_of(tmp_path, members, "cookies = true", cookie_file=str(cookies))
    seeds = [f"http://{host}/" for host in members.hosts]
    run = await anabranch("crawl", *seeds, "-c", order, "--job", tmp_path / "job", "--warc", cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job")["http://members.test/inside"] == 200
    assert crawl_log(tmp_path / "job")["http://other.test/inside"] == 403
    assert FRESH in cookies.read_text()
    assert cookies.stat().st_mode & 0o777 == 0o600
    (shown,) = archived(tmp_path / "job").of("http://members.test/inside")
    assert shown.http["Set-Cookie"] == "redacted"
    again = await anabranch("crawl", "--job", tmp_path / "job", "--again", cwd=tmp_path)
    assert again.code == 0, again.err
    assert crawl_log(tmp_path / "job")["http://members.test/inside"] in {200, 304}


async def test_secret_headers_reach_their_site_and_no_file(tmp_path: Path, members: Members) -> None:
    """Neither logs nor records, nor the order, nor what commands print."""
    site = 'secret_headers = { Cookie = "SITE_COOKIE", Authorization = "SITE_TOKEN" }'
    order = order_of(tmp_path, members, site, cookies=True)
    secrets = {"SITE_COOKIE": f"sid={PASSED}", "SITE_TOKEN": HEADER}
    seeds = [f"http://{host}/" for host in members.hosts]
    run = await anabranch("crawl", *seeds, "-c", order, "--job", tmp_path / "job", "--warc", cwd=tmp_path, **secrets)
    assert run.code == 0, run.err
    log = crawl_log(tmp_path / "job")
    assert (log["http://members.test/token"], log["http://other.test/token"]) == (200, 403)
    assert shown_in(tmp_path / "job", HEADER, HEADER.partition(" ")[2]) == []
    told = await anabranch("status", tmp_path / "job", "--json", cwd=tmp_path, **secrets)
    assert HEADER not in run.out + run.err + told.out + told.err
    assert archived(tmp_path / "job").of("http://members.test/token")[0].http["X-Seen"] == "redacted"


async def test_without_its_variable_a_crawl_does_not_begin(tmp_path: Path, members: Members) -> None:
    """One line names the key and the variable."""
    order = order_of(tmp_path, members, 'secret_headers = { Cookie = "SITE_COOKIE" }')
    run = await anabranch("crawl", "http://members.test/", "-c", order, "--job", tmp_path / "job", cwd=tmp_path)
    assert run.code == 4
    assert run.err.count("\n") == 1
    assert "[[site]] 1 secret_headers: the variable SITE_COOKIE is not set; it must hold the header's value" in run.err


class Application:
    """A small application: a form with a token against forged requests, a session, pages for those who have one.

    The session of the first login ends after three pages. `asked` has each request for the form, `posts` each sent one.
    """

    port = 0

    def __init__(self) -> None:
        self.asked = 0
        self.posts: list[dict[str, str]] = []
        self.left: dict[str, int] = {}

    @property
    def hosts(self) -> dict[str, str]:
        return dict.fromkeys(("app.test", "other.test"), f"127.0.0.1:{self.port}")

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/robots.txt":
            return web.Response(status=404)
        if request.path == "/login":
            self.asked += 1
            fields = (
                f"<input name=user><input name=pass type=password><input type=hidden name=csrf value=t{self.asked}>"
            )
            return self._page(f"<form method=post action=/session>{fields}<button>Log in</button></form>")
        if request.path == "/session":
            return await self._session(request)
        if not self.left.get(request.cookies.get("sid", ""), 0) > 0:
            return web.Response(status=302, headers={"Location": f"/login?next={request.path}"})
        if request.path != "/home":
            self.left[request.cookies["sid"]] -= 1
        return self._page("Log out " + "".join(f'<a href="/{number}">page</a>' for number in range(8)))

    async def _session(self, request: web.Request) -> web.Response:
        sent = {name: str(value) for name, value in (await request.post()).items()}
        self.posts.append(sent)
        if sent != {"user": "me", "pass": "hunter22", "csrf": f"t{self.asked}"}:
            return self._page("Wrong user or password")
        answer = web.Response(status=303, headers={"Location": "/home"})
        sid = f"session-{len(self.posts)}-0123456789"
        self.left[sid] = 3 if len(self.posts) == 1 else 1000
        answer.set_cookie("sid", sid)
        return answer

    def _page(self, text: str) -> web.Response:
        return web.Response(text=text, content_type="text/html")


@pytest.fixture
async def application() -> AsyncIterator[Application]:
    found = Application()
    async with serving(found.answer) as port:
        found.port = port
        yield found


LOGIN = """login_page = "http://app.test/login"
login_fields = { user = "me" }
login_secrets = { pass = "APP_PASSWORD" }
login_success = "Log out"
"""


def order_with_login(folder: Path, application: Application) -> Path:
    order = write_order(folder, application.hosts)
    order.write_text(f"{order.read_text()}\n[[site]]\nsurt = 'app.test'\n{LOGIN}\n")
    return order


async def test_a_form_is_filled_in_and_again_when_the_session_ends(tmp_path: Path, application: Application) -> None:
    """All pages are there; the login is in no log and no record, and its password in no file."""
    order = order_with_login(tmp_path, application)
    command = ("crawl", "http://app.test/", "http://other.test/", "-c", order, "--job", tmp_path / "job", "--warc")
    run = await anabranch(*command, cwd=tmp_path, APP_PASSWORD="hunter22")
    assert run.code == 0, run.err
    log = crawl_log(tmp_path / "job")
    assert [log[f"http://app.test/{number}"] for number in range(8)] == [200] * 8
    assert log["http://other.test/"] == 302
    assert len(application.posts) == 2
    assert "http://app.test/session" not in log
    assert "http://app.test/login" not in log
    assert shown_in(tmp_path / "job", "hunter22", "session-1-0123456789", "session-2-0123456789") == []


async def test_a_login_that_is_refused_ends_the_run_and_loses_nothing(tmp_path: Path, application: Application) -> None:
    """It is sent once, since accounts may be locked; with the right password the same command goes on."""
    order = order_with_login(tmp_path, application)
    command = ("crawl", "http://app.test/", "-c", order, "--job", tmp_path / "job")
    run = await anabranch(*command, cwd=tmp_path, APP_PASSWORD="wrong")
    assert run.code == 4
    assert (
        "the login page http://app.test/login does not lead to a page with 'Log out': is the password right?" in run.out
    )
    assert len(application.posts) == 1
    again = await anabranch(*command, cwd=tmp_path, APP_PASSWORD="hunter22")
    assert again.code == 0, again.err
    assert crawl_log(tmp_path / "job")["http://app.test/7"] == 200
