"""One real crawl in a process of its own: what it tells, and that nothing of it is left."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.lab.miniweb import Served, serving
from crawler.lab.policies.options import PolicyOptions, order_for
from crawler.lab.policies.running import Ending, _new_folder, result_of, run_once
from crawler.lab.policies.series import Busy, Sample
from crawler.lab.web.model import WebOptions
from crawler.orders.order import CrawlOrder, dump_order
from crawler.outcomes.errors import CrawlerError
from crawler.outcomes.exits import ExitCode
from frontier.policies.balance import Balance
from tests.acceptance.command import environment

ENDING = Ending(ended_s=3.2, is_drained=True, busy=Busy(0.5, 0.01), queue_lengths=Balance(9, 3, 4))
OPTIONS = PolicyOptions(politeness="off", workers=20)


@pytest.fixture(scope="module")
def web() -> Iterator[Served]:
    """Thirty URLs on three hosts, answered at once."""
    with serving(WebOptions(pages=30, hosts=3, links=2, latency_s=0.0, bandwidth=1e9)) as served:
        yield served


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def order_on(web: Served, policy: str = "host") -> CrawlOrder:
    return order_for(OPTIONS, policy, seeds=web.seeds, addresses=web.hosts)


def samples_at(*times: float) -> list[Sample]:
    return [Sample(time_s, 2 * time_s, 3, 1, 0, 0, time_s * 10, 0) for time_s in times]


def test_a_run_ends_with_its_last_second() -> None:
    """What was under way when the time was up may have ended later; that does not count."""
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


def test_a_real_crawl_is_sampled_from_its_start_to_its_end(web: Served, temporary: Path) -> None:
    """Every URL of the web has ended in the last sample; the folder is gone."""
    heard: list[Sample] = []
    result = run_once(order_on(web, "bkdr:7"), 30.0, heard.append)
    assert result.is_drained
    assert (heard[0].at_s < 0.5, heard[-1].urls) == (True, web.urls)
    assert 0 < heard[-1].held_s <= 40 * result.duration_s
    assert result.samples == tuple(heard)
    assert result.queue_lengths.urls == web.urls
    assert 1 < result.queue_lengths.queues <= 7
    assert not [*temporary.iterdir()]


def test_a_crawl_that_breaks_is_told_in_one_line(web: Served, temporary: Path) -> None:
    """It names the policy and the reason; the folder is gone."""
    order = order_on(web)
    broken = order.model_copy(update={"frontier": order.frontier.model_copy(update={"policy": "nonsense"})})
    with pytest.raises(CrawlerError, match=r"^the crawl with nonsense broke: policy nonsense is unknown") as error:
        run_once(broken, 30.0, lambda _: None)
    assert "\n" not in str(error.value)
    assert not [*temporary.iterdir()]


def test_an_interrupt_leaves_neither_process_nor_folder(web: Served, temporary: Path) -> None:
    """Ctrl-C comes while a sample is told."""

    def interrupt(_: Sample) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_once(order_on(web), 30.0, interrupt)
    assert not [*temporary.iterdir()]


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
    order = order_on(web)
    slow = order.politeness.model_copy(update={"min_delay_s": 60.0, "max_delay_s": 60.0})
    frontier = order.frontier.model_copy(update={"politeness": "host"})
    text = dump_order(order.model_copy(update={"politeness": slow, "frontier": frontier}))
    (tmp_path / "order.toml").write_text(text)
    with subprocess.Popen(
        [sys.executable, "-m", "crawler.lab.policies.crawling", tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"[0.0")
        process.stdin.close()
        assert process.wait(30) == ExitCode.FORCED
