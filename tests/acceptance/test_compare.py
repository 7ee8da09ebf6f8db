"""`anabranch compare`: real crawls of a tiny web in a box, by the real command."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from anabranch.crawler.lab.web.miniweb import serving
from anabranch.crawler.lab.web.model import WebOptions
from tests.acceptance.command import anabranch, comparing, start
from tests.acceptance.command import ended as end_of
from tests.site.processes import Watched, started_by, watched
from tests.site.server import SmallWeb

#: Each run of a policy starts two processes, which cost more CPU time than its crawl: tests have few runs.
WEB = ("--pages", "200", "--hosts", "10", "--seconds", "2s", "--workers", "20")


async def test_two_policies_are_compared_on_a_tiny_web(tmp_path: Path) -> None:
    """Tables and words on standard output, every sample in the CSV file, all of it as JSON; nothing is left over."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    policies = ("--policies", "host,bkdr:97", "--politeness", "paper")
    ended = await comparing(
        *("compare", *WEB, *policies, "--csv", "a.csv", "--json", "a.json"),
        cwd=tmp_path,
        TMPDIR=str(temporary),
    )
    assert ended.code == 0, ended.err
    assert "five portals (200 URLs on 10 hosts), 20 workers, paper" in ended.out
    assert "five portals: most workers were active under bkdr:97" in ended.out
    assert "No verdict: that takes 9 repeats" in " ".join(ended.out.split())
    assert "(Heritrix's 3 s and 30 s divided by 60)" in " ".join(ended.out.split())
    assert "lab policies: 0 of 4 steps done; now: five portals, host begins" in ended.err
    saved = json.loads((tmp_path / "a.json").read_text())
    runs = {run["policy"]: run for run in saved["comparisons"][0]["runs"]}
    assert [*runs] == ["host", "bkdr:97"]
    for run in runs.values():
        assert run["samples"][0][0] < 0.5
        assert run["samples"][-1][saved["columns"].index("urls")] > 10, "URLs ended"
        assert sum(host["requests"] for host in run["hosts"]) > 10, "the server saw them"
    assert runs["host"]["hosts"][0]["most_at_once"] == 1, "one queue, one request at a time"
    assert max(host["most_at_once"] for host in runs["bkdr:97"]["hosts"]) > 1, (
        "hashing under paper hits a host more than once at a time"
    )
    rows = list(csv.reader((tmp_path / "a.csv").read_text().splitlines()))
    assert ["policy", "run", "second", "active workers"] in [row[:4] for row in rows]
    assert not [*temporary.iterdir()]


@pytest.mark.slow
async def test_a_comparison_is_drawn(tmp_path: Path) -> None:
    """One policy suffices for a picture. (Pictures of filters and of simulations are in the fast tests.)"""
    ended = await anabranch("compare", *WEB, "--policies", "host", "--plot", "a.svg", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


@pytest.mark.slow
async def test_lab_policies_is_the_same_and_json_may_stand_in_for_the_tables(tmp_path: Path) -> None:
    """Under polite the server's ledger is clean, also when the URLs of a host stand in many queues."""
    options = ("--policies", "bkdr:97", "--connections", "2", "--json", "-")
    ended = await anabranch("lab", "policies", *WEB, *options, cwd=tmp_path)
    assert ended.code == 0, ended.err
    (run,) = json.loads(ended.out)["comparisons"][0]["runs"]
    assert run["is_polite"], ended.out
    assert sum(host["requests"] for host in run["hosts"]) > 10, "the server saw them"


async def test_real_seeds_are_crawled_by_the_environment_and_with_the_delays_of_a_real_crawl(tmp_path: Path) -> None:
    """Here the sites are the box's, by a name server's fixed answers; the time is up before the first page."""
    (tmp_path / "seeds.txt").write_text("http://www.sina.com.cn/\n")
    with serving(WebOptions(pages=50, hosts=1)) as web:
        ended = await comparing(
            *("compare", "--seeds", "seeds.txt", "--policies", "surt", "--seconds", "1s", "--json", "-"),
            cwd=tmp_path,
            ANABRANCH_FETCH__ALLOW_PRIVATE="true",
            ANABRANCH_DNS__HOSTS=f"www.sina.com.cn=127.0.0.1:{web.port}",
        )
        assert web.ledger().requests == 1, "robots.txt, then a rest of 3 s"
    assert ended.code == 0, ended.err
    saved = json.loads(ended.out)
    assert saved["options"]["seeds"] == "seeds.txt"
    assert saved["comparisons"][0]["setting"]["delays"].endswith("within 3s and 30s.")


async def test_own_hosts_are_crawled_by_the_paper_and_no_other_host_is(tmp_path: Path) -> None:
    """Several connections to the named host under a hash; the scope `any` of the environment does not lead elsewhere."""
    (tmp_path / "seeds.txt").write_text("http://www.sina.com.cn/\n")
    rests = ("--min-delay", "0", "--max-delay", "0", "--workers", "20", "--seconds", "2s")
    paper = ("compare", "--seeds", "seeds.txt", *rests, "--allow-private", "--politeness", "paper")
    with serving(WebOptions(pages=200, hosts=2, latency_s=0.05)) as web:
        hosts = " ".join(f"{host}={address}" for host, address in web.hosts.items())
        settings = {"ANABRANCH_SCOPE__SCOPE": "any", "ANABRANCH_DNS__HOSTS": hosts}
        own = ("--own-host", "www.sina.com.cn", "--policies", "bkdr:97:31", "--json", "-")
        ended = await comparing(*paper, *own, cwd=tmp_path, **settings)
        (entry,) = web.ledger().hosts
        refused = await anabranch(*paper, "--own-host", "www.sohu.com", cwd=tmp_path, **settings)
        assert len(web.ledger().hosts) == 1
    assert ended.code == 0, ended.err
    assert (entry.host, entry.most_at_once > 1, entry.requests > 20) == ("www.sina.com.cn", True, True), entry
    assert json.loads(ended.out)["options"]["own_hosts"] == ["www.sina.com.cn"]
    assert refused.code == 2
    assert "www.sina.com.cn is not named by --own-host" in refused.err


async def test_private_sites_are_crawled_if_that_is_allowed(tmp_path: Path, small_web: SmallWeb) -> None:
    """A seed at a loopback address; without the option no seed answers."""
    (tmp_path / "seeds.txt").write_text(f"http://127.0.0.1:{small_web.port}/\n")
    compare = ("compare", "--seeds", "seeds.txt", "--policies", "host", "--seconds", "1s", "--json", "-")
    refused = await comparing(*compare, cwd=tmp_path)
    assert (refused.code, small_web.ledger.counts()) == (1, {})
    ended = await comparing(*compare, "--allow-private", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert small_web.ledger.counts()


async def test_a_poor_policy_is_compared_and_warned_of_in_one_line(tmp_path: Path) -> None:
    """On standard error, once; so is a simulation of it, alone or beside what was saved."""
    runs = ("--policies", "length:97", "--seconds", "1s", "--json", "live.json")
    ended = await comparing("compare", *WEB, *runs, cwd=tmp_path)
    beside = await anabranch("lab", "simulate", "--beside", "live.json", cwd=tmp_path)
    alone = await anabranch(
        *("lab", "simulate", "--pages", "50", "--hosts", "5", "--policies", "length:97,bkdr:97:31"), cwd=tmp_path
    )
    for each in (ended, beside, alone):
        assert each.code == 0, each.err
        assert "length:97" in each.out
        (line,) = (line for line in each.err.splitlines() if "warning" in line)
        assert "policy length:N is a poor choice: URLs have few lengths" in line


async def test_the_web_of_a_crawl_log_is_crawled_again(tmp_path: Path) -> None:
    """The log of one run of the crawler is the web of the next comparison."""
    line = (
        "2026-11-22T07:00:00.{0:03}Z 200 900 http://{1}/{2} {3} {4} text/html #001 20261122070000{0:03}+{5} - {6} -\n"
    )
    first = "http://www.a.test/"
    log = line.format(1, "www.a.test", "", "-", "-", 40, first)
    log += "".join(line.format(n, "b.a.test", n, "L", first, 20 + n, first) for n in range(2, 20))
    (tmp_path / "crawl.log").write_text(log)
    options = ("--policies", "bkdr:7", "--seconds", "5s", "--workers", "20", "--politeness", "off", "--json", "-")
    ended = await comparing("compare", "--replay", "crawl.log", *options, cwd=tmp_path)
    assert ended.code == 0, ended.err
    (comparison,) = json.loads(ended.out)["comparisons"]
    assert comparison["setting"]["web"] == "replayed web"
    assert [(run["is_drained"], run["queue_lengths"]["urls"]) for run in comparison["runs"]] == [(True, 19)]


async def test_a_log_with_an_address_for_a_host_is_simulated_but_not_crawled(tmp_path: Path) -> None:
    """A crawl would go to the real address; that is one line, and nobody is asked."""
    (tmp_path / "crawl.log").write_text(
        "2026-11-22T07:00:00.001Z 200 900 http://[::1]:8080/x - - text/html #001 20261122070000001+40 - - -\n"
    )
    ended = await anabranch("compare", "--replay", "crawl.log", "--seconds", "5s", "--json", "a.json", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1].startswith("anabranch: crawl.log: [::1] is an address, which no crawl looks up")
    ended = await anabranch("lab", "simulate", "--replay", "crawl.log", "--json", "-", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["comparisons"][0]["runs"][0]["hosts"][0]["host"] == "[::1]"


async def test_filters_are_compared_by_the_links_of_a_tiny_web(tmp_path: Path) -> None:
    """Tables on standard output, numbers and picture in files, nothing left over; one that is too small loses URLs."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ended = await anabranch(
        *("compare", "--filters", "both,rbloom", "--pages", "200", "--hosts", "10", "--expected", "20"),
        *("--csv", "a.csv", "--json", "a.json", "--plot", "a.svg"),
        cwd=tmp_path,
        TMPDIR=str(temporary),
    )
    assert ended.code == 0, ended.err
    assert "lead to 200 URLs; filters for 20" in " ".join(ended.out.split())
    assert "* No URL lost: both." in ended.out
    assert "lab filters: 0 of 91 steps done; now: making the links" in ended.err
    runs = {run["name"]: run for run in json.loads((tmp_path / "a.json").read_text())["runs"]}
    assert (runs["both"]["losses"]["lost"], len(runs["rbloom"]["losses"]["named"])) == (0, 20)
    assert ["filter", "links", "new URLs dropped"] in [
        row[:3] for row in csv.reader((tmp_path / "a.csv").read_text().splitlines())
    ]
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert not [*temporary.iterdir()]


async def test_filters_are_asked_for_urls_on_standard_input(tmp_path: Path) -> None:
    """Standard input is read like any list of URLs."""
    urls = b"http://a.test/1\nhttp://a.test/2\nhttp://a.test/1\n"
    ended = await anabranch("compare", "--filters", "exact", "--urls", "-", "--json", "-", cwd=tmp_path, stdin=urls)
    assert ended.code == 0, ended.err
    saved = json.loads(ended.out)
    assert (saved["source"], saved["links"], saved["urls"]) == ("the URLs of standard input", 2, 2)


async def test_an_interrupt_ends_the_filters_process_and_leaves_nothing(tmp_path: Path) -> None:
    """In the middle of a filter."""
    process = await start("compare", "--filters", "similar", "--pages", "5k", cwd=tmp_path, TMPDIR=str(tmp_path))
    while not (asked := started_by(process.pid, "filters.asking")):
        await asyncio.sleep(0.01)
        assert process.returncode is None
    with watched(*asked) as both:
        process.send_signal(signal.SIGTERM)
        assert (await end_of(process)).code == 143
        assert both.alive() == []
    assert not left_in(tmp_path)


def has_begun(folder: Path) -> bool:
    return any(folder.glob("*/job/state/frontier.db"))


@asynccontextmanager
async def in_a_run(folder: Path) -> AsyncIterator[tuple[Process, Watched, int]]:
    """A comparison in the middle of a run of 10 minutes, its crawl and server, and the server's number. Both must end."""
    process = await start("compare", *WEB, "--policies", "host", "--seconds", "10m", cwd=folder, TMPDIR=str(folder))
    while not has_begun(folder):
        await asyncio.sleep(0.01)
        assert process.returncode is None
    (server,) = started_by(process.pid, "web.server")
    (crawl,) = started_by(process.pid, "policies.crawling")
    with watched(crawl, server) as both:
        yield process, both, server
        assert both.alive(30.0) == []


def left_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
async def test_an_interrupt_ends_crawl_and_server_and_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    """In the middle of a run."""
    async with in_a_run(tmp_path) as (process, both, _):
        process.send_signal(number)
        assert (await end_of(process)).code == code
        assert both.alive() == []
    assert not left_in(tmp_path)


@pytest.mark.parametrize(
    ("number", "how"),
    [(signal.SIGKILL, "has ended"), pytest.param(signal.SIGSTOP, "was stopped", marks=pytest.mark.slow)],
)
async def test_the_loss_of_the_server_ends_it(tmp_path: Path, number: int, how: str) -> None:
    """With one line, not when the run's time is up; nothing is left."""
    async with in_a_run(tmp_path) as (process, both, server):
        os.kill(server, number)
        ended = await end_of(process)
        assert (ended.code, ended.out) == (1, "")
        last = f"anabranch: the process that serves the web (pid {server}) {how}; run it again"
        assert ended.err.splitlines()[-1] == last
        assert both.alive() == []
    assert not left_in(tmp_path)


async def test_a_killed_command_leaves_its_folder_alone(tmp_path: Path) -> None:
    """SIGKILL gives it no time to remove that; crawl and server end by themselves."""
    async with in_a_run(tmp_path) as (process, _, _):
        process.kill()
        await end_of(process)
    (folder,) = left_in(tmp_path)
    assert folder.startswith("anabranch-policies-")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policies", "hosst"), "--policies: policy hosst is unknown"),
        (("--policies", "host,,surt"), "must be names with commas between them"),
        (("--workers", "0"), "--workers must be from 1 to 10,000"),
        (("--seeds", "none.txt"), "--seeds: none.txt: no such file"),
        (("--replay", "none.log"), "--replay: none.log: no such file"),
        (("--plot", "a.txt"), "a picture is one of .png, .svg, .pdf"),
        (("--pages", "3"), "pages 3: give at least one for each of the 40 hosts"),
    ],
)
async def test_what_makes_no_sense_is_told_before_anything_runs(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Exit code 2."""
    ended = await anabranch("compare", *arguments, cwd=tmp_path)
    assert ended.code == 2
    assert said in ended.err
    assert not ended.out
