"""The end of a log, and what is added to it."""

import pytest

from anabranch.crawler.report.logtail import LogFollower, last_lines

LINES = ["one", "two", "", "four"]
TEXT = b"one\ntwo\n\nfour\n"


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "a.log"
    file.write_bytes(TEXT)
    return file


@pytest.mark.parametrize("most_bytes", range(len(TEXT) + 3))
def test_the_last_lines_are_whole(log, most_bytes):
    """As many as fit; one that begins exactly where the part begins is among them."""
    fitting = [LINES[-count:] for count in range(1, 5) if sum(len(line) + 1 for line in LINES[-count:]) <= most_bytes]
    assert last_lines(log, most_bytes) == (fitting[-1] if fitting else [])


def test_a_line_without_its_end_is_left_out(log, tmp_path):
    """It is being written. A file that is missing has no lines."""
    log.write_bytes(TEXT + b"fi")
    assert last_lines(log, 100) == LINES
    assert last_lines(tmp_path / "missing", 100) == []
    assert last_lines(tmp_path, 100) == []


def test_a_follower_reads_what_is_added(log):
    """Not what was there before; a line once it is whole, and once."""
    follower = LogFollower(log)
    assert follower.new_lines() == []
    with log.open("ab") as file:
        file.write(b"five\nsi")
    assert follower.new_lines() == ["five"]
    with log.open("ab") as file:
        file.write(b"x\n")
    assert follower.new_lines() == ["six"]
    assert follower.new_lines() == []


def test_a_log_that_is_rotated_or_cut_is_read_from_its_begin(log):
    """Whether it was renamed, or copied and truncated; meanwhile it may be missing."""
    follower = LogFollower(log)
    follower.new_lines()
    log.rename(log.with_suffix(".1"))
    assert follower.new_lines() == []
    log.write_bytes(b"new\n")
    assert follower.new_lines() == ["new"]
    log.write_bytes(b"n\n")
    assert follower.new_lines() == ["n"]


@pytest.mark.parametrize("most_bytes", [50, 52, 54])
def test_a_burst_beyond_the_bound_loses_its_begin(log, most_bytes):
    """Memory is bounded; no line is cut."""
    follower = LogFollower(log)
    follower.new_lines()
    with log.open("ab") as file:
        file.write(b"".join(b"%04d\n" % number for number in range(1000)))
    assert follower.new_lines(most_bytes) == [f"{number:04d}" for number in range(990, 1000)]


def test_a_line_that_was_being_written_at_the_first_look_comes_whole(log):
    """Its begin is read again."""
    log.write_bytes(TEXT + b"fi")
    follower = LogFollower(log)
    assert follower.new_lines() == []
    with log.open("ab") as file:
        file.write(b"ve\n")
    assert follower.new_lines() == ["five"]


def test_a_log_that_is_not_there_yet_is_read_from_its_begin(tmp_path):
    """All of it is new."""
    follower = LogFollower(tmp_path / "a.log")
    assert follower.new_lines() == []
    (tmp_path / "a.log").write_bytes(b"one\n")
    assert follower.new_lines() == ["one"]
