"""The file of skipped URLs: what it keeps over runs and rounds, and what it says when it is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.job.skipped import (
    PAGE,
    KeptRule,
    SkippedDamaged,
    SkippedUrl,
    SkippedUrls,
    due_again,
)
from anabranch.crawler.job.state import SKIPPED
from anabranch.crawler.scope.parameters import Template
from anabranch.frontier.records import Candidate, UrlRecord, UrlState

RULE, OTHER = Template("t", "http://a.test/?t="), Template("s", "http://a.test/?s=")


def row(number: int) -> SkippedUrl:
    return SkippedUrl(f"http://a.test/?t={number:05}", "LL", "http://a.test/", b"\x00tag")


def test_there_is_no_file_before_a_url_is_skipped(tmp_path: Path) -> None:
    """Most jobs skip none."""
    kept = SkippedUrls(tmp_path, 1)
    assert (kept.rules(), kept.rule_of("http://a.test/"), list(kept.pages(RULE))) == ([], None, [])
    kept.undo(RULE)
    kept.close()
    assert not list(tmp_path.iterdir())


def test_urls_and_rules_are_there_in_the_next_run_of_the_round(tmp_path: Path) -> None:
    """With all that it takes to queue them again; in another round nothing is."""
    kept = SkippedUrls(tmp_path, 1)
    kept.add([(RULE, row(1)), (RULE, row(2))], {RULE: b"same"})
    kept.add([(RULE, row(2)), (OTHER, row(3))], {RULE: b"same", OTHER: b"x"})
    kept.close()
    again = SkippedUrls(tmp_path, 1)
    assert again.rules() == [KeptRule(RULE, b"same", 2), KeptRule(OTHER, b"x", 1)]
    assert list(again.pages(RULE)) == [[row(1), row(2)]]
    assert again.rule_of(row(3).url) == OTHER
    again.undo(RULE)
    again.remove([row(1)])
    assert again.rules() == [KeptRule(RULE, None, 1), KeptRule(OTHER, b"x", 1)]
    again.close()
    looked = SkippedUrls(tmp_path)
    assert len(looked.rules()) == 2
    looked.close()
    later = SkippedUrls(tmp_path, 2)
    assert later.rules() == []
    later.close()


def test_many_urls_are_read_in_pages(tmp_path: Path) -> None:
    """Each once, though pages are removed meanwhile."""
    kept = SkippedUrls(tmp_path, 1)
    rows = [row(number) for number in range(2 * PAGE + 1)]
    kept.add([(RULE, one) for one in rows], {RULE: b"same"})
    found = []
    for page in kept.pages(RULE):
        found += page
        kept.remove(page)
    assert found == rows
    kept.close()


def test_a_broken_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    """In one line."""
    (tmp_path / SKIPPED).write_bytes(b"no database" * 1000)
    with pytest.raises(SkippedDamaged, match=r"skipped\.sqlite: .*; remove it"):
        SkippedUrls(tmp_path, 1)


def test_only_urls_that_are_skipped_still_are_queued_again() -> None:
    """One may have been fetched, or be queued already: of several commands, or after a kill."""
    ended = {
        row(number).url.encode(): UrlRecord(row(number).url, UrlState.ENDED, status, "", 0, number)
        for number, status in ((1, -5005), (2, 200))
    }
    found = due_again([row(1), row(2), row(3)], lambda _: ended, lambda _: None)
    assert found == ([Candidate(row(1).url, None, "LL", b"\x00tag", force=True)], [row(1), row(2)])
