"""The suites: the host, its tests, and how they are run."""

from __future__ import annotations

from dataclasses import dataclass, field

from scripts.hosts.table import numbers


@dataclass(frozen=True, slots=True)
class Host:
    """A package with a test suite."""

    name: str
    default: str  #: version, a pattern of pip's
    requirements: tuple[str, ...]  #: of its tests
    extras: str = ""
    #: The version whose source distribution has the tests; None: the host's own.
    tests_of: str | None = None


SCRAPY = Host(
    "scrapy",
    "2.19.*",
    (
        "aiohttp",
        "attrs",
        "httpx",
        "pexpect",
        "psutil",
        "pyftpdlib",
        "pygments",
        "pytest",
        "pytest-asyncio",
        "pytest-rerunfailures",
        "pytest-timeout",
        "pytest-twisted",
        "pytest-xdist",
        "sybil",
        "testfixtures",
        "uvloop",
    ),
)
#: From 1.7 on Crawlee's source distributions have no tests. The last ones with tests are run: Crawlee 1.11's own clients
#: pass them, too, except those in the table. `--crawlee-tests` takes an archive of the tag instead.
CRAWLEE = Host(
    "crawlee",
    "1.11.*",
    (
        "apify_client",
        "fakeredis[json,lua,probabilistic]",
        "proxy-py",
        "pytest",
        "pytest-asyncio",
        "pytest-rerunfailures",
        "pytest-timeout",
        "pytest-xdist",
        "sqlalchemy[asyncio]",
        "aiosqlite",
        "uvicorn[standard]",
    ),
    extras="[adaptive-crawler,beautifulsoup,cli,curl-impersonate,httpx,otel,parsel,redis]",
    tests_of="1.6.2",
)


@dataclass(frozen=True, slots=True)
class Suite:
    """One class of ours under one host's tests."""

    name: str
    host: Host
    plugin: str
    folder: str  #: where the tests are
    #: variant -> pytest's options for it
    variants: dict[str, tuple[str, ...]] = field(default_factory=lambda: {"default": ()})
    #: variant -> the first version of the host that has it; the others are in all.
    since: dict[str, str] = field(default_factory=dict)

    def variants_of(self, version: str) -> list[str]:
        """The variants of this version of the host."""
        return [name for name in self.variants if numbers(self.since.get(name, "0")) <= numbers(version)]


#: By Twisted's asyncio reactor, by its own default one, and without Twisted's.
_ASYNCIO = {"asyncio": ("-p", "no:asyncio", "--reactor=asyncio")}
_REACTORS = {
    **_ASYNCIO,
    "default": ("-p", "no:asyncio", "--reactor=default"),
    "none": ("-p", "no:twisted", "--reactor=none", "-o", "asyncio_default_fixture_loop_scope=function"),
}

SUITES = (
    Suite("scrapy-scheduler", SCRAPY, "scripts.hosts.scrapy_plugin", "tests", _REACTORS, {"none": "2.15"}),
    Suite("scrapy-dupefilter", SCRAPY, "scripts.hosts.scrapy_plugin", "tests", _ASYNCIO),
    Suite("scrapy-pqueue", SCRAPY, "scripts.hosts.scrapy_plugin", "tests", _ASYNCIO),
    Suite("crawlee-storage", CRAWLEE, "scripts.hosts.crawlee_plugin", "tests/unit"),
    Suite("crawlee-manager", CRAWLEE, "scripts.hosts.crawlee_plugin", "tests/unit"),
)
