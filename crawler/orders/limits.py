"""What a crawl order says of a crawl's limits: how much in all, and how much room the disk must keep."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anabranch.crawler.orders.types import Count, Duration, Section, Size


class LimitsSection(Section):
    """When a crawl has had enough."""

    pages: Count = 0  #: answered URLs of the whole job; 0: no limit
    fetched_bytes: Size = Field(default=0, alias="bytes")  #: of bodies, in the whole job; 0: no limit
    time_s: Duration = Field(default=0.0, alias="time")  #: of this run, pauses included; 0: no limit
    pages_per_host: Count = 0  #: answered URLs of one host; the others of it are disregarded (-5003); 0: no limit
    bytes_per_host: Size = 0  #: of bodies, of one host; 0: no limit
    time_per_host_s: Duration = Field(
        default=0.0, alias="time_per_host"
    )  #: since its first answer (-5004); 0: no limit
    #: Room on the job's disk, below which the crawl pauses until there is more again; 0: never.
    min_free_disk_bytes: Size = Field(default=10**9, alias="min_free_disk")
    on_limit: Literal["end", "pause"] = "end"  #: at the first three: end the crawl, or pause it for the operator
