"""What a terminal is never told."""

from anabranch.crawler.reporting.escaping import escaped


def test_a_text_of_the_web_commands_no_terminal() -> None:
    """Controls, direction marks and lone surrogates are written out; all else stays."""
    assert escaped("a\x1b[2J\r\n\u202e\x9b\udcff ü") == r"a\x1b[2J\r\n\u202e\x9b\udcff ü"
