"""The comparison of real crawls: what is owed to hosts, and how far it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from anabranch.crawler import runtime
from anabranch.crawler.lab.policies.compare import _PROGRAM, CrawlEnding, _new_folder, _Progress, result_of, run_once
from anabranch.crawler.lab.policies.options import PolicyOptions, order_for, rule_of
from anabranch.crawler.lab.policies.series import Balance, Busy, RunResult, Sample
from anabranch.crawler.lab.web.ledger import PolitenessRule
from anabranch.crawler.lab.web.miniweb import Served, WebLost, serving
from anabranch.crawler.lab.web.model import WebOptions
from anabranch.crawler.order.order import CrawlOrder, dump_order
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode
from anabranch.crawler.runtime import child_command
from tests.acceptance.blocking import Children
from tests.patience import HANG_S
from tests.site.processes import Watched, watched


def test_hosts_are_owed_the_order_s_delays_and_slots() -> None:
    """The server holds the crawler to the same rule that the crawler is given."""
    assert rule_of(PolicyOptions(connections=8)) == PolitenessRule(
        slots=8, delay_factor=5.0, min_delay_s=0.05, max_delay_s=0.5
    )


def test_progress_is_seconds_of_all_runs() -> None:
    """A run that is drained early counts as whole; the rate is that of the second before."""
    told: list[tuple[int, int, str]] = []
    course = _Progress(PolicyOptions(policies=("host", "surt"), seconds=10.0), lambda *step: told.append(step))
    with course.of_run("five portals", "host", 1) as heard:
        heard(Sample(0.0, 0, 0, 0, 0, 0, 0, 0))
        heard(Sample(2.0, 14, 9, 0, 0, 0, 30, 0))
    with course.of_run("five portals", "surt", 1) as heard:
        heard(Sample(8.0, 0, 0, 0, 0, 0, 0, 0))
        heard(Sample(12.0, 4, 1, 0, 0, 0, 20, 0))
    assert told == [
        (0, 20, "five portals, host begins"),
        (2, 20, "five portals, host: 7 active workers, 15 URLs/s"),
        (10, 20, "five portals, surt begins"),
        (20, 20, "five portals, surt: 1 active workers, 5 URLs/s"),
    ]


def test_others_see_each_sample_as_it_comes(tmp_path: Path) -> None:
    """A line of JSON in the file of --live, which begins anew; with repeats the words name them."""
    live = tmp_path / "live"
    live.write_text("of an earlier comparison\n")
    told: list[str] = []
    options = PolicyOptions(policies=("host",), seconds=10.0, repeat=2, live=live)
    with _Progress(options, lambda _done, _all, words: told.append(words)).of_run("five portals", "host", 2) as heard:
        heard(Sample(0.0, 0, 0, 0, 0, 0, 0, 0))
        heard(Sample(2.0, 14, 9, 0, 0, 0, 30, 0))
        (line,) = live.read_text().splitlines()
    assert json.loads(line) == {
        "web": "five portals", "policy": "host", "repeat": 2, "at_s": 2.0, "active": 7.0, "urls_per_s": 15.0,
    }  # fmt: skip
    assert told[0] == "five portals, host, repeat 2 begins"


ENDING = CrawlEnding(ended_s=3.2, is_drained=True, busy=Busy(0.5, 0.01), queue_lengths=Balance(9, 3, 4))
WEB = WebOptions(pages=30, hosts=3, links=2, latency_s=0.02, bandwidth=1e9)
OPTIONS = PolicyOptions(politeness="off", workers=20)


@pytest.fixture(scope="module")
def web() -> Iterator[Served]:
    """Thirty URLs on three hosts, answered at once."""
    with serving(WEB) as served:
        yield served


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


#: What the process of a crawl imports.
CRAWLING = ("anabranch.crawler.lab.policies.crawling",)


@pytest.fixture
def crawls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes of this test's crawls, which are forked."""
    children = Children(CRAWLING)
    monkeypatch.setattr(runtime, "subprocess", children)
    return children.started


def order_on(web: Served, policy: str = "host") -> CrawlOrder:
    return order_for(OPTIONS, policy, seeds=web.seeds, addresses=web.hosts)


def slow_order_on(web: Served) -> CrawlOrder:
    """A page a minute."""
    order = order_on(web)
    slow = order.politeness.model_copy(update={"min_delay_s": 60.0, "max_delay_s": 60.0})
    frontier = order.frontier.model_copy(update={"politeness": "host"})
    return order.model_copy(update={"politeness": slow, "frontier": frontier})


def samples_at(*times: float) -> list[Sample]:
    return [Sample(time_s, 2 * time_s, 3, 1, 0, 0, time_s * 10, 0) for time_s in times]


def test_a_run_ends_with_its_last_second() -> None:
    """A fetch under way at the end may end later; that does not count."""
    result = result_of("host", samples_at(0, 1, 2, 3.1, 3.2), ENDING._replace(is_drained=False), 3.0)
    assert (result.duration_s, result.is_drained) == (3.0, False)
    assert [sample.at_s for sample in result.samples] == [0, 1, 2, 3]
    assert result.samples[-1][:3] == pytest.approx((3.0, 6.0, 3))


def test_a_drained_run_ends_when_it_is_drained() -> None:
    """Its duration is its own."""
    result = result_of("host", samples_at(0, 1, 2, 3.2), ENDING, 60.0)
    assert (result.duration_s, result.is_drained) == (3.2, True)
    assert len(result.samples) == 4
    assert (result.crawler, result.queue_lengths) == (Busy(0.5, 0.01), Balance(9, 3, 4))


class Ran(NamedTuple):
    """A crawl that was compared."""

    result: RunResult
    heard: list[Sample]  #: the samples that were told
    left: list[Path]  #: in the folder of temporary files


@pytest.fixture(scope="module")
def ran(web: Served, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A crawl of the web with a policy of one's own that prints, from a folder with modules named as some of the crawl's."""
    here, policies, temporary = (tmp_path_factory.mktemp(name) for name in ("here", "policies", "temporary"))
    (here / "crawler").mkdir()
    for file in (here / "crawler" / "__init__.py", here / "json.py"):
        file.write_text("raise SystemExit('imported from the current folder')\n")
    (policies / "talkative.py").write_text(
        "import os\n"
        "print('imported')\n"
        "def by_length(url):\n"
        "    os.write(1, b'[called\\n')\n"
        "    return str(len(url) % 3)\n"
    )
    heard: list[Sample] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(temporary))
        patched.chdir(here)
        patched.syspath_prepend(policies)
        result = run_once(order_on(web, "talkative:by_length"), 30.0, heard.append)
    return Ran(result, heard, [*temporary.iterdir()])


@pytest.mark.slow
def test_a_real_crawl_is_sampled_from_its_start_to_its_end(web: Served, ran: Ran) -> None:
    """Every URL of the web has ended in the last sample; the folder is gone."""
    result, heard, left = ran
    assert result.is_drained
    assert (heard[0].at_s < 0.5, heard[-1].urls) == (True, web.urls)
    assert 0 < heard[-1].held_s <= 40 * result.duration_s
    assert result.samples == tuple(heard)
    assert not left


@pytest.mark.usefixtures("crawls")
def test_a_crawl_that_breaks_is_told_in_one_line(web: Served, temporary: Path) -> None:
    """It names the policy and the reason; the folder is gone."""
    order = order_on(web)
    broken = order.model_copy(update={"frontier": order.frontier.model_copy(update={"policy": "nonsense"})})
    with pytest.raises(CrawlerError, match=r"^the crawl with nonsense broke: policy nonsense is unknown") as error:
        run_once(broken, 30.0, lambda _: None)
    assert "\n" not in str(error.value)
    assert not [*temporary.iterdir()]


def test_an_interrupt_leaves_neither_process_nor_folder(web: Served, temporary: Path, crawls: list[int]) -> None:
    """Ctrl-C comes while a sample is told."""
    with ExitStack() as stack:
        seen: list[Watched] = []

        def interrupt(_: Sample) -> None:
            seen.append(stack.enter_context(watched(*crawls)))
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_once(order_on(web), 30.0, interrupt)
        assert (len(crawls), seen[0].alive()) == (1, [])
    assert not [*temporary.iterdir()]


@pytest.mark.slow
def test_what_lies_in_the_current_folder_is_not_imported(ran: Ran) -> None:
    """A package `crawler`, or a module named like one of Python's, is the user's own business."""
    assert ran.result.is_drained


@pytest.mark.slow
def test_an_own_policy_is_found_where_the_command_finds_it_and_may_print(web: Served, ran: Ran) -> None:
    """Whatever it says on standard output is none of the crawl's."""
    assert ran.result.is_drained
    assert ran.result.queue_lengths.urls == web.urls
    assert 1 < ran.result.queue_lengths.queues <= 3


@pytest.mark.parametrize(("number", "how"), [(signal.SIGKILL, "has ended"), (signal.SIGSTOP, "was stopped")])
def test_a_run_ends_with_the_server_of_its_web(temporary: Path, crawls: list[int], number: int, how: str) -> None:
    """At once: not when its time is up, and with nothing left of it."""
    heard: list[Sample] = []
    with ExitStack() as stack, serving(WEB) as served:
        seen: list[Watched] = []

        def lose(sample: Sample) -> None:
            if not heard:
                seen.append(stack.enter_context(watched(*crawls)))
                os.kill(served.pid, number)
            heard.append(sample)

        with pytest.raises(WebLost, match=how):
            run_once(slow_order_on(served), 600.0, lose, served)
        assert (len(crawls), seen[0].alive()) == (1, [])
    assert not [*temporary.iterdir()]
    assert len(heard) < 5


def test_an_interrupt_while_the_folder_is_removed_waits_for_that(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take seconds on a busy disk; then the interrupt goes on."""
    remove, interrupts = shutil.rmtree, [KeyboardInterrupt()]

    def interrupted(folder: Path, **how: bool) -> None:
        if interrupts:
            raise interrupts.pop()
        remove(folder, **how)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt), _new_folder() as folder:
        (folder / "file").touch()
    assert not [*temporary.iterdir()]


def test_a_crawl_ends_with_whoever_started_it(web: Served, tmp_path: Path) -> None:
    """The end of its standard input is the end of a process that had no time to say more, as with SIGKILL."""
    (tmp_path / "order.toml").write_text(dump_order(slow_order_on(web)))
    read, write = os.pipe()
    with (
        os.fdopen(read, "rb") as said,
        Children(CRAWLING).Popen(child_command(_PROGRAM, str(tmp_path), str(write)), pass_fds=[write]) as process,
    ):
        os.close(write)
        assert process.stdin is not None
        assert json.loads(said.readline())[0] >= 0.0
        process.stdin.close()
        assert process.wait(HANG_S) == ExitCode.FORCED
