"""The job's totals: what is counted, when it is written, what a crash leaves."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections import Counter
from itertools import product
from typing import NamedTuple

import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from anabranch.crawler.accounts import accounts as accounts_module
from anabranch.crawler.accounts import database
from anabranch.crawler.accounts.accounts import Accounts
from anabranch.crawler.accounts.crawl_log import CrawlLogEntry, crawl_log_line, parse_crawl_log_line
from anabranch.crawler.accounts.database import ACCOUNTS_FILE, AccountsDatabase, AccountsView
from anabranch.crawler.accounts.journal import JOURNAL_FILE, AccountsDamaged
from anabranch.crawler.accounts.totals import Additions, Totals, counts_of
from anabranch.crawler.outcomes.errors import StorageError


class Entry(NamedTuple):
    """The part of a journal entry that accounts read."""

    crawl_log: bytes | None


def entries(*lines):
    return [Entry(line) for line in lines]


def line(url="http://a.test/", status=200, size=10, mime="a/b", **more):
    return crawl_log_line(
        CrawlLogEntry(
            logged_s=0.0, status=status, size_bytes=size if status > 0 else None, url=url, worker=1, mime=mime, **more
        )
    )


class Job:
    """A job's folder, with a log that is written as a journal does."""

    def __init__(self, folder) -> None:
        self.state = folder / "state"
        self.state.mkdir(exist_ok=True)
        self.log = folder / "crawl.log"
        self.now_s = 100.0

    def open(self) -> Accounts:
        return Accounts(self.state, self.log, lambda: self.now_s)

    def write(self, accounts, *lines) -> None:
        accounts.append(entries(*lines))
        with self.log.open("ab") as file:
            file.write(b"".join(lines))
        accounts.keep()

    @property
    def journal(self):
        return self.state / JOURNAL_FILE


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_what_is_kept_counts_at_once(job) -> None:
    """Quotas must not lag behind by a commit."""
    accounts = job.open()
    job.write(accounts, line(), line("http://b.test/", size=5))
    job.write(accounts, line("http://a.test/2", size=7))
    assert accounts.of_host("a.test") == Totals(urls=2, bytes=17, novel_urls=2, novel_bytes=17)
    assert accounts.of_host("b.test").urls == 1
    assert accounts.of_host("c.test") == Totals()
    job.write(accounts, line("http://a.test/3"))
    assert accounts.of_host("a.test").urls == 3
    accounts.close()


def test_what_is_taken_back_never_counts(job) -> None:
    """The lines were cut from the log, too."""
    accounts = job.open()
    accounts.append(entries(line()))
    accounts.take_back()
    job.write(accounts, line("http://b.test/"))
    assert (accounts.of_host("a.test").urls, accounts.of_host("b.test").urls) == (0, 1)
    accounts.close()


def test_an_entry_may_have_several_lines_or_none(job) -> None:
    """A look-up and the page; or only a line of another file."""
    accounts = job.open()
    accounts.append(entries(line() + line("http://b.test/"), None))
    accounts.keep()
    assert (accounts.of_host("a.test").urls, accounts.of_host("b.test").urls) == (1, 1)
    assert accounts.path == job.state / ACCOUNTS_FILE
    accounts.close()


def test_totals_go_on_in_the_next_run(job) -> None:
    """They are the job's, not the run's."""
    for start_s in (None, 50.0, 40.0, 45.0, None):
        accounts = job.open()
        job.write(accounts, line(start_s=start_s, end_s=None if start_s is None else start_s + 10))
        accounts.close()
    accounts = job.open()
    assert accounts.of_host("a.test") == Totals(
        urls=5, bytes=50, novel_urls=5, novel_bytes=50, first_success_s=40.0, last_success_s=60.0
    )
    accounts.close()


def test_a_crash_loses_no_count_and_doubles_none(job) -> None:
    """Some lines were written back, some not; one group was never told of, and one is torn."""
    accounts = job.open()
    job.write(accounts, line())
    accounts.sync()
    job.write(accounts, line("http://a.test/2"), line("http://b.test/"))
    accounts.append(entries(line("http://a.test/durable, and nobody was told")))
    with job.journal.open("ab") as file:
        file.write(b"0000")
    again = job.open()  # the first one was never closed
    assert (again.of_host("a.test").urls, again.of_host("b.test").urls) == (3, 1)
    again.close()
    again = job.open()
    assert (again.of_host("a.test").urls, again.of_host("b.test").urls) == (3, 1)
    again.close()


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("left", [None, b"", line("http://later.test/")])
def test_totals_do_not_hang_on_the_log(job, left, *, is_killed: bool) -> None:
    """An operator may move it, cut it, or have another one begun, while the job is stopped or was killed."""
    accounts = job.open()
    job.write(accounts, line(), line())
    accounts.sync()
    job.write(accounts, line())
    if not is_killed:
        accounts.close()
    job.log.rename(job.log.with_name("crawl.log.1"))
    if left is not None:
        job.log.write_bytes(left)
    accounts = job.open()
    assert (accounts.of_host("a.test").urls, accounts.of_host("later.test").urls) == (3, 0)
    accounts.close()


def legacy(job, lines, counted) -> None:
    """Make the files of a version without a journal: the rows of these lines, and the number of bytes of crawl.log counted."""
    job.log.write_bytes(b"".join(lines))
    accounts = job.open()
    accounts.close()
    job.journal.unlink()
    rows = sqlite3.connect(job.state / ACCOUNTS_FILE)
    rows.execute("DELETE FROM place")
    rows.execute("UPDATE covered SET bytes = ?", [counted])
    rows.commit()
    rows.close()


def test_older_accounts_catch_up_with_the_log_once(job) -> None:
    """Lines that a version without a journal did not count are counted once; from then on the log is not read."""
    legacy(job, [line()], len(line()))
    with job.log.open("ab") as log:
        log.write(b"a remark of the operator's\n" + line("http://b.test/") + line("http://b.test/torn")[:-1])
    for _ in range(2):
        accounts = job.open()
        assert (accounts.of_host("a.test").urls, accounts.of_host("b.test").urls) == (1, 1)
        accounts.close()
        with job.log.open("ab") as log:
            log.write(b"\n" + line("http://b.test/3"))


def test_older_accounts_whose_log_was_moved_keep_what_they_have(job) -> None:
    """A log that is shorter than what was counted of it is another one: all of it is new."""
    legacy(job, [line(), line()], 2 * len(line()))
    job.log.write_bytes(line("http://b.test/"))
    accounts = job.open()
    assert (accounts.of_host("a.test").urls, accounts.of_host("b.test").urls) == (2, 1)
    accounts.close()


def test_a_first_opening_that_was_killed_counts_nothing_twice(job, monkeypatch) -> None:
    """Between the rows and the first journal."""
    job.log.write_bytes(line())
    with monkeypatch.context() as broken:
        broken.setattr(accounts_module.AccountsJournal, "begin", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            job.open()
    accounts = job.open()
    assert accounts.of_host("a.test").urls == 1
    accounts.close()


def flipped(file) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


DAMAGES = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "emptied": lambda file: file.write_bytes(b""),
    "zeroed": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "flipped": flipped,
    "deleted": lambda file: file.unlink(),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
    "another file": lambda file: file.write_bytes(b"this is no file of ours" * 1000),
}


FILES = (ACCOUNTS_FILE, JOURNAL_FILE)
#: Of a job that was killed a byte may be one that nobody reads any more.
CASES = [case for case in product([True, False], FILES, DAMAGES) if case[0] is False or case[2] != "flipped"]


@pytest.mark.parametrize(("is_killed", "name", "damage"), CASES)
def test_damaged_accounts_end_the_run_and_say_the_remedy(job, monkeypatch, name, damage, *, is_killed) -> None:
    """No total is made of what is left; the remedy works, and says so."""
    monkeypatch.setattr(accounts_module, "COMMIT_S", 0.0)
    monkeypatch.setattr(accounts_module, "MAX_JOURNAL_BYTES", 1)
    accounts = job.open()
    for number in range(3):
        job.write(accounts, line(), line(f"http://{number}.test/"))
    accounts.sync()
    if is_killed:  # what no log beside it makes good
        accounts._database.checkpoint()
        accounts._database.close()
    else:
        accounts.close()
    DAMAGES[damage](job.state / name)
    for _ in range(2):
        with pytest.raises(AccountsDamaged, match=r"accounts\..*; restore .* or remove them") as caught:
            job.open()
        assert caught.value.exit_code == 4
    for file in job.state.glob("accounts.*"):
        file.rmdir() if file.is_dir() else file.unlink()
    with capture_logs() as events:
        accounts = job.open()
    assert [event["lines"] for event in events] == [6]
    assert accounts.of_host("a.test").urls == 3
    accounts.close()


def test_a_group_that_is_not_as_it_was_written_is_damage(job) -> None:
    """A line that has its end was told of: it is not left out."""
    accounts = job.open()
    job.write(accounts, line("http://b.test/"))
    job.write(accounts, line())
    job.journal.write_bytes(job.journal.read_bytes().replace(b"b.test", b"c.test"))
    with pytest.raises(AccountsDamaged, match=JOURNAL_FILE):
        job.open()


def test_a_copy_of_another_time_is_damage(job) -> None:
    """Rows and journal belong together."""
    accounts = job.open()
    job.write(accounts, line())
    accounts.close()
    old = (job.state / ACCOUNTS_FILE).read_bytes()
    accounts = job.open()
    job.write(accounts, line())
    accounts.close()
    new = (job.state / ACCOUNTS_FILE).read_bytes()
    (job.state / ACCOUNTS_FILE).write_bytes(old)
    with pytest.raises(AccountsDamaged):
        job.open()
    (job.state / ACCOUNTS_FILE).write_bytes(new)
    accounts = job.open()
    assert accounts.of_host("a.test").urls == 2
    accounts.close()


def test_what_looks_at_the_accounts_breaks_no_seal(job) -> None:
    """A report of a stopped job opens them, too, and more than once."""
    accounts = job.open()
    job.write(accounts, line())
    accounts.close()
    for _ in range(3):
        with AccountsView(job.state) as view:
            assert view.total().urls == 1
        job.open().close()


def test_a_kill_while_sealed_accounts_are_opened_damages_nothing(job, monkeypatch) -> None:
    """The seal is broken before the rows change."""
    accounts = job.open()
    job.write(accounts, line())
    accounts.close()
    job.now_s += 1  # so that a row changes
    write = AccountsDatabase.write

    def killed(self, *given, **named) -> None:
        write(self, *given, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AccountsDatabase, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            job.open()
    accounts = job.open()
    assert accounts.of_host("a.test").urls == 1
    accounts.close()


@pytest.mark.parametrize("fails", ["replace_file", "AppendOnlyFile.follow"])
def test_a_journal_that_cannot_be_begun_anew_fails_the_group_alone(job, monkeypatch, fails) -> None:
    """No room, or no descriptor: the group is taken back, and what counted before counts."""
    accounts = job.open()
    job.write(accounts, line())

    def refuse(*_given) -> None:
        raise OSError(errno.ENOSPC, "no")

    with monkeypatch.context() as patch:
        patch.setattr(accounts_module, "MAX_WAITING", 0)
        patch.setattr(accounts_module, "MAX_JOURNAL_BYTES", 0)
        patch.setattr(f"anabranch.crawler.accounts.journal.{fails}", refuse)
        with pytest.raises(OSError, match="no"):
            accounts.append(entries(line("http://a.test/2")))
        accounts.take_back()
    again = job.open()  # after a kill
    assert again.of_host("a.test").urls == 1
    again.close()


def test_memory_holds_a_bounded_number_of_rows(job, monkeypatch) -> None:
    """More hosts than that are written back before more are taken, and are complete all the same."""
    monkeypatch.setattr(accounts_module, "MAX_WAITING", 20)
    monkeypatch.setattr(accounts_module, "MAX_KNOWN", 5)
    accounts = job.open()
    for number in range(100):
        job.write(accounts, line(f"http://{number}.test/"), line(f"http://{number % 7}.test/again"))
        assert accounts._added.size < 20 + 2 * 5  # what one group of two lines adds at most
        assert accounts.of_host(f"{number}.test").urls >= 1
        assert len(accounts._known) <= 5
    assert [accounts.of_host(f"{number}.test").urls for number in (0, 6, 7, 99)] == [16, 15, 1, 1]
    accounts.close()


def test_media_types_are_bounded_over_commits_and_runs(job, monkeypatch) -> None:
    """The table has no more rows than types are counted apart, and one for all others."""
    monkeypatch.setattr("anabranch.crawler.accounts.totals.MAX_TYPES", 3)
    monkeypatch.setattr(accounts_module, "MAX_TYPES", 3)
    for run in ("a", "b"):
        accounts = job.open()
        job.write(accounts, *(line(mime=f"{run}/{number}") for number in range(2)), line(mime="a/0"))
        accounts.sync()
        job.write(accounts, line(mime=f"{run}/2"))
        accounts.close()
    with AccountsView(job.state) as view:
        assert set(view.mime_types()) == {("a/0", 3, 30), ("a/1", 1, 10), ("a/2", 1, 10), ("other", 3, 30)}


def test_a_host_that_is_asked_for_during_a_commit_is_whole(job, monkeypatch) -> None:
    """Lines that are being written count once, both before and after they are in the file."""
    accounts = job.open()
    job.write(accounts, line())
    written = accounts._database.write
    seen = []

    def slow(added, run, **place):
        seen.append(accounts.of_host("a.test").urls)  # not in the file yet
        accounts._known.clear()
        written(added, run, **place)
        seen.append(accounts.of_host("a.test").urls)  # in the file, and still known as being written
        accounts._known.clear()

    monkeypatch.setattr(accounts._database, "write", slow)
    accounts.sync()
    assert [*seen, accounts.of_host("a.test").urls] == [1, 1, 1]
    accounts.close()


def test_questions_beside_the_writer_never_go_back(job, monkeypatch) -> None:
    """Two threads: one counts and commits, the other asks; totals only grow, and end whole."""
    monkeypatch.setattr(accounts_module, "COMMIT_S", 0.0)
    monkeypatch.setattr(accounts_module, "MAX_KNOWN", 1)
    accounts = job.open()

    def write() -> None:
        for _ in range(200):
            job.write(accounts, line(), line("http://b.test/"))

    writer = threading.Thread(target=write)
    writer.start()
    last = Counter()
    while writer.is_alive():
        for host in ("a.test", "b.test"):
            urls = accounts.of_host(host).urls
            assert urls >= last[host]
            last[host] = urls
    writer.join()
    assert (accounts.of_host("a.test").urls, accounts.of_host("b.test").urls) == (200, 200)
    accounts.close()


def test_a_commit_that_fails_takes_nothing_with_it(job, monkeypatch) -> None:
    """The journal says it in its words; the next commit has it all."""
    accounts = job.open()
    job.write(accounts, line())
    written = accounts._database.write

    def full(*_, **__):
        if len(said) == 1:  # somebody asked for the commit in another thread, and a group is kept meanwhile
            said.append(line("http://b.test/"))
            accounts.append(entries(said[1]))
            accounts.keep()
        raise OSError(errno.ENOSPC, "full")

    said = [line()]
    monkeypatch.setattr(accounts._database, "write", full)
    with pytest.raises(OSError, match="full"):
        accounts.sync()
    assert accounts.of_host("b.test").urls == 1
    with job.log.open("ab") as file:
        file.write(said[1])
    monkeypatch.setattr(accounts_module, "COMMIT_S", 0.0)
    with pytest.raises(OSError, match="full"):
        accounts.append(entries(line()))
    accounts.take_back()
    assert accounts.of_host("a.test").urls == 1
    monkeypatch.setattr(accounts._database, "write", written)
    job.write(accounts, line())
    accounts.close()
    accounts = job.open()
    assert (accounts.of_host("a.test").urls, accounts.of_host("b.test").urls) == (2, 1)
    accounts.close()


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path) -> None:
    """The error names the path and the cause, as for every file of a job."""
    with pytest.raises(StorageError, match="missing: no such file or directory"):
        Accounts(tmp_path / "missing", tmp_path / "crawl.log", lambda: 0.0)


ENDS = ["keep", "take back", "crash", "close", "sync"]
STATUSES = st.sampled_from([200, 304, 404, 503, -1, -2, -5, -9998, -5003])
NOTES = st.sampled_from([(), ("duplicate:digest",), ("duplicate:server-not-modified",), ("2t", "dol:5"), ("lenTrunc",)])


@st.composite
def lines(draw):
    status = draw(STATUSES)
    start_s = draw(st.none() | st.integers(0, 1000).map(float))
    return line(
        f"http://{draw(st.sampled_from('abc'))}.test/{draw(st.sampled_from(['', 'robots.txt']))}",
        status,
        draw(st.integers(0, 100)),
        hops=draw(st.sampled_from(["", "L", "LP"])),
        source=draw(st.none() | st.sampled_from(["http://a.test/", "http://b.test/"])),
        annotations=draw(NOTES),
        start_s=start_s,
        end_s=None if start_s is None else start_s + 1,
    )


def tallied(log):
    """A model: all lines of the log, counted in one go."""
    additions = Additions()
    for each in log.splitlines():
        entry = parse_crawl_log_line(each)
        additions.count(counts_of(entry))
    return additions.hosts


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["keep", "take back", "crash", "close", "sync"]), st.lists(lines(), max_size=3)),
        max_size=6,
    )
)
def test_accounts_are_what_the_log_says(tmp_path_factory, steps) -> None:
    """Whatever was kept, taken back, killed or closed in between."""
    job = Job(tmp_path_factory.mktemp("job"))
    accounts = job.open()
    for what, group in steps:
        if what == "take back":
            accounts.append(entries(*group))
            accounts.take_back()
            continue
        job.write(accounts, *group)
        if what == "sync":
            accounts.sync()
        elif what == "close":
            accounts.close()
        if what in {"crash", "close"}:
            accounts = job.open()
    expected = tallied(job.log.read_bytes() if job.log.exists() else b"")
    assert {host: accounts.of_host(host) for host in expected} == expected
    accounts.close()
    accounts = job.open()
    assert {host: accounts.of_host(host) for host in expected} == expected
    accounts.close()


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_killed_run_lasted_until_its_last_success(job, *, is_killed: bool) -> None:
    """The time between two runs does not count; a rate over the runs' time would be too high without the killed one's."""
    accounts = job.open()
    job.write(accounts, line(start_s=104.0, end_s=105.0), line(start_s=118.0, end_s=120.0))
    job.now_s = 120.0
    if not is_killed:
        accounts.close()
    job.now_s = 1000.0
    accounts = job.open()
    job.now_s = 1003.0
    accounts.close()
    with AccountsView(job.state) as view:
        assert view.duration_s() == pytest.approx(20.0 + 3.0)


def test_answers_in_bad_http_are_counted_by_host(job) -> None:
    """Across runs; a host with other failures has none of them."""
    for _ in range(2):
        accounts = job.open()
        bad = [line(f"http://bad.test/{number}", status=-9) for number in range(3)]
        job.write(accounts, line(), *bad, line("http://gone.test/", status=-2))
        accounts.sync()
        accounts.close()
    with AccountsView(job.state) as view:
        assert view.bad_http() == {"bad.test": 6}


def test_the_accounts_of_an_earlier_version_have_no_answers_in_bad_http(job, monkeypatch) -> None:
    """They get the table when the job is opened, and can be read before."""
    with monkeypatch.context() as earlier:
        earlier.setattr(database._METADATA, "create_all", _create_earlier)
        job.open().close()
    with AccountsView(job.state) as view:
        assert view.bad_http() == {}
    accounts = job.open()
    job.write(accounts, line("http://bad.test/", status=-9))
    accounts.sync()
    accounts.close()
    with AccountsView(job.state) as view:
        assert view.bad_http() == {"bad.test": 1}


def _create_earlier(bind) -> None:
    tables = [table for table in database._METADATA.sorted_tables if table.name != "bad_http"]
    sqlalchemy.MetaData.create_all(database._METADATA, bind, tables=tables)
