"""The lines of `links.jsonl`: what each page links to, as pure functions from facts to bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from crawler.archiving.exchanges import Outlink


def links_line(url: str, hops: str, links: Sequence[Outlink]) -> bytes:
    """A page's line, with its newline: one compact JSON object in UTF-8, the links in the order of the page.

    {"url":…,"hops":"LL","links":[{"url":…,"hop":"E","context":"img/@src"},…]}
    """
    fields = {
        "url": url,
        "hops": hops,
        "links": [{"url": link.url, "hop": link.hop, "context": link.context} for link in links],
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
