"""The figures of a filter as curves and rows."""

from anabranch.crawler.console.pages.filter import dropped_share, figure_rows, filter_verdict


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


def test_the_verdict_says_whether_pages_are_lost() -> None:
    """Fewer than half a page is none; as many as were planned for are well; whole sites never are."""
    facts = {
        "keys": 1671.0,
        "expected_lost": 0.01,
        "false_drop_probability": 1e-6,
        "planned_false_drop_probability": 1e-4,
    }
    assert filter_verdict(facts) == (False, "Healthy: 1,671 URLs known; none expected lost.")
    lost = facts | {"expected_lost": 3.0, "false_drop_probability": 1e-4}
    assert filter_verdict(lost) == (
        False, "Healthy: 1,671 URLs known; about 3 expected lost, 0.0001 of the new ones now, as planned.",
    )  # fmt: skip
    is_bad, words = filter_verdict(lost | {"false_drop_probability": 0.2})
    assert is_bad
    assert words.startswith("It loses more than planned: 1,671 URLs known; about 3 expected lost")
    assert filter_verdict(facts | {"smm_is_linear": 1.0})[0]
    assert filter_verdict({}) == (False, "The filter has not been asked yet.")
