"""Notices that a console keeps until they are delivered."""

import json

import pytest

from anabranch.crawler.console import outbox as outbox_module
from anabranch.crawler.console.outbox import WAITS_S, KnownEnds, NoticeOutbox, take_outbox
from anabranch.crawler.operate import NoticeTargets, Undelivered, notice_of
from anabranch.crawler.outcomes.errors import UsageError

BOTH = NoticeTargets(("true",), "https://x.test/", b"secret")


def notice(job: str = "news", made_s: float = 1e9):
    return notice_of(f"/jobs/{job}", made_s, {"job": job}, made_s)


@pytest.fixture
def taken(monkeypatch):
    """The notices that targets were given; those in `refusing` take nothing."""
    made: list[tuple[str, str]] = []
    refusing: set[str] = set()

    def deliver(one, kind, *_) -> None:
        made.append((one.job, kind))
        if kind in refusing:
            raise Undelivered(f"{kind}: no")

    monkeypatch.setattr(outbox_module, "deliver", deliver)
    return made, refusing


def test_a_notice_goes_to_each_target_once(tmp_path, taken) -> None:
    """However often it is added; then nothing is left of it."""
    made, _ = taken
    box = NoticeOutbox(tmp_path, BOTH)
    box.add(notice())
    box.add(notice())
    assert box.deliver_due(2e9) is None
    assert made == [("news", "command"), ("news", "webhook")]
    assert not [*(tmp_path / "notices").iterdir()]
    assert box.deliver_due(3e9) is None
    assert len(made) == 2


def test_a_notice_that_is_added_again_keeps_its_tries(tmp_path, taken) -> None:
    """A console that was killed before it noted the end adds it again."""
    _, refusing = taken
    refusing.add("command")
    box = NoticeOutbox(tmp_path, NoticeTargets(("true",)))
    box.add(notice())
    box.deliver_due(2e9)
    box.add(notice())
    assert [one["tries"] for one in box.facts("news")] == [1]


def test_a_failure_is_tried_at_growing_distances_and_then_given_up(tmp_path, taken) -> None:
    """Also by a console that was started meanwhile; what was given up stays to be seen."""
    made, refusing = taken
    refusing.add("webhook")
    NoticeOutbox(tmp_path, BOTH).add(notice())
    now_s = 2e9
    for number, wait_s in enumerate(WAITS_S, start=1):
        box = NoticeOutbox(tmp_path, BOTH)
        assert box.deliver_due(now_s) == now_s + wait_s
        assert box.deliver_due(now_s + wait_s - 1) == now_s + wait_s
        (facts,) = box.facts("news")
        assert (facts["tries"], facts["error"], facts["to"]) == (number, "webhook: no", "webhook")
        now_s += wait_s
    assert box.deliver_due(now_s) is None
    assert [kind for _, kind in made] == ["command", *["webhook"] * (len(WAITS_S) + 1)]
    (facts,) = NoticeOutbox(tmp_path, BOTH).facts("news")
    assert facts["next_s"] is None
    assert list(box.failed()) == ["news"]
    assert list(WAITS_S) == sorted(WAITS_S)


def test_the_number_of_notices_is_bounded(tmp_path, taken, monkeypatch) -> None:
    """Those that were given up go first, then the oldest."""
    monkeypatch.setattr(outbox_module, "MOST_KEPT", 3)
    monkeypatch.setattr(outbox_module, "WAITS_S", ())
    _, refusing = taken
    refusing.add("webhook")
    box = NoticeOutbox(tmp_path, NoticeTargets(webhook="https://x.test/"))
    box.add(notice("given-up", 3e9))
    box.deliver_due(4e9)
    for number, job in enumerate("abcd"):
        box.add(notice(job, 1e9 + number))
    kept = [job for job in ("given-up", *"abcd") if box.facts(job)]
    assert kept == ["b", "c", "d"]
    assert len([*(tmp_path / "notices").glob("*.json")]) == 3


def test_a_damaged_notice_is_left_out(tmp_path, taken) -> None:
    """The others are delivered."""
    made, _ = taken
    box = NoticeOutbox(tmp_path, NoticeTargets(("true",)))
    box.add(notice("a"))
    box.add(notice("b"))
    (file,) = (tmp_path / "notices").glob(f"{notice('a').id}.*")
    file.write_bytes(file.read_bytes()[:-5])
    NoticeOutbox(tmp_path, NoticeTargets(("true",))).deliver_due(2e9)
    assert made == [("b", "command")]


def test_only_the_owner_reads_what_is_kept(tmp_path) -> None:
    """The facts of a job are not for all."""
    NoticeOutbox(tmp_path, BOTH).add(notice())
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "notices", *(tmp_path / "notices").iterdir())} == {0}


def test_ends_of_before_are_no_news_and_each_is_told_once(tmp_path) -> None:
    """Jobs that were there before bring none; a job that is new and has ended meanwhile is news. A restart changes nothing."""
    NoticeOutbox(tmp_path, BOTH)
    known = KnownEnds(tmp_path, 100.0)
    assert not known.is_news("/old", 10.0, 20.0)
    assert known.is_news("/new", 101.0, 102.0)
    known.note("/old", 10.0)
    known.note("/new", 101.0)
    known = KnownEnds(tmp_path, 500.0)
    assert not known.is_news("/old", 10.0, 20.0)
    assert not known.is_news("/new", 101.0, 102.0)
    assert known.is_news("/old", 30.0, 40.0)
    assert known.is_news("/later", 200.0, 300.0)


def test_one_console_of_a_folder_delivers(tmp_path) -> None:
    """The lock ends with the process."""
    take_outbox(tmp_path)
    with pytest.raises(UsageError, match="delivers the notices of"):
        take_outbox(tmp_path)


def test_the_body_is_kept_as_it_was_made(tmp_path) -> None:
    """A later run changes nothing of it."""
    NoticeOutbox(tmp_path, BOTH).add(notice())
    again = NoticeOutbox(tmp_path, BOTH)
    assert {json.loads(one.notice.body)["data"]["job"] for one in again._kept.values()} == {"news"}
