"""Folders of WARC files, written by the sink and looked at by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from anabranch.crawler.archive.files import WarcFiles
from anabranch.crawler.archive.sink import JournalEntry
from tests.crawler.archive.exchanges import OPTIONS, START_S, exchange, unpacked


def clock() -> float:
    return START_S


def opened(folder: Path, **options: object) -> WarcFiles:
    return WarcFiles(folder / "warc", replace(OPTIONS, **options), clock)


def write(files: WarcFiles, *urls: str, data: bytes = b"") -> None:
    """One group that is kept: a page of its own for each URL."""
    files.append([JournalEntry(exchange=exchange(url, data + url.encode())) for url in urls])
    files.keep()


def index_of(folder: Path) -> list[dict[str, str]]:
    """The lines of all indexes; each is sorted, and each line names a member that holds the record."""
    found = []
    for path in sorted((folder / "warc").glob("*.cdxj")):
        lines = path.read_bytes().splitlines()
        assert lines == sorted(lines)
        for line in lines:
            fields = json.loads(line.split(b" ", 2)[2])
            offset, length = int(fields["offset"]), int(fields["length"])
            member = unpacked(folder / "warc" / fields["filename"], offset, offset + length)
            assert f"WARC-Target-URI: {fields['url']}\r\n".encode() in member
            found.append(fields)
    return found
