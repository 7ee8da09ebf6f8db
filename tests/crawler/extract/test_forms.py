"""Forms that are filled in: which form, what is sent, and where it may go."""

from __future__ import annotations

import pytest

from anabranch.crawler.extract.forms import Form, filled_form, may_send
from tests.rows import each_row

URL = "https://a.test/in/login?next=%2F"
GIVEN = (("user", "me"), ("pass", "hunter22"))
FIELDS = "<input name=user><input name=pass type=password>"


def test_a_form_is_filled_in_as_by_a_browser() -> None:
    """Hidden fields, chosen options, checked boxes and the first button are sent; the rest is not."""
    page = f"""<form method=POST action=/session>{FIELDS}
    <input type=hidden name=csrf value="t&amp;1"><input type=checkbox name=stay checked><input type=checkbox name=no>
    <input type=radio name=kind value=a><input type=radio name=kind value=b checked>
    <select name=lang><option value=de>d<option value=en selected>e</select><select name=tz><option>UTC</select>
    <textarea name=note>x</textarea><input name=off disabled value=1><input type=file name=file><input value=nameless>
    <button name=go value=1>Go</button><input type=submit name=other value=2></form>"""
    assert filled_form(page.encode(), URL, GIVEN) == Form(
        "https://a.test/session",
        (
            *GIVEN,
            ("csrf", "t&1"),
            ("stay", "on"),
            ("kind", "b"),
            ("lang", "en"),
            ("tz", "UTC"),
            ("note", "x"),
            ("go", "1"),
        ),
    )


@each_row(
    ("page", "action"),
    [
        (f"<form method=post>{FIELDS}</form>", "https://a.test/in/login?next=%2F"),
        (f"<form method=post action=do>{FIELDS}</form>", "https://a.test/in/do"),
        (f"<base href=/b/><form method=post action=do>{FIELDS}</form>", "https://a.test/b/do"),
        (
            f"<form method=post action=/1><input name=user><input name=pass></form><form method=post action=/2>{FIELDS}",
            "https://a.test/2",
        ),
        (f"<form method=post action=/1><input name=q></form><form method=post action=/2>{FIELDS}", "https://a.test/2"),
        (f"<form method=post action=https://a.test:444/>{FIELDS}</form>", None),
        (f"<form method=post action=https://b.test/>{FIELDS}</form>", None),
        (f"<form method=post action=http://a.test/>{FIELDS}</form>", None),
        (f"<base href=https://b.test/><form method=post action=x>{FIELDS}</form>", None),
        (f"<form action=/x>{FIELDS}</form>", None),
        ("<form method=post action=/x><input name=user></form>", None),
        ("no form", None),
    ],
)
def test_the_form_is_found_by_its_fields_and_goes_to_its_own_host(page: str, action: str | None) -> None:
    """Never to another host, never without TLS if its page has it, never by GET, where the password would stand in the URL."""
    form = filled_form(page.encode(), URL, GIVEN)
    assert (None if form is None else form.action) == action


@each_row(
    ("url", "page", "may"),
    [
        ("http://a.test/x", "http://a.test/login", True),
        ("https://a.test/x", "http://a.test:8080/login", True),
        ("http://a.test/x", "https://a.test/login", False),
        ("http://a.test:81/x", "http://a.test/login", False),
        ("http://www.a.test/x", "http://a.test/login", False),
        ("https://[::1]/x", "http://[::1]:8080/login", True),
        ("https://[2001:db8::1]/x", "http://[2001:db8::2]/login", False),
    ],
)
def test_a_login_stays_on_its_host(url: str, page: str, may: bool) -> None:
    """Same host and port, or up to TLS."""
    assert may_send(url, page) is may


@pytest.mark.parametrize("depth", [100_000])
def test_a_hostile_login_page_costs_bounded_time(depth: int) -> None:
    """Deep nesting and very many fields are read like any page."""
    assert filled_form(b"<form>" * depth, URL, GIVEN) is None
    assert filled_form(b"<form method=post>" + b"<input name=a value=b>" * depth, URL, GIVEN) is None
