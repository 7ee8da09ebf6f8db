"""Pages behind logins: cookies from a file, headers from variables; nothing that the job writes shows them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.acceptance.archive import archived
from tests.acceptance.command import anabranch, crawl_log, write_order

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
    app = web.Application()
    app.router.add_get("/{rest:.*}", found.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


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
