"""The index of a WARC file: lines `urlkey timestamp {json}`, sorted by their bytes, as pywb and OutbackCDX read them.

    com,example)/a 20260101000000 {"url":"http://example.com/a","mime":"text/html","status":"200","digest":"sha1:…",
                                   "length":"1043","offset":"512","filename":"NAME.warc.gz"}

The urlkey is the SURT form that the Wayback machine made common: without scheme, `www.` and session ids, in lower case,
arguments sorted. `length` and `offset` are those of the record's gzip member. A revisit has the type `warc/revisit`.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache
from itertools import islice
from json.encoder import encode_basestring_ascii as _text
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote_to_bytes

from anabranch.crawler.jobs.durablefiles import UNFINISHED, sync_file, sync_folder

REVISIT_TYPE = "warc/revisit"
#: The type of an answer that names none.
UNKNOWN_TYPE = "unk"

#: Lines that are sorted in memory at once; more are merged from runs.
RUN_LINES = 50_000

_NO_DIGITS = re.compile(r"\D+")
_TYPE_END = re.compile(r"[\s;,]")
_WWW = re.compile(r"www\d*\.")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SLASHES = re.compile(r"//+")
_PLAIN = re.compile(r'[!"$&-~]*')  #: nothing of it is encoded, or must be
_ESCAPED = re.compile(rb"[\x00-\x20\x7f-\xff%#]")
#: Session ids in a query (the Internet Archive's rules).
_QUERY_SESSIONS = (
    re.compile(r"(?:^|(?<=&))(?:jsessionid=[0-9a-z]{32}|phpsessid=[0-9a-z]{32}|sid=[0-9a-z]{32})(?:&|$)"),
    re.compile(r"(?:^|(?<=&))aspsessionid[a-z]{8}=[a-z]{24}(?:&|$)"),
    re.compile(r"(?:^|(?<=&))cfid=[^&]+&cftoken=[^&]+(?:&|$)"),
)
#: ASP.NET's, in a path.
_PATH_SESSION = re.compile(r"/(?:\((?:[a-z]\([0-9a-z]{24}\))+\)|\([0-9a-z]{24}\))(?=/[^?]+\.aspx)")
#: Percent-encoding around percent-encoding is taken off so often at most.
_MAX_UNQUOTES = 10


class IndexLine(NamedTuple):
    """What a line of index says."""

    url: str
    date: str  #: WARC-Date
    mime: str  #: content type, with or without parameters; empty if there was none
    status: int
    digest: str
    length: int  #: bytes of the gzip member
    offset: int
    filename: str  #: as it is called when it is finished
    is_revisit: bool = False

    def to_bytes(self) -> bytes:
        """The line with its newline, in ASCII."""
        mime = REVISIT_TYPE if self.is_revisit else _TYPE_END.split(self.mime.strip().lower(), maxsplit=1)[0]
        fields = (
            f'{{"url":{_text(self.url)},"mime":{_text(mime or UNKNOWN_TYPE)},"status":"{self.status}",'
            f'"digest":{_text(self.digest)},"length":"{self.length}","offset":"{self.offset}",'
            f'"filename":{_text(self.filename)}}}'
        )
        stamp = _NO_DIGITS.sub("", self.date)[:14]
        return f"{urlkey(self.url)} {stamp} {fields}\n".encode("ascii", "replace")


def place_of(line: bytes) -> tuple[int, int] | None:
    """Offset and length of the record of an index line; None for what is no whole line."""
    with suppress(ValueError, KeyError, TypeError, IndexError):
        fields = json.loads(line.split(b" ", 2)[2])
        offset, length = int(fields["offset"]), int(fields["length"])
        return (offset, length) if line.endswith(b"\n") and offset >= 0 and length > 0 else None
    return None


def urlkey(url: str) -> str:
    """The key that a canonical http(s) URL is looked up by. Cost: linear in its length."""
    scheme, _, rest = url.partition("://")
    authority, slash, rest = rest.partition("/")
    path, mark, query = (slash + rest).partition("?")
    key = _turned(authority.lower(), scheme.lower()) + ")" + _path_key(path)
    arguments = _query_key(query) if mark else ""
    return f"{key}?{arguments}" if arguments else key


@lru_cache(maxsize=256)
def _turned(authority: str, scheme: str) -> str:
    """`com,example` or `com,example:8080`; an IPv4 address is turned round, too, an IPv6 one stands as it is."""
    host, colon, port = authority.rpartition(":")
    if not colon or not port.isdigit():
        host, port = authority, ""
    if host.startswith("["):
        turned = host.strip("[]")
    else:
        www = _WWW.match(host)
        turned = ",".join(reversed((host[www.end() :] if www else host).split(".")))
    return turned if not port or port == _DEFAULT_PORTS.get(scheme) else f"{turned}:{port}"


def _path_key(path: str) -> str:
    plain = _PATH_SESSION.sub("", _SLASHES.sub("/", _minimal(path).lower()))
    return plain.rstrip("/") or "/"


def _query_key(query: str) -> str:
    plain = _minimal(query).lower()
    for sessions in _QUERY_SESSIONS:
        plain = sessions.sub("", plain)
    return "&".join(sorted(plain.split("&")))


def _minimal(text: str) -> str:
    """Percent-encoded where it must be and nowhere else."""
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
    """Write the lines sorted to a file, at once and durably.

    Memory: `RUN_LINES` lines. Raises: OSError; then the old file stands.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with ExitStack() as runs, unfinished.open("wb") as out:
            sources: list[Iterator[bytes]] = []
            while run := sorted(islice(lines, RUN_LINES)):
                spilled = iter(run) if len(run) < RUN_LINES else runs.enter_context(_spilled(run, path.parent))
                sources.append(spilled)
            out.writelines(heapq.merge(*sources))
            out.flush()
            sync_file(out.fileno())
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _spilled(run: list[bytes], folder: Path) -> BinaryIO:
    """A sorted run in a file without a name."""
    file = TemporaryFile(dir=folder)  # noqa: SIM115 - the caller's stack closes it
    file.writelines(run)
    file.seek(0)
    return file
