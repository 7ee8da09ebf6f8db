"""Whether the files of a job that has ended say the same: crawl.log, pages.jsonl, WARC files, their indexes, the totals."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from anabranch.crawler.accounts.database import AccountsView
from tests.crawler.archive.exchanges import read_by_warcio

#: URL -> how often it was answered.
Answers = Counter[str]


def disagreements(job: Path, *, workers: Sequence[Path] = ()) -> list[str]:
    """List the contradictions between a job's files; empty if they agree.

    `workers`: the folders whose totals count, if not the job's own.

    Raises: the WARC reader's error for a torn file.
    """
    logged, without_robots, statuses = _of_crawl_log(job / "logs" / "crawl.log")
    archived, indexed = _of_warcs(job / "warc")
    found = [f"left open: {path.name}" for path in (job / "warc").glob("*.open")]
    found += _differences("pages.jsonl", _of_pages(job / "pages.jsonl"), without_robots)
    found += _differences("the WARC files", archived, logged)
    found += _differences("the indexes", indexed, logged)
    counted: Counter[int] = Counter()
    for folder in workers or [job]:
        with AccountsView(folder / "state") as view:
            counted.update(dict(view.statuses()))
    if counted != statuses:
        found.append(f"the totals have {dict(counted)}, crawl.log has {dict(statuses)}")
    return found


def urls_of(job: Path) -> set[str]:
    """The URLs that were answered, without robots.txt."""
    return set(_of_crawl_log(job / "logs" / "crawl.log")[1])


def _of_crawl_log(path: Path) -> tuple[Answers, Answers, Counter[int]]:
    """The answers, those without prerequisites, and how many lines each status has."""
    answers, pages = Answers(), Answers()
    statuses: Counter[int] = Counter()
    for line in path.read_text().splitlines():
        fields = line.split()
        assert len(fields) == 12, line
        statuses[int(fields[1])] += 1
        if int(fields[1]) > 1:  # 1: a name was looked up
            answers[fields[3]] += 1
            if not fields[4].endswith("P"):
                pages[fields[3]] += 1
    return answers, pages, statuses


def _of_pages(path: Path) -> Answers:
    return Answers(json.loads(line)["url"] for line in path.read_text().splitlines())


def _of_warcs(folder: Path) -> tuple[Answers, Answers]:
    """The answers in the records, and those in the indexes, each of which points at the record of its URL."""
    archived, indexed = Answers(), Answers()
    for path in sorted(folder.glob("*.warc.gz")):
        kinds = [(read.kind, read.url) for read in read_by_warcio(path)]
        archived.update(url for kind, url in kinds if kind in {"response", "revisit"})
        for line in path.with_name(path.name.removesuffix(".warc.gz") + ".cdxj").read_text().splitlines():
            fields = json.loads(line.split(" ", 2)[2])
            assert fields["filename"] == path.name
            indexed[fields["url"]] += 1
    return archived, indexed


def _differences(what: str, one: Answers, crawl_log: Answers) -> list[str]:
    more, less = one - crawl_log, crawl_log - one
    return [f"only {what}: {dict(more)}"] * bool(more) + [f"not in {what}: {dict(less)}"] * bool(less)
