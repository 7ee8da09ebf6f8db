"""The curves of the pages."""

from anabranch.crawler.console.pages.charts import points


def test_a_line_is_broken_where_nothing_was_known_for_long() -> None:
    """Between two runs there was no crawl; a moment without a value is left out."""
    assert points([(0.0, 1.0), (60.0, None), (100.0, 2.0), (500.0, 3.0)]) == [
        [0.0, 1.0],
        [100_000.0, 2.0],
        [100_001.0, None],
        [500_000.0, 3.0],
    ]
