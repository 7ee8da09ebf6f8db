"""Logs in where a [[site]] says so: by the form of a page, before the first page of the site, and again when it logs out.

The form is found by its fields, so its hidden ones (tokens against forged requests) are sent as the page has them. It is sent
to its page's own host alone, by POST. The requests of a login happen under the slot of the visit that needs it, and are in no
log and no archive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

import structlog

from anabranch.crawler.extract.encoding import html_in_utf8
from anabranch.crawler.extract.html import parsed
from anabranch.crawler.fetch.response import Response, content_type_of
from anabranch.crawler.fetch.secrets import Login
from anabranch.crawler.outcomes.failures import LoginRefused
from anabranch.crawler.urls.parsing import canonical

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

    from anabranch.crawler.fetch.fetcher import Fetcher

log = structlog.get_logger(__name__)

#: As browsers follow redirects of a form; more are a loop.
MAX_REDIRECTS = 10
#: Of a page that has the form, or that tells whether one is logged in.
MAX_PAGE_BYTES = 1 << 20
#: After so many logins in a row behind which pages still look logged out, there is no other: the mark is on all pages.
MAX_VAIN = 3
#: Types of `input` that send no value.
_NO_VALUE = frozenset({"image", "button", "reset", "file"})
#: Those that are sent only if they are checked.
_CHECKED = frozenset({"checkbox", "radio"})


class Form(NamedTuple):
    """A form, filled in."""

    action: str  #: canonical URL
    fields: tuple[tuple[str, str], ...]


class _Page(NamedTuple):
    """An answer of a login, after its redirects."""

    url: str
    status: int
    body: bytes  #: in UTF-8


@dataclass(slots=True)
class _Session:
    """The state of a login."""

    number: int = 0  #: of logins so far
    vain: int = 0  #: in a row, after which the page looked logged out
    refused: LoginRefused | None = None  #: no login is tried after it: accounts are locked after some
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Logins:
    """The logins of a run. `get` is `Fetcher.get` for pages."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._sessions: dict[Login, _Session] = {}

    async def get(self, url: str, **options: Any) -> Response:
        """Fetch a URL, logged in. Raises: LoginRefused if the first login fails; as `Fetcher.get`."""
        login = self._fetcher.login_of(url)
        if login is None:
            return await self._fetcher.get(url, **options)
        session = self._sessions.setdefault(login, _Session())
        number = session.number or await self._log_in(login, session, 0)
        response = await self._fetcher.get(url, **options)
        if session.vain >= MAX_VAIN or not is_logged_out(response, url, login):
            return response
        try:
            await self._log_in(login, session, number)
        except LoginRefused as error:  # it has worked before, so it is the site's trouble, and other sites go on
            log.warning("the site has logged the crawl out, and does not let it in again", reason=str(error))
            session.vain = MAX_VAIN
            return response
        response.body.close()
        response = await self._fetcher.get(url, **options)
        session.vain = session.vain + 1 if is_logged_out(response, url, login) else 0
        if session.vain == MAX_VAIN:
            log.warning("pages look logged out after logins, too; no other login is tried", page=login.page)
        return response

    async def _log_in(self, login: Login, session: _Session, after: int) -> int:
        """Log in, unless somebody has since login number `after`. Returns the number of the login that holds."""
        async with session.turn:
            if session.refused is not None:
                raise session.refused
            if session.number == after:
                try:
                    await self._send_form(login)
                except LoginRefused as error:
                    session.refused = error
                    raise
                session.number += 1
            return session.number

    async def _send_form(self, login: Login) -> None:
        page = await self._followed(await self._fetcher.get(login.page), login.page, login)
        form = filled_form(page.body, page.url, login.fields)
        if form is None:
            names = ", ".join(name for name, _ in login.fields)
            raise LoginRefused(login.page, f"has no form by POST to its own host with the fields {names}")
        sent = await self._fetcher.post(form.action, urlencode(form.fields).encode())
        after = await self._followed(sent, form.action, login)
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


def may_send(url: str, page: str) -> bool:
    """Whether a login of this page may go to a URL: the same host and port, or its https. Pure."""
    scheme, _, rest = url.partition("://")
    page_scheme, _, page_rest = page.partition("://")
    if scheme == "http" and page_scheme == "https":
        return False
    host, page_host = rest.partition("/")[0].lower(), page_rest.partition("/")[0].lower()
    is_upgrade = scheme == "https" and page_scheme == "http" and host.partition(":")[0] == page_host.partition(":")[0]
    return host == page_host or is_upgrade


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


def filled_form(body: bytes, url: str, fields: Iterable[tuple[str, str]]) -> Form | None:
    """The form of a page that has all these fields, filled in; None if there is none that may be sent. Pure.

    Its other fields keep their values. Of several forms the first with a password field is it.
    """
    given = dict(fields)
    tree = parsed(body, "text/html; charset=utf-8")
    base = tree.css_first("base[href]")
    base_url = canonical(base.attributes.get("href") or "", url) if base is not None else url
    forms = [form for form in tree.css("form") if given.keys() <= _names_in(form)]
    forms.sort(key=lambda form: not form.css('input[type="password"]'))
    for form in forms:
        action = canonical(form.attributes.get("action") or url, base_url or url)
        is_post = (form.attributes.get("method") or "get").lower() == "post"
        if action is not None and is_post and may_send(action, url):
            return Form(action, tuple(_values_in(form, given)))
    return None


def _names_in(form: LexborNode) -> set[str]:
    return {name for one in form.css("input, select, textarea") if (name := one.attributes.get("name"))}


def _values_in(form: LexborNode, given: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The fields as a browser sends them, with the first button that has a name."""
    inputs = [(one, _kind_of(one)) for one in form.css("input, select, textarea, button")]
    button = next((one.attributes.get("name") for one, kind in inputs if kind == "submit"), None)
    for one, kind in inputs:
        name = one.attributes.get("name")
        if name and (name in given or _is_sent(one, kind, is_button=name == button)):
            yield name, given.get(name, _value_of(one, "on" if kind in _CHECKED else ""))


def _kind_of(one: LexborNode) -> str:
    return (one.attributes.get("type") or ("submit" if one.tag == "button" else "text")).lower()


def _is_sent(one: LexborNode, kind: str, *, is_button: bool) -> bool:
    """Whether a browser sends it; of several buttons only the one that is pressed."""
    if "disabled" in one.attributes or kind in _NO_VALUE:
        return False
    return is_button if kind == "submit" else kind not in _CHECKED or "checked" in one.attributes


def _value_of(one: LexborNode, default: str) -> str:
    if one.tag == "textarea":
        return one.text()
    if one.tag == "select":
        chosen = one.css_first("option[selected]") or one.css_first("option")
        return "" if chosen is None else chosen.attributes.get("value") or chosen.text(strip=True)
    return one.attributes.get("value") or default


def _fault(page: _Page, login: Login) -> str:
    """Why nobody is logged in now; empty if somebody is."""
    if page.status >= 400:
        return f"answers the form with status {page.status}"
    if login.success:
        found = login.success.encode() in page.body
        return "" if found else f"does not lead to a page with {login.success!r}: is the password right?"
    is_form_again = filled_form(page.body, page.url, login.fields) is not None
    return "shows the form again: is the password right?" if is_form_again else ""
