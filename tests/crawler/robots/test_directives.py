"""Tests of the directives for robots in the header and in the head of a page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.robots.directives import MAX_DIRECTIVES, NOTHING, Directives, header_directives, meta_directives
from tests.rows import each_row

NOW_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def asked(*values: str, product: str = "Anabranch") -> tuple[str, ...]:
    """Return the directives of the X-Robots-Tag fields, in crawl.log's words."""
    return header_directives(values, product, NOW_S).annotations


def asked_by(*metas: tuple[str, str], product: str = "Anabranch") -> tuple[str, ...]:
    return meta_directives(metas, product, NOW_S).annotations


@each_row(
    ("value", "words"),
    [
        ("nofollow", ("nofollow",)),
        ("none", ("nofollow", "noindex")),
        (" NoIndex ,  NOFOLLOW", ("nofollow", "noindex")),
        ("noarchive", ("noarchive",)),
        ("nocache", ("noarchive",)),
        ("all", ()),
        ("index, follow", ()),
        ("follow, nofollow", ("nofollow",)),
        ("", ()),
        (",,,", ()),
        ("nofollowing", ()),
        ("max-snippet: 20, nofollow", ("nofollow",)),
        ("max-image-preview:large", ()),
    ],
)
def test_words_are_read_in_any_case_and_the_stricter_holds(value: str, words: tuple[str, ...]) -> None:
    """In a header and in a meta element alike; what is not known says nothing."""
    assert asked(value) == asked_by(("robots", value)) == words


def test_several_fields_hold_together() -> None:
    """Several meta elements hold together, too."""
    assert asked("noindex", "nofollow") == ("nofollow", "noindex")
    assert asked_by(("robots", "noindex"), ("ROBOTS ", "nofollow")) == ("nofollow", "noindex")
    assert Directives(nofollow=True) | Directives(noarchive=True) == Directives(nofollow=True, noarchive=True)


def test_what_is_said_to_another_robot_does_not_hold_for_us() -> None:
    """In the header an agent stands in front and holds to the end of its field; the next field is everybody's again."""
    assert asked("googlebot: nofollow, noindex") == ()
    assert asked("googlebot: nofollow", "noindex") == ("noindex",)
    assert asked("noindex, otherbot: nofollow") == ("noindex",)
    assert asked("otherbot: noindex, anabranch : nofollow, noarchive") == ("nofollow", "noarchive")
    assert asked_by(("googlebot", "none"), ("description", "nofollow")) == ()


def test_what_is_said_to_our_product_holds_beside_what_is_said_to_everybody() -> None:
    """In any case, by the whole token."""
    assert asked("ANABRANCH: nofollow", "noindex") == ("nofollow", "noindex")
    assert asked_by(("anaBranch", "nofollow"), ("robots", "noindex")) == ("nofollow", "noindex")
    assert asked("ana: nofollow") == asked("anabranch2: nofollow") == ()


@each_row(
    ("date", "has_passed"),
    [
        ("25 Jun 2010 15:00:00 PST", True),
        ("Wednesday, 31-Dec-25 23:59:59 GMT", True),
        ("Fri, 02 Jan 2026 00:00:00 GMT", False),
        ("Thu, 01 Jan 2026 00:00:00 GMT", True),
        ("2025-12-31", True),
        ("2026-01-01T00:00:01Z", False),
        ("2026-01-01T01:00:00+02:00", True),
        ("someday", False),
        ("", False),
        ("99999999999999999999", False),
        ("1 Jan 99999 00:00:00 GMT", False),
    ],
)
def test_a_page_is_unavailable_once_its_date_has_passed(date: str, has_passed: bool) -> None:
    """Then it asks for what `noindex` asks; its commas and colons part nothing, and what follows is read as ever."""
    words = ("noindex",) if has_passed else ()
    for value in (f"unavailable_after: {date}", f"Unavailable_After:{date}"):
        assert asked(value) == asked_by(("robots", value)) == words
    assert asked(f"unavailable_after: {date}, nofollow") == ("nofollow", *words)
    assert asked(f"anabranch: unavailable_after: {date}") == words
    assert asked(f"otherbot: unavailable_after: {date}") == ()


def test_nofollow_closes_links_but_not_what_the_page_itself_needs() -> None:
    """Embeds, redirects and inferred files are the page's; without nofollow all is open."""
    closed = Directives(nofollow=True, noindex=True)
    assert {hop: closed.may_follow(hop) for hop in "LSXMEIR"} == {
        **dict.fromkeys("LSXM", False),
        **dict.fromkeys("EIR", True),
    }
    assert all(NOTHING.may_follow(hop) for hop in "LSXMEIR")
    assert all(Directives(noindex=True).may_follow(hop) for hop in "LSXMEIR")


def test_of_endless_words_the_first_thousand_are_read() -> None:
    """In one field, over many fields, and in many elements."""
    padding = "a," * (MAX_DIRECTIVES - 1)
    assert asked(padding + "nofollow") == ("nofollow",)
    assert asked("a," + padding + "nofollow") == ()
    assert (
        asked(*["a"] * MAX_DIRECTIVES, "nofollow")
        == asked_by(*[("robots", "a")] * MAX_DIRECTIVES, ("robots", "nofollow"))
        == ()
    )


@given(st.lists(st.text(max_size=60), max_size=5))
def test_no_text_breaks_the_reading(values: list[str]) -> None:
    """A site may send anything."""
    header_directives(values, "x", NOW_S)
    meta_directives([("robots", value) for value in values], "x", NOW_S)
    header_directives([f"unavailable_after: {value}" for value in values], "x", NOW_S)
