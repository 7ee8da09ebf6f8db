"""A report as rows, and as a file."""

from __future__ import annotations

import json

from anabranch.crawler.console.pages.reports import report_rows, written

TABLE = {"heads": ["#urls", "host"], "rows": [{"#urls": 2, "host": "a\x1b.test"}], "more": False, "widths": []}


def test_cells_keep_their_numbers_and_have_printable_texts() -> None:
    """So a column can be sorted, and nothing of a site is obeyed."""
    assert report_rows(TABLE) == (("#urls", "host"), [{"row": 0, "c0": 2, "c1": "a\\x1b.test"}])
    assert report_rows({"facts": {"Round": 1}}) == (("name", "value"), [{"row": 0, "c0": "Round", "c1": 1}])


def test_a_file_has_what_the_command_prints() -> None:
    """It can be had as text and as JSON."""
    assert written(TABLE, "txt") == b"[#urls] [host]\n2 a\\x1b.test\n"
    assert json.loads(written(TABLE, "json")) == TABLE


def test_a_report_is_a_table_for_spreadsheets() -> None:
    """RFC 4180; a text of a site is no formula, and a missing cell is empty."""
    facts = {
        "heads": ["n", "host"],
        "rows": [{"n": 1, "host": '=1+1,"'}, {"n": None, "host": "b"}],
        "more": False,
        "widths": [],
    }
    assert written(facts, "csv") == b'n,host\r\n1,"\'=1+1,"""\r\n,b\r\n'
    assert written({"facts": {"Round": 2}}, "csv") == b"name,value\r\nRound,2\r\n"
