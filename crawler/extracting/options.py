"""What is read out of answers, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractOptions:
    """The order's section [extract], as the readers need it."""

    max_outlinks: int = 6000  #: links of a page that are kept (Heritrix: maxOutlinks)
    css: bool = True  #: style sheets, `<style>` and `style` attributes
    sitemaps: bool = False  #: sitemaps and feeds
    forms: bool = False  #: the targets of forms that are sent by GET
    speculative: bool = False  #: what looks like a URL in scripts and JSON
    data_attributes: bool = True  #: `data-src` and its like, by which scripts load images late
    nofollow_links: bool = False  #: leave links with `rel=nofollow` out
    max_content_bytes: int = 16 << 20  #: how much of a decoded body is read
    timeout_s: float = 10.0  #: for one document that is read beside the crawl
    robot: str = "anabranch"  #: the product whose `meta` counts beside `robots`
