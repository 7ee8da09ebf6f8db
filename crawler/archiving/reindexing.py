"""The index of finished WARC files, made anew from their records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.archiving.cdxj import write_sorted
from anabranch.crawler.archiving.growing import INDEX, OPEN, WARC
from anabranch.crawler.archiving.members import index_line, whole_members


class Indexed(NamedTuple):
    """One file that was indexed."""

    path: Path
    answers: int  #: lines of its index
    damaged_from: int | None  #: offset of the first record that is not whole; None if all are


def reindex(folder: Path) -> Iterator[Indexed]:
    """Write the index of each finished file of the folder, and tell of each. Cost: the files are decompressed once.

    A crawl may go on meanwhile: its open files are left alone. Raises: OSError.
    """
    for path in sorted(folder.glob(f"*{WARC}")):
        yield _reindex(path)


def open_files(folder: Path) -> list[Path]:
    """The files that grow, or were left by a killed crawl; the next run finishes them."""
    return sorted(folder.glob(f"*{WARC}{OPEN}"))


def _reindex(path: Path) -> Indexed:
    answers = end = 0

    def lines() -> Iterator[bytes]:
        nonlocal answers, end
        with path.open("rb") as file:
            for member in whole_members(file):
                end = member.end
                line = index_line(member, path.name)
                if line is not None:
                    answers += 1
                    yield line.to_bytes()

    write_sorted(lines(), path.with_name(path.name.removesuffix(WARC) + INDEX))
    return Indexed(path, answers, None if end == path.stat().st_size else end)
