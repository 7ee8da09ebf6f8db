"""Bad input gets one clear line that names the thing, an exit code, and loses nothing."""

import asyncio
import json
import os
import shlex
import subprocess
import sys

import pytest

from tests.acceptance import forkserver
from tests.acceptance.blocking import Process
from tests.acceptance.command import (
    anabranch,
    crawl_log,
    ended,
    environment,
    start,
    write_order,
)
from tests.acceptance.smalldisk import FILL, needs_small_disk, on_small_disk, said
from tests.patience import HANG_S
from tests.site.oracle import expected

SEED = "http://blog.alpha.test/"


def assert_one_line(run, code, *words):
    assert run.code == code, (run.out, run.err)
    assert "Traceback" not in run.err
    lines = [line for line in run.err.splitlines() if line.startswith("anabranch: ")]
    assert len(lines) == 1, run.err
    for word in words:
        assert word in lines[0]


async def test_an_unknown_key_of_the_order_is_named_with_its_section(tmp_path):
    """Exit 4 and the dotted path of the key."""
    (tmp_path / "bad.toml").write_text("[politeness]\nmin_dely = 3\n")
    run = await anabranch("crawl", SEED, "-c", "bad.toml", cwd=tmp_path)
    assert_one_line(run, 4, "bad.toml", "min_dely")


async def test_an_order_that_is_missing_or_no_toml_is_named(tmp_path):
    """Exit 4 and the file's name."""
    (tmp_path / "bad.toml").write_text("this is = not = toml")
    assert_one_line(await anabranch("crawl", SEED, "-c", "bad.toml", cwd=tmp_path), 4, "bad.toml")
    assert_one_line(await anabranch("crawl", SEED, "-c", "none.toml", cwd=tmp_path), 4, "none.toml")


async def test_an_unknown_policy_is_refused_with_those_there_are(tmp_path):
    """Exit 2, naming the policy."""
    run = await anabranch("crawl", SEED, "--policy", "magic:3", "--job", "job", cwd=tmp_path)
    assert_one_line(run, 2, "magic:3", "bkdr:N")
    assert not (tmp_path / "job").exists()


async def test_an_empty_seed_file_is_named(tmp_path):
    """One line says that there is no seed, and where."""
    (tmp_path / "empty.txt").write_text("# nothing\n\n")
    run = await anabranch("crawl", "empty.txt", cwd=tmp_path)
    assert_one_line(run, 5, "empty.txt")


async def test_no_seed_at_all_is_wrong_usage(tmp_path):
    """Exit 2 and what to give."""
    assert_one_line(await anabranch("crawl", cwd=tmp_path), 2, "seed")


async def test_a_seed_that_is_no_url_is_reported_and_skipped(tmp_path, small_web):
    """The good seeds are crawled; a missing scheme is http://; standard input is a seed file."""
    order = write_order(tmp_path, small_web.hosts)
    options = ("-c", order, "--job", "job", "--limit", "2")
    run = await anabranch("crawl", "-", *options, cwd=tmp_path, stdin=b"ftp://no.test/\nblog.alpha.test\n")
    assert_one_line(run, 0, "ftp://no.test/", "skipped")
    assert SEED in crawl_log(tmp_path / "job")


async def test_unreachable_names_end_the_crawl_with_5(tmp_path, dns_server):
    """Without any answer the seeds report tells the DNS failure of each seed."""
    order = write_order(tmp_path, {}, dns={"servers": [dns_server.address]})
    run = await anabranch("crawl", "http://nobody.test/", "-c", order, "--job", "job", cwd=tmp_path)
    assert run.code == 5, run.err
    report = (tmp_path / "job" / "reports" / "seeds-report.txt").read_text()
    assert "-1 NOTCRAWLED http://nobody.test/" in report
    assert report.strip() in run.out


async def test_a_private_address_is_refused_unless_allowed(tmp_path, small_web):
    """A loopback server gets no request without --allow-private, by name or by IP."""
    order = write_order(tmp_path, small_web.hosts, fetch={"allow_private": False})
    seeds = (SEED, f"http://127.0.0.1:{small_web.port}/", f"http://[::ffff:127.0.0.1]:{small_web.port}/")
    run = await anabranch("crawl", *seeds, "-c", order, "--job", "job", cwd=tmp_path)
    assert run.code == 5, run.err
    assert not small_web.ledger.counts()


async def test_a_job_in_use_names_its_process(tmp_path, small_web):
    """The second process exits with 1 and the pid of the first."""
    order = write_order(tmp_path, small_web.hosts, politeness={"min_delay": "20s", "max_delay": "20s"})
    command = ("crawl", SEED, "-c", order, "--job", "job")
    first = await start(*command, cwd=tmp_path)
    assert first.stdout is not None
    await first.stdout.readline()
    assert_one_line(await anabranch(*command, cwd=tmp_path), 1, str(first.pid))
    first.terminate()
    assert (await ended(first)).code == 11


async def test_a_changed_policy_is_refused_and_named(tmp_path, small_web):
    """Exit 4 with both values; the job still resumes with its own policy."""
    order = write_order(tmp_path, small_web.hosts)
    command = ("crawl", SEED, "-c", order, "--job", "job")
    await anabranch(*command, "--limit", "3", cwd=tmp_path)
    kept = (tmp_path / "job" / "order.toml").read_text()
    assert_one_line(await anabranch(*command, "--policy", "host", cwd=tmp_path), 4, "bkdr:997", "host")
    assert (tmp_path / "job" / "order.toml").read_text() == kept
    assert (await anabranch(*command, cwd=tmp_path)).code == 0
    assert crawl_log(tmp_path / "job") == expected([SEED])


async def test_a_job_of_another_format_version_is_refused(tmp_path, small_web):
    """Exit 4; nothing is changed."""
    order = write_order(tmp_path, small_web.hosts)
    command = ("crawl", SEED, "-c", order, "--job", "job")
    await anabranch(*command, "--limit", "3", cwd=tmp_path)
    file = tmp_path / "job" / "state" / "format.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 99}))
    assert_one_line(await anabranch(*command, cwd=tmp_path), 4, "99")


def content_of(folder):
    """Each file's bytes, by its path in the folder; the lock's aside, which says who had it last."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "lock"
    }


async def test_fresh_moves_the_old_job_aside(tmp_path, small_web):
    """An archive is the product: --fresh deletes nothing, finished or not, with --yes or without, and says where it is."""
    order = write_order(tmp_path, small_web.hosts)
    command = ("crawl", SEED, "-c", order, "--job", "job", "--warc")
    job = tmp_path / "job"
    for limit, flags in (("3", ("--fresh",)), ("0", ("--fresh", "--yes"))):
        assert (await anabranch(*command, "--limit", limit, cwd=tmp_path)).code == 0
        before, kept = set(tmp_path.glob("job.previous-*")), content_of(job)
        again = await anabranch(*command, "--limit", "3", *flags, cwd=tmp_path)
        (moved,) = set(tmp_path.glob("job.previous-*")) - before
        assert again.out.splitlines()[0] == f"the old job is now {moved.name}"
        assert again.out.splitlines()[1].startswith("new job")
        assert content_of(moved) == kept
        assert any(name.startswith("warc/") for name in kept)
        gone_on = await anabranch("crawl", "--job", moved, "--limit", "0", cwd=tmp_path)
        assert (gone_on.code, crawl_log(moved)) == (0, expected([SEED]))


async def test_fresh_does_not_move_a_running_job(tmp_path, small_web):
    """Exit 1 with the process that holds it; it goes on."""
    order = write_order(tmp_path, small_web.hosts, politeness={"min_delay": "20s", "max_delay": "20s"})
    command = ("crawl", SEED, "-c", order, "--job", "job")
    first = await start(*command, cwd=tmp_path)
    assert first.stdout is not None
    await first.stdout.readline()
    assert_one_line(await anabranch(*command, "--fresh", cwd=tmp_path), 1, str(first.pid))
    assert not list(tmp_path.glob("job.previous-*"))
    first.terminate()
    assert (await ended(first)).code == 11


async def test_only_three_flags_together_delete_a_job(tmp_path, small_web):
    """--delete-old is refused with 2 without --fresh and --yes; a hint for a slip names none of them."""
    order = write_order(tmp_path, small_web.hosts)
    command = ("crawl", SEED, "-c", order, "--job", "job")
    await anabranch(*command, "--limit", "3", cwd=tmp_path)
    kept = content_of(tmp_path / "job")
    for flags in (("--delete-old",), ("--fresh", "--delete-old"), ("--delete-old", "--yes")):
        assert_one_line(await anabranch(*command, *flags, cwd=tmp_path), 2, "--delete-old")
    for slip in ("--resume", "--delete", "--refresh", "--yess"):
        hint = await anabranch("crawl", SEED, slip, "--job", "job", cwd=tmp_path)
        assert hint.code == 2
        assert not [flag for flag in ("--fresh", "--delete-old", "--yes ", "--yes)") if flag in hint.err]
    assert content_of(tmp_path / "job") == kept
    again = await anabranch(*command, "--fresh", "--delete-old", "--yes", cwd=tmp_path)
    assert again.out.startswith("new job"), again.err
    assert not list(tmp_path.glob("job.previous-*"))


async def test_a_folder_that_is_no_job_is_left_alone(tmp_path):
    """Exit 4, and the folder keeps what it has."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    run = await anabranch("crawl", SEED, "--job", "thesis", "--fresh", "--yes", cwd=tmp_path)
    assert_one_line(run, 4, "thesis")
    assert [entry.name for entry in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


@pytest.mark.parametrize("harm", ["removed", "emptied"])
async def test_a_job_that_lost_its_store_is_never_called_finished(tmp_path, small_web, harm):
    """Without frontier.db the queue is gone: exit 4 and what to do, not "finished"."""
    order = write_order(tmp_path, small_web.hosts)
    command = ("crawl", SEED, "-c", order, "--job", "job")
    await anabranch(*command, "--limit", "3", cwd=tmp_path)
    store = tmp_path / "job" / "state" / "frontier.db"
    store.unlink() if harm == "removed" else store.write_bytes(b"")
    assert_one_line(await anabranch(*command, cwd=tmp_path), 4, "frontier.db", "--fresh")


async def test_a_job_goes_on_without_its_seeds_being_named_again(tmp_path, small_web):
    """`crawl --job DIR` resumes; a folder that is no job has no seeds."""
    order = write_order(tmp_path, small_web.hosts)
    await anabranch("crawl", SEED, "-c", order, "--job", "job", "--limit", "3", cwd=tmp_path)
    run = await anabranch("crawl", "-c", order, "--job", "job", cwd=tmp_path)
    assert run.code == 0, run.err
    assert crawl_log(tmp_path / "job") == expected([SEED])
    assert_one_line(await anabranch("crawl", "--job", "other", cwd=tmp_path), 2, "seed")


def shell(tmp_path, line):
    """Run a line of shell with the command in front; its exit code and standard error."""
    text = f"{shlex.quote(sys.executable)} -m anabranch {line}"
    run = subprocess.run(
        ["bash", "-c", text],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    return run.returncode, run.stderr


async def test_odd_standard_streams_and_names_give_no_traceback(tmp_path):
    """A closed standard input, a full standard output, a folder's name that is no text."""
    options = "--allow-private --min-delay 0 --contact http://x.test/"
    code, err = shell(tmp_path, f"crawl - {options} --job a <&-")
    assert (code, "Traceback" in err) == (5, False), err
    command = ["crawl", "http://127.0.0.1:1/", *options.split(), "--time-limit", "100ms", "--job", "b"]
    with (
        open("/dev/full", "wb") as full,  # noqa: ASYNC230, PTH123 - a device
        Process(["-m", "anabranch", *command], cwd=tmp_path, stdout=full) as process,
    ):
        _, err = await asyncio.to_thread(process.communicate, HANG_S)
        assert (process.returncode, "Traceback" in err) == (0, False), err
    run = await anabranch("crawl", "http://127.0.0.1:1/", *options.split(), "--job", os.fsdecode(b"\xff"), cwd=tmp_path)
    assert (run.code, "Traceback" in run.err) == (2, False), run.err


@needs_small_disk
@pytest.mark.parametrize("kb", [1200, *(pytest.param(kb, marks=pytest.mark.slow) for kb in (2000, 3000))])
def test_a_full_disk_ends_with_3_and_the_job_resumes_when_there_is_space(tmp_path, kb):
    """On a tiny disk the crawl ends with one line and exit 3; on a larger one it goes on and misses nothing."""
    story = f'crawl first "{FILL}"; mount -o remount,size=900m disk; crawl second "{FILL}"'
    on_small_disk(tmp_path, kb // 2, f"{kb}k", story)
    code, line = said(tmp_path, "first")
    assert code == 3
    assert "disk/job" in line
    assert said(tmp_path, "second") == (0, "")


@needs_small_disk
def test_a_crawl_that_waits_for_room_goes_on_by_itself_when_there_is_some(tmp_path):
    """The disk has less than min_free_disk, which is 1 GB by default; it grows, and nobody need say anything."""
    story = 'crawl first "" & until grep -q min_free_disk first.out; do sleep 0.05; done; '
    on_small_disk(tmp_path, 30, "900m", story + "mount -o remount,size=3g disk; wait $!")
    assert said(tmp_path, "first") == (0, "")
    assert "resumed" in (tmp_path / "first.out").read_text()


@needs_small_disk
@pytest.mark.slow
@pytest.mark.parametrize(("processes", "full_s"), [(1, 2), (2, 2), (4, 5)])
def test_a_crawl_on_a_disk_that_is_full_for_a_while_goes_on_by_itself(tmp_path, processes, full_s):
    """The journal, accounts, filter and store wait: nothing ends, nothing is lost. Processes wait without a bound."""
    rest = "--min-delay 100ms --max-delay 100ms --warc"
    story = f"""
crawl first "{FILL} {rest} -s dedup.expect=1000 --processes {processes}" &
until [ "$(find disk/job -name '*.warc.gz.open' -size +8k 2> /dev/null)" ]; do sleep 0.05; done
head -c 200M /dev/zero > disk/fill 2> /dev/null
until [ -s first.code ] || grep -q 'the crawl waits' first.err; do
    head -c 1M /dev/zero >> disk/fill 2> /dev/null
    sleep 0.05
done
sleep {full_s}
rm disk/fill
wait $!
"""
    on_small_disk(tmp_path, 150, "60m", story, retry_s=30.0 if processes == 1 else 1.0)
    assert said(tmp_path, "first") == (0, "")
    assert "the crawl goes on" in (tmp_path / "first.err").read_text()


@needs_small_disk
def test_a_read_only_disk_ends_with_3_and_the_job_resumes(tmp_path):
    """A job on a disk that was remounted read-only: one line, exit 3; writable again, it goes on."""
    story = (
        f'crawl first "{FILL} --limit 9"; mount -o remount,ro disk; crawl second "{FILL}"; '
        f'mount -o remount,rw disk; crawl third "{FILL} --limit 0"'
    )
    on_small_disk(tmp_path, 30, "900m", story)
    assert said(tmp_path, "first") == (0, "")
    code, line = said(tmp_path, "second")
    assert code == 3
    assert "read-only" in line
    assert said(tmp_path, "third") == (0, "")


@needs_small_disk
@pytest.mark.slow
@pytest.mark.parametrize(("processes", "size"), [(1, "6m"), (2, "24m")])
def test_on_a_full_disk_a_job_can_be_looked_at_and_is_not_changed(tmp_path, processes, size):
    """Commands that only read work; a crawl and commands that change the job end with 3; later nothing is missing."""
    looks = ("status", "report", "frontier ls", "frontier dump", "why")
    changes = ("frontier block", "add")
    more = {"why": "$seed", "add": "$seed?x", "frontier block": "a.test"}
    asked = "\n".join(
        f"anabranch {verb.replace(' ', '-')} {verb} disk/job {more.get(verb, '')}" for verb in (*looks, *changes)
    )
    options = f"{FILL} -s dedup.expect=1000 --processes {processes}"
    story = f"""
anabranch() {{ name=$1; shift; run $name anabranch "$@"; }}
seed=http://127.0.0.1:$(cat port)/index.html
crawl first "{options} --limit 5"
head -c 100M /dev/zero > disk/fill 2> /dev/null
{asked}
crawl full "{options} --limit 0"
rm disk/fill
crawl last "{options} --limit 0"
"""
    on_small_disk(tmp_path, 20, size, story)
    for verb in looks:
        assert said(tmp_path, verb.replace(" ", "-")) == (0, ""), verb
        assert (tmp_path / f"{verb.replace(' ', '-')}.out").read_text()
    for run in ("frontier-block", "add", "full"):
        code, line = said(tmp_path, run)
        assert code == 3, line
        assert "free some space" in line or "make room" in line
    assert said(tmp_path, "last") == (0, "")


LONG = "x" * 300
#: Refused before anybody is asked.
REFUSED = "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("crawl", SEED, "--job", LONG), 2),
        (("crawl", SEED, "--job", f"{LONG}/job"), 2),
        (("crawl", SEED, "--name", LONG), 2),
        (("crawl", SEED, "-s", f"logs.file={LONG}"), 2),
        (("crawl", SEED, "-c", LONG), 4),
        (("index", LONG), 2),
        (("why", LONG, SEED), 2),
        (("config", "init", LONG), 2),
        (("config", "validate", LONG), 4),
        (("dedup", LONG), 1),
    ],
)
async def test_a_name_that_no_file_can_have_is_one_line(tmp_path, command, code):
    """Whatever names it; nothing is made."""
    assert_one_line(await anabranch(*command, cwd=tmp_path), code, LONG)
    assert list(tmp_path.iterdir()) == []


NEW, OLD, REPORT = ("crawl", REFUSED, "--job", "new"), ("crawl", REFUSED, "--job", "job"), ("report", "job")


@pytest.mark.parametrize(
    ("limit", "commands"),
    [
        ("-n 8", [NEW]),
        ("-v 100000", [NEW, OLD, REPORT]),  # ends while it imports
        *(
            pytest.param(limit, [NEW, OLD, REPORT], marks=pytest.mark.slow)
            for limit in (
                *(f"-n {files}" for files in (12, 20)),
                *(f"-v {kib}" for kib in (150_000, 265_000, 500_000)),
            )
        ),
    ],
)
async def test_too_few_files_or_too_little_memory_is_one_line(tmp_path, limit, commands):
    """It says which limit to raise, and is 1, not that the disk is full or somebody not permitted; or the command works."""

    def within(limit, *command):
        return subprocess.run(
            ["bash", "-c", f'ulimit {limit}; exec "$@"', "bash", sys.executable, "-m", "anabranch", *command],
            cwd=tmp_path,
            env=environment(OPENBLAS_NUM_THREADS="1"),
            check=False,
            capture_output=True,
            text=True,
        )

    assert (await anabranch("crawl", REFUSED, "--job", "job", cwd=tmp_path)).code == 5
    for command in commands:
        run = within(limit, *command)
        assert works_or_names_the_limit(run.returncode, run.stderr), run.stderr
    assert (await anabranch("report", "job", cwd=tmp_path)).code == 0


def works_or_names_the_limit(code: int, err: str) -> bool:
    lines = [line for line in err.splitlines() if line.startswith("anabranch: ")]
    return "Traceback" not in err and (code in {0, 5} or (code == 1 and len(lines) == 1 and "ulimit" in lines[0]))


#: `anabranch ARGUMENTS` with so many files: the limit reaches what comes after the imports.
WITH_FEW_FILES = """
import resource, runpy, sys
files = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
runpy.run_module("anabranch", run_name="__main__", alter_sys=True)
"""


async def test_too_few_files_for_a_job_is_one_line(tmp_path):
    """They last for the start, and not for all that a job opens."""
    assert (await anabranch("crawl", REFUSED, "--job", "job", cwd=tmp_path)).code == 5
    codes = set()
    for files in ("12", "20"):
        for command in (OLD, REPORT):
            arguments = ["-c", WITH_FEW_FILES, files, *command]
            run = await ended(await forkserver.start(arguments, cwd=tmp_path, env=environment()))
            assert works_or_names_the_limit(run.code, run.err), run.err
            codes.add(run.code)
    assert 1 in codes
    assert (await anabranch("report", "job", cwd=tmp_path)).code == 0
