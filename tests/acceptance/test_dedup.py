"""`anabranch dedup` as a user has it: in pipes, over several runs, killed, interrupted, on full disks."""

from __future__ import annotations

import os
import random
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter

import pytest

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.crawler.outcomes.errors import UsageError
from tests.acceptance import forkserver
from tests.acceptance.blocking import Process
from tests.acceptance.command import PATIENCE_S, REPOSITORY, environment

#: A filter of this size is made in no time.
SMALL = ("--expect", "20k")

#: The reader of a pipe leaves when the pipe is full: so much is sure to be more than it holds.
MORE_THAN_A_PIPE = 200_000


def start(*arguments, cwd, **streams):
    """Start `anabranch dedup ARGUMENTS`; standard input and output are pipes unless something else is given."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-P", "-m", "anabranch", "dedup", *map(str, arguments)]
    return subprocess.Popen(command, cwd=cwd, env=environment(), bufsize=0, **{**pipes, **streams})


def ended(process, stdin=None):
    """Exit code, standard output and standard error."""
    try:
        out, err = process.communicate(stdin, PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert b"Traceback" not in (err or b""), err
    return process.returncode, out, err.decode() if err else ""


def dedup(*arguments, cwd, stdin=b"", **streams):
    if streams:
        return ended(start(*arguments, cwd=cwd, **streams), stdin)
    command = ["-m", "anabranch", "dedup", *map(str, arguments)]
    code, out, err = forkserver.run_bytes(command, cwd=cwd, env=environment(), stdin=stdin, timeout=PATIENCE_S)
    assert b"Traceback" not in err, err
    return code, out, err.decode()


def shell(line, cwd):
    """Run a line of bash in which `dedup` is the command; exit codes of the pipe's parts, and standard error."""
    python = shlex.quote(sys.executable)
    script = f'dedup() {{ {python} -P -m anabranch dedup "$@"; }}\n{line}\necho "${{PIPESTATUS[@]}}" > codes'
    run = subprocess.run(
        ["bash", "-c", script], cwd=cwd, env=environment(), capture_output=True, check=True, timeout=PATIENCE_S
    )
    assert b"Traceback" not in run.stderr, run.stderr
    return [int(code) for code in (cwd / "codes").read_text().split()], run.stderr.decode()


def urls(start, stop):
    return [b"http://www.a.test/%d/page" % number for number in range(start, stop)]


def lines(urls_):
    return b"".join(url + b"\n" for url in urls_)


def wait_readable(fd):
    ready, _, _ = select.select([fd], [], [], PATIENCE_S)
    assert ready, "nothing came"


def read_lines(fd, count):
    """At least so many lines of a pipe; what is read stays read."""
    got = b""
    while got.count(b"\n") < count:
        wait_readable(fd)
        got += os.read(fd, 100)
    return got


def test_bytes_come_out_as_they_came_in(tmp_path):
    """Line ends of both kinds, no line end at all, empty lines, and bytes that are no text."""
    text = b"a\nb\r\na\r\nb\n\n\r\n\xff\xfe\n\xff\xfe\0\n \nc"
    code, out, err = dedup("--filter", "exact", *SMALL, cwd=tmp_path, stdin=text)
    assert (code, out) == (0, b"a\nb\r\n\xff\xfe\n\xff\xfe\0\n \nc")
    assert err.startswith("read 10 lines: 6 new, 2 seen, 2 empty\nfilter exact: 6 URLs known")


def test_random_bytes_come_out_as_first_occurrences(tmp_path):
    """Against the rule written down once more."""
    choose = random.Random(5)
    text = bytes(choose.choice(b"ab\n\r\n\x80") for _ in range(100_000))
    first = {}
    for line in text.split(b"\n")[:-1]:
        first.setdefault(line.removesuffix(b"\r"), line + b"\n")
    last = text.rpartition(b"\n")[2]
    first.setdefault(last.removesuffix(b"\r"), last)
    first.pop(b"", None)
    (tmp_path / "text").write_bytes(text)
    code, out, _ = dedup("text", "--filter", "exact", *SMALL, cwd=tmp_path)
    assert (code, out) == (0, b"".join(first.values()))


@pytest.mark.parametrize("kind", ["smm", "dsbf", "both", "exact"])
def test_the_next_run_goes_on(tmp_path, kind):
    """The state alone is named; what an earlier run passed on does not come again."""
    code, out, _ = dedup("--state", "d", "--filter", kind, *SMALL, cwd=tmp_path, stdin=lines(urls(0, 500)))
    assert (code, out) == (0, lines(urls(0, 500)))
    code, out, err = dedup("-", "--state", "d", cwd=tmp_path, stdin=lines(urls(250, 750)))
    assert (code, out) == (0, lines(urls(500, 750)))
    assert err.startswith(f"read 500 lines: 250 new, 250 seen, 0 empty\nfilter {kind}: ")


def test_similar_urls_are_dropped(tmp_path):
    """By the features that are named; the state knows them in the next run."""
    text = b"http://a.test/x/1\nhttp://a.test/x/2\nhttp://b.test/x/1\n"
    options = ("--filter", "similar", "--features", "site,directory", "--site-bound")
    assert dedup("--state", "d", *options, cwd=tmp_path, stdin=text)[1] == text[:18] + text[36:]
    assert dedup("--state", "d", cwd=tmp_path, stdin=text)[1] == b""


def test_a_feature_of_ones_own_may_be_named(tmp_path):
    """From any module that Python finds."""
    (tmp_path / "mine.py").write_text("def first_letter(parts):\n    return parts[0][:1]\n")
    line = (
        "printf 'ab\\nac\\nb\\n' | PYTHONPATH=$PYTHONPATH:. dedup --filter similar --features mine:first_letter > out"
    )
    assert shell(line, tmp_path)[0] == [0, 0]
    assert (tmp_path / "out").read_bytes() == b"ab\nb\n"


def test_a_new_line_comes_out_at_once(tmp_path):
    """`tail -f log | anabranch dedup | …`: nothing waits for more lines, or for the end."""
    process = start("--state", "d", *SMALL, cwd=tmp_path)
    for url in (b"a\n", b"b\n", b"c\n"):
        process.stdin.write(url)
        assert read_lines(process.stdout.fileno(), 1) == url
    process.stdin.write(b"a\nd")
    assert ended(process)[:2] == (0, b"d")


# Ends


@pytest.mark.slow
def test_a_killed_run_loses_no_line(tmp_path):
    """SIGKILL while a slow consumer reads: what it had not been given comes in the next run, or came before."""
    everything = urls(0, 50_000)
    (tmp_path / "urls").write_bytes(lines(everything))
    got = Counter()
    for already in (1, 2000, 10_000):
        process = start("urls", "--state", "d", *SMALL, cwd=tmp_path)
        out = read_lines(process.stdout.fileno(), already)
        process.kill()
        out += process.communicate(timeout=PATIENCE_S)[0]
        got.update(out.split(b"\n")[:-1])  # behind the last line feed may be half a line
    assert len(got) < len(everything), "the last run, too, was killed before it was done"
    code, out, _ = dedup("urls", "--state", "d", cwd=tmp_path)
    got.update(out.splitlines())
    assert code == 0
    assert got.keys() == set(everything)
    assert dedup("urls", "--state", "d", cwd=tmp_path)[1] == b""


def test_a_killed_run_that_appends_to_a_file_spoils_no_line(tmp_path):
    """Half a line at its end gets a line feed, and then comes whole."""
    (tmp_path / "urls").write_bytes(lines(urls(0, 10)))
    (tmp_path / "out").write_bytes(lines(urls(0, 3)) + b"http://www.a.te")
    with (tmp_path / "out").open("ab") as out:
        assert dedup("urls", "--state", "d", *SMALL, cwd=tmp_path, stdout=out)[0] == 0
    assert (tmp_path / "out").read_bytes() == lines(urls(0, 3)) + b"http://www.a.te\n" + lines(urls(0, 10))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_a_signal_ends_the_run_in_order(tmp_path, number):
    """Exit 11: what came out is known to the next run, totals are told, half a line that came in is left."""
    process = start("--state", "d", *SMALL, cwd=tmp_path)
    process.stdin.write(b"a\nb\nhal")
    assert read_lines(process.stdout.fileno(), 2) == b"a\nb\n"
    process.send_signal(number)
    code, out, err = ended(process)
    assert (code, out) == (11, b"")
    assert err.startswith("read 2 lines: 2 new, ")
    assert dedup("--state", "d", cwd=tmp_path, stdin=b"a\nb\nhalf\n")[1] == b"half\n"


def test_a_second_signal_leaves_at_once(tmp_path, monkeypatch):
    """Exit 13, though nobody reads the output; no temporary folder stays, and no state is harmed."""
    (tmp_path / "urls").write_bytes(lines(urls(0, MORE_THAN_A_PIPE // 10)))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for options in ((), ("--state", "d")):
        process = start("urls", *options, *SMALL, cwd=tmp_path)
        wait_readable(process.stdout.fileno())
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:  # the first is noted at some moment; each one after that is the second
            process.send_signal(signal.SIGTERM)
            select.select([], [], [], 0.05)
        process.stdout.close()
        process.stderr.close()
        process.stdin.close()
        assert process.returncode == 13
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["d", "urls"]
    assert dedup("--state", "d", "--check", cwd=tmp_path)[0] == 0


def test_a_reader_that_leaves_ends_the_run_quietly(tmp_path):
    """`| head -1`: exit 141 as after SIGPIPE, no word; what was not written comes in the next run."""
    everything = urls(0, MORE_THAN_A_PIPE)
    (tmp_path / "urls").write_bytes(lines(everything))
    codes, err = shell("dedup urls --state d --expect 20k | head -1 > first", tmp_path)
    assert (codes, err) == ([141, 0], "")
    assert (tmp_path / "first").read_bytes() == lines(everything[:1])
    rest = dedup("urls", "--state", "d", cwd=tmp_path)[1].splitlines()
    assert rest == everything[-len(rest) :]
    assert len(rest) > MORE_THAN_A_PIPE // 2


def test_odd_standard_streams_give_one_line_at_most(tmp_path):
    """Closed or full ones; the exit code tells. Only a fresh Python starts without a stream."""
    (tmp_path / "urls").write_bytes(b"a\n")
    closed = {
        "dedup urls --expect 20k >&-": (2, "standard output is closed"),
        "dedup --expect 20k <&-": (2, "standard input is closed"),
        "dedup urls --expect 20k 2>&-": (0, ""),
    }
    for line, (code, words) in closed.items():
        codes, err = shell(line, tmp_path)
        assert codes == [code], (line, err)
        assert words in err, line
        assert err.count("\n") == bool(words), err
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        for arguments, streams, code, words in (
            (("urls", *SMALL), {"stdout": full}, 3, "the output cannot be written: No space left on device"),
            (("urls", *SMALL), {"stderr": full}, 0, ""),
            (("none",), {"stderr": full}, 1, ""),
            ((".", *SMALL), {}, 1, ".: is a directory"),
        ):
            with Process(["-m", "anabranch", "dedup", *arguments], cwd=tmp_path, **streams) as process:
                _, err = process.communicate(PATIENCE_S)
                assert process.returncode == code, (arguments, err)
                assert words in err, arguments
                assert err.count("\n") == bool(words), err


def test_a_state_in_use_is_refused(tmp_path):
    """Exit 1 for the second process; the first goes on."""
    first = start("--state", "d", *SMALL, cwd=tmp_path)
    first.stdin.write(b"a\n")
    read_lines(first.stdout.fileno(), 1)
    code, out, err = dedup("--state", "d", cwd=tmp_path, stdin=b"b\n")
    assert (code, out) == (1, b"")
    assert err.startswith("anabranch: d")
    assert "open elsewhere" in err
    assert ended(first, b"c\n")[:2] == (0, b"c\n")


def test_a_state_made_otherwise_is_refused_and_named(tmp_path):
    """Exit 4 and the option; the state is as it was."""
    dedup("--state", "d", *SMALL, cwd=tmp_path, stdin=b"a\n")
    code, out, err = dedup("--state", "d", "--expect", "30k", cwd=tmp_path, stdin=b"b\n")
    assert (code, out) == (4, b"")
    assert err == "anabranch: --expect: d was made with 20000, not 30000; leave it out, or name another folder\n"
    assert dedup("--state", "d", cwd=tmp_path, stdin=b"a\nb\n")[1] == b"b\n"


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    """Exit 4."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("precious")
    code, _, err = dedup("--state", "thesis", cwd=tmp_path, stdin=b"a\n")
    assert code == 4
    assert "thesis is not empty" in err
    assert [entry.name for entry in (tmp_path / "thesis").iterdir()] == ["chapter.txt"]


def can_capture():
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
    except (OSError, AttributeError):
        return False
    return True


@pytest.mark.skipif(not can_capture(), reason="a live capture needs Linux and root")
def test_urls_that_pass_an_interface_come_out_until_a_signal(tmp_path):
    """Each once, however often it is asked for; the signal is the expected end: exit 0."""
    process = start("--interface", "lo", *SMALL, cwd=tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        out = b""
        while b"/captured" not in out:  # until the capture has begun; what others send there may come first
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /captured HTTP/1.1\r\nHost: a.test\r\n\r\n")
                server.accept()[0].close()
            if select.select([process.stdout], [], [], 0.1)[0]:
                out += os.read(process.stdout.fileno(), 65536)
            assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    code, rest, err = ended(process)
    assert code == 0, err
    assert (out + rest).splitlines().count(b"http://a.test/captured") == 1
    assert " requests" in err


@pytest.fixture
def redis(tmp_path):
    """A server of one's own."""
    try:
        server = RedisServer(tmp_path / "redis", append_only=True)
    except UsageError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))
    with server:
        yield server


def test_who_names_the_same_server_shares_one_filter(tmp_path, redis):
    """From run to run and machine to machine; another name is another filter."""
    options = ("--redis", redis.url, "--expect", "20k")
    code, out, err = dedup(*options, cwd=tmp_path, stdin=b"a\nb\na\n")
    assert (code, out) == (0, b"a\nb\n"), err
    assert err.startswith("read 3 lines: 2 new, 1 seen, 0 empty\nfilter dsbf: 2 URLs known")
    assert dedup(*options, cwd=tmp_path, stdin=b"b\nc\n")[1] == b"c\n"
    assert dedup(*options, "--name", "other", cwd=tmp_path, stdin=b"b\n")[1] == b"b\n"
    code, _, err = dedup(*options, "--check", cwd=tmp_path)
    assert (code, err) == (0, "filter dsbf: 3 URLs known, P(false drop) 0; nothing is wrong with it\n")


def test_a_server_that_goes_away_ends_the_run_and_loses_no_line(tmp_path, redis):
    """Exit 1 and its address; when it is back, the rest comes."""
    options = ("--redis", redis.url, "--expect", "20k")
    process = start(*options, cwd=tmp_path)
    process.stdin.write(b"a\n")
    assert read_lines(process.stdout.fileno(), 1) == b"a\n"
    redis.kill()
    code, out, err = ended(process, b"b\n")
    assert (code, out) == (1, b"")
    assert f"127.0.0.1:{redis.port}" in err
    assert err.count("\n") == 1
    redis.start()
    out = dedup(*options, cwd=tmp_path, stdin=b"a\nb\n")[1]
    assert out in (b"b\n", b"a\nb\n"), "a server syncs its log every second: what it had not synced comes again"


def _can_unshare():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True).returncode == 0


needs_small_disk = pytest.mark.skipif(not _can_unshare(), reason="a small disk needs unshare -Urm")


@needs_small_disk
@pytest.mark.parametrize("full", [pytest.param("output", marks=pytest.mark.slow), "filter"])
def test_on_a_full_disk_nothing_is_lost(tmp_path, full):
    """Exit 3, one line; with more space the same command passes on the rest."""
    everything = urls(0, 30_000)
    (tmp_path / "urls").write_bytes(lines(everything))
    (tmp_path / "big").mkdir()
    (tmp_path / "small").mkdir()
    out, state = ("small/out", "big/d") if full == "output" else ("big/out", "small/d")
    size = "400k" if full == "output" else "200k"
    script = f"""
mount -t tmpfs -o size={size} tmpfs small
dedup() {{ {shlex.quote(sys.executable)} -P -m anabranch dedup urls --state {state} --filter dsbf >> {out}; }}
dedup 2> first; echo $? > codes
mount -o remount,size=64m small
dedup 2> second; echo $? >> codes
[ -e big/out ] || cp small/out big/out
"""
    command = ["unshare", "-Urm", "bash", "-c", script]
    subprocess.run(command, cwd=tmp_path, env=environment(), check=True, timeout=PATIENCE_S)
    first = (tmp_path / "first").read_text()
    assert (tmp_path / "codes").read_text().split() == ["3", "0"], first
    assert first.startswith("anabranch: ")
    assert first.count("\n") == 1
    got = (tmp_path / "big" / "out").read_bytes().splitlines()
    assert set(everything) <= set(got)
    assert len(set(got) - set(everything)) <= 1, "half a line may stand where the disk was full"


def test_the_command_is_there_from_the_clone(tmp_path):
    """`scripts/anabranch` of the clone runs the command, as the README writes it."""
    script = REPOSITORY / "scripts" / "anabranch"
    if not (REPOSITORY / ".venv").exists():
        pytest.skip("the clone has no environment of its own yet")
    run = subprocess.run(
        [script, "dedup", *SMALL], cwd=tmp_path, input=b"a\na\n", capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert (run.returncode, run.stdout) == (0, b"a\n"), run.stderr
