"""The verbs and their flags: no flag is lost on its way to the crawl order."""

import inspect
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli import crawl as crawl_module
from anabranch.crawler.cli import main
from anabranch.crawler.cli.app import _POLICIES, app, crawl
from anabranch.crawler.cli.parameters import NO_KEYS
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import ENTRIES, FLAG_OF, CrawlOrder
from anabranch.crawler.order.sections import VERSION
from anabranch.frontier.policies.assignment import known_policies
from tests.patience import HANG_S

REPOSITORY = Path(__file__).resolve().parents[3]

#: Each flag with a value that is not its default, and what the order then says.
FLAGS = {
    "name": ("news", "news"),
    "worker": ("first", "first"),
    "contact": ("https://example.org/bot", "https://example.org/bot"),
    "policy": ("host", "host"),
    "group": ("domain", "domain"),
    "store": ("memory", "memory"),
    "balance_replenish": ("50", 50),
    "total_budget": ("500", 500),
    "politeness": ("queue", "queue"),
    "max_connections": ("4", 4),
    "delay_factor": ("1.5", 1.5),
    "min_delay": ("250ms", "250ms"),
    "max_delay": ("1m", "1m"),
    "robots": ("ignore", "ignore"),
    "scope": ("prefix", "prefix"),
    "max_hops": ("3", 3),
    "user_agent": ("anabranch (mine)", "anabranch (mine)"),
    "header": ("X-A: b: c", {"X-A": "b: c"}),
    "proxy": ("http://p:1", ["http://p:1"]),
    "limit": ("10", 10),
    "size_limit": ("10GB", "10GB"),
    "time_limit": ("2h", "2h"),
    "workers": ("7", 7),
    "processes": ("7", 7),
    "loop": ("asyncio", "asyncio"),
    "timeout": ("5s", "5s"),
    "max_body": ("1MiB", "1MiB"),
    "allow_private": (None, True),
    "sitemaps": (None, True),
    "metrics": ("127.0.0.1:9400", "127.0.0.1:9400"),
    "warc": (None, True),
    "warc_size": ("10MiB", "10MiB"),
    "links": (None, True),
    "include": (r"/wiki/\d+", [r"/wiki/\d+"]),
    "exclude": (r"\.zip$", [r"\.zip$"]),
}

#: Keys of the order that are no flags: lists, tables, and what is set once for an installation.
NO_FLAGS = {
    *("seeds", "seed_files", "product", "max_crawl_delay", "servers", "hosts", "groups"),
    *("cache", "unreachable", "meta", "nofollow_links", "min_ttl", "max_ttl", "max_stale"),
    *("outage_first", "outage_max", "name_retries", "domain_workers", "slow_workers", "slow_fetch"),
    *(
        "error_penalty",
        "cost",
        "uri_precedence",
        "queue_precedence",
        "precedence_floor",
        "per_queue",
        "lease",
        "shares",
        "worker_lease",
        "upload",
    ),
    *("checkpoint", "gates_in_memory", "backoff_base", "backoff_cap", "backoff_jitter", "backoff_forgive"),
    *(
        "connect_timeout",
        "first_byte_timeout",
        "read_timeout",
        "min_rate",
        "bandwidth",
        "host_bandwidth",
        "accept_encoding",
        "cookies",
        "cookie_file",
        "body_rules",
    ),
    *("referer", "proxy_password_env", "proxy_resolves", "tls_verify", "tls_old", "ipv4", "ipv6", "conditional"),
    *(
        "canonicalization",
        "max_embeds",
        "accept",
        "reject",
        "ignore",
        "block",
        "max_path_repeats",
        "schemes",
        "skip_parameter_traps",
    ),
    *("schedule", "schedule_zone", "schedule_starts"),
    *("modules", "processors", "sinks", "sink_backlog", "pages_per_host", "bytes_per_host", "time_per_host"),
    *("allow_tries", "allow_after"),
    *("pages_per_group", "bytes_per_group", "time_per_group"),
    *("max_path_depth", "max_url_length", "similar", "similar_expect", "rules"),
    *("min_free_disk", "on_limit"),
    *("filter", "exact", "expect", "false_positive", "signature", "levels", "leaf_kind", "leaf_bits", "split_fan_out"),
    "mapped_limit",
    *("leaves", "leaves_name", "similar_features", "similar_false_positive"),
    *("max_retry_after", "group_delay_factor", "group_min_delay", "group_max_delay", "group_max_connections"),
    *("max_outlinks", "css", "forms", "speculative", "data_attributes", "max_content"),
    *("embed_attributes", "link_attributes"),
    *(
        "source_tags",
        "warc_prefix",
        "compression",
        "redact",
        "bind",
        "deflate",
        "zstd_dictionary",
        "revisit",
        "revisit_shared",
        "revisit_of",
        "revisit_timeout",
        "revisit_min_size",
        "pages",
        "operator",
        "extra_info",
    ),
    *("format", "file", "progress", "interval", "statistics_interval", "reports"),
}


@pytest.fixture
def commands(monkeypatch):
    """The commands that the command line makes, in place of running them."""
    made = []
    monkeypatch.setattr(crawl_module, "run_crawl", lambda command: made.append(command) or 0)
    return made


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def crawled(commands, *arguments):
    """The one command of `crawl ARGUMENTS`."""
    result = run("crawl", *arguments)
    assert result.exit_code == 0, result.output
    (command,) = commands
    return command


def option(key):
    return "--" + key.replace("_", "-")


#: Keys whose name is the flag of another key.
HOMELESS = {("dns", "timeout"), ("extract", "timeout")}


def dumped(order):
    """Flag, or key that is none -> value, as the file would have it."""
    sections = order.model_dump(mode="json", by_alias=True, exclude={*ENTRIES})
    values = {(section, key): value for section, table in sections.items() for key, value in table.items()}
    return {FLAG_OF.get(place, place[1]): value for place, value in values.items() if place not in HOMELESS}


def test_every_parameter_is_a_key_of_the_order_or_known_to_be_none() -> None:
    """A new flag must be one of the two, else every command would be refused."""
    assert set(inspect.signature(crawl).parameters) == FLAGS.keys() | NO_KEYS | {"ctx"}


def test_every_scalar_key_of_the_order_has_its_flag() -> None:
    """The command line can set every key that a file can, except for the keys listed in NO_FLAGS."""
    keys = dumped(CrawlOrder()).keys()
    assert keys - NO_FLAGS == FLAGS.keys()


def test_the_help_names_every_policy() -> None:
    """It is written by hand there, to be quick."""
    assert f"Queue of a URL: {known_policies()}." == _POLICIES


@pytest.mark.parametrize("key", sorted(FLAGS))
def test_each_flag_reaches_its_key(commands, key) -> None:
    """And no other key changes."""
    text, value = FLAGS[key]
    flags = crawled(commands, "a.test", option(key), *([text] if text else [])).flags
    assert flags.keys() == FLAGS.keys()
    default, order = dumped(CrawlOrder()), dumped(load_order(None, flags))
    assert default[key] != value
    assert order == default | {key: value}


def test_a_depth_is_a_number_of_hops(commands) -> None:
    """Another crawler's word for the same flag; the last of both counts, as of any flag that is repeated."""
    flags = crawled(commands, "a.test", "--max-hops", "3", "--depth", "4").flags
    assert load_order(None, flags).scope.max_hops == 4


def test_each_header_is_a_flag(commands) -> None:
    """Together they are the table [fetch.headers], in place of the file's."""
    flags = crawled(commands, "a.test", "--header", "X-A: b", "--header", "Accept-Language:de").flags
    assert load_order(None, flags).fetch.headers == {"X-A": "b", "Accept-Language": "de"}


def test_what_is_not_given_is_left_to_the_order(commands) -> None:
    """None is not false, nor zero: the file's value counts."""
    assert set(crawled(commands, "a.test").flags.values()) == {None}


def test_what_is_no_key_goes_into_the_command(commands) -> None:
    """Seeds in their order, the file, the folder, and what may be removed."""
    command = crawled(commands, "a.test", "-", "-c", "o.toml", "--job", "jobs/x", "--fresh", "--yes", "--again")
    assert command.sources == ("a.test", "-")
    assert (command.order_file, command.job) == (Path("o.toml"), Path("jobs/x"))
    assert (command.fresh, command.yes, command.again) == (True, True, True)


def test_a_bare_command_asks_for_nothing(commands) -> None:
    """The order file may name the seeds."""
    command = crawled(commands)
    assert (command.sources, command.order_file, command.job) == ((), None, None)
    assert (command.fresh, command.yes, command.verbosity) == (False, False, 0)


@pytest.mark.parametrize(
    ("flags", "verbosity"), [((), 0), (("-v",), 1), (("-vv",), 2), (("-q",), -1), (("-q", "-v"), -1)]
)
def test_the_more_v_the_more_is_said(commands, flags, verbosity) -> None:
    """Quiet wins."""
    assert crawled(commands, *flags).verbosity == verbosity


def test_the_exit_code_is_the_runs(monkeypatch) -> None:
    """The command line adds nothing to it."""
    monkeypatch.setattr(crawl_module, "run_crawl", lambda command: 11)
    assert run("crawl", "a.test").exit_code == 11


@pytest.mark.parametrize(
    "arguments",
    [("crawl", "--no-such-flag"), ("crawl", "--workers", "many"), ("crawl", "--workers"), ("crwal",), ()],
)
def test_a_command_line_that_makes_no_sense_exits_with_2(commands, arguments) -> None:
    """Nothing is run."""
    assert run(*arguments).exit_code == 2
    assert commands == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("crawl", "--ye"), ""),
        (("crawl", "--refresh"), ""),
        (("frontier", "rm", "job", "--ye"), ""),
        (("frontier", "rmm", "job"), ""),
        (("frontier", "dmp", "job"), "'dump'"),
        (("frontier", "rm", "job", "--quee", "q"), "--queue"),
        (("crwl",), "'crawl'"),
    ],
)
def test_no_hint_for_a_slip_proposes_a_loss(commands, arguments, hint) -> None:
    """Whatever the command; harmless hints are given."""
    said = run(*arguments)
    assert said.exit_code == 2
    assert [word for word in ("--yes", "--fresh", "--delete-old", "'rm'") if word in said.output] == []
    assert hint in said.output


def test_the_version_is_told() -> None:
    """It needs no installed package, so a clone tells it too."""
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"anabranch {VERSION}\n")


def test_main_is_the_command(monkeypatch, capsys) -> None:
    """The installed script calls `main`."""
    monkeypatch.setattr(sys, "argv", ["anabranch", "--version"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"anabranch {VERSION}\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "one that comes now does not take the code's place"


def test_the_room_can_be_run_as_a_module(monkeypatch, capsys) -> None:
    """`python -m anabranch` is the command."""
    monkeypatch.setattr(sys, "argv", ["anabranch", "crawl", "--help"])
    with pytest.raises(SystemExit) as exit_:
        runpy.run_module("anabranch", run_name="__main__")
    assert exit_.value.code == 0
    assert "anabranch crawl" in capsys.readouterr().out


def test_commands_on_a_running_crawl_import_no_crawler() -> None:
    """They ask it through its socket, so they need no store, arrays or HTTP, which take half a second to import."""
    program = """
import sys
import anabranch.crawler.cli.operate, anabranch.crawler.cli.frontier
print(*{"aiohttp", "sqlalchemy", "numpy", "selectolax"} & set(sys.modules))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert ended.stdout == "\n"


def test_help_is_quick() -> None:
    """It exits with 0 and loads none of the heavy libraries, of whatever command."""
    program = """
import sys
from anabranch.crawler.cli import main
for words in ["--help", "-h", "crawl --help", "lab --help", "lab smm --help", "lab redis -h", "dedup --help", "console --help"]:
    sys.argv = ["anabranch", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    heavy = {"aiohttp", "sqlalchemy", "numpy", "structlog", "selectolax", "matplotlib", "redis", "fastapi", "uvicorn"}
    loaded = (heavy | {"anabranch.dedup.uniq", "anabranch.frontier.frontier"}) & set(sys.modules)
    assert not loaded, (words, loaded)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, check=False, capture_output=True, text=True, timeout=HANG_S
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Usage: anabranch") == 8


def test_sigterm_before_the_beginning_is_an_interrupt(monkeypatch) -> None:
    """It acts like Ctrl-C: exit code 130, and nothing was changed."""

    def terminated(**_) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr("anabranch.crawler.cli.app.root_command", lambda: terminated)
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 130
