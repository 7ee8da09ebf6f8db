"""The lines of `crawl.log` and `pages.jsonl`: pure functions from facts to bytes.

`crawl.log` has Heritrix's twelve fields (`UriProcessingFormatter`), so that tools for Heritrix's logs read ours; if the order
asks for it (`[logs] extra_info`) a thirteenth, a JSON object. A field never holds white space: whatever is no printable ASCII
character is percent-encoded, in the JSON escaped. Times are epoch seconds and become UTC here, to the millisecond.
`crawl_log_parsing` reads the lines back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from json.encoder import encode_basestring
from typing import NamedTuple, TypedDict, Unpack

from anabranch.crawler.archiving.exchanges import Place
from anabranch.crawler.remembering import remembered

#: Fields of a line, without the thirteenth.
FIELDS = 12

#: Hops that are shown; of a longer path the last ones, behind the number of those left out (Heritrix:
#: `CrawlURI.extendHopsPath`).
MAX_HOPS_SHOWN = 50

#: What stands in an empty field.
MISSING = "-"

#: The content type of an answer that has none, and of a URL that got no answer.
NO_TYPE = "no-type"
UNKNOWN_TYPE = "unknown"

#: DEL, C1 controls, and what some readers end a line at.
_OBEYED = re.compile("[\x7f-\x9f\u2028\u2029]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNFIT = re.compile(r"[^!-~]")
_UNFIT_IN_LIST = re.compile(r"[^!-+\--~]")
_TYPE_END = re.compile(r"[\s;,]")
_BARE_TYPE = re.compile(r"[!-+\--:<-~]*").fullmatch  #: one that has no end before its own


class CrawlLogEntry(NamedTuple):
    """What one line of `crawl.log` says. (A tuple: thousands are made a second.)"""

    logged_s: float  #: epoch seconds; when the line is written
    status: int  #: fetch status: HTTP's, or one of Heritrix's negative codes
    url: str  #: as fetched
    worker: int  #: the worker's number
    size_bytes: int | None = None  #: of the body; None if there was no answer
    hops: str = ""  #: the whole path from the seed, a letter a hop; empty for seeds
    via: str | None = None  #: the page it was found on
    mime: str = ""  #: content type, with or without parameters; empty if there was none
    start_s: float | None = None  #: epoch seconds; begin of the fetch, None if there was none
    end_s: float | None = None  #: epoch seconds; its end
    digest: str | None = None  #: `sha1:` and Base32
    source: str | None = None  #: the seed that led here
    annotations: tuple[str, ...] = ()
    extra: Mapping[str, str | int] | None = None  #: the thirteenth field; None if the line has twelve


class PageFields(TypedDict):
    """What one line of `pages.jsonl` says; the fields are as in `CrawlLogEntry`."""

    url: str
    status: int
    mime: str
    size_bytes: int
    hops: str
    via: str | None
    fetched_s: float  #: epoch seconds; begin of the fetch
    digest: str | None
    round_number: int  #: of the job's rounds; the first is 1


def crawl_log_line(entry: CrawlLogEntry) -> bytes:
    """The line of `crawl.log`, with its newline: twelve or thirteen fields parted by spaces, status and size right-aligned."""
    size = MISSING if entry.size_bytes is None else entry.size_bytes
    text = (
        f"{_iso(entry.logged_s)} {entry.status:>5} {size:>10} {_fit(entry.url)} {_fit(hops_shown(entry.hops))} "
        f"{_fit(entry.via)} {_mime_shown(entry.mime, is_answered=entry.status > 0)} #{entry.worker:03} "
        f"{_time_and_duration(entry.start_s, entry.end_s)} {_fit(entry.digest)} {_fit(entry.source)} "
        f"{_listed(entry.annotations)}"
    )
    return (f"{text}\n" if entry.extra is None else f"{text} {_json(entry.extra)}\n").encode("ascii")


def with_place(line: bytes, place: Place) -> bytes:
    """The same line; with the place of the WARC record, as Heritrix names it, in its thirteenth field if it has one."""
    words = line.split(None, FIELDS)
    if len(words) <= FIELDS:
        return line
    extra = json.loads(words[FIELDS]) | {"warcFilename": place.filename, "warcFileOffset": place.offset}
    return line[: -len(words[FIELDS])] + f"{_json(extra)}\n".encode("ascii")


def page_line(**page: Unpack[PageFields]) -> bytes:
    """The line of `pages.jsonl`, with its newline: one compact JSON object in UTF-8, the time as ISO 8601 in UTC."""
    mime = _bare_type(page["mime"])
    text = (
        f'{{"url":{encode_basestring(page["url"])},"status":{page["status"]:d},'
        f'"mime":{_text_or_null(mime or None)},"size":{page["size_bytes"]:d},'
        f'"hops":{encode_basestring(page["hops"])},"via":{_text_or_null(page["via"])},'
        f'"fetch_time":"{_iso(page["fetched_s"])}","digest":{_text_or_null(page["digest"])},"round":{page["round_number"]:d}}}\n'
    )
    return json_line(text)


def json_line(text: str) -> bytes:
    """A line of JSON as UTF-8. What a terminal would obey (DEL, C1 controls) or take for a line's end is escaped."""
    if _OBEYED.search(text) is not None:
        text = _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode("utf-8", "replace")


def hops_shown(hops: str) -> str:
    """The path as Heritrix shows it: up to 50 hops as they are, else the last 50 behind a count: `12+LL…`."""
    hidden = len(hops) - MAX_HOPS_SHOWN
    return f"{hidden}+{hops[hidden:]}" if hidden > 0 else hops


def _json(fields: Mapping[str, str | int]) -> str:
    """One word: what is no ASCII is escaped by the library, a space by us."""
    return json.dumps(dict(fields), separators=(",", ":")).replace(" ", "\\u0020").replace("\x7f", "\\u007f")


def _text_or_null(text: str | None) -> str:
    return "null" if text is None else encode_basestring(text)


def _mime_shown(mime: str, *, is_answered: bool) -> str:
    return _fit_type(mime) or (NO_TYPE if is_answered else UNKNOWN_TYPE)


@remembered(64)  # a crawl meets few
def _fit_type(mime: str) -> str:
    return _encode(_UNFIT, _bare_type(mime))


def _bare_type(mime: str) -> str:
    """Up to the first space, semicolon or comma (Heritrix: `MimetypeUtils.truncate`)."""
    return mime if _BARE_TYPE(mime) else _TYPE_END.split(mime, maxsplit=1)[0]


def _iso(time_s: float) -> str:
    """`yyyy-MM-ddTHH:mm:ss.SSSZ` (Heritrix: `getLog17Date`)."""
    second, millisecond = divmod(_milliseconds(time_s), 1000)
    return f"{_second(second).iso}.{millisecond:03}Z"


def _time_and_duration(start_s: float | None, end_s: float | None) -> str:
    """`yyyyMMddHHmmssSSS+milliseconds`. A clock that was set back makes no negative duration."""
    if start_s is None or end_s is None:
        return MISSING
    start = _milliseconds(start_s)
    second, millisecond = divmod(start, 1000)
    return f"{_second(second).digits}{millisecond:03}+{max(_milliseconds(end_s) - start, 0)}"


def _milliseconds(time_s: float) -> int:
    return round(time_s * 1000)


class _Second(NamedTuple):
    iso: str  #: yyyy-MM-ddTHH:mm:ss
    digits: str  #: yyyyMMddHHmmss


@lru_cache(maxsize=64)
def _second(second: int) -> _Second:
    """How a second is written; thousands of lines have the same."""
    utc = _EPOCH + timedelta(seconds=second)
    return _Second(utc.replace(tzinfo=None).isoformat(), f"{utc:%Y%m%d%H%M%S}")


def _listed(notes: tuple[str, ...]) -> str:
    return (notes and ",".join(_encode(_UNFIT_IN_LIST, note) for note in notes if note)) or MISSING


def _fit(text: str | None) -> str:
    if not text:
        return MISSING
    if text.isascii() and text.isprintable() and " " not in text:  # as canonical URLs are
        return text
    return _encode(_UNFIT, text)


def _encode(unfit: re.Pattern[str], text: str) -> str:
    return unfit.sub(_percent, text)


def _percent(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))
