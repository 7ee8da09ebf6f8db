"""The lines of links.jsonl."""

from __future__ import annotations

import json

from crawler.reporting.links import links_line
from tests.crawler.archiving.exchanges import Found


def test_a_page_has_one_line_with_its_links_in_order() -> None:
    """Hop and context of each; whatever a page names, the line stays one line of UTF-8."""
    line = links_line(
        "http://a.test/", "LE", [Found("http://a.test/ü", "L", "a/@href"), Found("http://a.test/\ud800", "E")]
    )
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "url": "http://a.test/",
        "hops": "LE",
        "links": [
            {"url": "http://a.test/ü", "hop": "L", "context": "a/@href"},
            {"url": "http://a.test/?", "hop": "E", "context": ""},
        ],
    }
