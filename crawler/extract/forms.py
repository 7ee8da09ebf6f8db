"""Forms of pages, filled in as by a browser: which one has the given fields, and where it may be sent.

A form with a password goes to its page's own host alone, by POST, and not over plain HTTP from a page with TLS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from anabranch.crawler.extract.html import Node, parsed
from anabranch.crawler.urls.parsing import authority_of, canonical, host_of

#: Types of `input` that send no value.
_NO_VALUE = frozenset({"image", "button", "reset", "file"})
#: Those that are sent only if they are checked.
_CHECKED = frozenset({"checkbox", "radio"})


class Form(NamedTuple):
    """A form, filled in."""

    action: str  #: canonical URL
    fields: tuple[tuple[str, str], ...]


def may_send(url: str, page: str) -> bool:
    """Whether a login of this page may go to a URL: the same host and port, or https of the host. Both are canonical. Pure."""
    is_upgrade = page.startswith("http:") and url.startswith("https:")
    if is_upgrade:
        return host_of(url) == host_of(page)
    is_downgrade = page.startswith("https:") and url.startswith("http:")
    return not is_downgrade and authority_of(url) == authority_of(page)


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


def _names_in(form: Node) -> set[str]:
    return {name for one in form.css("input, select, textarea") if (name := one.attributes.get("name"))}


def _values_in(form: Node, given: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """The fields as a browser sends them, with the first button that has a name."""
    inputs = [(one, _kind_of(one)) for one in form.css("input, select, textarea, button")]
    button = next((one.attributes.get("name") for one, kind in inputs if kind == "submit"), None)
    for one, kind in inputs:
        name = one.attributes.get("name")
        if name and (name in given or _is_sent(one, kind, is_button=name == button)):
            yield name, given.get(name, _value_of(one, "on" if kind in _CHECKED else ""))


def _kind_of(one: Node) -> str:
    return (one.attributes.get("type") or ("submit" if one.tag == "button" else "text")).lower()


def _is_sent(one: Node, kind: str, *, is_button: bool) -> bool:
    """Whether a browser sends it; of several buttons only the one that is pressed."""
    if "disabled" in one.attributes or kind in _NO_VALUE:
        return False
    return is_button if kind == "submit" else kind not in _CHECKED or "checked" in one.attributes


def _value_of(one: Node, default: str) -> str:
    if one.tag == "textarea":
        return one.text()
    if one.tag == "select":
        chosen = one.css_first("option[selected]") or one.css_first("option")
        return "" if chosen is None else chosen.attributes.get("value") or chosen.text(strip=True)
    return one.attributes.get("value") or default
