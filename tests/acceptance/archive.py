"""The WARC files of a real crawl, read by strangers and held against what the crawl says of itself."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.crawler.archive.exchanges import Read, read_by_fastwarc, read_by_warcio, unpacked, warcs

ANSWERS = {"response", "revisit"}


class Archived(NamedTuple):
    """The answers in a job's WARC files, which are complete."""

    files: list[Path]
    answers: list[Read]  #: responses and revisits, in the order of the files

    def of(self, url: str) -> list[Read]:
        """The answers of one URL."""
        return [read for read in self.answers if read.url == url]

    def kinds(self) -> Counter[str]:
        """How many responses, and how many revisits of each profile."""
        return Counter(read.fields.get("WARC-Profile", read.kind).rpartition("/")[2] for read in self.answers)


def archived(job: Path) -> Archived:
    """Read all files of a job that has ended: no complaint by warcio and fastwarc, every digest right, every index true."""
    folder = job / "warc"
    files = warcs(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        name for path in files for name in (path.name, index_of(path).name)
    ), "each file is finished, and has an index"
    answers, named = [], set[str]()
    for path in files:
        records = read_by_warcio(path)
        assert [(read.kind, read.url) for read in records] == read_by_fastwarc(path)
        named |= {read.url for read in records if is_name(read)}
        answers += checked([read for read in records if not is_name(read)])
        check_index(path, [read.url for read in records if read.kind in ANSWERS and not is_name(read)])
    check_against_log(job, {read.url for read in answers} | named)
    return Archived(files, answers)


def is_name(read: Read) -> bool:
    """Whether this is the record of a name that was looked up."""
    return read.fields.get("Content-Type") == "text/dns"


def checked(records: list[Read]) -> list[Read]:
    """The answers of a file that begins with warcinfo; each has its request and metadata behind it."""
    info, *others = records
    assert info.kind == "warcinfo"
    groups = [others[start : start + 3] for start in range(0, len(others), 3)]
    for answer, request, metadata in groups:
        assert answer.kind in ANSWERS
        assert (request.kind, metadata.kind) == ("request", "metadata")
        assert request.url == metadata.url == answer.url
        assert metadata.payload
        for beside in (request, metadata):
            assert beside.fields["WARC-Concurrent-To"] == answer.fields["WARC-Record-ID"]
        assert answer.fields["WARC-Warcinfo-ID"] == info.fields["WARC-Record-ID"]
    return [answer for answer, *_ in groups]


def index_of(path: Path) -> Path:
    """The index of a file."""
    return path.with_name(path.name.partition(".warc.")[0] + ".cdxj")


def check_index(path: Path, urls: list[str]) -> None:
    """Sorted, a line for each answer, and where it says the record stands there it stands, and nothing else."""
    lines = index_of(path).read_bytes().splitlines()
    assert lines == sorted(lines)
    indexed = []
    for line in lines:
        fields = json.loads(line.split(b" ", 2)[2])
        start = int(fields["offset"])
        record = unpacked(path, start, start + int(fields["length"]))
        assert record.count(b"\r\nWARC-Record-ID: ") == 1
        assert f"\r\nWARC-Target-URI: {fields['url']}\r\n".encode() in record
        assert fields["filename"] == path.name
        indexed.append(fields["url"])
    assert sorted(indexed) == sorted(urls)


def check_against_log(job: Path, urls: set[str]) -> None:
    """Every answer of crawl.log is in a file: pages, robots.txt, failures, names that were found.

    What the operator's own processor stopped, or a rule before the body, is not.
    """
    lines = [line.split() for line in (job / "logs" / "crawl.log").read_text().splitlines() if " stopped=" not in line]
    lines = [line for line in lines if not line[11].startswith("midFetchAbort,")]
    missing = {line[3] for line in lines if int(line[1]) > 0} - urls
    assert not missing, f"answers without a record: {sorted(missing)}"
