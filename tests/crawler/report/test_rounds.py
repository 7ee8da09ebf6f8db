"""Two rounds of a job, compared by the lines of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, round_note
from anabranch.crawler.outcomes.errors import UsageError
from anabranch.crawler.report.rounds import CHANGES, compare_rounds

URL = "http://a.test/"


def line(url: str, status: int = 200, digest: str = "sha1:A", number: int = 1) -> bytes:
    """A line of crawl.log."""
    return crawl_log_line(
        CrawlLogEntry(0.0, status, url, 1, size_bytes=1, digest=digest, annotations=("1t", round_note(number)))
    )


def written(job: Path, *lines: bytes, name: str = "crawl.log") -> Path:
    """The job, with these lines in its log."""
    (job / "logs").mkdir(parents=True, exist_ok=True)
    (job / "logs" / name).write_bytes(b"".join(lines))
    return job


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of two rounds, with each kind of change."""
    first = (line(URL), line(URL + "gone"), line(URL + "body"), line(URL + "error"), line(URL + "304"))
    second = (
        line(URL, number=2),
        line(URL + "new", number=2),
        line(URL + "body", digest="sha1:B", number=2),
        line(URL + "error", 404, number=2),
        line(URL + "304", 304, "", number=2),
    )
    return written(tmp_path, *first, *second)


def test_each_url_is_new_gone_changed_of_another_status_or_unchanged(job: Path) -> None:
    """A 304 says that nothing has changed. Without numbers the last two rounds are compared."""
    found = compare_rounds(job)
    assert (found.rounds, found.before, found.after, found.unchanged) == ([1, 2], 1, 2, 2)
    assert found.counts == dict.fromkeys(CHANGES, 1)
    assert {row.url.removeprefix(URL): (row.change, row.status_before, row.status_after) for row in found.rows} == {
        "gone": ("gone", 200, None), "new": ("new", None, 200), "body": ("changed", 200, 200), "error": ("status", 200, 404),
    }  # fmt: skip
    assert found.line == "round 1 to 2: 1 new, 1 gone, 1 changed, 1 status, 2 unchanged"


def test_rounds_are_compared_in_either_direction_and_one_change_is_listed_alone(job: Path) -> None:
    """So what is new one way is gone the other way."""
    found = compare_rounds(job, 2, 1, change="gone")
    assert [row.url for row in found.rows] == [URL + "new"]
    assert (found.counts["new"], found.more) == (1, False)
    assert compare_rounds(job, limit=1).more


def test_the_last_line_of_a_url_in_a_round_counts(tmp_path: Path) -> None:
    """Also from a log that was rotated; lines of before rounds were noted are of the first one, and others are left out."""
    old = written(tmp_path, line(URL, 503), name="crawl.log.1")
    written(
        old,
        line(URL),
        line("dns:a.test"),
        b"no line\n",
        line(URL, number=2).replace(b"round:2", b"round:x"),
        line(URL, number=2),
    )
    found = compare_rounds(old)
    assert (found.unchanged, found.rows) == (1, [])


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (1, 3, "no lines of round 3; rounds that it has: 1, 2"),
        (2, 2, "compared with itself"),
        (None, 1, "no lines of round 0"),
    ],
)
def test_rounds_that_cannot_be_compared_are_refused(job: Path, before: int | None, after: int, words: str) -> None:
    """With the rounds that there are."""
    with pytest.raises(UsageError, match=words):
        compare_rounds(job, before, after)


def test_a_job_of_one_round_says_how_to_get_another(tmp_path: Path) -> None:
    """And a change that there is not is refused."""
    with pytest.raises(UsageError, match="has one round; `anabranch crawl --again`"):
        compare_rounds(written(tmp_path, line(URL)))
    with pytest.raises(UsageError, match="'x': is no change"):
        compare_rounds(tmp_path, change="x")


def test_no_log_is_read_through_a_link_out_of_the_job(job: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whoever may write into the job could else read other files by it."""
    secret = tmp_path_factory.mktemp("elsewhere") / "log"
    secret.write_bytes(line(URL + "secret", number=3))
    (job / "logs" / "crawl.log.1").symlink_to(secret)
    assert compare_rounds(job).rounds == [1, 2]
