"""The lines of links.jsonl."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.reporting.links import links_line
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


@given(st.text(), st.text(), st.lists(st.builds(Found, st.text(), st.text(), st.text()), max_size=3))
def test_a_line_is_what_the_library_makes_of_its_fields(url: str, hops: str, links: list[Found]) -> None:
    """Byte for byte, but for controls that it leaves raw."""
    listed = [{"url": link.url, "hop": link.hop, "context": link.context} for link in links]
    text = json.dumps({"url": url, "hops": hops, "links": listed}, ensure_ascii=False, separators=(",", ":"))
    text = re.sub("[\x7f-\x9f\u2028\u2029]", lambda raw: f"\\u{ord(raw[0]):04x}", text)
    assert links_line(url, hops, links) == f"{text}\n".encode("utf-8", "replace")
