"""A job's database that is restored from a backup, or set back by a failover: the crawl goes on and loses nothing."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from threading import Event

import pytest

from scripts.postgres_server import PostgresServer, administer
from tests.acceptance.command import PATIENCE_S, anabranch, ended, start, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.postgres_server import own_server
from tests.site.oracle import expected

WEB = many_hosts()
RENEWED = "the filter was made anew from the store"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def primary():
    with own_server() as server:
        yield server


@pytest.fixture
def command(tmp_path, web):
    """The command of a worker, by its folder and the job's database."""
    rest = {"min_delay": "30ms", "max_delay": "30ms", "max_connections": 1}
    order = write_order(tmp_path, web.hosts, politeness=rest, crawl={"workers": 8})

    def named(folder, store):
        return ("crawl", *SEEDS, "-c", order, "--store", store, "--job", tmp_path / folder, "--worker", folder)

    return named


def store_of(*servers, database="postgres"):
    """The URL of a database on the one of these servers that can be written."""
    sockets = [server.url.query["host"] for server in servers]
    hosts = "&".join(f"host={socket}:5432" for socket in sockets) if sockets[1:] else f"host={sockets[0]}"
    return f"postgresql://postgres@/{database}?{hosts}&target_session_attrs=read-write"


def libpq(server, database="postgres"):
    url = server.url.set(drivername="postgresql", database=database)
    return url.render_as_string(hide_password=False)


async def requested(web, count, *workers):
    """Wait until the web was asked so often more; the workers must not end before."""
    more = sum(web.ledger.counts().values()) + count
    while sum(web.ledger.counts().values()) < more:
        for worker in workers:
            assert worker.returncode is None, await ended(worker)
        await asyncio.sleep(0.005)


def run(*words):
    subprocess.run([*map(str, words)], check=True, timeout=PATIENCE_S)


def fetched(server, database="postgres"):
    """The URLs that the job has fetched, by its rows."""
    return {url for (url,) in administer(server.url.set(database=database), "SELECT url FROM done")}


def beside(server, name):
    """A folder beside the server's."""
    return Path(f"{server.url.query['host']}-{name}")


def give(folder, server):
    """The folder and its files belong to whom the server runs as."""
    owner = Path(administer(server.url, "SHOW data_directory")[0][0]).stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)


@pytest.fixture
def archive(primary):
    """The folder into which the primary copies its WAL."""
    folder = beside(primary, "archive")
    folder.mkdir()
    give(folder, primary)
    administer(primary.url, "ALTER SYSTEM SET archive_mode = on")
    administer(primary.url, f"ALTER SYSTEM SET archive_command = 'cp %p {folder}/%f'")
    primary.kill()
    primary.start()
    yield folder
    shutil.rmtree(folder)


def copied(primary, name, *how):
    """A base backup in a folder of its own."""
    folder = beside(primary, name)
    run(primary.programs / "pg_basebackup", "-d", libpq(primary), "-D", folder, "-X", "stream", "-c", "fast", *how)
    for left in folder.glob(".s.PGSQL*"):
        left.unlink()  # of the primary, whose socket is in its folder
    give(folder, primary)
    return folder


@pytest.fixture
def backup(primary, archive):
    """A base backup of before the crawl."""
    folder = copied(primary, "backup")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def standby(primary):
    """A standby that copies asynchronously."""
    folder = copied(primary, "standby", "-R")
    server = PostgresServer(folder)
    while administer(primary.url, "SELECT count(*) FROM pg_stat_replication") != [(1,)]:
        Event().wait(0.05)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


async def cut_off(primary, standby, web, *workers):
    """The standby gets nothing more for some pages; then the primary is lost, and the standby takes over."""
    administer(standby.url, "ALTER SYSTEM SET primary_conninfo = ''")
    administer(standby.url, "SELECT pg_reload_conf()")
    while administer(primary.url, "SELECT count(*) FROM pg_stat_replication") != [(0,)]:
        await asyncio.sleep(0.05)
    await requested(web, 40, *workers)
    primary.kill()
    administer(standby.url, "SELECT pg_promote()")


def restored_to(backup, archive, moment):
    """A server with the base backup, brought to a moment of this name by the archived WAL."""
    with (backup / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"restore_command = 'cp {archive}/%f %p'\narchive_mode = off\n")
        settings.write(f"recovery_target_name = '{moment}'\nrecovery_target_action = promote\n")
    signal = backup / "recovery.signal"
    signal.touch()
    os.chown(signal, backup.stat().st_uid, backup.stat().st_gid)
    server = PostgresServer(backup)
    while administer(server.url, "SELECT pg_is_in_recovery()") != [(False,)]:
        Event().wait(0.05)
    return server


@pytest.mark.parametrize("folders", ["ab", "cd"])
async def test_a_dump_of_a_running_job_is_restored(tmp_path, web, primary, command, folders):
    """With the folders that have seen what came after it, and with new ones."""
    workers = [await start(*command(name, store_of(primary)), cwd=tmp_path) for name in "ab"]
    await requested(web, 40, *workers)
    dump = tmp_path / "job.dump"
    run(primary.programs / "pg_dump", "-Fc", "-f", dump, libpq(primary))
    assert [(await ended(worker)).code for worker in workers] == [0, 0]
    wanted = fetched(primary)
    assert wanted >= expected(SEEDS, table=WEB).keys()

    run(primary.programs / "createdb", "--maintenance-db", libpq(primary), "restored")
    run(primary.programs / "pg_restore", "-d", libpq(primary, "restored"), dump)
    before = fetched(primary, "restored")
    assert before < wanted
    workers = [await start(*command(name, store_of(primary, database="restored")), cwd=tmp_path) for name in folders]
    runs = [await ended(worker) for worker in workers]
    assert [run.code for run in runs] == [0, 0], runs
    assert fetched(primary, "restored") == wanted
    assert [RENEWED in run.err for run in runs] == [folders == "ab"] * 2


async def test_a_database_is_taken_back_to_a_moment(tmp_path, web, primary, archive, backup, command):
    """A base backup, the archived WAL, and the name of a moment; the worker keeps its folder."""
    worker = await start(*command("a", store_of(primary)), cwd=tmp_path)
    await requested(web, 40, worker)
    administer(primary.url, "SELECT pg_create_restore_point('before_the_mistake')")
    assert (await ended(worker)).code == 0
    wanted = fetched(primary)
    ((last,),) = administer(primary.url, "SELECT pg_walfile_name(pg_switch_wal())")
    while administer(primary.url, f"SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver") != [(True,)]:
        await asyncio.sleep(0.05)
    primary.kill()
    restored = restored_to(backup, archive, "before_the_mistake")
    try:
        assert fetched(restored) < wanted
        again = await anabranch(*command("a", store_of(restored)), cwd=tmp_path)
        assert (again.code, RENEWED in again.err) == (0, True), again.err
        assert fetched(restored) == wanted
    finally:
        restored.stop()


async def test_a_standby_that_lacks_the_last_commits_takes_over_from_running_workers(
    tmp_path, web, primary, standby, command
):
    """Each worker that lacks commits notices, and joins with a fresh filter."""
    workers = [await start(*command(name, store_of(primary, standby)), cwd=tmp_path) for name in "ab"]
    await requested(web, 30, *workers)
    await cut_off(primary, standby, web, *workers)
    runs = [await ended(worker) for worker in workers]
    assert [run.code for run in runs] == [0, 0], runs
    are_set_back = [
        "the store was set back" in run.err for run in runs
    ]  # a worker may have had nothing to commit meanwhile
    assert any(are_set_back), runs
    assert [RENEWED in run.err for run in runs] == are_set_back, runs
    assert fetched(standby) >= expected(SEEDS, table=WEB).keys()


async def test_a_sole_owner_notices_that_its_database_was_set_back(tmp_path, web, primary, standby, command):
    """A job of one worker goes on in the same way."""
    words = command("a", store_of(primary, standby))
    sole = words[: words.index("--worker")]
    worker = await start(*sole, "-s", "frontier.shares=1", cwd=tmp_path)
    await requested(web, 30, worker)
    await cut_off(primary, standby, web, worker)
    ending = await ended(worker)
    assert ending.code == 0, ending.err
    assert "the store was set back" in ending.err
    assert RENEWED in ending.err
    assert fetched(standby) >= expected(SEEDS, table=WEB).keys()
