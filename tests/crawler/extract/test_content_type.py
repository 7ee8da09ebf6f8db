"""What is remembered of texts that sites choose."""

from __future__ import annotations

from anabranch.crawler.extract.content_type import SHORT_CHARS, remembered


def test_short_texts_are_worked_out_once_and_long_ones_each_time() -> None:
    """Nothing is kept of what is long; both have their answer."""
    asked: list[int] = []

    @remembered(2)
    def size(text: str) -> int:
        asked.append(len(text))
        return len(text)

    for chars in (SHORT_CHARS, SHORT_CHARS + 1) * 2:
        assert size("x" * chars) == chars
    assert asked == [SHORT_CHARS, SHORT_CHARS + 1, SHORT_CHARS + 1]
