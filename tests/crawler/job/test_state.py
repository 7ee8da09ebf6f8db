"""Jobs whose queue is in memory are known by a mark, and stay as they ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.crawler.job import state
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.state import (
    QUEUE_IN_MEMORY_MARK,
    Round,
    RoundDamaged,
    begin_round,
    current_round,
    has_queue_in_memory,
    is_finished,
    mark_queue_in_memory,
    ordered_round,
    round_of_run,
)
from anabranch.crawler.outcomes.errors import ExitCode, JobUnfinished, StorageError


def test_the_mark_is_made_with_its_folder_and_stands(tmp_path: Path) -> None:
    """Made twice it is the same."""
    state = tmp_path / "job" / "state"
    assert not has_queue_in_memory(state)
    mark_queue_in_memory(state)
    mark_queue_in_memory(state)
    assert has_queue_in_memory(state)


def test_a_mark_that_cannot_be_made_is_told_as_a_file(tmp_path: Path) -> None:
    """Nothing may be crawled then: the next run would take the job for one to go on with."""
    (tmp_path / "state").touch()
    with pytest.raises(StorageError, match="state"):
        mark_queue_in_memory(tmp_path / "state")


@pytest.mark.parametrize(("in_memory", "stays"), [(True, True), (False, False)])
def test_opening_such_a_job_does_not_take_back_that_it_finished(tmp_path: Path, in_memory: bool, stays: bool) -> None:
    """Nothing in it begins again; of any other job an opening does."""
    with JobFolder.open(tmp_path / "job") as job:
        if in_memory:
            mark_queue_in_memory(job.state)
        job.mark_finished()
    JobFolder.open(tmp_path / "job").close()
    assert is_finished(job.state) is stays


@pytest.mark.parametrize("how", ["fresh", "again"])
def test_a_job_that_begins_anew_has_no_mark(tmp_path: Path, how: str) -> None:
    """Neither that its queue is in memory, nor that it is finished."""
    with JobFolder.open(tmp_path / "job") as job:
        mark_queue_in_memory(job.state)
        job.mark_finished()
    JobFolder.open(tmp_path / "job", delete_old=how == "fresh", again=how == "again", even_unfinished=False).close()
    assert not (job.state / QUEUE_IN_MEMORY_MARK).exists()
    assert not is_finished(job.state)


LASTING = {"job.db", "schedule.lock", "payloads.sqlite", "payloads.sqlite-wal", "accounts.sqlite", "sinks.json"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A job that was crawled to its end."""
    with JobFolder.open(tmp_path / "job") as job:
        for name in (*LASTING, "frontier.db", "frontier.db-wal"):
            (job.state / name).write_text(name)
        (job.state / "seen").mkdir()
        (job.state / "seen" / "bits").write_text("1")
        job.crawl_log.write_text("line\n")
        job.warc.mkdir()
        job.mark_finished()
    return tmp_path / "job"


def names(directory: Path) -> set[str]:
    return {path.name for path in (directory / "state").iterdir()}


def test_a_round_keeps_all_but_the_frontier(directory: Path) -> None:
    """Seeds, memory, accounts, logs and WARC files are the job's; the queue and the filter were the round's."""
    with JobFolder.open(directory, again=True, even_unfinished=False) as job:
        assert (job.existed, job.new_round) == (True, 2)
    assert names(directory) == LASTING | {"lock", "format.json", "again"}
    assert (directory / "logs" / "crawl.log").read_text() == "line\n"
    assert (directory / "warc").is_dir()


def test_a_round_is_ordered_until_it_is_begun(directory: Path) -> None:
    """Whatever was made of a Frontier before that is removed again, with or without `again`; then it is gone on with."""
    state = directory / "state"
    JobFolder.open(directory, again=True).close()
    (state / "frontier.db").write_text("half")
    with JobFolder.open(directory) as job:
        assert job.new_round == 2
    assert "frontier.db" not in names(directory)
    (state / "frontier.db").write_text("whole")
    assert round_of_run(state) == 2
    begin_round(state, 700, 30)
    assert (current_round(state), ordered_round(state), round_of_run(state)) == (Round(2, 700, 30), None, 2)
    with JobFolder.open(directory) as job:
        assert job.new_round is None
    assert (state / "frontier.db").read_text() == "whole"


def test_beginning_without_an_order_changes_nothing(directory: Path) -> None:
    """Every run says that it has begun; the first round has no number written down."""
    begin_round(directory / "state", 700, 30)
    assert current_round(directory / "state") == Round(1, 0, 0)
    assert round_of_run(directory / "state") == 1


def test_a_round_that_was_begun_before_urls_were_noted_goes_on(directory: Path) -> None:
    """It counts the URLs of the rounds before as its own."""
    (directory / "state" / "round.json").write_text('{"number": 2, "bytes_before": 700}')
    assert current_round(directory / "state") == Round(2, 700, 0)


def test_a_removal_that_was_broken_off_is_gone_on_with(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a Frontier is never opened."""
    with monkeypatch.context() as patch:
        patch.setattr(state.shutil, "rmtree", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            JobFolder.open(directory, again=True)
    JobFolder.open(directory).close()
    assert names(directory) == LASTING | {"lock", "format.json", "again"}


def test_a_round_of_an_unfinished_job_must_be_meant(directory: Path) -> None:
    """One that is ordered and not begun needs no further consent."""
    JobFolder.open(directory).close()
    before = names(directory)
    with pytest.raises(JobUnfinished, match=r"add --yes to throw away its queue, or leave out --again"):
        JobFolder.open(directory, again=True, even_unfinished=False)
    assert names(directory) == before
    JobFolder.open(directory, again=True, even_unfinished=True).close()
    JobFolder.open(directory, again=True, even_unfinished=False).close()
    assert ordered_round(directory / "state") == 2


def test_a_new_job_has_its_first_round(tmp_path: Path) -> None:
    """So the same command may stand in a timetable from the beginning."""
    with JobFolder.open(tmp_path / "job", again=True, even_unfinished=False) as job:
        assert (job.existed, job.new_round) == (False, None)


def test_starting_afresh_forgets_the_rounds(directory: Path) -> None:
    """Their number, and one that was ordered."""
    JobFolder.open(directory, again=True).close()
    with JobFolder.open(directory, delete_old=True) as job:
        assert (job.existed, job.new_round) == (False, None)
    assert names(directory) == {"lock", "format.json"}


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b"{", b"[]", b"3", b"\xff", b"[" * 99_999, b'{"number": 2}', b'{"number": "2", "bytes_before": 0}'),
        *(b'{"number": %s, "bytes_before": 0}' % number for number in (b"0", b"true", b"1.5", b"1e999")),
        b'{"number": 2, "bytes_before": -1}',
    ],
)
def test_a_damaged_number_of_the_round_is_told_in_one_line(directory: Path, text: bytes) -> None:
    """With the file and what to do; another round is not ordered, and the job is free again. --fresh needs none of it."""
    file = directory / "state" / "round.json"
    file.write_bytes(text)
    before = names(directory)
    with pytest.raises(RoundDamaged, match=f"^{file}: damaged; restore it from a copy, or remove it") as raised:
        JobFolder.open(directory, again=True)
    assert raised.value.exit_code is ExitCode.BAD_ORDER
    assert names(directory) == before
    JobFolder.open(directory).close()
    JobFolder.open(directory, delete_old=True).close()


@pytest.mark.parametrize("text", [b"", b"two", b"0", b"-1", b"1.5", b"\xff", b"9" * 9999])
def test_a_damaged_order_for_another_round_is_told_in_one_line(directory: Path, text: bytes) -> None:
    """The files of a Frontier are kept; the job opens again when the number is written, and --fresh needs no number."""
    JobFolder.open(directory, again=True).close()
    mark = directory / "state" / "again"
    mark.write_bytes(text)
    (directory / "state" / "frontier.db").write_text("half")
    for _ in range(2):  # the lock was given back
        with pytest.raises(RoundDamaged, match=f"^{mark}: damaged; write the number of the round into it"):
            JobFolder.open(directory)
    assert "frontier.db" in names(directory)
    mark.write_text("2\n")
    with JobFolder.open(directory) as job:
        assert job.new_round == 2
    mark.write_bytes(text)
    JobFolder.open(directory, delete_old=True).close()
