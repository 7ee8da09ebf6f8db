"""Finds the facts about one URL in a job's files: its log lines, pages that link to it, its links, its WARC record.

Logs may be larger than the memory. They are searched backwards, piece by piece, until enough is found or the time is up;
`is_whole` is False if something may be missing. The indexes of finished WARC files are sorted, so each takes a few reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from json.encoder import encode_basestring
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from anabranch.crawler.archive.cdxj import HEAD_BYTES, urlkey
from anabranch.crawler.archive.compression import BrokenMember, MemberReader
from anabranch.crawler.archive.files import INDEX, OPEN
from anabranch.crawler.fetch.decoding import codings_in, decoded
from anabranch.crawler.job.workerfolders import worker_folders
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.logtail import ERRORS
from anabranch.crawler.report.table import escaped
from anabranch.dedup.files.durable import descriptor

#: Most seconds for one search over all files of a job.
SEARCH_S = 2.0
#: Most lines of a log, parents and links that a search returns.
MOST_LINES, MOST_PARENTS, MOST_LINKS = 20, 100, 1000
#: Most bytes of a body that are shown.
BODY_BYTES = 64 << 10

_PIECE_BYTES = 4 << 20
#: A longer line is skipped.
_MOST_LINE_BYTES = 16 << 20
#: Most bytes of a line of an index; a longer one may be missed.
_INDEX_LINE_BYTES = 1 << 16
_END = b"\r\n\r\n"


class FoundLines(NamedTuple):
    """Lines of a file, last one first."""

    lines: list[bytes]
    is_whole: bool  #: no other line matches


class UrlRecord(NamedTuple):
    """The record of a URL in a WARC file. Its texts are as sent; `safe_text` makes them safe to show."""

    file: str
    date: str
    fields: str = ""  #: the header of the record
    request: str = ""  #: the head of the request; empty if it is not archived
    head: str = ""  #: the status line and header of the response
    body: bytes = b""  #: the first `BODY_BYTES` of the decoded body
    is_cut: bool = False  #: the body is longer
    trouble: str = ""  #: why the record cannot be read

    @property
    def media_type(self) -> str:
        """The Content-Type of the response."""
        return _field(self.head, "Content-Type")

    @property
    def original(self) -> str:
        """The URL of the record that holds the body; empty if this record does."""
        return _field(self.fields, "WARC-Refers-To-Target-URI")


class UrlFiles(NamedTuple):
    """The facts about a URL in the files of a job."""

    log: list[str]  #: its lines in crawl.log, last one first
    errors: list[str]  #: its lines in errors.jsonl
    via: str | None  #: the page on which it was found first
    is_seed: bool  #: it was fetched as a seed
    parents: list[str]  #: pages that link to it, as links.jsonl has it
    links: list[tuple[str, str, str]]  #: its links: URL, hop, context
    record: UrlRecord | None
    is_whole: bool  #: nothing is missing


def url_files(directory: Path, url: str) -> UrlFiles:
    """Find the facts about a canonical URL in the folders of a job and its workers. Takes a few seconds at most."""
    until_s = monotonic() + SEARCH_S
    folders = [folder for folder in (directory, *worker_folders(directory)) if is_within(directory, folder / "logs")]
    bare, quoted = f" {url} ".encode("ascii", "replace"), json.dumps(url).encode()

    def is_own(line: bytes) -> bool:
        return line.split(None, 4)[3:4] == [bare.strip()]

    log = _in_all([folder / "logs" / "crawl.log" for folder in folders], bare, MOST_LINES, until_s, is_own)
    errors = _in_all([folder / ERRORS for folder in folders], b'"url":' + quoted + b",", MOST_LINES, until_s)
    parents, links, is_whole = _linked([folder / "links.jsonl" for folder in folders], url, until_s)
    via, is_seed = _found_on(log.lines)
    return UrlFiles(
        log=list(map(text_of_line, log.lines)),
        errors=list(map(text_of_line, errors.lines)),
        via=via,
        is_seed=is_seed,
        parents=parents,
        links=links,
        record=url_record(folders, url, until_s),
        is_whole=log.is_whole and errors.is_whole and is_whole,
    )


def _found_on(lines: Iterable[bytes]) -> tuple[str | None, bool]:
    """The page on which a URL was found first, and whether it is a seed, by its lines in crawl.log. Pure."""
    places = [fields[4:6] for fields in map(bytes.split, lines) if len(fields) > 5]  # hops and via
    via = next((page.decode("ascii", "replace") for _, page in places if page != b"-"), None)
    return via, [b"-", b"-"] in places


def url_record(folders: Sequence[Path], url: str, until_s: float) -> UrlRecord | None:
    """The newest record of a URL in the WARC files of these folders; None if no index has one."""
    found = [entry for folder in folders for entry in [_indexed(folder / "warc", url, until_s)] if entry is not None]
    if not found:
        return None
    stamp, folder, fields = max(found, key=lambda entry: entry[0])
    name, offset, length = fields["filename"], fields["offset"], fields["length"]
    try:
        return _read(folder, name, offset, length)._replace(date=stamp)
    except FileNotFoundError:
        return UrlRecord(name, stamp, trouble=f"{name} is no longer in {folder}")
    except (OSError, BrokenMember, UsageError) as error:
        return UrlRecord(name, stamp, trouble=f"{name}: cannot be read at {offset}: {error}")


def is_within(folder: Path, path: Path) -> bool:
    """Whether a path lies in the folder with all links followed, so that a job cannot be used to read other files."""
    return path.resolve().is_relative_to(folder.resolve())


def lines_with(
    path: Path, wanted: bytes, most: int, until_s: float, fits: Callable[[bytes], bool] = lambda _: True
) -> FoundLines:
    """The last lines of a file that contain `wanted` and fit. Empty if the file cannot be read."""
    found: list[bytes] = []
    with suppress(OSError), descriptor(path, os.O_RDONLY | os.O_NOFOLLOW) as file:
        end, rest = os.fstat(file).st_size, b""
        while end:
            if monotonic() > until_s:
                return FoundLines(found, is_whole=False)
            start = max(end - _PIECE_BYTES, 0)
            piece = os.pread(file, end - start, start) + rest
            # The first line of the piece may begin before it; then it is read with the piece before.
            whole = piece.find(b"\n") + 1 if start else 0
            rest = piece[:whole] if whole else piece
            rest = rest if len(rest) <= _MOST_LINE_BYTES else b""
            end = start
            if start and not whole:
                continue
            for line in _holding(piece[whole:], wanted):
                if fits(line):
                    if len(found) == most:
                        return FoundLines(found, is_whole=False)
                    found.append(line)
    return FoundLines(found, is_whole=True)


def text_of_line(line: bytes) -> str:
    """A line of a log as text."""
    return line.decode("utf-8", "replace")


def safe_text(data: bytes | str) -> str:
    """Text with control characters and direction marks escaped, so that it shows as it is. Pure."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    return "\n".join(escaped(line.expandtabs(4)) for line in text.replace("\r\n", "\n").split("\n"))


def _holding(piece: bytes, wanted: bytes) -> Iterator[bytes]:
    """The lines that contain `wanted`, last one first."""
    end = len(piece)
    while (at := piece.rfind(wanted, 0, end)) >= 0:
        begin, stop = piece.rfind(b"\n", 0, at) + 1, piece.find(b"\n", at)
        yield piece[begin : stop if stop >= 0 else len(piece)]
        end = begin


def _in_all(
    files: Iterable[Path], wanted: bytes, most: int, until_s: float, fits: Callable[[bytes], bool] = lambda _: True
) -> FoundLines:
    """The matching lines of all files, at most `most`."""
    found = [lines_with(file, wanted, most, until_s, fits) for file in files]
    return FoundLines([line for one in found for line in one.lines][:most], all(one.is_whole for one in found))


def _linked(files: Sequence[Path], url: str, until_s: float) -> tuple[list[str], list[tuple[str, str, str]], bool]:
    """The pages that link to a URL and its own links, from links.jsonl, and whether none is missing."""
    written = b'{"url":' + encode_basestring(url).encode()
    own = _in_all(files, written + b',"hops"', 1, until_s, lambda line: line.startswith(written))
    links: list[tuple[str, str, str]] = []
    for line in own.lines:
        with suppress(ValueError, KeyError, TypeError):
            links = [(link["url"], link["hop"], link["context"]) for link in json.loads(line)["links"]]
    holding = _in_all(files, written + b',"hop"', MOST_PARENTS, until_s)
    parents = []
    for line in holding.lines:
        with suppress(ValueError, IndexError):
            parents.append(json.JSONDecoder().raw_decode(text_of_line(line[len(b'{"url":') :][:_INDEX_LINE_BYTES]))[0])
    searched = holding.is_whole and (bool(own.lines) or own.is_whole)
    return list(dict.fromkeys(map(str, parents))), links[:MOST_LINKS], searched


# The WARC files

#: The time of an index line, the folder of its WARC file, and its fields.
_Entry = tuple[str, Path, dict[str, Any]]


def _indexed(folder: Path, url: str, until_s: float) -> _Entry | None:
    """The newest index line of a URL in a folder."""
    try:
        names = sorted((entry.name for entry in os.scandir(folder)), reverse=True)
    except OSError:
        return None
    key, quoted = urlkey(url).encode("ascii", "replace") + b" ", b'"url":' + json.dumps(url).encode()
    for name in names:
        lines: Iterable[bytes] = ()
        if name.endswith(INDEX + OPEN):  # it grows, unsorted
            lines = lines_with(folder / name, quoted, 1, until_s).lines
        elif name.endswith(INDEX) and monotonic() < until_s:
            lines = sorted_lines(folder / name, key)
        found = [entry for line in lines for entry in [_entry(line, folder, url)] if entry is not None]
        if found:
            return max(found, key=lambda entry: entry[0])
    return None


def _entry(line: bytes, folder: Path, url: str) -> _Entry | None:
    with suppress(ValueError, KeyError, IndexError, TypeError):
        _, stamp, text = line.split(b" ", 2)
        fields = json.loads(text)
        if fields["url"] == url and Path(fields["filename"]).name == fields["filename"]:
            return (
                stamp.decode("ascii"),
                folder,
                {**fields, "offset": int(fields["offset"]), "length": int(fields["length"])},
            )
    return None


def sorted_lines(path: Path, key: bytes, most: int = 1000) -> list[bytes]:
    """The lines of a sorted file that begin with a key, by binary search. Empty if the file cannot be read."""
    found: list[bytes] = []
    with suppress(OSError), path.open("rb") as file:
        low, high = 0, os.fstat(file.fileno()).st_size  # `low` is the begin of a line, before all lines that are wanted
        while high - low > _INDEX_LINE_BYTES:
            middle = (low + high) // 2
            file.seek(middle)
            file.readline(_INDEX_LINE_BYTES)
            begin = file.tell()
            if begin < high and file.readline(_INDEX_LINE_BYTES) < key:
                low = begin
            else:
                high = middle
        file.seek(low)
        while len(found) < most and (line := file.readline(_INDEX_LINE_BYTES)):
            if line.startswith(key):
                found.append(line)
            elif line > key:
                break
    return found


def _read(folder: Path, name: str, offset: int, length: int) -> UrlRecord:
    """The record at an offset, and the request record after it. Raises: OSError, BrokenMember, UsageError."""
    path = folder / name
    path = path if path.exists() else path.with_name(name + OPEN)
    with path.open("rb") as file:
        members = MemberReader(file, name)
        plain = _unpacked(members, offset, 2 * HEAD_BYTES)
        sent = b""
        with suppress(BrokenMember):  # the file may end there
            sent = _unpacked(members, offset + length, HEAD_BYTES)
    fields, _, block = plain.partition(_END)
    text = fields.decode("utf-8", "replace")
    size = _field(text, "Content-Length")
    is_whole = size.isdigit() and len(block) >= int(size)
    head, _, payload = (block[: int(size)] if size.isdigit() else block).partition(_END)
    shown = head.decode("latin-1")
    body, is_broken = decoded([payload], codings_in([_field(shown, "Content-Encoding")]), BODY_BYTES)
    sent_fields, _, request = sent.partition(_END)
    answered = _field(sent_fields.decode("utf-8", "replace"), "WARC-Concurrent-To")
    is_its = answered != "" and answered == _field(text, "WARC-Record-ID")
    is_request = is_its and b"\r\nWARC-Type: request\r\n" in sent_fields
    return UrlRecord(
        file=name,
        date="",
        fields=text,
        request=request.partition(_END)[0].decode("latin-1") if is_request else "",
        head=shown,
        body=body,
        is_cut=is_broken or not is_whole,
    )


def _unpacked(members: MemberReader, offset: int, most: int) -> bytes:
    """The first bytes of a record, which may be torn. Raises: OSError, UsageError; BrokenMember if there are none."""
    plain = bytearray()
    try:
        for piece in members.pieces(offset):
            plain += piece[: most - len(plain)]
            if len(plain) == most:
                break
    except BrokenMember:
        if not plain:
            raise
    return bytes(plain)


def _field(fields: str, name: str) -> str:
    """The first value of a header field; empty without one."""
    for line in fields.split("\r\n"):
        key, colon, value = line.partition(":")
        if colon and key.strip().lower() == name.lower():
            return value.strip()
    return ""
