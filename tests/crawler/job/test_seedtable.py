"""Seeds as rows: recorded once for all workers, kept through any crash, and adopted from the files of older jobs."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from zlib import crc32

import pytest

from anabranch.crawler.job.database import JobDatabase, execute, make_tables, put_fact
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeds import Seed, SeedsDamaged, has_seeds
from anabranch.crawler.job.seedtable import Seeds, adopt_old_seeds, known_seeds, opened_seeds
from anabranch.crawler.outcomes.endings import failure_code
from anabranch.crawler.outcomes.errors import ExitCode
from anabranch.frontier.errors import FrontierError, StoreFull
from anabranch.frontier.jobfolder import VERSION
from tests.crawler.cluster.stores import shared_store
from tests.patience import HANG_S

A = Seed(url="http://a.test/", source="portals.txt:1")
B = Seed(url="http://b.test/", source="redirect", via="http://a.test/")
C = Seed(url="http://c.test/", source="command line")
D = Seed(url="http://d.test/%C3%A9", source="list \u00fc.txt:7")


@pytest.fixture(params=["sole", "file", "server"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobDatabase]:
    """The rows of a job of one worker, and those of jobs of several."""
    if request.param == "sole":
        with JobDatabase(tmp_path / "job.db", is_sole=True) as opened:
            make_tables(opened)
            yield opened
        return
    with shared_store(request.param, tmp_path) as store, JobDatabase(store) as opened:
        make_tables(opened)
        opened.do(lambda connection: put_fact(connection, "id", "x"))
        yield opened


def test_all_workers_have_the_same_seeds_in_the_same_order(database: JobDatabase) -> None:
    """Each URL once, from its first source."""
    one, other = Seeds(database), Seeds(database)
    assert one.add_all([A, C, Seed(url=A.url, source="again")]) == (A, C)
    assert other.add_all([B])
    assert not other.add_all([Seed(url=C.url, source="again")])
    assert other.add_all([A, B, C]) == ()
    one.refresh()
    assert list(one) == list(other) == list(Seeds(database)) == [A, C, B]
    assert one.after(2) == [B]
    assert (B.url in one, D.url in one, len(other)) == (True, False, 3)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM job_seed WHERE number = 3",
        "DELETE FROM job_seed WHERE number = 1",
        "DELETE FROM job_seed",
        "UPDATE job_seed SET number = 9 WHERE number = 3",
        "UPDATE job_seed SET number = number + 10 WHERE number < 3",
        "UPDATE job_seed SET url = 'http://e.test/' WHERE number = 2",
        "UPDATE job_seed SET source = 'x' WHERE number = 2",
        "UPDATE job_seed SET via = NULL WHERE number = 3",
        "UPDATE job_fact SET value = '3 17' WHERE name = 'seeds'",
    ],
)
def test_rows_that_are_not_those_that_were_written_are_told(database: JobDatabase, damage: str) -> None:
    """Rows that miss, changed places or have other values: nothing is judged by what is left."""
    Seeds(database).add_all([A, C])
    Seeds(database).add_all([B])
    database.do(lambda connection: execute(connection, damage))
    with pytest.raises(SeedsDamaged, match="its seeds are not those that were written; restore it from a copy"):
        Seeds(database)


def test_rows_of_an_older_program_are_read_and_counted_with_the_next(database: JobDatabase) -> None:
    """It writes no checksum; from the next seed on its rows have one, too."""
    seeds = Seeds(database)
    for number, before in ((1, 0), (3, 2)):
        insert = f"INSERT INTO job_seed VALUES ({number}, 'http://old.test/{number}', 'x', NULL)"
        database.do(lambda connection, insert=insert: execute(connection, insert))
        assert len(Seeds(database)) == before + 1
        seeds.refresh()
        assert seeds.add_all([(A, C)[number // 2]])
    database.do(lambda connection: execute(connection, "UPDATE job_seed SET source = 'y' WHERE number = 3"))
    with pytest.raises(SeedsDamaged):
        Seeds(database)


def test_every_changed_byte_of_the_file_is_told_or_harms_nothing(tmp_path: Path) -> None:
    """In rows, checksums, names of tables and the pages themselves; zeros that no table uses are left out."""
    with opened_seeds(tmp_path) as seeds:
        seeds.add_all([A, B])
        seeds.add_all([D])
    file = tmp_path / "job.db"
    whole = file.read_bytes()
    places = [place for place, byte in enumerate(whole) if byte][::7]
    told = 0
    for place in places:
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        try:
            with opened_seeds(tmp_path) as seeds:
                assert list(seeds) == [A, B, D], place
        except (SeedsDamaged, FrontierError) as error:
            told += failure_code(error) is ExitCode.BAD_ORDER
    assert told > len(places) / 4


#: Records seeds and is killed in the middle: after so many statements, or after so many writes of its next transaction.
DYING = """
import os, pathlib, signal, sys
from anabranch.crawler.job import seedtable
from anabranch.crawler.job.seeds import Seed

state, before, left = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with seedtable.opened_seeds(state) as seeds:
    seeds.add_all(Seed(url=f"http://before.test/{number}", source="x") for number in range(before))
    execute = seedtable.execute

    def dying(*given):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(*given)

    seedtable.execute = dying
    seeds.add_all(Seed(url=f"http://a.test/{number}", source="x") for number in range(3000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("left", [1, 3, 100])
def test_seeds_that_are_added_together_are_recorded_all_or_none(tmp_path: Path, before: int, left: int) -> None:
    """Kill -9 at any point of the write: a run that goes on either has all of them, or reads them again."""
    (tmp_path / "state").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path / "state"), str(before), str(left)], check=False, timeout=HANG_S
    )
    assert done.returncode == -signal.SIGKILL
    assert has_seeds(tmp_path) == (before > 0 or left == 100)
    with opened_seeds(tmp_path / "state") as seeds:
        assert len(seeds) == before + (3000 if left == 100 else 0)
        assert seeds.add_all([A])
    assert A.url in known_seeds(tmp_path / "state")


def test_a_full_disk_is_told_and_the_seeds_stay_whole(tmp_path: Path) -> None:
    """A seed that did not fit does not count, and the next one does."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened_seeds(tmp_path) as seeds:
        seeds.add_all([A])
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "job.db").stat().st_size, limits[1]))
            with pytest.raises(StoreFull, match=r"job\.db"):
                seeds.add_all(Seed(url=f"http://many.test/{number}", source="x") for number in range(2000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, before)
        assert list(seeds) == [A]
        assert seeds.add_all([C])
    with opened_seeds(tmp_path) as seeds:
        assert list(seeds) == [A, C]


def test_a_seed_is_in_the_one_file_whoever_is_killed(tmp_path: Path) -> None:
    """No other file has what was committed, and a command of another process reads it meanwhile, if it is its user's."""
    (tmp_path / "state").mkdir()
    with opened_seeds(tmp_path / "state") as seeds:
        assert not has_seeds(tmp_path)
        seeds.add_all([A])
        assert has_seeds(tmp_path)
        assert known_seeds(tmp_path / "state") == {A.url}
        assert (tmp_path / "state" / "job.db").stat().st_mode & 0o077 == 0
        copy = tmp_path / "copy.db"
        copy.write_bytes((tmp_path / "state" / "job.db").read_bytes())
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("SELECT url FROM job_seed").fetchall() == [(A.url,)]


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(84)])
def test_a_job_whose_file_is_damaged_has_seeds_to_be_told_of(tmp_path: Path, content: bytes) -> None:
    """It is not begun again without them."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "job.db").write_bytes(content)
    assert has_seeds(tmp_path)
    with pytest.raises(FrontierError, match=r"job\.db"), opened_seeds(tmp_path / "state"):
        pass


# Older jobs


def old_lines(*seeds: Seed, has_crc: bool = True) -> bytes:
    """The file of a job of format 2, or of the oldest ones."""
    text, crc = b"", 0
    for seed in seeds:
        line = json.dumps({"url": seed.url, "source": seed.source, "via": seed.via}).encode()
        if has_crc:
            crc = crc32(line[:-1], crc)
            line = b'%s, "crc": "%08x"}' % (line[:-1], crc)
        text += line + b"\n"
    return text


def old_count(*seeds: Seed) -> bytes:
    last = json.loads(old_lines(*seeds).splitlines()[-1])["crc"]
    return b"%016d %s\n" % (len(seeds), last.encode())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A job of format 2."""
    with JobFolder.open(tmp_path / "job") as job:
        state = job.state
    (state / "seeds.jsonl").write_bytes(old_lines(A, B, D))
    (state / "seeds.jsonl.count").write_bytes(old_count(A, B, D))
    (state / "format.json").write_text('{"format": "anabranch job", "version": 2}\n')
    return state


def recorded(state: Path) -> list[Seed]:
    JobFolder.open(state.parent).close()
    assert json.loads((state / "format.json").read_text())["version"] == VERSION
    assert not [*state.glob("seeds.jsonl*")]
    with opened_seeds(state) as seeds:
        return list(seeds)


def test_the_seeds_of_an_older_job_become_rows(old: Path) -> None:
    """In their order, with source and via; a command that only reads knows them before."""
    assert has_seeds(old.parent)
    assert known_seeds(old) == {A.url, B.url, D.url}
    assert not (old / "job.db").exists()
    assert recorded(old) == [A, B, D]


def test_lines_of_the_oldest_jobs_become_rows(old: Path) -> None:
    """They have no checksum, and stand before those that have, and nobody counted them."""
    text = old_lines(A, B, has_crc=False)
    line = json.dumps({"url": C.url, "source": C.source, "via": None}).encode()[:-1]
    crc = crc32(line, crc32(old_lines(B, has_crc=False)[:-1], crc32(old_lines(A, has_crc=False)[:-1])))
    (old / "seeds.jsonl").write_bytes(text + b'%s, "crc": "%08x"}\n' % (line, crc))
    (old / "seeds.jsonl.count").unlink()
    assert recorded(old) == [A, B, C]


@pytest.mark.parametrize("left", ["rows", "no count", "torn", "behind"])
def test_an_older_job_that_was_killed_is_adopted_all_the_same(old: Path, left: str) -> None:
    """By its own program in the middle of a line or before the count, or by this one after any step of the adoption."""
    if left == "rows":
        with opened_seeds(old) as seeds:
            seeds.add_all([A, B, D])
    elif left == "no count":
        (old / "seeds.jsonl.count").unlink()
    elif left == "torn":
        (old / "seeds.jsonl").write_bytes(old_lines(A, B, D, C)[:-5])
    else:
        (old / "seeds.jsonl.count").write_bytes(old_count(A, B))
    assert recorded(old) == [A, B, D]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "the last line is gone": lambda text: b"".join(text.splitlines(keepends=True)[:-1]),
    "the first line is gone": lambda text: b"".join(text.splitlines(keepends=True)[1:]),
    "two lines changed places": lambda text: b"".join(text.splitlines(keepends=True)[i] for i in (1, 0, 2)),
    "half of it": lambda text: text[: len(text) // 2],
    "nothing is left": lambda _: b"",
    "zeros": lambda text: bytes(len(text)),
    "zeros at the end": lambda text: text[:-20] + bytes(20),
    "a line that is none": lambda text: text + b"[]\n",
    "a URL that is none": lambda text: text + old_lines(Seed(url="http://A.test", source=""), has_crc=False),
    "other fields": lambda text: text + b'{"url": "http://a.test/"}\n',
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_of_an_older_job_is_told_and_nothing_is_touched(old: Path, damage: Callable[[bytes], bytes]) -> None:
    """The scope would end what is queued from hosts whose seeds are gone; the operator has a way on."""
    text = damage((old / "seeds.jsonl").read_bytes())
    (old / "seeds.jsonl").write_bytes(text)
    with pytest.raises(SeedsDamaged, match=r"seeds\.jsonl.*restore the file from a copy, or remove it and") as raised:
        JobFolder.open(old.parent)
    assert raised.value.exit_code is ExitCode.BAD_ORDER
    assert (old / "seeds.jsonl").read_bytes() == text
    for file in old.glob("seeds.jsonl*"):
        file.unlink()
    assert recorded(old) == []


def test_every_flipped_bit_of_an_older_job_is_told(old: Path) -> None:
    """In the lines and in their count alike."""
    for file in (old / "seeds.jsonl", old / "seeds.jsonl.count"):
        whole = file.read_bytes()
        for place in range(len(whole)):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with pytest.raises(SeedsDamaged):
                adopt_old_seeds(old)
        file.write_bytes(whole)


def test_an_older_job_whose_lines_are_gone_is_told(old: Path) -> None:
    """Their count says that there were some; where nobody counted them, a cut line does."""
    (old / "seeds.jsonl").unlink()
    assert has_seeds(old.parent)
    with pytest.raises(SeedsDamaged, match="the seeds are not those that were written"):
        adopt_old_seeds(old)
    (old / "seeds.jsonl.count").unlink()
    (old / "seeds.jsonl").write_bytes(old_lines(A, B, has_crc=False)[:-5])
    with pytest.raises(
        SeedsDamaged, match=r"seeds\.jsonl: the seeds are not those that were written; restore the file"
    ):
        adopt_old_seeds(old)
