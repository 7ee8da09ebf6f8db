"""Services that many hosts share go away in the middle of a crawl, or are away when it begins, and come back.

Real servers on loopback. A crawl gets the oracle's set, counts no try and writes no line of a failure; what does not need the
service goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from dns.message import Message, make_response
from dns.rcode import REFUSED, SERVFAIL, Rcode

import anabranch
from anabranch.crawler.fetch import dns as fetch_dns
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeds import Seed
from anabranch.crawler.order.order import CrawlOrder
from anabranch.crawler.outcomes.endings import WhyEnded
from anabranch.crawler.outcomes.errors import ExitCode
from anabranch.crawler.report.jobstatus import CrawlSnapshot
from anabranch.crawler.report.progress import progress_line
from anabranch.crawler.run import service_gates
from anabranch.crawler.run.control import ask
from anabranch.crawler.run.controller import CrawlController
from anabranch.crawler.run.crawl_verbs import METRICS, STATUS
from anabranch.crawler.run.membership import Surroundings
from tests.crawler.builder import until
from tests.facts_schema import checked
from tests.patience import HANG_S
from tests.site.dns_server import DnsServer
from tests.site.page import Host, Page, go
from tests.site.server import SmallWeb

NAMES = ("a.test", "b.test", "c.test")
PATHS = [f"/{number}" for number in range(1, 7)]
#: Pages after which a service goes away.
SOON = 4


@pytest.fixture(autouse=True)
def _probes_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service is probed, and a name server that says nothing is given up, after a tenth of the usual time."""
    monkeypatch.setattr(service_gates, "FIRST_PROBE_S", 0.1)
    monkeypatch.setattr(fetch_dns, "GRACE_S", 0.1)


class Names(DnsServer):
    """A name server that goes away: it says nothing, or refuses every question."""

    def __init__(self, **more: Any) -> None:
        super().__init__({name: ["127.0.0.1"] for name in NAMES}, ttl_s=0, **more)
        self.is_away = False
        self.rcode: Rcode | None = None  #: None: silence
        self.lame = ""  #: a name that it always fails to answer

    def answer(self, question: Message) -> Message | None:
        if not self.is_away:
            answer = super().answer(question)
            if question.question[0].name.to_text(omit_final_dot=True) != self.lame:
                return answer
        if self.rcode is None:
            return None
        answer = make_response(question)
        answer.set_rcode(self.rcode)
        return answer


class Proxy:
    """A forwarding proxy to one port, which can be away; `refusal` is what it answers instead, if not empty."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.refusal = b""
        self.closes = False  #: it accepts connections and answers nothing

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def forwards_to(self, port: int) -> None:
        self._to_port = port

    async def begin(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def end(self) -> None:
        """Close the port and all connections, as a process that dies."""
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and not self.closes:
                writer.write(self.refusal or await self._forward(head))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _forward(self, head: bytes) -> bytes:
        there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        back.write(re.sub(rb"^GET http://[^/]+", b"GET ", head).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = await there.read()
        back.close()
        return answer


class Crawl(Surroundings):
    """A crawl of the small web from the first page of the first host; its links lead to all pages of all hosts."""

    def __init__(self, folder: Path, web: SmallWeb, *, port: str = "", **sections: Mapping[str, Any]) -> None:
        self.folder = folder
        self.web = web
        self.said: list[str] = []
        self.take: Callable[[], CrawlSnapshot] = CrawlSnapshot
        order: dict[str, Any] = {
            "politeness": {"min_delay": 0.02, "max_delay": 0.02, "backoff_base": 0, "backoff_cap": 0},
            "crawl": {"workers": 4},
            "fetch": {"allow_private": True, "timeout": HANG_S},
            "dedup": {"expect": 100_000, "leaf_bits": 1 << 16},
        }
        for name, section in sections.items():
            order[name] = order.get(name, {}) | section
        self.seeds = [f"http://{name}{port}/" for name in NAMES]
        self.oracle = sorted([*self.seeds, *(f"http://{name}{port}{path}" for name in NAMES for path in PATHS)])
        self.order = CrawlOrder.model_validate(order)

    async def run(self) -> ExitCode:
        seeds = [Seed(url=url, source="command line") for url in self.seeds]
        with JobFolder.open(self.folder) as job:
            self.controller = CrawlController(self.order, job, seeds, self)
            return await self.controller.run()

    def notify(self, text: str) -> None:
        self.said.append(text)

    async def show(self, take: Callable[[], CrawlSnapshot]) -> None:
        self.take = take
        await asyncio.Event().wait()

    @property
    def pages(self) -> int:
        return self.take().pages

    async def waits(self) -> CrawlSnapshot:
        """The crawl waits for a service, and all fetches have ended."""
        await until(lambda: self.take().services and not self.take().active)
        return self.take()

    def crawled(self) -> list[str]:
        lines = (self.folder / "pages.jsonl").read_text().splitlines()
        return sorted(json.loads(line)["url"] for line in lines)

    def check_nothing_was_lost(self, code: ExitCode) -> None:
        """The oracle's set, each page asked for once, no line of a failure."""
        assert (code, self.crawled()) == (ExitCode.DONE, self.oracle)
        assert self.controller.facts is not None
        assert self.controller.facts.run.failed == 0
        assert self.controller.facts.run.retries == 0
        assert self.controller.facts.ended == WhyEnded.FINISHED.value
        asked = self.web.ledger.counts().items()  # each run of a job asks for robots.txt
        assert {url: count for url, count in asked if count != 1 and not url.endswith("robots.txt")} == {}
        log = [line.split() for line in (self.folder / "logs" / "crawl.log").read_text().splitlines()]
        assert [line[3] for line in log if line[1].startswith("-")] == []
        errors = self.folder / "logs" / "errors.jsonl"
        assert not errors.exists() or errors.read_text() == ""


@pytest.fixture
async def web() -> AsyncIterator[SmallWeb]:
    pages = {"/": Page(links=go(*PATHS)), **{path: Page() for path in PATHS}}
    async with SmallWeb({name: Host(pages=pages) for name in NAMES}) as site:
        yield site


@asynccontextmanager
async def running(crawl: Crawl) -> AsyncIterator[asyncio.Task[ExitCode]]:
    task = asyncio.create_task(crawl.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


def dns_of(names: Names, **more: Any) -> dict[str, Any]:
    """No answer is kept, and none is used past its time, unless the test says so."""
    return {"servers": [names.address], "timeout": 0.1, "min_ttl": 0, "max_ttl": 0, "max_stale": 0, **more}


# Name servers


@pytest.mark.parametrize("rcode", [None, SERVFAIL, REFUSED])
@pytest.mark.parametrize("pages_before", [0, SOON])
async def test_a_name_server_that_is_away_costs_nothing(
    web: SmallWeb, tmp_path: Path, rcode: Rcode | None, pages_before: int
) -> None:
    """Whether it says nothing, SERVFAIL or REFUSED; from the beginning, or when names have been looked up before."""
    async with Names() as names:
        crawl = Crawl(tmp_path / "job", web, port=f":{web.port}", dns=dns_of(names))
        names.rcode, names.is_away = rcode, not pages_before
        async with running(crawl) as task:
            await until(lambda: crawl.pages >= pages_before)
            names.is_away = True
            now = await crawl.waits()
            assert [service["service"] for service in now.services] == ["name servers"]
            assert "waits for name servers since " in progress_line(now)
            fetched = crawl.pages
            names.is_away = False
            code = await task
    assert fetched < len(crawl.oracle)
    crawl.check_nothing_was_lost(code)


async def test_an_operator_hears_for_what_the_crawl_waits(web: SmallWeb, tmp_path: Path) -> None:
    """By `status`, `why`, `frontier ls`, the metrics and the log of phases, while it waits."""
    async with Names() as names:
        crawl = Crawl(tmp_path / "job", web, port=f":{web.port}", dns=dns_of(names))
        async with running(crawl) as task:
            await until(lambda: crawl.pages >= SOON)
            names.is_away = True
            await crawl.waits()

            async def told(verb: str, **given: Any) -> Any:
                return await asyncio.to_thread(ask, tmp_path / "job" / "state", verb, given)

            status = checked(await told(STATUS))
            assert (status["phase"], status["services"][0]["service"]) == ("waiting", "name servers")
            assert status["services"][0]["since_s"] > 0
            queued = {url for url in crawl.oracle if not web.ledger.counts().get(url.replace(f":{web.port}", ""))}
            why = await told("why", url=max(queued))
            assert "the crawl waits for name servers; when it is back: " in why["explanation"]["reason"]
            assert "waits for name servers since " in (await told("ls", limit=1))["totals"]["why_idle"]
            metrics = await told(METRICS)
            assert metrics["anabranch_service_up"] == {"name servers": 0, "network": 1, "open files": 1}
            assert metrics["anabranch_phase"] == "waiting"
            names.is_away = False
            crawl.check_nothing_was_lost(await task)
    log = (tmp_path / "job" / "logs" / "progress-statistics.log").read_text()
    assert re.search("CRAWL WAITING - waits for name servers since .*\n(.*\n)*.*CRAWL RUNNING", log)


async def test_hosts_with_a_known_address_go_on_while_the_name_servers_are_away(web: SmallWeb, tmp_path: Path) -> None:
    """Past the time of the answer (RFC 8767), but not past `max_stale`; no question is sent for them."""
    async with Names() as names:
        crawl = Crawl(tmp_path / "job", web, port=f":{web.port}", dns=dns_of(names, max_stale="1h"))
        del names.table["c.test"]
        names.silent.add("c.test")
        async with running(crawl) as task:
            await until(lambda: crawl.pages >= SOON)
            names.is_away = True
            known = [url for url in crawl.oracle if "c.test" not in url]
            await until(lambda: crawl.pages == len(known))
            await crawl.waits()
            names.silent.clear()
            names.table["c.test"] = ["127.0.0.1"]
            names.is_away = False
            code = await task
    crawl.check_nothing_was_lost(code)


@pytest.mark.parametrize("rcode", [None, SERVFAIL, REFUSED])
async def test_a_name_that_only_times_out_is_told_from_its_servers(
    web: SmallWeb, tmp_path: Path, rcode: Rcode | None
) -> None:
    """The others are crawled; then the crawl waits for that name, and says when it is tried next. In the end it has failed.

    So does one for which the servers answer SERVFAIL or REFUSED, while they answer for others.
    """
    async with Names() as names:
        names.lame, names.rcode = "c.test", rcode
        crawl = Crawl(tmp_path / "job", web, port=f":{web.port}", dns=dns_of(names), fetch={"name_retries": ["1s"]})
        async with running(crawl) as task:
            await until(lambda: crawl.take().names_waiting)
            now = crawl.take()
            assert (now.names_waiting, now.services, now.pages) == (1, (), 2 * len(crawl.oracle) // 3)
            assert re.search(r"waits to try 1 name without an answer again, the next in \S+", progress_line(now))
            code = await task
    assert code is ExitCode.DONE
    assert crawl.controller.facts is not None
    assert (crawl.controller.facts.run.retries, crawl.controller.facts.run.failed) == (1, 1)
    assert names.questions["c.test", "A"] >= 2


async def test_a_crawl_that_begins_again_knows_the_names_that_only_time_out(web: SmallWeb, tmp_path: Path) -> None:
    """It has nothing else to do, and waits for them as the run before did."""
    async with Names(silent=["c.test"]) as names:
        del names.table["c.test"]
        for pages in (2 * len(NAMES) * (len(PATHS) + 1) // 3, 0):
            crawl = Crawl(tmp_path / "job", web, port=f":{web.port}", dns=dns_of(names), fetch={"name_retries": ["1h"]})
            async with running(crawl) as task:
                await until(lambda crawl=crawl: crawl.take().names_waiting)  # type: ignore[misc]
                now = crawl.take()
                assert (now.names_waiting, now.pages) == (1, pages)
                assert "waits to try 1 name without an answer again, the next in " in progress_line(now)
                crawl.controller.stop(WhyEnded.OPERATOR)
                await task


@pytest.mark.parametrize(
    ("pages_before", "code", "why"),
    [(0, ExitCode.NO_SEED_ANSWERED, "never reached"), (SOON, ExitCode.SERVICE_AWAY, "away for too long")],
)
async def test_a_service_is_not_waited_for_for_ever(
    web: SmallWeb, tmp_path: Path, pages_before: int, code: ExitCode, why: str
) -> None:
    """The run ends and names it; nothing has failed, and the next run of the job does the rest."""
    async with Names() as names:
        bounds = {"outage_first": "0.3s", "outage_max": "0.3s"}
        crawl = Crawl(tmp_path / "job", web, port=f":{web.port}", dns=dns_of(names), fetch=bounds)
        names.is_away = not pages_before
        async with running(crawl) as task:
            await until(lambda: crawl.pages >= pages_before)
            names.is_away = True
            assert await task is code
        assert crawl.controller.facts is not None
        assert crawl.controller.facts.run.failed == 0
        assert re.search(f"stopped: a service was {why}: name servers \\(.+\\); start the job again", crawl.said[-1])
        names.is_away = False
        again = Crawl(tmp_path / "job", web, port=f":{web.port}", dns=dns_of(names))
        code = await again.run()
    again.check_nothing_was_lost(code)


# Proxies


@pytest.mark.parametrize("pages_before", [0, SOON])
async def test_a_proxy_that_is_away_costs_nothing(web: SmallWeb, tmp_path: Path, pages_before: int) -> None:
    """Also not the fetches that were under way through it."""
    async with Proxy(web.port) as proxy:
        if not pages_before:
            await proxy.end()
        crawl = Crawl(tmp_path / "job", web, fetch={"proxy": f"http://127.0.0.1:{proxy.port}"})
        async with running(crawl) as task:
            await until(lambda: crawl.pages >= pages_before)
            await proxy.end()
            now = await crawl.waits()
            assert now.services[0]["service"] == f"proxy http://127.0.0.1:{proxy.port}"
            await proxy.begin()
            code = await task
    assert (code, crawl.crawled()) == (ExitCode.DONE, crawl.oracle)
    assert crawl.controller.facts is not None
    assert (crawl.controller.facts.run.failed, crawl.controller.facts.run.retries) == (0, 0)


async def test_a_proxy_that_closes_each_connection_is_away(web: SmallWeb, tmp_path: Path) -> None:
    """From the beginning, so that it has led nowhere yet; robots.txt is asked for first, and does not fail by it."""
    async with Proxy(web.port) as proxy:
        proxy.closes = True
        crawl = Crawl(tmp_path / "job", web, fetch={"proxy": f"http://127.0.0.1:{proxy.port}"})
        async with running(crawl) as task:
            now = await crawl.waits()
            assert now.services[0]["reason"] == "it gives no answer: it closes the connection"
            proxy.closes = False
            crawl.check_nothing_was_lost(await task)


async def test_a_proxy_that_wants_a_password_ends_the_run_at_once(web: SmallWeb, tmp_path: Path) -> None:
    """It is no outage: the operator must correct the order. Nothing has failed."""
    async with Proxy(web.port) as proxy:
        proxy.refusal = b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n"
        crawl = Crawl(tmp_path / "job", web, fetch={"proxy": f"http://127.0.0.1:{proxy.port}"})
        assert await crawl.run() is ExitCode.BAD_ORDER
        assert crawl.controller.facts is not None
        assert crawl.controller.facts.run.failed == 0
        words = f"the proxy http://127.0.0.1:{proxy.port} wants a user and a password (407)"
        assert f"stopped: the proxy refuses the crawl: {words}; correct" in crawl.said[-1]
        proxy.refusal = b""
        again = Crawl(tmp_path / "job", web, fetch={"proxy": f"http://127.0.0.1:{proxy.port}"})
        code = await again.run()
    assert (code, again.crawled()) == (ExitCode.DONE, again.oracle)


# A user function's service


class Model:
    """The service that the user functions ask."""

    is_away: Callable[[], object] = bool


def need() -> None:
    """Ask the service."""
    if Model.is_away():
        raise anabranch.ServiceAway("language model", "503")


async def judge(visit: anabranch.Visit) -> None:
    """A processor."""
    need()


def rule(target: anabranch.Target) -> None:
    """A scope rule."""
    need()


def wants_body(head: anabranch.PageHead) -> None:
    """A rule before the body."""
    need()


def key_of(url: str) -> str:
    """A canonicaliser."""
    need()
    return url


def queue_of(url: str) -> str:
    """A queue policy."""
    need()
    return f"queue {len(url) % 2}"


def queues_of(urls: list[str]) -> list[str]:
    """A queue policy for many URLs at once, with the queues of `queue_of`."""
    need()
    return [f"queue {len(url) % 2}" for url in urls]


queues_of.batch = True  # type: ignore[attr-defined]


def cost_of(url: str, via: str | None, hops: str) -> int:
    """A cost policy; it gives URLs their precedence, too."""
    need()
    return 1


def row_of(candidate: Any, via: str | None) -> int:
    """A URI precedence."""
    need()
    return 7


def rank_of(history: Any) -> int:
    """A queue precedence."""
    need()
    return 7


FUNCTIONS: dict[str, dict[str, Any]] = {
    "processor": {"job": {"processors": [f"{__name__}:judge"]}},
    "scope rule": {"scope": {"rules": [f"{__name__}:rule"]}},
    "body rule": {"fetch": {"body_rules": [f"{__name__}:wants_body"]}},
    "canonicaliser": {"urls": {"canonicalization": [f"{__name__}:key_of"]}},
    "queue policy": {"frontier": {"policy": f"{__name__}:queue_of"}},
    "batch of a queue policy": {"frontier": {"policy": f"{__name__}:queues_of"}},
    "cost": {"frontier": {"cost": f"{__name__}:cost_of"}},
    "URI precedence": {"frontier": {"uri_precedence": f"{__name__}:row_of"}},
    "queue precedence": {"frontier": {"queue_precedence": f"{__name__}:rank_of"}},
}


@pytest.mark.parametrize("section", FUNCTIONS.values(), ids=FUNCTIONS)
async def test_a_user_functions_service_is_waited_for(
    web: SmallWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: dict[str, Any]
) -> None:
    """The page that met it is fetched again, its links included; the others wait, but for one at a time that finds out."""
    monkeypatch.setattr(Model, "is_away", web.ledger.counts)  # from the first request on
    crawl = Crawl(tmp_path / "job", web, dns={"hosts": web.hosts}, **section)
    async with running(crawl) as task:
        now = await crawl.waits()
        assert [(service["service"], service["reason"]) for service in now.services] == [("language model", "503")]
        fetched = crawl.pages
        monkeypatch.setattr(Model, "is_away", bool)
        code = await task
    assert fetched < len(crawl.oracle)
    assert (code, crawl.crawled()) == (ExitCode.DONE, crawl.oracle)
    assert crawl.controller.facts is not None
    assert (crawl.controller.facts.run.failed, crawl.controller.facts.run.retries) == (0, 0)


@pytest.mark.parametrize("function", ["cost", "queue precedence"])
async def test_a_failed_page_waits_for_the_service_of_a_policy_too(
    web: SmallWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """The policy says what the end of each page costs, also of one whose fetch or processor failed: it comes again."""
    bad = PATHS[0]

    async def fail(visit: anabranch.Visit) -> None:
        if visit.lease.url.endswith(bad):
            raise RuntimeError("odd")

    def has_a_failure_begun() -> bool:
        return bool(names.questions["gone.test", "A"] or [url for url in web.ledger.counts() if url.endswith(bad)])

    monkeypatch.setitem(globals(), "judge", fail)
    monkeypatch.setattr(fetch_dns, "GRACE_S", HANG_S)
    async with Names() as names:
        dns = dns_of(names, timeout=HANG_S, hosts=web.hosts)
        crawl = Crawl(tmp_path / "job", web, dns=dns, **FUNCTIONS["processor"], **FUNCTIONS[function])
        crawl.seeds.insert(0, "http://gone.test/")
        monkeypatch.setattr(Model, "is_away", has_a_failure_begun)
        async with running(crawl) as task:
            now = await crawl.waits()
            assert [service["service"] for service in now.services] == ["language model"]
            monkeypatch.setattr(Model, "is_away", bool)
            code = await task
    assert code is ExitCode.DONE
    assert crawl.controller.facts is not None
    assert (crawl.controller.facts.run.failed, crawl.controller.facts.run.retries) == (1 + len(NAMES), 0)
    log = [line.split() for line in (tmp_path / "job" / "logs" / "crawl.log").read_text().splitlines()]
    failed = sorted(line[3] for line in log if line[1].startswith("-") and not line[3].startswith("dns:"))
    assert failed == [*(f"http://{name}{bad}" for name in NAMES), crawl.seeds[0]]


# This machine


class Limited(socket.socket):
    """A socket that cannot be made while the process has as many descriptors open as it may."""

    is_full = False

    def __init__(self, *arguments: Any, fileno: int | None = None, **more: Any) -> None:
        if self.is_full and fileno is None:
            raise OSError(errno.EMFILE, "Too many open files")
        super().__init__(*arguments, fileno=fileno, **more)


async def test_without_another_descriptor_no_url_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The crawl waits until there is one. Files of its own are another matter: it cannot go on without them."""
    closed = {"headers": (("Connection", "close"),)}  # else the fetches go on over kept connections
    pages = {"/": Page(links=go(*PATHS), **closed), **{path: Page(**closed) for path in PATHS}}
    async with SmallWeb({name: Host(pages=pages) for name in NAMES}) as web:
        crawl = Crawl(tmp_path / "job", web, dns={"hosts": web.hosts})
        async with running(crawl) as task:
            await until(lambda: crawl.pages >= SOON)
            monkeypatch.setattr(socket, "socket", Limited)
            monkeypatch.setattr(Limited, "is_full", True)
            now = await crawl.waits()
            assert [service["service"] for service in now.services] == ["open files"]
            monkeypatch.setattr(Limited, "is_full", False)
            code = await task
    assert (code, crawl.crawled()) == (ExitCode.DONE, crawl.oracle)
    assert crawl.controller.facts is not None
    assert (crawl.controller.facts.run.failed, crawl.controller.facts.run.retries) == (0, 0)
