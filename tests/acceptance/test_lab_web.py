"""`anabranch lab web`: a web that is served, crawled, and served again from the log of the crawl."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli.app import app
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.lab.web.shape import make_web
from tests.acceptance import blocking, forkserver
from tests.acceptance.blocking import Process
from tests.acceptance.command import environment
from tests.crawler.lab.web.test_miniweb import fetch
from tests.crawler.lab.web.test_shape import walked
from tests.patience import HANG_S
from tests.site.processes import started_by

SMALL = ("--pages", "60", "--hosts", "6", "--latency", "1ms")
ADDRESS_LINE = "2026-11-22T07:00:00.001Z 200 900 http://[::1]:8080/x - - text/html #001 20261122070000001+40 - - -\n"
SMALL_WEB = WebOptions(pages=60, hosts=6, latency_s=0.001)


@contextmanager
def started_web(*arguments: str | Path, cwd: Path) -> Iterator[tuple[Process | subprocess.Popen[str], int, str]]:
    """`anabranch lab web`, serving, its port, and what it says in the beginning."""
    process = blocking.Process(
        ["-m", "anabranch", "lab", "web", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
    )
    with process:
        try:
            assert process.stdout is not None
            said = ""
            while "by name" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            found = re.search(r" at http://127\.0\.0\.1:(\d+);", said)
            assert found, said
            yield process, int(found[1]), said
        finally:
            process.kill()


def ended(process: Process | subprocess.Popen[str], number: int = signal.SIGINT) -> tuple[str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    return out, err


def crawled(job: Path, order: Path) -> Path:
    """The crawl.log of a crawl by an order that finds the web."""
    command = ["crawl", "-c", str(order), "--job", str(job), "--contact", "a@example.org"]
    quick = ["--min-delay", "0", "--max-delay", "0", "--max-connections", "8"]
    arguments = ["-m", "anabranch", *command, *quick]
    done = forkserver.run(arguments, cwd=job.parent, env=environment(), timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    return job / "logs" / "crawl.log"


def urls_in(log: Path) -> set[str]:
    found = {line.split()[3] for line in log.read_text().splitlines()}
    return {url for url in found if url.startswith("http") and not url.endswith("/robots.txt")}


def test_it_serves_until_it_is_interrupted_and_shows_its_ledger(tmp_path: Path) -> None:
    """That is its usual end. It says how others are pointed at it, and then what each host has borne."""
    with started_web(*SMALL, "--connections", "2", cwd=tmp_path) as (process, port, said):
        asyncio.run(fetch(port, ["http://www.qq.com/", "http://www.qq.com/", "http://www.sohu.com/"]))
        out, err = ended(process)
    assert err == ""
    for hint in (
        f"http_proxy=http://127.0.0.1:{port} wget",
        f"curl --resolve www.sina.com.cn:{port}:127.0.0.1 http://www.sina.com.cn:{port}/",
        f"--proxy http://127.0.0.1:{port} -s fetch.proxy_resolves=true",
        f'"www.sina.com.cn" = "127.0.0.1:{port}" below [dns.hosts]',
    ):
        assert hint in said
    assert "What the server saw of 2 hosts" in out
    assert re.search(r"^www\.qq\.com +2 +1 ", out, re.MULTILINE)
    assert "* Politeness kept on 2 hosts (at most 2 at once" in out


def test_a_broken_rule_is_said_in_the_end(tmp_path: Path) -> None:
    """A client that does not wait breaks the rule. SIGTERM is a usual end, too."""
    with started_web(*SMALL, "--min-delay", "10s", cwd=tmp_path) as (process, port, _):
        asyncio.run(fetch(port, ["http://www.qq.com/"] * 3))
        out, err = ended(process, signal.SIGTERM)
    assert err == ""
    assert "Politeness BROKEN on 1 of 1 hosts" in out
    assert "2 too early" in out


def test_a_web_that_nobody_came_to_says_so(tmp_path: Path) -> None:
    """In place of an empty table. A closed terminal is a usual end, too."""
    with started_web(*SMALL, cwd=tmp_path) as (process, _, _):
        out, err = ended(process, signal.SIGHUP)
    assert (out.endswith("* No request came.\n"), err) == (True, "")


@pytest.mark.slow
def test_a_crawl_of_it_and_a_crawl_of_its_replay_find_the_same(tmp_path: Path) -> None:
    """By an order that it writes; the log of that crawl, served again, is the same web to the next crawl."""
    with started_web(*SMALL, "--order", "web.toml", cwd=tmp_path) as (process, _, _):
        log = crawled(tmp_path / "one", tmp_path / "web.toml")
        assert "What the server saw of 6 hosts" in ended(process)[0]
    made = walked(make_web(SMALL_WEB))
    assert urls_in(log) == made.keys()
    with started_web("--replay", log, "--order", "replay.toml", cwd=tmp_path) as (_, _, said):
        again = crawled(tmp_path / "two", tmp_path / "replay.toml")
    assert "\n6 URLs are left out: no HTTP answer, robots.txt or dns:\n" in said
    assert urls_in(again) == made.keys()


def test_the_order_has_a_line_for_each_host(tmp_path: Path) -> None:
    """And opens the scope and loopback."""
    with started_web(*SMALL, "--order", "web.toml", cwd=tmp_path) as (_, port, _):
        order = tomllib.loads((tmp_path / "web.toml").read_text())
    assert order["dns"]["hosts"] == {site.host: f"127.0.0.1:{port}" for site in make_web(SMALL_WEB).sites}
    assert tuple(order["job"]["seeds"]) == make_web(SMALL_WEB).seeds
    assert order["fetch"]["allow_private"] is True
    assert order["scope"]["scope"] == "any"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kind", "ring"), "kind 'ring': choose one of portals, subdomains, hosts"),
        (("--hosts", "50", "--pages", "20"), "pages 20: give at least one for each of the 50 hosts"),
        (("--replay", "nowhere.log"), "nowhere.log: no such file or directory"),
        (("--replay", "empty.log"), "empty.log: no answer of a page in 0 lines"),
        (
            ("--replay", "empty.log", "--pages", "9", "--latency", "1s"),
            "--pages, --latency: cannot be combined with --replay",
        ),
        (
            ("--replay", "address.log", "--order", "web.toml"),
            "--order: [::1] is an address, which a crawl does not look up",
        ),
        (("--order", "no/where.toml"), "no/where.toml: no such file or directory; name another file with --order"),
        (("--order", "mine.toml"), "mine.toml: was not written by this command, and would be lost"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    """Nothing is served."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.log").touch()
    (tmp_path / "address.log").write_text(ADDRESS_LINE)
    (tmp_path / "mine.toml").write_text("[limits]\npages = 5\n")
    done = CliRunner().invoke(app, ["lab", "web", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("anabranch: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_log_of_an_address_is_served_to_proxy_s_clients_alone(tmp_path: Path) -> None:
    """No name leads to it, so none is shown, and no order is written."""
    (tmp_path / "crawl.log").write_text(ADDRESS_LINE)
    with started_web("--replay", "crawl.log", cwd=tmp_path) as (process, port, said):
        assert asyncio.run(fetch(port, ["http://[::1]:8080/x"])) == [900]
        out, _ = ended(process)
    assert f"--proxy http://127.0.0.1:{port}" in said
    assert "dns.hosts" not in said
    assert re.search(r"^\[::1\] +1 ", out, re.MULTILINE)


def test_the_end_of_its_server_ends_it(tmp_path: Path) -> None:
    """With one line, not with a ledger of nothing."""
    with started_web(*SMALL, cwd=tmp_path) as (process, _, _):
        (server,) = started_by(process.pid, "web.server")
        os.kill(server, signal.SIGKILL)
        _, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 1
    assert "has ended; run it again" in err


def test_the_help_names_the_defaults() -> None:
    """They are those of the web's options."""
    shown = CliRunner().invoke(app, ["lab", "web", "--help"], env={"COLUMNS": "200"}).output
    default = WebOptions()
    for said in ("20k", str(default.hosts), str(default.links), "100ms", str(int(default.bandwidth)), default.kind):
        assert f"(default {said})" in shown
    assert (default.pages, default.latency_s) == (20_000, 0.1)
