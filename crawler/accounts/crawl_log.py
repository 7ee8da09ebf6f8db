"""The lines of `crawl.log`, written and read back, and those of `pages.jsonl` and `links.jsonl`.

`crawl.log` has Heritrix's twelve fields (`UriProcessingFormatter`). With `[logs] extra_info` a thirteenth holds a JSON object.
No field contains white space: characters other than printable ASCII are percent-encoded, and escaped in JSON. Times are epoch
seconds; lines show UTC to the millisecond.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

from anabranch.crawler.archive.records import Outlink, RecordLocation
from anabranch.crawler.fetch.mime import remembered
from anabranch.crawler.outcomes.errors import storage_errors
from anabranch.crawler.outcomes.userfunctions import UserFunctionFailed

#: Fields of a line, without the thirteenth.
FIELDS = 12
#: Hops that are shown of a path. A longer path shows its last ones, behind the number of hidden hops (Heritrix:
#: `CrawlURI.extendHopsPath`).
MAX_HOPS_SHOWN = 50
#: The text of an empty field.
MISSING = "-"
#: The content type of an answer that has none, and of a URL that was not answered.
NO_TYPE = "no-type"
UNKNOWN_TYPE = "unknown"

# Annotations, in Heritrix's words.
#: Bytes followed the answer on the same connection; they are dropped.
SURPLUS = "surplusBytes"
#: The host's robots.txt excludes the page.
ROBOTS_EXCLUDED = "robotExcluded"
#: The same body was fetched before, from this or another URL.
DUPLICATE_DIGEST = "duplicate:digest"
#: The server answered that nothing has changed (304).
NOT_MODIFIED = "duplicate:server-not-modified"
#: The WARC holds a revisit record; its profile follows.
WARC_REVISIT = "warcRevisit:"

#: DEL, C1 controls, and the characters at which some readers end a line.
_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_ISO_PUNCTUATION = str.maketrans("", "", "-:T.Z")
_UNFIT = re.compile(r"[^!-~]")
_UNFIT_IN_LIST = re.compile(r"[^!-+\--~]")
_TYPE_END = re.compile(r"[\s;,]")

#: Digits of `yyyyMMddHHmmssSSS`, and of its part up to the seconds.
_TIME_DIGITS = 17
_SECOND_DIGITS = 14


class CrawlLogEntry(NamedTuple):
    """The fields of one line of `crawl.log`. (A tuple, because a crawl makes thousands a second.)"""

    logged_s: float  #: epoch seconds; when the line is written
    status: int  #: fetch status: HTTP's, or one of Heritrix's negative codes
    url: str  #: as fetched
    worker: int  #: the worker's number
    size_bytes: int | None = None  #: of the body; None if there was no answer
    hops: str = ""  #: the whole path from the seed, a letter a hop; empty for seeds
    via: str | None = None  #: the page that links to it
    mime: str = ""  #: content type, with or without parameters; empty if there was none
    start_s: float | None = None  #: epoch seconds; begin of the fetch, None if there was none
    end_s: float | None = None  #: epoch seconds; end of the fetch
    digest: str | None = None  #: `sha1:` and Base32
    source: str | None = None  #: the seed that led here
    annotations: tuple[str, ...] = ()
    extra: Mapping[str, str | int] | None = None  #: the thirteenth field; None if the line has twelve


class PageFields(TypedDict):
    """The fields of one line of `pages.jsonl`, with the meanings of `CrawlLogEntry`."""

    url: str
    status: int
    mime: str
    size_bytes: int
    hops: str
    via: str | None
    fetched_s: float  #: epoch seconds; begin of the fetch
    digest: str | None
    round_number: int  #: of the job's rounds; the first is 1


class VisitNotes(NamedTuple):
    """The facts of a visit that become annotations; most visits have none."""

    attempts: int = 0  #: tries that counted before this one
    cuts: tuple[
        str, ...
    ] = ()  #: why the answer was cut: lenTrunc, timeTrunc, midFetchTrunc, midFetchAbort, headerTrunc, decTrunc
    has_surplus: bool = False  #: bytes followed the answer
    repairs: tuple[str, ...] = ()  #: what was read as browsers read it: httpRepair:lines, ...
    robots_excluded: bool = False
    duplicate: str = ""  #: DUPLICATE_DIGEST, NOT_MODIFIED, or empty
    revisit: str = ""  #: profile of the revisit record: digest, notModified
    dropped_links: int = 0  #: links beyond the limit of outlinks
    lost_links: int = 0  #: links for which a user function failed
    broken: Exception | None = None  #: the error of a processor, or of a user function
    stopped_by: str = ""  #: the user's processor that stopped the page
    more: tuple[str, ...] = ()  #: annotations of extractors and others, copied as they are


def annotations_of(visit: VisitNotes) -> tuple[str, ...]:
    """The twelfth field, in a fixed order, each note once. The name of a user function follows its `err=UserFunctionFailed`."""
    if not any(visit):
        return ()
    notes = [f"{visit.attempts + 1}t"] if visit.attempts else []
    notes += visit.cuts
    if visit.has_surplus:
        notes.append(SURPLUS)
    notes += visit.repairs
    if visit.robots_excluded:
        notes.append(ROBOTS_EXCLUDED)
    notes.append(visit.duplicate)
    if visit.revisit:
        notes.append(f"{WARC_REVISIT}{visit.revisit}")
    if visit.dropped_links:
        notes.append(f"dol:{visit.dropped_links}")
    if visit.lost_links:
        notes.append(f"fol:{visit.lost_links}")
    if visit.broken is not None:
        notes.append(f"err={type(visit.broken).__name__}")
        if isinstance(visit.broken, UserFunctionFailed):
            notes.append(visit.broken.annotation)
    if visit.stopped_by:
        notes.append(f"stopped={visit.stopped_by}")
    return tuple(dict.fromkeys(filter(None, [*notes, *visit.more])))


def round_note(number: int) -> str:
    """`round:2`, the last annotation of every line. Lines of earlier versions lack it."""
    return f"round:{number}"


# Writing


def crawl_log_line(entry: CrawlLogEntry) -> bytes:
    """The line of `crawl.log`, with its newline: twelve or thirteen fields, status and size right-aligned."""
    size = MISSING if entry.size_bytes is None else entry.size_bytes
    mime = _fit_type(entry.mime) or (NO_TYPE if entry.status > 0 else UNKNOWN_TYPE)
    listed = ",".join(_UNFIT_IN_LIST.sub(_percent, note) for note in entry.annotations if note) or MISSING
    fetched = MISSING
    if entry.start_s is not None and entry.end_s is not None:
        # At least 0 ms, even if the clock was set back.
        duration_ms = max(round(entry.end_s * 1000) - round(entry.start_s * 1000), 0)
        fetched = f"{iso_time(entry.start_s).translate(_ISO_PUNCTUATION)}+{duration_ms}"
    text = (
        f"{iso_time(entry.logged_s)} {entry.status:>5} {size:>10} {_fit(entry.url)} {_fit(hops_shown(entry.hops))} "
        f"{_fit(entry.via)} {mime} #{entry.worker:03} {fetched} "
        f"{_fit(entry.digest)} {_fit(entry.source)} {listed}"
    )
    return (f"{text}\n" if entry.extra is None else f"{text} {_json_word(entry.extra)}\n").encode("ascii")


def with_place(line: bytes, place: RecordLocation) -> bytes:
    """The line with the place of its WARC record added to the thirteenth field; unchanged if it has twelve fields."""
    fields = line.split(None, FIELDS)
    if len(fields) <= FIELDS:
        return line
    extra = json.loads(fields[FIELDS]) | {"warcFilename": place.filename, "warcFileOffset": place.offset}
    return line[: -len(fields[FIELDS])] + f"{_json_word(extra)}\n".encode("ascii")


def page_line(**page: Unpack[PageFields]) -> bytes:
    """The line of `pages.jsonl`, with its newline: one compact JSON object in UTF-8, the time as ISO 8601 in UTC."""
    # Written by hand, as the links are: half the time of a dict and its encoder.
    return _json_line(
        f'{{"url":{encode_basestring(page["url"])},"status":{page["status"]:d},'
        f'"mime":{_text_or_null(_bare_type(page["mime"]) or None)},"size":{page["size_bytes"]:d},'
        f'"hops":{encode_basestring(page["hops"])},"via":{_text_or_null(page["via"])},'
        f'"fetch_time":"{iso_time(page["fetched_s"])}","digest":{_text_or_null(page["digest"])},'
        f'"round":{page["round_number"]:d}}}'
    )


def links_line(url: str, hops: str, links: Sequence[Outlink]) -> bytes:
    """A page's line of `links.jsonl`, with its newline: one compact JSON object in UTF-8, the links in the page's order.

    {"url":…,"hops":"LL","links":[{"url":…,"hop":"E","context":"img/@src"},…]}
    """
    # Written by hand: a dict for each link costs twice the time, and pages have up to thousands.
    listed = ",".join(
        f'{{"url":{encode_basestring(link)},"hop":{encode_basestring(hop)},"context":{encode_basestring(context)}}}'
        for link, hop, context in links
    )
    return _json_line(f'{{"url":{encode_basestring(url)},"hops":{encode_basestring(hops)},"links":[{listed}]}}')


def hops_shown(hops: str) -> str:
    """The path as Heritrix shows it: up to 50 hops in full, else the last 50 behind the number of hidden ones: `12+LL…`."""
    hidden = len(hops) - MAX_HOPS_SHOWN
    return f"{hidden}+{hops[hidden:]}" if hidden > 0 else hops


def iso_time(time_s: float) -> str:
    """`yyyy-MM-ddTHH:mm:ss.SSSZ` of epoch seconds, rounded to milliseconds (Heritrix: `getLog17Date`)."""
    second, millisecond = divmod(round(time_s * 1000), 1000)
    return f"{_iso_second(second)}.{millisecond:03}Z"


@lru_cache(maxsize=64)  # thousands of lines have the same
def _iso_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat()


def _json_line(text: str) -> bytes:
    """JSON as a line of UTF-8, in which the controls that a terminal would obey are escaped."""
    if _CONTROLS.search(text) is not None:
        text = _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return f"{text}\n".encode("utf-8", "replace")


def _text_or_null(text: str | None) -> str:
    return "null" if text is None else encode_basestring(text)


def _json_word(fields: Mapping[str, str | int]) -> str:
    """JSON without white space: the library escapes characters other than ASCII."""
    return json.dumps(dict(fields), separators=(",", ":")).replace(" ", "\\u0020").replace("\x7f", "\\u007f")


@remembered(64)  # a crawl meets few
def _fit_type(mime: str) -> str:
    return _UNFIT.sub(_percent, _bare_type(mime))


def _bare_type(mime: str) -> str:
    """Up to the first space, semicolon or comma (Heritrix: `MimetypeUtils.truncate`)."""
    return _TYPE_END.split(mime, maxsplit=1)[0]


def _fit(text: str | None) -> str:
    if not text:
        return MISSING
    is_fit = text.isascii() and text.isprintable() and " " not in text  # as canonical URLs are
    return text if is_fit else _UNFIT.sub(_percent, text)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


# Reading


class NotALogLine(ValueError):
    """The line does not have the format of `crawl.log`; the message has the reason."""


def parse_crawl_log_line(line: bytes) -> CrawlLogEntry:
    """The entry of a line that we or Heritrix wrote. Cost: some microseconds. Raises: NotALogLine.

    Texts stay percent-encoded, the hops of a long path behind their count, the content type without parameters.
    """
    fields = line.decode("ascii", "replace").split(None, FIELDS)
    if len(fields) < FIELDS:
        raise NotALogLine(f"{len(fields)} fields, {FIELDS} are needed")
    try:
        start_s, end_s = fetch_times(fields[8])
        return CrawlLogEntry(
            logged_s=datetime.fromisoformat(fields[0]).astimezone(UTC).timestamp(),
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


def _text(field: str) -> str:
    return "" if field == MISSING else field


def fetch_times(field: str) -> tuple[float | None, float | None]:
    """Begin and end of the fetch (epoch seconds) of `yyyyMMddHHmmssSSS+milliseconds`. Raises: ValueError."""
    if field == MISSING:
        return None, None
    digits, _, duration = field.partition("+")
    if len(digits) != _TIME_DIGITS or not digits.isdecimal() or not duration.isdecimal():
        raise ValueError(f"{field!r} is not a time and a duration")
    start_ms = _second_of(digits[:_SECOND_DIGITS]) * 1000 + int(digits[_SECOND_DIGITS:])
    return start_ms / 1000, (start_ms + int(duration)) / 1000


@lru_cache(maxsize=64)  # thousands of lines have the same
def _second_of(digits: str) -> int:
    return round(datetime.fromisoformat(f"{digits[:8]}T{digits[8:]}Z").timestamp())


def last_entry(path: Path, url: str, most_bytes: int | None = None) -> CrawlLogEntry | None:
    """The last line about a URL in the file, or in its last `most_bytes`; None without one. Raises: StorageError.

    Cost: linear in the part behind that line, 0.5 ms a MB, in which all threads stand still.
    """
    if not path.is_file():
        return None
    wanted = f" {url} ".encode("ascii", "replace")
    with storage_errors(path), path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            end = len(text)
            first = 0 if most_bytes is None else max(end - most_bytes, 0)
            while (found := text.rfind(wanted, first, end)) >= 0:
                start, stop = text.rfind(b"\n", 0, found) + 1, text.find(b"\n", found)
                try:
                    entry = parse_crawl_log_line(text[start : stop if stop >= 0 else len(text)])
                except NotALogLine:
                    entry = None
                if entry is not None and entry.url == url:
                    return entry
                end = start  # the line of another URL, which has this one as its `via`
    return None
