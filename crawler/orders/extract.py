"""What a crawl order says of the reading of answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from anabranch.crawler.extracting.options import ExtractOptions
from anabranch.crawler.orders.types import Duration, Positive, Section, Size


class ExtractSection(Section):
    """Which links are read out of what was fetched, and what that may cost."""

    max_outlinks: Positive = 6000  #: links of a page; the others are counted in crawl.log (`dol:`)
    css: bool = True  #: style sheets, `<style>` and `style` attributes
    sitemaps: bool = False  #: sitemaps and feeds; those that robots.txt names, and /sitemap.xml of the seeds' hosts
    forms: bool = False  #: the targets of forms that are sent by GET
    speculative: bool = False  #: what looks like a URL in scripts and JSON
    data_attributes: bool = True  #: `data-src` and its like, by which scripts load images late
    max_content_bytes: Annotated[Size, Field(gt=0)] = Field(default=16 << 20, alias="max_content")  #: of a decoded body
    timeout_s: Annotated[Duration, Field(gt=0)] = Field(
        default=10.0, alias="timeout"
    )  #: for a document read beside the crawl

    def options(self, *, robot: str, nofollow_links: bool = False) -> ExtractOptions:
        """The same for the readers; `robot` is the product's name, `nofollow_links` leaves links with `rel=nofollow` out."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return ExtractOptions(**values, robot=robot, nofollow_links=nofollow_links)
