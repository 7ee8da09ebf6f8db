"""A program that fetches nothing, logs lines and counts them until it is killed: `killable_accounts.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from crawler.jobs.durablefiles import AppendOnlyFile
from crawler.reporting import accounts as accounts_module
from crawler.reporting.accounts import Accounts
from crawler.reporting.crawl_log import CrawlLogEntry, crawl_log_line


class Entry(NamedTuple):
    """What a journal writes of a visit."""

    crawl_log: bytes


def main(folder: Path) -> None:
    """Group after group, as a journal does; every group is said on standard output."""
    accounts_module.COMMIT_S = 0.002
    accounts = Accounts(folder, folder / "crawl.log", lambda: 0.0)
    log = AppendOnlyFile(folder / "crawl.log")
    number = 0
    while True:
        entries = []
        for _ in range(20):
            number += 1
            url = f"http://{number % 37}.test/{number}"
            line = crawl_log_line(CrawlLogEntry(logged_s=0.0, status=200, size_bytes=1, url=url, worker=1))
            entries.append(Entry(line))
        accounts.append(entries)
        log.append(b"".join(entry.crawl_log for entry in entries))
        log.keep()
        accounts.keep()
        print(number, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
