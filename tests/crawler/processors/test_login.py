"""Logins by forms: what becomes of the answers. `tests/acceptance/test_access.py` has whole crawls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from anabranch.crawler.fetch.options import SiteOptions
from anabranch.crawler.outcomes.failures import FetchError, LoginRefused, LoginUnavailable
from anabranch.crawler.processors.login import Logins
from tests.crawler.fetch.servers import Web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anabranch.crawler.fetch.fetcher import Fetcher
    from anabranch.crawler.fetch.response import Response

FORM = "<form method=post action=/session><input name=user><input name=pass type=password></form>"


class Application:
    """A site that lets the crawl in once: behind that pages are for others, and `is_away` breaks off the login page."""

    is_away = False
    status = form_status = 200  #: of the login page, and of what takes its form

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/login":
            if self.is_away:
                assert request.transport is not None
                request.transport.abort()
            text = FORM if self.status == 200 else "busy"
            return web.Response(text=text, status=self.status, content_type="text/html")
        if request.path == "/session":
            return web.Response(text="welcome", status=self.form_status, content_type="text/html")
        return web.Response(text="log in", status=401)


class Watched:
    """A fetcher's `get` that notes the answers."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self.answers: list[Response] = []
        self.login_of, self.post = fetcher.login_of, fetcher.post

    async def get(self, url: str, **options: Any) -> Response:
        response = await self._fetcher.get(url, **options)
        self.answers.append(response)
        return response


@pytest.fixture
async def site() -> AsyncIterator[Web]:
    found = Web()
    yield found
    await found.close()


async def served(site: Web, application: Application) -> tuple[Watched, str]:
    """A fetcher for the application, and its origin."""
    site.hosts["a.test"] = "127.0.0.1"
    origin = f"http://a.test:{await site.serve(application.answer)}"
    login = SiteOptions(surts=(origin,), login_page=f"{origin}/login", login_fields={"user": "me", "pass": "x"})
    return Watched(site.fetcher(login)), origin


async def test_a_login_that_breaks_off_leaves_no_answer_open(site: Web) -> None:
    """The page is tried again, and its visit has not got the answer, which may be a file."""
    application = Application()
    watched, origin = await served(site, application)
    logins = Logins(watched)  # type: ignore[arg-type]
    (await logins.get(f"{origin}/a")).body.close()
    application.is_away = True
    with pytest.raises(FetchError):
        await logins.get(f"{origin}/b")
    assert [one.body.is_closed for one in watched.answers] == [True] * len(watched.answers)


async def test_a_login_page_with_an_error_is_told_by_its_status(site: Web) -> None:
    """Not by the form that it lacks."""
    application = Application()
    application.status = 403
    watched, origin = await served(site, application)
    with pytest.raises(LoginRefused, match=r"answers with status 403$"):
        await Logins(watched).get(f"{origin}/a")  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [429, 500, 503])
@pytest.mark.parametrize("where", ["status", "form_status"])
async def test_a_site_that_is_busy_at_a_login_is_logged_in_to_later(site: Web, where: str, status: int) -> None:
    """The page waits as for a busy host, and the run goes on: nothing was said about the password."""
    application = Application()
    setattr(application, where, status)
    watched, origin = await served(site, application)
    logins = Logins(watched)  # type: ignore[arg-type]
    with pytest.raises(LoginUnavailable, match=rf"answers with status {status}$"):
        await logins.get(f"{origin}/a")
    setattr(application, where, 200)
    (await logins.get(f"{origin}/a")).body.close()
