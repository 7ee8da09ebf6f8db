"""The database of a job of several workers: a role of least rights, passwords in files, a standby that takes over."""

import asyncio
import os
import shutil
import signal
import subprocess
from pathlib import Path
from threading import Event

import pytest

from scripts.postgres_server import PostgresServer, administer
from tests.acceptance.command import PATIENCE_S, REPOSITORY, anabranch, ended, start, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.postgres_server import own_server
from tests.site.oracle import expected

WEB = many_hosts()
WORKERS = 8
SECRET = "s3cret:of-the-role"
#: What any form of it contains, escaped or not.
TRACE = "s3cret"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def socket_of(server):
    return server.url.query["host"]


@pytest.fixture
def guarded():
    """A server on which the script has made the role and its database; the role must give a password."""
    with own_server() as server:
        rules = Path(administer(server.url, "SHOW hba_file")[0][0])
        rules.write_text("local all crawl scram-sha-256\n" + rules.read_text())
        administer(server.url, "SELECT pg_reload_conf()")
        script = [
            "-v",
            "ON_ERROR_STOP=1",
            "-v",
            "role=crawl",
            "-v",
            "database=portals",
            "-f",
            "scripts/postgres-role.sql",
        ]
        connect = [server.programs / "psql", "-q", "-h", socket_of(server), "-U", "postgres", "-d", "postgres"]
        subprocess.run([*connect, *script], cwd=REPOSITORY, check=True, timeout=PATIENCE_S)
        administer(server.url, f"ALTER ROLE crawl PASSWORD '{SECRET}'")
        yield server


def passfile(folder, server):
    """The variables of a user whose password stands in a file of his own."""
    file = folder / "pgpass"
    file.write_text(f"*:*:portals:crawl:{SECRET.replace(':', chr(92) + ':')}\n")
    file.chmod(0o600)
    return f"postgresql://crawl@/portals?host={socket_of(server)}", {"PGPASSFILE": str(file)}


def service(folder, server):
    """Those of one who has a service file."""
    file = folder / "services.conf"
    file.write_text(f"[portals]\nhost={socket_of(server)}\ndbname=portals\nuser=crawl\npassword={SECRET}\n")
    return "postgresql://?service=portals", {"PGSERVICEFILE": str(file)}


def variable(_folder, server):
    """Those of one who has it in the environment."""
    return f"postgresql://crawl@/portals?host={socket_of(server)}", {"PGPASSWORD": SECRET}


@pytest.mark.parametrize("given", [passfile, service, variable])
async def test_the_password_is_read_and_never_written(tmp_path, web, guarded, given):
    """A whole crawl, and what is asked about it; the password is in no file of the job and in no answer."""
    store, variables = given(tmp_path, guarded)
    order = write_order(tmp_path, web.hosts, crawl={"workers": WORKERS})
    job = tmp_path / "job"
    run = await anabranch("crawl", *SEEDS, "-c", order, "--store", store, "--job", job, cwd=tmp_path, **variables)
    assert run.code == 0, run.err
    said = [run.out, run.err]
    for verb in ("status", "report", "workers"):
        answer = await anabranch(verb, store, cwd=tmp_path, **variables)
        assert answer.code == 0, answer.err
        said += [answer.out, answer.err]
    without = await anabranch("status", store, cwd=tmp_path, PGPASSFILE="missing", PGSERVICEFILE="missing")
    assert without.code == 1
    assert len(without.err.splitlines()) == 1
    said += [without.err, *(file.read_bytes().decode(errors="replace") for file in job.rglob("*") if file.is_file())]
    assert not [text for text in said if TRACE in text]


async def test_a_password_in_the_url_is_refused(tmp_path):
    """Wherever it stands there: the URL is kept in the order."""
    for store in (f"postgresql://crawl:{SECRET}@db/portals", f"postgresql://crawl@db/portals?password={SECRET}"):
        for command in (("crawl", "http://a.test/", "--store", store), ("status", store)):
            run = await anabranch(*command, cwd=tmp_path)
            assert (run.code, TRACE in run.err) == (2, False)
    assert not [*tmp_path.iterdir()]


async def test_a_worker_that_is_stopped_while_the_server_is_away_ends(tmp_path, web):
    """After it has waited for a time; its lines say why, and the job goes on later."""
    with own_server() as server:
        store = f"postgresql://postgres@/postgres?host={socket_of(server)}"
        rest = {"min_delay": "30ms", "max_delay": "30ms", "max_connections": 1}
        order = write_order(tmp_path, web.hosts, politeness=rest, crawl={"workers": WORKERS})
        command = ("crawl", *SEEDS, "-c", order, "--store", store, "--job", tmp_path / "a")
        crawl = await start(*command, cwd=tmp_path)
        while sum(web.ledger.counts().values()) < 30:
            await asyncio.sleep(0.005)
        server.kill()
        crawl.send_signal(signal.SIGTERM)
        run = await ended(crawl)
        assert run.code == 1, run.err
        assert "cannot be reached" in run.err
        assert "Traceback" not in run.err
        server.start()
        assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert {url for url in web.ledger.counts() if "robots.txt" not in url} == expected(SEEDS, table=WEB).keys()


async def test_a_worker_that_starts_while_the_database_is_away_waits_for_it(tmp_path, web):
    """A new worker waits as a working one does. It says so, and crawls when the server is back."""
    with own_server() as database:
        store = f"postgresql://postgres@/postgres?host={socket_of(database)}"
        order = write_order(tmp_path, web.hosts, crawl={"workers": WORKERS})
        command = ("crawl", *SEEDS, "-c", order, "--store", store, "--job", tmp_path / "a")
        database.kill()
        worker = await start(*command, cwd=tmp_path)
        said = b""
        while b"waiting for it" not in said:
            said += await worker.stderr.readline()
        database.start()
        run = await ended(worker)
        assert run.code == 0, run.err
    assert {url for url in web.ledger.counts() if "robots.txt" not in url} == expected(SEEDS, table=WEB).keys()


async def test_a_role_of_least_rights_is_enough(tmp_path, web, guarded):
    """Also to end the session of a worker that hangs, and to take its shares over."""
    store, variables = passfile(tmp_path, guarded)
    rest = {"min_delay": "20ms", "max_delay": "20ms", "max_connections": 1}
    order = write_order(
        tmp_path, web.hosts, politeness=rest, crawl={"workers": WORKERS}, frontier={"worker_lease": "1s"}
    )
    workers = []
    for name in "ab":
        crawl = ("crawl", *SEEDS, "-c", order, "--store", store, "--job", tmp_path / name, "--worker", name)
        workers.append(await start(*crawl, cwd=tmp_path, **variables))
    while sum(web.ledger.counts().values()) < 30:
        await asyncio.sleep(0.005)
    workers[0].send_signal(signal.SIGSTOP)
    run = await ended(workers[1])
    assert run.code == 0, run.err
    counted = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'crawl'"
    while administer(guarded.url, counted) != [(1,)]:  # those of the worker that has ended are going
        await asyncio.sleep(0.05)  # of the stopped one's two, that of its queues was ended
    workers[0].send_signal(signal.SIGKILL)
    await workers[0].communicate()
    assert {url for url in web.ledger.counts() if "robots.txt" not in url} == expected(SEEDS, table=WEB).keys()


@pytest.fixture
def pair():
    """A primary, and a standby whose disk each commit is on when it returns."""
    with own_server() as primary:
        data = Path(administer(primary.url, "SHOW data_directory")[0][0])
        folder = data.parent / f"{data.name}-standby"
        copied = [
            primary.programs / "pg_basebackup",
            "-d",
            f"{_libpq(primary)}&application_name=standby1",
            "-D",
            folder,
            "-R",
            "-X",
            "stream",
        ]
        subprocess.run(copied, check=True, timeout=PATIENCE_S)
        for left in folder.glob(".s.PGSQL*"):
            left.unlink()  # of the primary, whose socket is in its folder
        owner = data.stat()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        standby = PostgresServer(folder)
        try:
            administer(primary.url, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (standby1)'")
            administer(primary.url, "SELECT pg_reload_conf()")
            while administer(primary.url, "SELECT sync_state FROM pg_stat_replication") != [("quorum",)]:
                Event().wait(0.05)
            yield primary, standby
        finally:
            standby.stop()
            shutil.rmtree(folder, ignore_errors=True)


async def test_a_standby_takes_over(tmp_path, web, pair):
    """The primary is killed in the middle of the crawl, the standby promoted: nothing that was acknowledged is missing."""
    primary, standby = pair
    hosts = f"host={socket_of(primary)}:5432&host={socket_of(standby)}:5432"
    store = f"postgresql://postgres@/postgres?{hosts}&target_session_attrs=read-write"
    rest = {"min_delay": "30ms", "max_delay": "30ms", "max_connections": 1}
    order = write_order(tmp_path, web.hosts, politeness=rest, crawl={"workers": WORKERS})
    crawl = await start("crawl", *SEEDS, "-c", order, "--store", store, "--job", tmp_path / "a", cwd=tmp_path)
    while sum(web.ledger.counts().values()) < 40:
        assert crawl.returncode is None, await ended(crawl)
        await asyncio.sleep(0.005)
    primary.kill()
    administer(standby.url, "SELECT pg_promote()")
    run = await ended(crawl)
    assert run.code == 0, run.err
    counts = {url: count for url, count in web.ledger.counts().items() if "robots.txt" not in url}
    assert counts.keys() == expected(SEEDS, table=WEB).keys()
    assert sum(count - 1 for url, count in counts.items() if not url.endswith("/7")) <= WORKERS


def _libpq(server):
    return server.url.set(drivername="postgresql").render_as_string(hide_password=False)
