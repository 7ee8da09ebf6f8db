"""Tests of tables for a terminal: no control character reaches it."""

from __future__ import annotations

import json
from itertools import count

from anabranch.crawler.report.table import ReportTable, escaped, folded, json_facts, report_of, text_lines


def test_a_text_of_the_web_commands_no_terminal() -> None:
    """Controls, direction marks and lone surrogates are written out; all else stays."""
    assert escaped("a\x1b[2J\r\n\u202e\x9b\udcff ü") == r"a\x1b[2J\r\n\u202e\x9b\udcff ü"


TABLE = ReportTable(("#urls", "name"), [(1, "a"), (2.5, None)])
WIDE = ReportTable(("code", "word", "seed"), [(200, "CRAWLED", "a")], right=(6, -10))
FACTS = ReportTable((), [("Crawl Name", "portals"), ("URIs/sec", 1.25)])


def test_heads_stand_in_brackets_and_cells_are_parted_by_a_space() -> None:
    """A missing cell is a dash; fractions have two digits."""
    assert "".join(text_lines(TABLE)) == "[#urls] [name]\n1 a\n2.50 -\n"
    assert "".join(text_lines(WIDE)) == "[code] [word] [seed]\n   200 CRAWLED    a\n"
    assert "".join(text_lines(FACTS)) == "Crawl Name: portals\nURIs/sec: 1.25\n"


def test_long_lines_are_folded_between_words() -> None:
    """The rest is indented; a word that is longer than the line stays whole, as a URL that is copied."""
    assert folded("one two three\nfour\n", 8) == "one two\n  three\nfour\n"
    assert folded("at http://a-b.test/a-long-path", 10) == "at\n  http://a-b.test/a-long-path"


def test_nothing_that_a_site_sent_reaches_the_terminal() -> None:
    """Control characters and lone surrogates are escaped, lines stay lines."""
    assert list(text_lines(ReportTable(("x",), [("\x1b[2J\n\ud800",)]))) == ["[x]\n", "\\x1b[2J\\n\\ud800\n"]


def test_json_holds_so_many_rows_and_says_if_there_are_more() -> None:
    """A table without end costs what is shown of it."""
    endless = ReportTable(("n",), ((number,) for number in count()))
    assert json_facts(endless, 2) == {"heads": ["n"], "rows": [{"n": 0}, {"n": 1}], "more": True, "widths": []}
    assert json_facts(TABLE, 2)["more"] is False


def test_a_report_comes_back_from_its_json() -> None:
    """The report of a running crawl is printed like that of a stopped one."""
    for report in (TABLE, WIDE, FACTS):
        again = report_of(json.loads(json.dumps(json_facts(report, 10))))
        assert list(text_lines(again)) == list(text_lines(report))
