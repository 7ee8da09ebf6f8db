"""What a crawl keeps: WARC files, pages, links."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from anabranch.crawler.orders.types import Section, Size


class WriteSection(Section):
    """What is written beside the logs."""

    warc: bool = False  #: WARC 1.1 files in the job's folder `warc`, each with its CDXJ index
    #: What the names of WARC files begin with.
    warc_prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)] = (
        "anabranch"
    )
    #: A file that has reached this size is finished, and the next one begun.
    warc_size_bytes: Annotated[Size, Field(ge=1 << 20)] = Field(default=10**9, alias="warc_size")
    revisit: bool = True  #: a payload that is archived already is not written again (WARC `revisit` records)
    pages: bool = True  #: pages.jsonl: a line for each page
    links: bool = False  #: links.jsonl: a line with the links of each page
    operator: str = ""  #: who runs the crawl, as the WARC files say it
