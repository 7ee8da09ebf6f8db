"""The figures of a filter as curves and rows."""

from anabranch.crawler.console.pages.filter import dropped_share, figure_rows


def test_the_dropped_share_is_of_all_questions() -> None:
    """Before the first question, and of a filter that counts none, there is no share."""
    assert dropped_share({"asked": 200.0, "dropped": 50.0}) == 0.25
    assert dropped_share({"asked": 0.0, "dropped": 0.0}) is None
    assert dropped_share({"asked": 200.0}) is None


def test_figures_come_in_the_order_of_the_report_with_their_meaning() -> None:
    """Those of a plug-in come last, and are text."""
    rows = figure_rows({"<own>\x1b": "x\u202e", "smm_fill": 0.000123456, "keys": 12345.0})
    assert [(row["figure"], row["value"]) for row in rows] == [
        ("keys", "12,345"),
        ("smm_fill", "0.0001235"),
        ("<own>\\x1b", "x\\u202e"),
    ]
    assert rows[0]["meaning"] == "URLs known"
