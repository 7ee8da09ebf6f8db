"""What a crawl order says of logs, reports and the display."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from anabranch.crawler.orders.types import Duration, Section, path_without_nul

#: A file that need not be given; kept in full, since the folder of an order that was dumped is another one.
_FileOrNone = Annotated[
    str, AfterValidator(path_without_nul), AfterValidator(lambda path: path and str(Path(path).absolute()))
]


class LogsSection(Section):
    """How events look and where they go."""

    format: Literal["console", "json"] = "console"  #: of the events
    file: _FileOrNone = ""  #: events go there and not to standard error
    extra_info: bool = False  #: crawl.log has a thirteenth field, as in Heritrix: size and WARC record


class ReportSection(Section):
    """What is shown and written while a crawl runs, and at its end."""

    progress: Literal["auto", "lines", "none"] = (
        "auto"  #: display; auto: several lines on a terminal, else one at a time
    )
    interval_s: Annotated[Duration, Field(gt=0)] = Field(
        default=10.0, alias="interval"
    )  #: between two lines of the display without a terminal
    statistics_interval_s: Annotated[Duration, Field(gt=0)] = Field(
        default=20.0, alias="statistics_interval"
    )  #: between two lines of progress-statistics.log
    reports: bool = True  #: reports/ is written at the end
