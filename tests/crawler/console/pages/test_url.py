"""What happened to a URL, as a time line."""

from __future__ import annotations

import json

from anabranch.crawler.console.pages.url import url_events
from anabranch.crawler.console.urlfacts import UrlFiles, UrlRecord

LINE = (
    "2026-11-29T19:36:34.000Z   200         27 http://a.test/1 L http://a.test/ text/html #010 "
    "20261129193634000+4 sha1:A http://a.test/ round:1"
)
ERROR = json.dumps({"time": "2026-11-29T19:00:00.000Z", "message": "refused", "words": "x", "final": False})


def test_the_events_of_a_url_come_in_their_order() -> None:
    """From all its files; a line that cannot be read is left out."""
    record = UrlRecord("a.warc.gz", "20261129193635")
    files = UrlFiles([LINE, "no line"], [ERROR, "{"], None, False, [], [], record, True)
    assert [(one.what, one.kind) for one in url_events(files)] == [
        ("failed, to be tried again", "failed"),
        ("200 OK", "done"),
        ("archived", "archived"),
    ]
    assert "27 bytes · text/html · in 4ms · round:1" in {one.detail for one in url_events(files)}
