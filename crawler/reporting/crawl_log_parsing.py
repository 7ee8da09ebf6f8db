"""Reads the lines of `crawl.log` back: ours, and those that Heritrix wrote."""

from __future__ import annotations

import calendar
import json
import mmap
import os
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.reporting.crawl_log import FIELDS, MISSING, UNKNOWN_TYPE, CrawlLogEntry

#: `yyyyMMddHHmmssSSS`, and the digits of its seconds.
_TIME_DIGITS = 17
_SECOND_DIGITS = 14
#: `SSSZ`, behind the dot of a time.
_FRACTION_CHARS = 4


class NotALogLine(ValueError):
    """The line is not one of `crawl.log`; the message says what of it is not."""


def parse_crawl_log_line(line: bytes) -> CrawlLogEntry:
    """The entry that a line says, with or without its newline. Cost: some microseconds.

    Texts stay as the line has them: percent-encoded, the hops of a long path behind their count, the content type without
    parameters. Raises: NotALogLine.
    """
    fields = line.decode("ascii", "replace").split(None, FIELDS)
    if len(fields) < FIELDS:
        raise NotALogLine(f"{len(fields)} fields, {FIELDS} are needed")
    try:
        start_s, end_s = _times(fields[8])
        return CrawlLogEntry(
            logged_s=_logged(fields[0]),
            status=int(fields[1]),
            size_bytes=None if fields[2] == MISSING else int(fields[2]),
            url=fields[3],
            hops=_text(fields[4]),
            via=_text(fields[5]) or None,
            mime="" if fields[6] == UNKNOWN_TYPE else fields[6],
            worker=int(fields[7].removeprefix("#")),
            start_s=start_s,
            end_s=end_s,
            digest=_text(fields[9]) or None,
            source=_text(fields[10]) or None,
            annotations=() if fields[11] == MISSING else tuple(fields[11].split(",")),
            extra=None if len(fields) == FIELDS else json.loads(fields[12]),
        )
    except (ValueError, OverflowError, RecursionError) as error:
        raise NotALogLine(str(error)) from error


def last_entry(path: Path, url: str) -> CrawlLogEntry | None:
    """The last line of the file about this URL, which has no character that the log encodes; None if there is none.

    Cost: linear in what stands behind that line; the file is mapped, not read. Raises: StorageError.
    """
    if not path.is_file():
        return None
    wanted = f" {url} ".encode("ascii", "replace")
    with storage_errors(path), path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            end = len(text)
            while (found := text.rfind(wanted, 0, end)) >= 0:
                start, stop = text.rfind(b"\n", 0, found) + 1, text.find(b"\n", found)
                entry = _entry(text[start : stop if stop >= 0 else len(text)])
                if entry is not None and entry.url == url:
                    return entry
                end = start  # it was another URL's line, which was found on this one
    return None


def _entry(line: bytes) -> CrawlLogEntry | None:
    try:
        return parse_crawl_log_line(line)
    except NotALogLine:
        return None


def _text(field: str) -> str:
    return "" if field == MISSING else field


def _logged(field: str) -> float:
    """When the line was written. Raises: ValueError."""
    second, dot, fraction = field.partition(".")
    if dot and len(fraction) == _FRACTION_CHARS and fraction[-1] == "Z" and fraction[:-1].isdecimal():
        return _iso_second(second) + int(fraction[:-1]) / 1000
    return datetime.fromisoformat(field).astimezone(UTC).timestamp()


@lru_cache(maxsize=64)
def _iso_second(text: str) -> int:
    """Epoch seconds of `yyyy-MM-ddTHH:mm:ss`, in UTC."""
    return calendar.timegm(datetime.fromisoformat(f"{text}Z").timetuple())


def _times(field: str) -> tuple[float | None, float | None]:
    """Begin and end of the fetch. Raises: ValueError."""
    if field == MISSING:
        return None, None
    digits, plus, duration = field.partition("+")
    if len(digits) != _TIME_DIGITS or not digits.isdecimal() or not plus or not duration.isdecimal():
        raise ValueError(f"{field!r} is no time and duration")
    begun_ms = _seconds(digits[:_SECOND_DIGITS]) * 1000 + int(digits[_SECOND_DIGITS:])
    return begun_ms / 1000, (begun_ms + int(duration)) / 1000


@lru_cache(maxsize=64)
def _seconds(digits: str) -> int:
    """Epoch seconds of `yyyyMMddHHmmss`; many lines of a log have the same."""
    year, month, day = int(digits[:4]), int(digits[4:6]), int(digits[6:8])
    datetime(year, month, day, int(digits[8:10]), int(digits[10:12]), int(digits[12:]), tzinfo=UTC)  # checks them
    return calendar.timegm((year, month, day, int(digits[8:10]), int(digits[10:12]), int(digits[12:]), 0, 0, 0))
