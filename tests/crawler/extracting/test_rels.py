"""What a relation means."""

import pytest

from anabranch.crawler.extracting.rels import hop_of_rel


@pytest.mark.parametrize(
    ("rel", "hop"),
    [
        ("stylesheet", "E"),
        ("Preload", "E"),
        ("manifest", "E"),
        ("apple-touch-icon", "E"),
        ("next icon", "E"),
        ("next", "L"),
        ("preconnect", None),
        ("pingback icon", None),
        ("", None),
        (None, None),
    ],
)
def test_what_renders_is_embedded_hints_are_nothing_the_rest_leads_on(rel, hop) -> None:
    """Keyword by keyword, the first that decides."""
    assert hop_of_rel(rel) == hop
