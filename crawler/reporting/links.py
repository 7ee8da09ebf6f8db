"""The lines of `links.jsonl`: what each page links to, as pure functions from facts to bytes."""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring

from anabranch.crawler.archiving.exchanges import Outlink
from anabranch.crawler.reporting.crawl_log import json_line


def links_line(url: str, hops: str, links: Sequence[Outlink]) -> bytes:
    """A page's line, with its newline: one compact JSON object in UTF-8, the links in the order of the page.

    {"url":…,"hops":"LL","links":[{"url":…,"hop":"E","context":"img/@src"},…]}
    """
    listed = ",".join(
        f'{{"url":{encode_basestring(link)},"hop":{encode_basestring(hop)},"context":{encode_basestring(context)}}}'
        for link, hop, context in links
    )
    text = f'{{"url":{encode_basestring(url)},"hops":{encode_basestring(hops)},"links":[{listed}]}}\n'
    return json_line(text)
