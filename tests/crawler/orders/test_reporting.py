"""The sections [logs] and [report]."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from anabranch.crawler.orders.reporting import LogsSection, ReportSection
from anabranch.crawler.reporting.progress import Display


def test_without_anything_said_the_defaults_hold() -> None:
    """Words for the eye on standard error, a display that suits its terminal, lines as often as Heritrix's."""
    logs, report = LogsSection(), ReportSection()
    assert (logs.format, logs.file) == ("console", "")
    assert (report.progress, report.interval_s, report.statistics_interval_s, report.reports) == (
        "auto",
        10.0,
        20.0,
        True,
    )


def test_what_is_dumped_is_read_as_the_same() -> None:
    """Durations as people write them, paths in full."""
    logs = LogsSection.model_validate({"format": "json", "file": "x.log"})
    again = LogsSection.model_validate(logs.model_dump(mode="json", by_alias=True, exclude_none=True))
    assert again.file == str(Path("x.log").absolute())
    report = ReportSection.model_validate({"interval": "1m", "statistics_interval": 5})
    dumped = report.model_dump(mode="json", by_alias=True)
    assert (dumped["interval"], dumped["statistics_interval"]) == ("1m", "5s")
    assert ReportSection.model_validate(dumped) == report


def test_the_display_knows_every_word_of_the_order() -> None:
    """Each is a way to show progress."""
    assert all(ReportSection(progress=display.value).progress == display.value for display in Display)


@pytest.mark.parametrize(
    ("section", "given"),
    [
        (LogsSection, {"format": "xml"}),
        (LogsSection, {"fromat": "json"}),
        (ReportSection, {"interval": "0s"}),
        (ReportSection, {"progress": "rich"}),
        (ReportSection, {"statistics_interval": -1}),
    ],
)
def test_what_makes_no_sense_is_refused(section, given) -> None:
    """Also a key that nobody knows."""
    with pytest.raises(ValidationError):
        section.model_validate(given)
