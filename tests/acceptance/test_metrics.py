"""A real Prometheus reads a real crawl; the dashboard, the alerts and docs/how-to/monitor.md agree with the metrics."""

import asyncio
import json
import os
import re
import signal
import subprocess
from contextlib import asynccontextmanager, closing, suppress
from urllib.parse import quote

import pytest

from anabranch.crawler.job.database import JobDatabase
from anabranch.crawler.report.metrics import METRICS, OF_CONSOLES, summed
from anabranch.crawler.run.job_rows import JobRows
from anabranch.crawler.run.worker_lines import worker_numbers
from tests.acceptance.command import REPOSITORY, ended, start, write_order
from tests.acceptance.manyhosts import SEEDS, many_hosts
from tests.acceptance.test_processes import workers
from tests.crawler.builder import until
from tests.crawler.run.test_metrics import scraped, sent
from tests.patience import HANG_S
from tests.ports import free_port
from tests.prometheus import program
from tests.site.server import SmallWeb

PAGE = (REPOSITORY / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
RULES = REPOSITORY / "conf" / "prometheus"
DASHBOARD = json.loads((REPOSITORY / "conf" / "grafana" / "anabranch.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
(CONFIG,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_names_each_metric_with_its_label_and_meaning() -> None:
    """No more and no less than what is served."""
    rows = re.findall(r"^\| `(anabranch_\w+)` \| (?:`(\w+)`)? *\| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(name, metric.label, metric.meaning) for name, metric in METRICS.items()]


def test_the_dashboard_and_the_alerts_ask_for_metrics_that_are_served() -> None:
    """And the dashboard shows each of them."""
    series = {
        re.sub("_(bucket|sum|count)$", "", name) for text in EXPRESSIONS for name in re.findall(r"anabranch_\w+", text)
    }
    assert series == METRICS.keys()
    asked = re.findall(r"anabranch_\w+", (RULES / "alerts.yml").read_text())
    assert METRICS.keys() >= {*asked}


def test_the_dashboard_takes_any_data_source_and_job() -> None:
    """Both are variables, which each expression and panel uses."""
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "job"]
    assert [text for text in EXPRESSIONS if 'job=~"$job"' not in text] == []
    shown = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in shown} == {"${datasource}"}
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_each_alert_is_documented_and_tested_firing_and_silent() -> None:
    """By the file that the next test runs."""
    text = (RULES / "alerts_test.yml").read_text()
    alerts = re.findall(r"alert: (\w+)", (RULES / "alerts.yml").read_text())
    assert re.findall(r"^\| `(Anabranch\w+)` \|", PAGE, re.MULTILINE) == alerts
    for alert in alerts:
        assert re.search(rf"alertname: {alert}, eval_time: \w+, exp_alerts: \[\]", text), alert
        assert re.search(rf"alertname: {alert}\n.*\n +exp_alerts:\n +- ", text), alert


def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    """The tests in alerts_test.yml, run by promtool on made series, pass."""
    command = [program("promtool"), "test", "rules", "alerts_test.yml"]
    run = subprocess.run(command, cwd=RULES, check=False, capture_output=True, text=True, timeout=HANG_S)
    assert run.returncode == 0, run.stdout + run.stderr


@asynccontextmanager
async def prometheus(folder, target):
    """A real one with the configuration of the page, which scrapes `target` each second; its port."""
    config = CONFIG.replace("scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s")
    config = config.replace("alerts.yml", str(RULES / "alerts.yml")).replace("127.0.0.1:9400", target)
    (folder / "prometheus.yml").write_text(config)
    port = free_port()
    arguments = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    process = await asyncio.create_subprocess_exec(
        program("prometheus"), *arguments, f"--web.listen-address=127.0.0.1:{port}", stderr=subprocess.DEVNULL
    )
    try:
        yield port
    finally:
        process.terminate()
        await process.wait()


async def answered(port, path):
    """The data that Prometheus' HTTP API answers with; None while it is starting."""
    try:
        head, _, body = (await sent(port, f"GET {path} HTTP/1.0\r\n\r\n".encode())).partition(b"\r\n\r\n")
    except ConnectionError:
        return None
    if b" 503 " in head.splitlines()[0]:
        return None
    answer = json.loads(body)
    assert answer["status"] == "success", answer
    return answer["data"]


def crawl_of(tmp_path, web, seeds, port, *more):
    order = write_order(tmp_path, web.hosts, politeness={"max_connections": 1}, crawl={"workers": 8})
    return ("crawl", *seeds, "-c", order, "--job", tmp_path / "job", "--metrics", f"127.0.0.1:{port}", *more)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_real_prometheus_has_data_for_each_panel_and_loads_each_rule(tmp_path) -> None:
    """Prometheus scrapes a running crawl each second; every rule is healthy."""
    program("prometheus")
    metrics = free_port()
    async with SmallWeb(delay_s=1.0) as web, prometheus(tmp_path, f"127.0.0.1:{metrics}") as port:
        crawl = await start(*crawl_of(tmp_path, web, ["http://blog.alpha.test/"], metrics), cwd=tmp_path)
        try:
            asked = [text for text in EXPRESSIONS if not any(name in text for name in OF_CONSOLES)]
            left = [text.replace("$job", "job").replace("$__rate_interval", "5m") for text in asked]
            while left:
                data = [await answered(port, f"/api/v1/query?query={quote(text)}") for text in left]
                left = [text for text, found in zip(left, data, strict=True) if not (found and found["result"])]
                await asyncio.sleep(0.2)
            (group,) = (await answered(port, "/api/v1/rules"))["groups"]
            while {rule["health"] for rule in group["rules"]} != {"ok"}:
                await asyncio.sleep(0.2)
                (group,) = (await answered(port, "/api/v1/rules"))["groups"]
            assert len(group["rules"]) == 7
            (target,) = (await answered(port, "/api/v1/targets"))["activeTargets"]
            assert (target["health"], target["lastError"]) == ("up", "")
        finally:
            crawl.send_signal(signal.SIGTERM)
        assert (await ended(crawl)).code == 11


def number(text, name):
    """The one sample of a metric of this job; None without one."""
    found = re.search(rf'^{name}{{job="job"}} (.*)$', text, re.MULTILINE)
    return None if found is None else float(found[1])


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_one_port_has_the_sums_of_all_processes(tmp_path) -> None:
    """Their workers and pages; what a killed process counted stays, and its successor counts on."""
    port = free_port()
    pages: list[float] = []

    async def until_counted(count, more):
        while True:
            with suppress(ConnectionError):  # it is starting
                text = await scraped(port)
                pages.append(number(text, "anabranch_pages_total") or 0.0)
                if number(text, "anabranch_processes") == count and pages[-1] >= more:
                    return text
            await asyncio.sleep(0.05)

    async with SmallWeb(many_hosts(), delay_s=0.3) as web:
        crawl = await start(*crawl_of(tmp_path, web, SEEDS, port, "--processes", "2"), cwd=tmp_path)
        text = await until_counted(2, 10)
        assert number(text, "anabranch_workers") == 8
        assert 'anabranch_phase{job="job",phase="running"} 1.0\n' in text
        before = workers(crawl.pid)
        os.kill(before[0], signal.SIGKILL)
        await until(lambda: len({*workers(crawl.pid)} - {*before}) == 1)
        await until_counted(2, pages[-1] + 5)
        with closing(JobDatabase(tmp_path / "job" / "state" / "frontier.db")) as database:
            look = await asyncio.to_thread(lambda: JobRows(database).look())
        numbers = summed(worker_numbers(look.at_work).values())
        assert (numbers["anabranch_processes"], numbers["anabranch_workers"]) == (2, 8)
        crawl.send_signal(signal.SIGTERM)
        run = await ended(crawl)
    assert run.code == 11, run.err
    assert pages == sorted(pages)
