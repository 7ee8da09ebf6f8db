"""The end of a log, and what is added to it."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from anabranch.crawler.report.logtail import LogFollower, last_lines, run_marks

LINES = ["one", "two", "", "four"]
TEXT = b"one\ntwo\n\nfour\n"


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "a.log"
    file.write_bytes(TEXT)
    return file


@pytest.mark.parametrize("most_bytes", range(len(TEXT) + 3))
def test_the_last_lines_are_whole(log, most_bytes):
    """The result has as many lines as fit; a line that begins exactly where the part begins is among them."""
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


def append(path, *numbers):
    with path.open("ab") as file:
        file.write(b"".join(b"%d\n" % number for number in numbers))


def rotate(log, most=9):
    """Rotate a log as logrotate does: a.log.1 becomes a.log.2, and a.log becomes a.log.1."""
    for number in range(most, 0, -1):
        with suppress(FileNotFoundError):
            log.with_name(f"{log.name}.{number}").rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))


def test_what_was_written_just_before_a_rotation_is_read_first(log):
    """Once, wherever the old file went; those that were rotated before are not read."""
    append(log.with_name("a.log.1"), 0)
    follower = LogFollower(log)
    follower.new_lines()
    append(log, 1, 2)
    rotate(log)
    assert follower.new_lines() == ["1", "2"]  # while there is no new file
    append(log.with_name("a.log.1"), 3)  # by whoever had it open
    log.touch()
    assert follower.new_lines() == ["3"]  # and while the new one is empty
    append(log.with_name("a.log.1"), 4)
    log.with_name("a.log.1").unlink()  # compressed, or removed
    append(log, 5)
    assert follower.new_lines() == ["4", "5"]
    assert follower.new_lines() == []


def test_many_rotations_between_two_looks_lose_nothing(log):
    """The files between are read in their order, and once; compressed ones, folders and links are left out."""
    follower = LogFollower(log)
    follower.new_lines()
    for number in range(0, 12, 3):
        append(log, number, number + 1)
        rotate(log)
        append(log, number + 2)
    log.with_name("a.log.1.gz").write_bytes(b"compressed\n")
    log.with_name("a.log.d").mkdir()
    log.with_name("a.log.link").symlink_to(__file__)
    assert follower.new_lines() == [str(number) for number in range(12)]
    append(log, 12)
    rotate(log)
    append(log, 13)
    assert follower.new_lines() == ["12", "13"]


def test_a_log_that_is_copied_and_cut_is_no_line_twice(log):
    """The copy is not read, also after a later rotation."""
    follower = LogFollower(log)
    append(log, 1)
    follower.new_lines()
    log.with_name("a.log.1").write_bytes(log.read_bytes())
    log.write_bytes(b"2\n")
    assert follower.new_lines() == ["2"]
    append(log, 3)
    rotate(log)
    append(log, 4)
    assert follower.new_lines() == ["3", "4"]


def test_rotations_while_it_follows_lose_nothing(tmp_path):
    """A writer that rotates every few lines, as fast as it can; each line comes once."""
    log, most, found = tmp_path / "a.log", 4000, []
    log.touch()
    follower = LogFollower(log)
    follower.new_lines()

    def write():
        for number in range(most):
            append(log, number)
            if number % 40 == 39:
                log.rename(tmp_path / f"a.log-{number:04d}")
        append(log, most)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        while not writing.done():
            found += follower.new_lines()
        writing.result()
    while lines := follower.new_lines():
        found += lines
    assert sorted(map(int, found)) == list(range(most + 1))


def all_next(follower, most_bytes=100):
    """The lines until there are none."""
    return [line for found in iter(lambda: follower.next_lines(most_bytes), []) for _, line in found]


def test_no_burst_is_too_large(log):
    """Also a single line longer than the bound; each call takes a part."""
    follower = LogFollower(log)
    assert follower.next_lines() == []
    lines = [*(str(number) for number in range(1000)), "x" * 1000, "last"]
    with log.open("a") as file:
        file.write("\n".join(lines) + "\nrest")
    assert len(follower.next_lines(100)) < 100
    assert all_next(follower)[-2:] == lines[-2:]
    with log.open("a") as file:
        file.write(" of a line\n")
    assert all_next(follower) == ["rest of a line"]


@pytest.mark.parametrize("seen", range(10))
def test_another_follower_goes_on_behind_any_line(log, seen):
    """By the place of the line, through any number of rotations."""
    follower, places, lines = LogFollower(log), [], [str(number) for number in range(9)]
    follower.next_lines()
    places.append(follower.place)
    for number in range(0, 9, 3):
        with log.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[number : number + 3])
        while found := follower.next_lines(4):
            places += [place for place, _ in found]
        if number < 6:
            for old in sorted(log.parent.glob("*.log.*"), reverse=True):
                old.rename(old.with_suffix(f".{int(old.suffix[1:]) + 1}"))
            log.rename(log.with_name(f"{log.name}.1"))
    later = LogFollower(log)
    later.resume(places[seen])
    assert all_next(later) == lines[seen:]


@pytest.mark.parametrize("place", ["", "x", "1", "-1", "7-0-0", "999999-1-1", f"{'9' * 400}", "0-1-1-1", "٣", "1e3"])
def test_a_place_that_is_unknown_loses_nothing(log, place):
    """The log is read from its begin."""
    begun = log.read_text().splitlines()
    follower = LogFollower(log)
    follower.resume(place)
    assert all_next(follower) == begun
    with log.open("a") as file:
        file.write("more\n")
    assert all_next(follower) == ["more"]


def test_a_progress_log_tells_when_runs_began_and_ended() -> None:
    """A run that begins while another one goes on says that this was killed, at its last line; a pause is no end."""
    times = (f"2026-11-20T00:00:{second:02}Z" for second in range(1, 60))
    events = ("RUNNING", "PAUSED", "RUNNING", "ENDED", "RUNNING", "", "RUNNING", "ENDING", "ENDED")
    lines = [
        f"{time} CRAWL {event} - words" if event else f"{time} 1 2 3 4.00(4.00) 5(5) 6 7"
        for time, event in zip(times, events, strict=False)
    ]
    marks = run_marks(["           timestamp  discovered", "", *lines])
    assert [(mark.time_s % 60, mark.what) for mark in marks] == [
        (1, "start"), (2, "pause"), (3, "resume"), (4, "stop"), (5, "start"), (6, "kill"), (7, "start"), (9, "stop"),
    ]  # fmt: skip
