"""A program that fetches nothing, logs lines and counts them until it is killed: `killable_accounts.py FOLDER`."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import NamedTuple

from anabranch.crawler.accounts import accounts as accounts_module
from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line
from anabranch.dedup.files.durable import AppendOnlyFile

GROUP = 20


class Entry(NamedTuple):
    """The part of a journal entry that accounts read."""

    crawl_log: bytes


def lines_of_group(group: int) -> list[bytes]:
    """The lines of a run's group, by its number from 0 on."""
    return [
        crawl_log_line(
            CrawlLogEntry(logged_s=0.0, status=200, size_bytes=1, url=f"http://{number % 37}.test/{number}", worker=1)
        )
        for number in range(group * GROUP, (group + 1) * GROUP)
    ]


def main(folder: Path) -> None:
    """Group after group, as a journal does; every group is said on standard output."""
    accounts_module.COMMIT_S = 0.002
    accounts = Accounts(folder, folder / "crawl.log", lambda: 0.0)
    log = AppendOnlyFile(folder / "crawl.log")
    for group in itertools.count():
        entries = [Entry(line) for line in lines_of_group(group)]
        accounts.append(entries)
        log.append(b"".join(entry.crawl_log for entry in entries))
        log.keep()
        accounts.keep()
        print(group, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
