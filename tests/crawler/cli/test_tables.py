"""Answers of the verbs are lines: aligned, complete, and harmless whatever a queue is called."""

from __future__ import annotations

import pytest

from anabranch.crawler.cli.tables import (
    PIPE_WIDTH,
    column_widths,
    explained,
    gate_line,
    listing,
    name,
    queue_line,
    report_text,
    table_lines,
)
from anabranch.crawler.lab.report import NOT_RECOVERABLE, LabReport, Table

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
    assert why == "Not running. If started now: nothing is queued"
    assert ls({}, why_idle="")[-1] == "Not running. If started now: it can fetch at once"
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
    facts = {"gate": {"gate": evil, "why_closed": ""}, "note": evil, "queue": QUEUE | {"queue": evil, "reason": evil}}
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
    """They have the words of the Frontier, and nothing that a terminal obeys."""
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
        r"  last trouble, 1m 5s ago: bad HTTP: \x1b[2J, tried again in 5.0s (http://a.test/)"
    )


def test_what_robots_txt_decides_is_told_behind_the_scope() -> None:
    """It is plain text, because a group's name comes from a site."""
    text = explained({"now_s": 0.0, "explanation": explanation(), "scope": "in scope", "robots": "allowed: \x1b"})
    assert text.splitlines()[-2:] == ["  in scope", r"  robots.txt: allowed: \x1b"]


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
    assert gate_line({"gate": {"gate": "a.test", "why_closed": "blocked for another 60 s"}, "note": ""}) == (
        "gate a.test: blocked for another 60 s"
    )
    assert (
        gate_line({"gate": {"gate": "a.test", "why_closed": ""}, "note": "it is new"}) == "gate a.test: open\nit is new"
    )
    assert queue_line({"queue": QUEUE}).startswith("queue bkdr:5: inactive; it holds 12,345 URLs")


def table(*rows, columns, note=""):
    return Table(title="T", columns=columns, rows=rows, note=note)


def text_of(*tables, closing=(), **how):
    return report_text(LabReport(name="x", tables=tables, panels=(), closing=closing), **how)


def lines(what, width=PIPE_WIDTH):
    return [line for line, _ in table_lines(what, width)]


def test_numbers_stand_right_and_texts_left() -> None:
    """A lost figure among numbers does not change that."""
    shown = lines(table(("a", 1, NOT_RECOVERABLE), ("bbb", 20_000, None), columns=("name", "n", "published")))
    assert shown == [
        "name       n        published",
        "-----------------------------",
        "a          1  not recoverable",
        "bbb   20,000",
    ]


def test_heads_are_broken_between_words_until_the_table_fits() -> None:
    """The widest first; they stand on the rule."""
    shown = lines(table((1, 2), columns=("query of the whole table", "n")), width=14)
    assert shown == ["   query of", "  the whole", "      table  n", "--------------", "          1  2"]


def test_a_table_that_fits_is_not_broken() -> None:
    """However wide the terminal is."""
    assert lines(table((1, 2), columns=("query of all", "n")))[0] == "query of all  n"


def test_cells_are_whole_even_where_the_table_cannot_fit() -> None:
    """It is wider then: half a number is worse than a long line."""
    what = table((2_038_838, "Bloom m=8,000,000 k=10"), columns=("first", "method"))
    assert lines(what, width=10)[-1] == "2,038,838 Bloom m=8,000,000 k=10"


def test_columns_move_together_before_a_table_is_too_wide() -> None:
    """One blank between them is enough to read it."""
    what = table((10_000, 20_000), columns=("a", "b"))
    assert lines(what, width=14)[-1] == "10,000  20,000"
    assert lines(what, width=13)[1:] == ["-------------", "10,000 20,000"]


def test_a_long_text_in_a_cell_is_broken_between_words() -> None:
    """The row takes more lines then, and hangs from its first one."""
    long = "overflow for portals, waste on small sites"
    shown = lines(table((long, 7), columns=("published", "n")), width=25)
    assert shown[2:] == ["overflow for portals,   7", "waste on small sites"]


@pytest.mark.parametrize(
    ("rows", "head", "shown"),
    [
        ((), "c", ["c", "-"]),
        ((("x",),), "c", ["c", "-", "x"]),
        (((None,),), "", ["", "-", ""]),
        ((("",),), "c", ["c", "-", ""]),
    ],
)
def test_a_table_may_be_small(rows, head, shown) -> None:
    """No rows, one cell, or nothing in it."""
    assert column_widths(table(*rows, columns=(head,)), 100) == [1]
    assert lines(table(*rows, columns=(head,))) == shown


def test_a_report_is_title_table_note_and_closing() -> None:
    """In plain ASCII lines in a pipe, none wider than asked, no blanks at the ends."""
    note, closing = "word " * 60, "sentence " * 40
    shown = text_of(table((1,), columns=("n",), note=note), closing=(closing, "[end]"))
    assert shown.startswith("T\nn\n-\n1\nword word")
    assert shown.endswith("* [end]\n")
    assert max(map(len, shown.splitlines())) <= 100
    assert all(line == line.rstrip() for line in shown.splitlines())
    assert shown.count("word") == 60
    assert shown.count("sentence") == 40
    assert "\x1b" not in shown


def test_on_a_terminal_titles_stand_out(monkeypatch) -> None:
    """The words are the same."""
    monkeypatch.setenv("TERM", "xterm")
    shown = text_of(table((1,), columns=("n",)), width=40, is_terminal=True)
    assert "\x1b[1mT" in shown


def test_what_looks_like_markup_is_text() -> None:
    """Units in brackets are no style."""
    shown = text_of(table(("[bold]",), columns=("[µs]",)))
    assert "[µs]" in shown
    assert "[bold]" in shown
