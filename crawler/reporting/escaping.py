"""Text from the web, made safe for a terminal."""

from __future__ import annotations


def escaped(text: str) -> str:
    """The text without anything that a terminal would obey, and without lone surrogates."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode() for char in text
    )
