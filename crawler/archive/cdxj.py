"""The index of a WARC file: reads the file's records, makes an index line of each response, sorts the lines.

A line is `urlkey timestamp {json}`, as pywb and OutbackCDX read it:

    com,example)/a 20260101000000 {"url":"http://example.com/a","mime":"text/html","status":"200","digest":"sha1:…",
                                   "length":"1043","offset":"512","filename":"NAME.warc.gz"}

The urlkey is the SURT form of the Wayback machine. `length` and `offset` are those of the record's member, a gzip member or a
zstd frame.
"""

from __future__ import annotations

import base64
import heapq
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from anabranch.crawler.archive.compression import BrokenMember, MemberReader
from anabranch.crawler.archive.records import NOT_MODIFIED, Original
from anabranch.crawler.fetch.addresses import MIME
from anabranch.crawler.outcomes.errors import OrderError
from anabranch.dedup.files.durable import UNFINISHED, errors_named, sync_file, sync_folder

#: How much of a record is searched for its fields and those of the response in it.
HEAD_BYTES = 1 << 17

_RESPONSES = frozenset({"response", "revisit"})
#: Types of the last record of a group: of the first in a file, and of each visit.
_LAST_OF_GROUP = frozenset({"warcinfo", "metadata"})
_END = b"\r\n\r\n"


def _line_of(field: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\r\n[ \t]*" + field + rb"[ \t]*:([^\r\n]*)", re.IGNORECASE)


_KIND = _line_of(b"WARC-Type")
_PROFILE = _line_of(b"WARC-Profile")
_URL = _line_of(b"WARC-Target-URI")
_DATE = _line_of(b"WARC-Date")
_DIGEST = _line_of(b"WARC-Payload-Digest")
_TYPE = _line_of(b"Content-Type")


class Member(NamedTuple):
    """One whole member of a file: a record, or a skippable frame, whose head is empty."""

    offset: int
    length: int
    head: bytes  #: its first bytes, uncompressed; at most `HEAD_BYTES`

    @property
    def end(self) -> int:
        """The offset of the next member."""
        return self.offset + self.length


def whole_members(members: MemberReader, start: int = 0) -> Iterator[Member]:
    """The whole members from an offset on, up to one that is torn or none. Decompresses the file.

    Raises: OSError; UsageError without the library that reads the file.
    """
    offset = start
    while True:
        head = bytearray()
        try:
            for piece in members.pieces(offset):
                head += piece[: HEAD_BYTES - len(head)]
        except BrokenMember:
            return
        yield Member(offset, members.end - offset, bytes(head))
        offset = members.end


def _kind_of(member: Member) -> str:
    """The type of a record, as `response`; empty if it is not a WARC record."""
    return _field(_KIND, member.head.partition(_END)[0])


def ends_group(member: Member) -> bool:
    """Whether this is the last record of what was written together: warcinfo, a visit, or a name that was looked up."""
    return _kind_of(member) in _LAST_OF_GROUP or _is_name(member.head.partition(_END)[0])


def _is_name(fields: bytes) -> bool:
    return _field(_TYPE, fields) == MIME


def index_line(member: Member, filename: str) -> IndexLine | None:
    """The index line of a response or revisit; None for other records. Needs the head up to the body. Cost: 5 µs and linear."""
    fields, _, block = member.head.partition(_END)
    kind = _field(_KIND, fields)
    if kind not in _RESPONSES or _is_name(fields):
        return None
    status = HTTPStatus.NOT_MODIFIED if _field(_PROFILE, fields) == NOT_MODIFIED else 0
    with suppress(ValueError, IndexError):
        status = int(block.partition(b"\r\n")[0].split(b" ", 2)[1])
    return IndexLine(
        url=_field(_URL, fields),
        date=_field(_DATE, fields),
        mime=_field(_TYPE, block.partition(_END)[0]),
        status=int(status),
        digest=_field(_DIGEST, fields),
        length=member.length,
        offset=member.offset,
        filename=filename,
        is_revisit=kind == "revisit",
    )


def _field(named: re.Pattern[bytes], fields: bytes) -> str:
    """The first value of a field after the first line, or an empty text."""
    found = named.search(fields)
    return "" if found is None else found[1].decode("utf-8", "replace").strip()


REVISIT_TYPE = "warc/revisit"
#: The type of a response that names none.
UNKNOWN_TYPE = "unk"

#: Lines that are sorted in memory at once; more are merged from sorted runs.
RUN_LINES = 50_000

_NO_DIGITS = re.compile(r"\D+")
_TYPE_END = re.compile(r"[\s;,]")
_WWW = re.compile(r"www\d*\.")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SLASHES = re.compile(r"//+")
_PLAIN = re.compile(r'[!"$&-~]*')  #: text in which nothing is encoded or must be
_ESCAPED = re.compile(rb"[\x00-\x20\x7f-\xff%#]")
#: Session ids in a query (the Internet Archive's rules).
_QUERY_SESSIONS = (
    re.compile(r"(?:^|(?<=&))(?:jsessionid=[0-9a-z]{32}|phpsessid=[0-9a-z]{32}|sid=[0-9a-z]{32})(?:&|$)"),
    re.compile(r"(?:^|(?<=&))aspsessionid[a-z]{8}=[a-z]{24}(?:&|$)"),
    re.compile(r"(?:^|(?<=&))cfid=[^&]+&cftoken=[^&]+(?:&|$)"),
)
#: ASP.NET's, in a path.
_PATH_SESSION = re.compile(r"/(?:\((?:[a-z]\([0-9a-z]{24}\))+\)|\([0-9a-z]{24}\))(?=/[^?]+\.aspx)")
#: Layers of percent-encoding that are removed at most.
_MAX_UNQUOTES = 10


class IndexLine(NamedTuple):
    """A line of an index."""

    url: str
    date: str  #: WARC-Date
    mime: str  #: content type, with or without parameters; may be empty
    status: int
    digest: str
    length: int  #: bytes of the member
    offset: int
    filename: str  #: of the finished file
    is_revisit: bool = False

    def to_bytes(self) -> bytes:
        """The line with its newline, in ASCII."""
        mime = REVISIT_TYPE if self.is_revisit else _TYPE_END.split(self.mime.strip().lower(), maxsplit=1)[0]
        fields = {
            "url": self.url,
            "mime": mime or UNKNOWN_TYPE,
            "status": str(self.status),
            "digest": self.digest,
            "length": str(self.length),
            "offset": str(self.offset),
            "filename": self.filename,
        }
        stamp = _NO_DIGITS.sub("", self.date)[:14]
        line = f"{urlkey(self.url)} {stamp} {json.dumps(fields, separators=(',', ':'))}\n"
        return line.encode("ascii", "replace")


def place_of(line: bytes) -> tuple[int, int] | None:
    """Offset and length of the record of an index line; None if the line is not whole."""
    with suppress(ValueError, KeyError, TypeError, IndexError):
        fields = json.loads(line.split(b" ", 2)[2])
        offset, length = int(fields["offset"]), int(fields["length"])
        return (offset, length) if line.endswith(b"\n") and offset >= 0 and length > 0 else None
    return None


_DIGEST_NAME = re.compile(r"sha-?1:", re.IGNORECASE)
_STAMP = re.compile(r"\d{14}", re.ASCII)
_WEB_URL = re.compile(r"https?://\S+", re.ASCII | re.IGNORECASE)
_STATUS = re.compile(r"\d{3}", re.ASCII)


def original_of(stamp: str, url: str, mime: str, status: str, digest: str) -> Original | None:
    """The record of a capture that an index of any program names; None if no revisit may refer to it. Pure. Cost: 3 µs.

    A revisit, a redirect, and what has no status of HTTP or no SHA-1 digest, is no original. The date has full seconds.
    """
    if mime == REVISIT_TYPE or not _STATUS.fullmatch(status) or status.startswith("3"):
        return None
    known = digest_of(digest)
    if known is None or not _STAMP.fullmatch(stamp) or not _WEB_URL.fullmatch(url):
        return None
    day, time = (stamp[:4], stamp[4:6], stamp[6:8]), (stamp[8:10], stamp[10:12], stamp[12:])
    return Original(url, f"{'-'.join(day)}T{':'.join(time)}Z", known)


def digest_of(text: str) -> bytes | None:
    """A SHA-1 digest in Base32 or hexadecimal, with or without `sha1:` before it; None for anything else."""
    text = _DIGEST_NAME.sub("", text, count=1)
    with suppress(ValueError):  # also binascii.Error
        if len(text) == 32:
            return base64.b32decode(text.upper())
        if len(text) == 40:
            return bytes.fromhex(text)
    return None


def original_in(line: bytes) -> Original | None:
    """The record of an index line, as `original_of`. Raises: ValueError if it is no line of a CDXJ."""
    try:
        _, stamp, text = line.decode().split(" ", 2)
        fields = json.loads(text)
        return original_of(stamp, *(str(fields.get(name, "")) for name in ("url", "mime", "status", "digest")))
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError("not a line of a CDXJ") from error


def urlkey(url: str) -> str:
    """The look-up key of a canonical http(s) URL: no scheme, `www.` or session ids, lower case, arguments sorted."""
    scheme, _, rest = url.partition("://")
    authority, slash, rest = rest.partition("/")
    path, _, query = (slash + rest).partition("?")
    path = _PATH_SESSION.sub("", _SLASHES.sub("/", _minimal(path).lower())).rstrip("/") or "/"
    key = f"{_reversed_authority(authority.lower(), scheme.lower())}){path}"
    if query:
        query = _minimal(query).lower()
        for sessions in _QUERY_SESSIONS:
            query = sessions.sub("", query)
    return f"{key}?{'&'.join(sorted(query.split('&')))}" if query else key


@lru_cache(maxsize=256)
def _reversed_authority(authority: str, scheme: str) -> str:
    """`com,example` or `com,example:8080`. An IPv4 address is reversed, too, an IPv6 address is not."""
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit():
        host, port = authority, ""
    if host.startswith("["):
        turned = host.strip("[]")
    else:
        www = _WWW.match(host)
        labels = (host[www.end() :] if www else host).split(".")
        turned = ",".join(filter(None, reversed(labels)))  # a dot at the end of a host is no label
    return turned if not port or port == _DEFAULT_PORTS.get(scheme) else f"{turned}:{port}"


def _minimal(text: str) -> str:
    """Percent-encode only what must be encoded."""
    if _PLAIN.fullmatch(text):
        return text
    raw = text.encode("utf-8", "replace")
    for _ in range(_MAX_UNQUOTES):
        decoded = unquote_to_bytes(raw)
        if decoded == raw:
            break
        raw = decoded
    return _ESCAPED.sub(lambda found: b"%%%02X" % found[0][0], raw).decode("ascii")


def write_sorted(lines: Iterator[bytes], path: Path) -> None:
    """Write the lines, sorted, atomically and durably. Memory: `RUN_LINES` lines.

    Raises: OSError, and what `lines` raises; the old file stays then.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with ExitStack() as runs, errors_named(unfinished), unfinished.open("wb") as out:
            sources: list[Iterator[bytes]] = []
            while run := sorted(islice(lines, RUN_LINES)):
                if len(run) < RUN_LINES:
                    sources.append(iter(run))
                    continue
                spilled = runs.enter_context(TemporaryFile(dir=path.parent))
                spilled.writelines(run)
                spilled.seek(0)
                sources.append(spilled)
            out.writelines(heapq.merge(*sources))
            out.flush()
            sync_file(out.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


#: Where the finished indexes of a folder are: its own, those of a job, those of a job's workers.
_INDEXES = ("*.cdxj", "warc/*.cdxj", "workers/*/warc/*.cdxj")


class IndexFile(NamedTuple):
    """A file of an index at one moment."""

    name: str  #: its full name
    size: int
    changed: int  #: ns


def index_files(places: Iterable[str]) -> list[IndexFile]:
    """The finished indexes of these files, folders and jobs. Raises: OrderError for one that has none."""
    found: dict[str, IndexFile] = {}
    for place in map(Path, places):
        try:
            paths = [place] if place.is_file() else sorted(path for name in _INDEXES for path in place.glob(name))
            for path in paths:
                facts = path.stat()
                found[str(path)] = IndexFile(str(path), facts.st_size, facts.st_mtime_ns)
        except OSError as error:
            raise OrderError(f"[write] revisit_of {str(place)!r}: {(error.strerror or str(error)).lower()}") from error
        if not paths:
            lacks = "has no finished index, NAME.cdxj; `anabranch index` makes those of WARC files"
            raise OrderError(
                f"[write] revisit_of {str(place)!r}: {lacks if place.is_dir() else 'no such file or directory'}"
            )
    return list(found.values())
