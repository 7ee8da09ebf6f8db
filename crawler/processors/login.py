"""Logs in where a [[site]] says so: by the form of a page, before the first page of the site, and again when it logs out.

The form is found by its fields, so its hidden ones (tokens against forged requests) are sent as the page has them. It is sent
to its page's own host alone, by POST. The requests of a login happen under the slot of the visit that needs it, and are in no
log and no archive.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import structlog

from anabranch.crawler.extract.encoding import html_in_utf8
from anabranch.crawler.extract.forms import filled_form, may_send
from anabranch.crawler.fetch.response import Response, content_type_of
from anabranch.crawler.fetch.secrets import Login
from anabranch.crawler.outcomes.failures import LoginRefused, LoginUnavailable
from anabranch.crawler.urls.parsing import canonical

if TYPE_CHECKING:
    from anabranch.crawler.fetch.fetcher import Fetcher

log = structlog.get_logger(__name__)

#: As browsers follow redirects of a form; more are a loop.
MAX_REDIRECTS = 10
#: Of a page that has the form, or that tells whether one is logged in.
MAX_PAGE_BYTES = 1 << 20
#: After so many logins in a row behind which pages still look logged out, there is no other: the mark is on all pages.
MAX_VAIN = 3


class _Page(NamedTuple):
    """An answer of a login, after its redirects."""

    url: str
    status: int
    body: bytes  #: in UTF-8


class Logins:
    """The logins of a run. `get` is `Fetcher.get` for pages."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._sites: dict[Login, SiteLogin] = {}

    async def get(self, url: str, **options: Any) -> Response:
        """Fetch a URL, logged in. Raises: LoginRefused if the first login fails, LoginUnavailable; as `Fetcher.get`."""
        login = self._fetcher.login_of(url)
        if login is None:
            return await self._fetcher.get(url, **options)
        if login not in self._sites:
            self._sites[login] = SiteLogin(login, self._fetcher)
        return await self._sites[login].get(url, **options)


class SiteLogin:
    """One login, and whether it holds."""

    def __init__(self, login: Login, fetcher: Fetcher) -> None:
        self._login = login
        self._fetcher = fetcher
        self._number = 0  # of logins so far
        self._vain = 0  # logins in a row, after which the page looked logged out
        self._refused: LoginRefused | None = None  # no login is tried after it: accounts are locked after some
        self._turn = asyncio.Lock()

    async def get(self, url: str, **options: Any) -> Response:
        """Fetch a URL of the site. Raises: as `Logins.get`."""
        number = self._number or await self._log_in(0)
        response = await self._fetcher.get(url, **options)
        if self._vain >= MAX_VAIN or not self._is_logged_out(response, url):
            return response
        try:
            await self._log_in(number)
        except LoginRefused as error:  # it has worked before, so it is the site's trouble, and other sites go on
            log.warning("the site has logged the crawl out, and does not let it in again", reason=str(error))
            self._vain = MAX_VAIN
            return response
        except BaseException:
            response.body.close()
            raise
        response.body.close()
        response = await self._fetcher.get(url, **options)
        self._vain = self._vain + 1 if self._is_logged_out(response, url) else 0
        if self._vain == MAX_VAIN:
            log.warning("pages look logged out after logins, too; no other login is tried", page=self._login.page)
        return response

    def _is_logged_out(self, response: Response, url: str) -> bool:
        """Whether the answer says so; one that cannot be read is closed."""
        try:
            return is_logged_out(response, url, self._login)
        except BaseException:
            response.body.close()
            raise

    async def _log_in(self, after: int) -> int:
        """Log in, unless somebody has since login number `after`. Returns the number of the login that holds."""
        async with self._turn:
            if self._refused is not None:
                raise self._refused
            if self._number == after:
                try:
                    await self._send_form(self._login)
                except LoginRefused as error:
                    self._refused = error
                    raise
                self._number += 1
            return self._number

    async def _send_form(self, login: Login) -> None:
        page = await self._followed(await self._fetcher.get(login.page), login.page, login)
        form = filled_form(page.body, page.url, login.fields)
        if form is None:
            _check_available(page.status, login.page)
            if page.status >= 400:
                raise LoginRefused(login.page, f"answers with status {page.status}")
            names = ", ".join(name for name, _ in login.fields)
            raise LoginRefused(login.page, f"has no form by POST to its own host with the fields {names}")
        sent = await self._fetcher.post(form.action, urlencode(form.fields).encode())
        after = await self._followed(sent, form.action, login)
        _check_available(after.status, after.url)
        if fault := _fault(after, login):
            raise LoginRefused(login.page, fault)
        log.info("logged in", page=login.page)

    async def _followed(self, response: Response, url: str, login: Login) -> _Page:
        """The answer behind the redirects, all of them of the same host. Closes the responses."""
        for _ in range(MAX_REDIRECTS):
            location = response.location
            if location is None:
                try:
                    body, _ = response.content(MAX_PAGE_BYTES)
                finally:
                    response.body.close()
                return _Page(url, response.status, html_in_utf8(body, content_type_of(response.headers)).text)
            response.body.close()
            target = canonical(location, url)
            if target is None or not may_send(target, login.page):
                raise LoginRefused(login.page, "leads to another host")
            url = target
            response = await self._fetcher.get(url)
        response.body.close()
        raise LoginRefused(login.page, f"redirects more than {MAX_REDIRECTS} times")


def is_logged_out(response: Response, url: str, login: Login) -> bool:
    """Whether an answer says that nobody is logged in: 401, a redirect to the login's page, or the text of the order."""
    if response.status == 401:
        return True
    if response.location is not None:
        target = canonical(response.location, url)
        return target is not None and target.partition("?")[0] == login.page.partition("?")[0]
    if not login.logged_out or response.status >= 300:
        return False
    body, _ = response.content(MAX_PAGE_BYTES)
    return login.logged_out.encode() in html_in_utf8(body, content_type_of(response.headers)).text


def _check_available(status: int, url: str) -> None:
    """Raises: LoginUnavailable for an answer that says nothing about the login: it is made again later."""
    if status == 429 or status >= 500:
        raise LoginUnavailable(f"{url}, which the login needs, answers with status {status}")


def _fault(page: _Page, login: Login) -> str:
    """Why nobody is logged in now; empty if somebody is."""
    if page.status >= 400:
        return f"answers the form with status {page.status}"
    if login.success:
        found = login.success.encode() in page.body
        return "" if found else f"does not lead to a page with {login.success!r}: is the password right?"
    is_form_again = filled_form(page.body, page.url, login.fields) is not None
    return "shows the form again: is the password right?" if is_form_again else ""
