"""What the verbs answer, as lines: aligned, complete, and harmless whatever a queue is called."""

from __future__ import annotations

from anabranch.crawler.cli.frontier_tables import explained, gate_line, listing, name, queue_line

QUEUE = {
    "queue": "bkdr:5",
    "state": "inactive",
    "urls": 12345,
    "waiting": 3,
    "in_flight": 0,
    "precedence": 3,
    "spent": 7,
    "budget": None,
    "gates": 3,
    "gate": "a.test",
    "opens_in_s": 12.0,
    "reason": "it holds 12,345 URLs, 3 waiting for a retry; all its 3 gates are closed",
}
TOTALS = {
    "pending": 12,
    "waiting": 3,
    "in_flight": 1,
    "done": 5,
    "failed": 1,
    "disregarded": 2,
    "retired": 4,
    "gates_open": 0,
    "queues": {"inactive": 2, "paused": 1, "ready": 0},
    "why_idle": "nothing is queued",
}


def ls(*queues, is_running=False, **totals):
    facts = {"now_s": 0.0, "queues": [QUEUE | queue for queue in queues], "totals": TOTALS | totals}
    return listing(facts, is_running=is_running).splitlines()


def test_the_table_has_a_row_for_each_queue_under_its_heads() -> None:
    """Numbers stand right; a reason says only what no other column says."""
    heads, first, second, blank, *_ = ls({}, {"queue": "x", "urls": 1, "budget": 10, "gates": 1, "opens_in_s": 0.0})
    assert " ".join(heads.split()) == "queue state URLs waiting in flight prec spent/budget gate opens in reason"
    assert first.split()[:8] == ["bkdr:5", "inactive", "12,345", "3", "0", "3", "7/-", "a.test"]
    assert first.endswith("a.test +2       12s  all its 3 gates are closed")
    assert "7/10" in second
    assert " open " in second
    assert heads.index("URLs") + 4 == first.index("12,345") + 6 == second.index(" 1 ") + 2
    assert blank == ""


def test_the_totals_are_one_line_and_say_why_nothing_runs() -> None:
    """A crawl that runs is told apart from one that would."""
    numbers, why = ls({})[-2:]
    assert numbers == (
        "12 URLs queued (3 wait for a retry), 1 in flight, 4 in retired queues; 5 done, 1 failed, 2 disregarded; "
        "queues: 2 inactive 1 paused"
    )
    assert why == "no crawl runs; for one that did: nothing is queued"
    assert ls({}, why_idle="")[-1] == "no crawl runs; for one that did: URLs can be leased at once"
    assert ls({}, is_running=True)[-1] == "nothing can be leased now: nothing is queued"
    assert ls({}, is_running=True, why_idle="")[-1] == "URLs can be leased now"


def test_no_queue_is_said_in_words() -> None:
    """Heads without rows would look like an error."""
    assert ls()[0] == "no queue to show"


def test_a_gate_without_a_time_has_a_dash() -> None:
    """It is blocked for good, or there is none."""
    _, row, *_ = ls({"opens_in_s": None, "gate": None, "gates": 0})
    assert "  -  " in row


def test_names_cannot_command_a_terminal() -> None:
    """They come from the web."""
    evil = "a\x1b[2J\r\n\u202e"
    shown = "\n".join(ls({"queue": evil, "gate": evil, "reason": evil}))
    facts = {"gate": {"gate": evil, "why_closed": ""}, "queue": QUEUE | {"queue": evil, "reason": evil}}
    for text in (shown, gate_line(facts), queue_line(facts)):
        assert "\x1b" not in text
        assert "\r" not in text


def test_long_names_are_cut() -> None:
    """A key may have ten thousand characters."""
    assert len(name("x" * 10_000)) == 48
    assert max(map(len, ls({"queue": "x" * 10_000}))) < 300


def explanation(**more):
    plain = {
        "subject": "q",
        "seen": True,
        "state": "inactive",
        "queue": "q",
        "gate": None,
        "group": None,
        "reason": "it waits for its turn",
        "earliest_s": None,
        "highest_rate": None,
        "ahead": None,
    }
    return plain | more


def test_an_explanation_is_a_few_lines() -> None:
    """As the Frontier words it, with nothing that a terminal obeys."""
    text = explained(
        {"now_s": 0.0, "explanation": explanation(subject="http://a.test/\x1b", highest_rate=float("inf"))}
    )
    assert text.splitlines() == [
        r"http://a.test/\x1b: inactive",
        "  queue q",
        "  it waits for its turn",
        "  its gates allow at most: no limit",
    ]


def test_why_a_try_failed_stands_last() -> None:
    """With how long ago; what a site said is no order to a terminal."""
    trouble = {
        "url": "http://a.test/",
        "reason": "bad HTTP: \x1b[2J",
        "ago_s": 65.0,
        "is_final": False,
        "again_in_s": 5.0,
    }
    text = explained({"now_s": 0.0, "explanation": explanation(), "last_trouble": trouble})
    assert text.splitlines()[-1] == (
        r"  last trouble, 1m 5s ago: http://a.test/: bad HTTP: \x1b[2J, tried again in 5.0s"
    )


def test_a_queue_is_explained_with_its_gates() -> None:
    """The first of them, and how many more there are."""
    group = {
        "gate": "ip:1.2.3.4",
        "opens_in_s": None,
        "rate_per_s": 1.0,
        "why_closed": "its only slot is out",
        "group": None,
    }
    gates = [
        {"gate": "a.test", "opens_in_s": 3.0, "rate_per_s": 0.5, "why_closed": "rests for another 3 s", "group": group},
        {"gate": "b.test", "opens_in_s": 0.0, "rate_per_s": None, "why_closed": "", "group": None},
    ]
    text = explained({"now_s": 0.0, "explanation": explanation(), "queue": QUEUE, "gates": gates})
    *_, heads, first, second, more = text.splitlines()
    assert " ".join(heads.split()) == "gate opens in at most why closed"
    assert first.split("  ")[0] == "a.test in ip:1.2.3.4"
    assert first.endswith("rests for another 3 s; its only slot is out")
    assert second.split() == ["b.test", "open", "no", "limit"]
    assert more == "and 1 more gate"


def test_an_order_is_answered_in_one_line() -> None:
    """How the gate or the queue is then."""
    assert gate_line({"gate": {"gate": "a.test", "why_closed": "blocked for another 60 s"}}) == (
        "gate a.test: blocked for another 60 s"
    )
    assert gate_line({"gate": {"gate": "a.test", "why_closed": ""}}) == "gate a.test: open"
    assert queue_line({"queue": QUEUE}).startswith("queue bkdr:5: inactive; it holds 12,345 URLs")
