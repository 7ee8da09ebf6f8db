"""Rules before the body: what each key of an entry means, the last that decides wins, and `why` traces them."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from anabranch.crawler.fetch.response import PageHead, header_fields
from anabranch.crawler.order.fetch import FetchSection
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.order.sections import BodyEntry
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed
from anabranch.crawler.scope.body import BodyRules, body_rules_of
from tests.rows import each_row

URL = "http://www.a.test/films/1"


def head(**given: object) -> PageHead:
    """The answer of a film; `fields` replaces its header."""
    fields = given.pop("fields", [("Content-Type", "Video/MP4; x=y"), ("Content-Length", "5000")])
    raw = [(name.encode(), text.encode()) for name, text in fields]  # type: ignore[attr-defined]
    usual = PageHead(URL, 200, header_fields(raw), "192.0.2.7", "LE", "http://seed.test/")
    return usual._replace(**given)  # type: ignore[arg-type]


def rules(*entries: dict[str, object], functions: tuple[str, ...] = ()) -> BodyRules:
    order = CrawlOrder(body=tuple(BodyEntry.model_validate(one) for one in entries))
    order = order.model_copy(update={"fetch": FetchSection(body_rules=functions)})
    found = body_rules_of(order)
    assert found is not None
    return found


@each_row(
    ("entry", "holds"),
    [
        ({}, True),
        ({"status": 200}, True),
        ({"status": "2xx"}, True),
        ({"status": [404, "200-299"]}, True),
        ({"status": ["404", "201-299"]}, False),
        ({"media_types": "video/*"}, True),
        ({"media_types": ["image/*", "VIDEO/mp4"]}, True),
        ({"media_types": "video/mp"}, False),
        ({"min_length": 5000}, True),
        ({"min_length": "5001B"}, False),
        ({"max_length": 5000}, True),
        ({"max_length": 4999}, False),
        ({"headers": {"content-type": "*mp4*"}}, True),
        ({"headers": {"content-type": "mp4"}}, False),
        ({"headers": {"X-None": "*"}}, False),
        ({"addresses": "192.0.2.0/24"}, True),
        ({"addresses": ["2001:db8::/32", "192.0.2.8/32"]}, False),
        ({"hops": "E$"}, True),
        ({"hops": "^E"}, False),
        ({"surt": "a.test"}, True),
        ({"surt": "http://www.a.test/other/"}, False),
        ({"seeds": ["seed.test"]}, True),
        ({"seeds": "a.test"}, False),
        ({"status": 200, "media_types": "text/*"}, False),
    ],
)
def test_an_entry_decides_where_all_that_it_names_holds(entry: dict[str, object], holds: bool) -> None:
    """An entry without a condition decides about each answer."""
    assert rules(entry).stopped_by(head()) == int(holds)


@each_row(
    ("entry", "given"),
    [
        ({"min_length": 1}, {"fields": []}),
        ({"max_length": 1}, {"fields": []}),
        ({"min_length": 1}, {"fields": [("Content-Length", "9" * 5000)]}),
        ({"addresses": "0.0.0.0/0"}, {"address": ""}),
        ({"addresses": "::/0"}, {"address": "192.0.2.7"}),
        ({"seeds": "seed.test"}, {"seed": ""}),
    ],
)
def test_what_is_not_known_decides_nothing(entry: dict[str, object], given: dict[str, object]) -> None:
    """A length that is missing or absurd, an address behind a proxy, a seed without a tag."""
    assert rules(entry).stopped_by(head(**given)) == 0


def test_an_ipv4_address_is_one_in_ipv6_too() -> None:
    """As a socket for both families names it."""
    assert rules({"addresses": "192.0.2.0/24"}).stopped_by(head(address="::ffff:192.0.2.7")) == 1


def test_the_last_rule_that_decides_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions come behind the entries; None leaves it to those before."""
    answers: list[object] = [None]
    ours = ModuleType("ours")
    vars(ours)["rule"] = lambda head: answers[0]
    monkeypatch.setitem(sys.modules, "ours", ours)
    entries = {}, {"read": True, "surt": "www.a.test"}, {"status": 500}
    asked = rules(*entries, functions=("ours:rule",))
    assert asked.stopped_by(head(url="http://b.test/")) == 1
    assert asked.stopped_by(head()) == 0
    assert asked.stopped_by(head(status=500)) == 3
    answers[0] = False
    assert asked.stopped_by(head()) == 4
    answers[0] = True
    assert asked.stopped_by(head(status=500)) == 0
    answers[0] = 1
    with pytest.raises(UserFunctionFailed, match=r"^body rule ours:rule answered 1; it must be True, False or None$"):
        asked.stopped_by(head())


def test_a_function_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it wants to end the program."""
    ours = ModuleType("ours")
    vars(ours)["exits"] = lambda head: sys.exit("x")
    monkeypatch.setitem(sys.modules, "ours", ours)
    with pytest.raises(UserFunctionFailed, match=r"^body rule ours:exits failed: SystemExit: x$"):
        rules(functions=("ours:exits",)).stopped_by(head())


def test_without_rules_nothing_is_asked() -> None:
    """So it costs nothing."""
    assert body_rules_of(CrawlOrder()) is None


def test_why_names_the_rules_that_may_decide() -> None:
    """By what is known before the answer; no function is imported for it."""
    order = CrawlOrder(
        body=(
            BodyEntry(media_types=("video/*",), min_length=1 << 20),
            BodyEntry(surt=("b.test",)),
            BodyEntry(read=True, hops="E$", seeds=("c.test",)),
        ),
        fetch=FetchSection(body_rules=("no_such_module:rule",)),
    )
    found = body_rules_of(order, runs=False)
    assert found is not None
    assert found.words_before(URL, "LE").splitlines() == [
        "of the answer, by the last rule that decides:",
        "  1 body leaves it unread: at least 1MiB, media type video/*",
        "  3 body reads it: hops E$, found from seeds below c.test",
        "  4 no_such_module:rule is asked",
    ]
    assert found.words_of(2) == "left unread by rule 2 (body): URLs below b.test"
    assert found.words_of(5) == "left unread by rule 5, which the order has no more"


def test_no_header_makes_a_pattern_slow() -> None:
    """A site chooses the header: a pattern of many stars takes linear time."""
    asked = rules({"headers": {"X": "*a*a*a*a*a*a*a*b"}, "media_types": "*a*a*a*a*a*a*b"})
    long = head(fields=[("X", "a" * 100_000), ("Content-Type", "a" * 100_000)])
    assert asked.stopped_by(long) == 0  # one that tries all places would take years
