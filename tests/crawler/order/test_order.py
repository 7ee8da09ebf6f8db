"""The crawl order: sources, precedence, and what is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from anabranch.crawler.job.choosing import with_sources
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import ENTRIES, FLAGS, KEYS, CrawlOrder, changed_keys, dump_order, keys_of
from anabranch.crawler.order.sections import VERSION
from anabranch.crawler.outcomes.errors import CrawlerError, ExitCode, OrderError

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _no_settings_of_the_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.toml"


def refusal(file: Path | None, **flags: object) -> str:
    """The line that an order is refused with, `FILE` in place of the file's path."""
    with pytest.raises(OrderError) as raised:
        load_order(file, flags)
    line = str(raised.value)
    assert "\n" not in line
    return line.replace(str(file), "FILE")


def test_without_any_source_the_order_is_polite() -> None:
    """The defaults are those that operators know from Heritrix."""
    order = load_order(None, {})
    assert order == CrawlOrder()
    assert (order.politeness.delay_factor, order.politeness.min_delay_s, order.politeness.max_delay_s) == (5, 3, 30)
    assert (order.politeness.max_connections, order.robots.robots, order.fetch.allow_private) == (1, "obey", False)
    assert (order.crawl.workers, order.limits.pages, order.limits.time_s) == (100, 0, 0)
    assert (order.fetch.timeout_s, order.fetch.max_body_bytes) == (60, 16 << 20)
    assert (order.frontier.policy, order.frontier.politeness) == ("bkdr:997", "host")
    assert (order.scope.scope, order.scope.max_hops, order.robots.max_crawl_delay_s) == ("host", 20, 300)
    assert (order.dns.servers, order.dns.hosts, order.dns.timeout_s) == ((), {}, 3)


@pytest.mark.parametrize(
    ("sources", "min_delay_s"),
    [
        ("", 3),
        ("file", 4),
        ("environment", 5),
        ("flag", 6),
        ("file environment", 5),
        ("file flag", 6),
        ("environment flag", 6),
        ("file environment flag", 6),
    ],
)
def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    sources: str, min_delay_s: float, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever sources speak, the nearest to the operator's hand is heard."""
    file.write_text("[politeness]\nmin_delay = 4" if "file" in sources else "")
    if "environment" in sources:
        monkeypatch.setenv("ANABRANCH_POLITENESS__MIN_DELAY", "5s")
    order = load_order(file, {"min_delay": "6s" if "flag" in sources else None})
    assert order.politeness.min_delay_s == min_delay_s


def test_sources_are_merged_key_by_key(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag takes nothing from its section's other keys."""
    file.write_text("[politeness]\nmin_delay = 1\nmax_delay = 2\ndelay_factor = 3")
    monkeypatch.setenv("ANABRANCH_POLITENESS__MAX_DELAY", "20")
    politeness = load_order(file, {"delay_factor": 0.5}).politeness
    assert (politeness.min_delay_s, politeness.max_delay_s, politeness.delay_factor) == (1, 20, 0.5)


@pytest.mark.parametrize(
    "name",
    [
        "a.test",
        "A.Test",
        "*.test",
        "*.B.test",
        "*.xn--bcher-kva.test",
        "a_b.test",
        "localhost",
        "a.test.",
        f"{'x' * 63}.test",
    ],
)
def test_the_table_of_hosts_takes_names_and_wildcards(file: Path, name: str) -> None:
    """In capitals, too: hosts are compared in small letters."""
    file.write_text(f"[dns.hosts]\n'{name}' = '127.0.0.1'")
    assert load_order(file, {}).dns.hosts == {name: "127.0.0.1"}


def test_the_environment_writes_lists_as_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables hold text: words for lists, name=address for fixed hosts, numbers and truth values as they are."""
    monkeypatch.setenv("ANABRANCH_JOB__SEEDS", "http://a.test/ http://b.test/")
    monkeypatch.setenv("ANABRANCH_DNS__HOSTS", "a.test=127.0.0.1:80 b.test=[::1]")
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "7")
    monkeypatch.setenv("ANABRANCH_FETCH__ALLOW_PRIVATE", "true")
    monkeypatch.setenv("ANABRANCH_HOME", "not a setting: it has no section")
    order = load_order(None, {})
    assert order.job.seeds == ("http://a.test/", "http://b.test/")
    assert order.dns.hosts == {"a.test": "127.0.0.1:80", "b.test": "[::1]"}
    assert (order.crawl.workers, order.fetch.allow_private) == (7, True)


def test_seed_files_are_relative_to_the_order_file_that_names_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order works from any folder; what a shell wrote is relative to the shell's folder."""
    file.write_text('[job]\nseed_files = ["a.txt", "/b.txt"]')
    assert load_order(file, {}).job.seed_files == (file.parent / "a.txt", Path("/b.txt"))
    monkeypatch.setenv("ANABRANCH_JOB__SEED_FILES", "c.txt")
    assert load_order(file, {}).job.seed_files == (Path("c.txt"),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[politeness]\nmin_dely = 3", "FILE: [politeness] min_dely is unknown; did you mean min_delay?"),
        ("[politeness]\nmin_delay_s = 3", "FILE: [politeness] min_delay_s is unknown; did you mean min_delay?"),
        ("[politeness]\nzzz = 3", "FILE: [politeness] zzz is unknown"),
        ("[politenes]\nmin_delay = 3", "FILE: [politenes] is unknown; did you mean [politeness]?"),
        ("[crawl]\nmin_delay = 3", "FILE: [crawl] min_delay is unknown; it belongs to [politeness]"),
        ("min_delay = 3", "FILE: [min_delay] is unknown; it belongs to [politeness]"),
        ("crawl = 3", "FILE: [crawl] must be a section with keys, not 3"),
        ("[crawl]\nworkers = 'many'", "FILE: [crawl] workers must be a whole number; not 'many'"),
        ("[crawl]\nworkers = 1.5", "FILE: [crawl] workers must be a whole number; not 1.5"),
        ("[crawl]\nworkers = true", "FILE: [crawl] workers must be a number; not true"),
        ("[crawl]\nworkers = 0", "FILE: [crawl] workers must be at least 1; not 0"),
        ("[politeness]\nmax_connections = 0", "FILE: [politeness] max_connections must be at least 1; not 0"),
        ("[politeness]\ndelay_factor = nan", "FILE: [politeness] delay_factor must be at least 0; not nan"),
        ("[politeness]\ndelay_factor = inf", "FILE: [politeness] delay_factor must be a finite number; not inf"),
        ("[politeness]\ndelay_factor = 'x'", "FILE: [politeness] delay_factor must be a number; not 'x'"),
        ("[scope]\nmax_hops = -1", "FILE: [scope] max_hops must be at least 0; not -1"),
        ("[scope]\nscope = 'all'", "FILE: [scope] scope must be 'host', 'prefix', 'domain', "),
        ("[frontier]\npolicy = ''", "FILE: [frontier] policy must not be empty; not ''"),
        ("[frontier]\npolicy = 7", "FILE: [frontier] policy must be text; not 7"),
        ("[fetch]\nallow_private = 'x'", "FILE: [fetch] allow_private must be true or false; not 'x'"),
        ("[fetch]\ntimeout = 0\nmax_body = 0", "FILE: [fetch] timeout must be more than 0; not 0 (and 1 more)"),
        ("[dns]\nhosts = 3", "FILE: [dns] hosts must be a table of keys and values; not 3"),
        ("[job]\nseeds = 'http://a/'", "FILE: [job] seeds must be a list; not 'http://a/'"),
        ("[job]\nseed_files = [3]", "FILE: [job] seed_files must be the name of a file; not 3"),
        (
            "[job]\nname = '../x'",
            "FILE: [job] name must be a name for a folder, without / and not beginning with a dot; ",
        ),
        ('[agent]\ncontact = "a\\nX: y"', "FILE: [agent] contact must be one word, without control characters "),
        ("[agent]\nproduct = 'a b'", "FILE: [agent] product must be one word, without control characters "),
        (
            "[dns]\nservers = ['127.0.0.1', 'ns.test']",
            "FILE: [dns] servers must be ip or ip:port, like 127.0.0.1:5353 ",
        ),
        (
            "[report]\nmetrics = ':9400'",
            "FILE: [report] metrics must be ip:port, like 127.0.0.1:9400 or [::1]:9400; not ':94",
        ),
        ("[report]\nmetrics = '127.0.0.1'", "FILE: [report] metrics must be ip:port, like 127.0.0.1:9400 or "),
        ("[dns.hosts]\n'a.test' = '[::1'", "FILE: [dns] hosts a.test must be ip or ip:port, like 127.0.0.1:5353 or "),
        *(
            (f"[dns.hosts]\n'{name}' = '1.2.3.4'", f"FILE: [dns] hosts {name} would match no host; {why}")
            for name, why in {
                **dict.fromkeys(["127.0.0.9", "127.1", "::1", "[::1]"], "an address is never looked up"),
                **dict.fromkeys([".", "a..test", "*..test", "a" * 64 + ".test", "a." * 127], "between its dots a name"),
            }.items()
        ),
        (
            "[dns.hosts]\n'*.test' = '1.2.3.4'\n'*.TEST' = '1.2.3.4'",
            "FILE: [dns] hosts has the same name twice, *.test and *.TEST; keep one of them",
        ),
        *(
            (f"[{section}]\n{key} = {value}", f"FILE: [{section}] {key} must not have a NUL; not ")
            for section, key, value in [
                ("logs", "file", '"a\\u0000b"'),
                ("job", "modules", '"a\\u0000b"'),
                ("job", "seed_files", '["a\\u0000b"]'),
            ]
        ),
        (f"[agent]\nproduct = '{'a' * 101}'", "FILE: [agent] product must have at most 100 characters; not "),
        ("[dns.hosts]\n'a b' = '1.2.3.4'", "FILE: [dns] hosts a b must be one word"),
        *(
            (f"[dns.hosts]\n'{name}' = '1.2.3.4'", f"FILE: [dns] hosts {name} would match no host; write {way}")
            for name, way in {
                "*": "*. and a name",
                "*.": "*. and a name",
                "a.*.test": "*. and a name",
                "*test": "*. and a name",
                "*.*.test": "*. and a name",
                "*.a.*": "*. and a name",
                "*.127.0.0.1": "a host's name, or *. and a name",
                "http://a.test": "a host's name, or *. and a name",
                "a.test/": "a.test",
                "a.test:80": "a.test",
                "u@a.test": "a.test",
                "bücher.test": "xn--bcher-kva.test",
                "*.bücher.test": "*.xn--bcher-kva.test",
            }.items()
        ),
        (
            "[politeness]\nmin_delay = 60",
            "FILE: [politeness] min_delay: max_delay (30s) is less than min_delay (1m); raise the one or lower the other",
        ),
        (
            "[politeness]\nbackoff_cap = 1",
            "FILE: [politeness] backoff_cap: backoff_cap (1s) is less than backoff_base (1m); raise the one or lower the ",
        ),
        ("[politeness]\nbackoff_jitter = 1.5", "FILE: [politeness] backoff_jitter must be at most 1; not 1.5"),
        (
            "[politeness]\ngroup = 'ip'\n[politeness.groups]\n'a.test' = 'x'",
            "FILE: [politeness] group: group ip and a table of groups are both given; keep one of them",
        ),
        ("[politeness]\ngroup = 'i p'", "FILE: [politeness] group must be one word"),
        ("[frontier]\ntotal_budget = -2", "FILE: [frontier] total_budget must be at least -1; not -2"),
        ("[frontier]\nprecedence_floor = 0", "FILE: [frontier] precedence_floor must be at least 1; not 0"),
        (f"[limits]\npages = {10**20}", f"FILE: [limits] pages must be at most {1 << 53}; not 1"),
        (f"[limits]\npages = {'9' * 5000}", "FILE: not TOML: Exceeds the limit"),
        (f"[crawl]\nworkers = {10**20}", f"FILE: [crawl] workers must be at most {1 << 53}; not 1"),
        ("[frontier]\nper_queue = 0", "FILE: [frontier] per_queue must be at least 1; not 0"),
        ("[frontier]\ncheckpoint = 0", "FILE: [frontier] checkpoint must be more than 0; not 0"),
        (
            "[frontier]\nstore = 'mysql://h/d'",
            "FILE: [frontier] store must be memory, or the URL of a database, like postgresql://host/name; not 'mysql:",
        ),
        (
            "[frontier]\nstore = 'postgresql://a:secret@h/d'",
            "FILE: [frontier] store must not hold a password; put it into ~/.pgpass or the variable PGPASSWORD",
        ),
    ],
)
def test_a_wrong_order_is_refused_in_one_line_that_names_the_file_and_the_key(text: str, line: str, file: Path) -> None:
    """A misspelt delay must not become the default delay."""
    file.write_text(text)
    assert refusal(file).startswith(line)


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ("[[override]]\nsurt = 'a.test'\nmin_dely = 3", "1 min_dely is unknown; did you mean min_delay?"),
        ("[[override]]\nsurt = 'a.test'\nbackoff_base = 3", "1 backoff_base is unknown"),
        ("[[override]]\nsurt = 'a.test'\nkey = 'x'\n[[override]]\nmin_delay = 3", "2 surt must be given"),
        ("[[override]]\nsurt = []\nmin_delay = 3", "1 surt must not be empty; not []"),
        ("[[override]]\nsurt = ['a', 3]\nmin_delay = 3", "1 surt must be text; not 3"),
        ("[[override]]\nsurt = 'a'\nmax_connections = 0", "1 max_connections must be at least 1; not 0"),
        ("[[override]]\nsurt = 'a'\ntotal_budget = -2", "1 total_budget must be at least -1; not -2"),
        ("[[override]]\nsurt = 'a'\nqueue_precedence = 256", "1 queue_precedence must be at most 255; not 256"),
        ("[[override]]\nsurt = 'a'\nmin_delay = 'x'", "1 min_delay must be a number of seconds, or like 500ms, 3s, "),
        (
            "[[override]]\nsurt = 'a'\nmin_delay = 3\nmax_delay = 2",
            "1 max_delay: max_delay (2s) is less than min_delay (3s); raise the one or lower the other",
        ),
    ],
)
def test_a_wrong_override_is_refused_by_its_number(entries: str, line: str, file: Path) -> None:
    """The entries have no names, but they have an order."""
    file.write_text(entries)
    assert refusal(file).startswith(f"FILE: [[override]] {line}")


@pytest.mark.parametrize("text", ["override = 3", "[override]\nsurt = 'a.test'", "override = ['a.test']"])
def test_what_are_no_entries_is_no_override(text: str, file: Path) -> None:
    """One pair of brackets is easily forgotten."""
    file.write_text(text)
    assert refusal(file) == "FILE: [override] must be entries of a file, each below a line [[override]]"


def test_overrides_stand_in_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable cannot hold a list of tables."""
    monkeypatch.setenv("ANABRANCH_OVERRIDE__SURT", "a.test")
    assert refusal(None).startswith("environment: ANABRANCH_OVERRIDE must be entries of a file")


def test_an_override_may_name_one_part_of_the_web_or_several(file: Path) -> None:
    """And says only what is different there."""
    file.write_text(
        "[[override]]\nsurt = 'a.test'\nmin_delay = '250ms'\n[[override]]\nsurt = ['b.test', 'c.test']\nkey = 'q'"
    )
    first, second = load_order(file, {}).override
    assert (first.surt, first.min_delay_s, first.max_delay_s, first.key) == (("a.test",), 0.25, None, None)
    assert (second.surt, second.min_delay_s, second.key) == (("b.test", "c.test"), None, "q")


def test_a_file_that_is_no_toml_is_refused_with_the_line(file: Path) -> None:
    """The words are the parser's."""
    file.write_text("[crawl]\nworkers = 3 4\n")
    assert re.fullmatch(r"FILE: not TOML: .*\(at line 2, column 13\)", refusal(file))


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forgotten export is hard to find otherwise."""
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "many")
    assert refusal(None) == "environment: ANABRANCH_CRAWL__WORKERS must be a whole number; not 'many'"
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKRES", "4")
    assert refusal(None) == "environment: ANABRANCH_CRAWL__WORKRES is unknown; did you mean workers?"
    monkeypatch.delenv("ANABRANCH_CRAWL__WORKRES")
    monkeypatch.setenv("ANABRANCH_CRAWLS__WORKERS", "4")
    assert refusal(None) == (
        "environment: ANABRANCH_CRAWLS__WORKERS is unknown: there is no section [crawls]; did you mean [crawl]?"
    )
    monkeypatch.delenv("ANABRANCH_CRAWLS__WORKERS")
    monkeypatch.setenv("ANABRANCH_CRAWL", "4")
    assert refusal(None) == "environment: ANABRANCH_CRAWL must be a section with keys, not '4'"


def test_a_wrong_flag_is_named(file: Path) -> None:
    """The message names the source whose value is used."""
    file.write_text("[politeness]\nmin_delay = 1\nmax_delay = 2")
    assert refusal(file, min_delay="3x").startswith("--min-delay must be a number of seconds, or like 500ms")
    assert refusal(file, min_dely=3) == "--min-dely is unknown; did you mean --min-delay?"
    assert refusal(file, min_delay="3s").startswith("--min-delay: max_delay (2s) is less than min_delay (3s); ")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, file: Path) -> None:
    """Missing, a folder, or not UTF-8."""
    assert refusal(file) == "FILE: cannot be read: no such file or directory"
    assert refusal(tmp_path) == "FILE: cannot be read: is a directory"
    file.write_bytes(b"[job]\nname = '\xff'")
    assert refusal(file) == "FILE: not UTF-8 (at line 2); save it as UTF-8"


def test_a_file_may_begin_with_a_byte_order_mark_and_have_braces_in_its_name(tmp_path: Path) -> None:
    """Editors write the one, people the other."""
    file = tmp_path / "{x}.toml"
    file.write_bytes(b"\xef\xbb\xbf[crawl]\r\nworkers = 3\r\n")
    assert load_order(file, {}).crawl.workers == 3
    file.write_text("[crawl]\nworkers = 0")
    assert refusal(file) == "FILE: [crawl] workers must be at least 1; not 0"


def test_an_order_error_is_the_rooms_and_has_its_exit_code() -> None:
    """The command needs one `except`."""
    assert issubclass(OrderError, CrawlerError)
    assert OrderError.exit_code is ExitCode.BAD_ORDER


def test_the_order_is_frozen() -> None:
    """Nobody changes it while the crawl runs."""
    order = CrawlOrder()
    with pytest.raises(ValidationError):
        order.crawl.workers = 3
    with pytest.raises(ValidationError):
        order.crawl = order.crawl


def test_a_dumped_order_loads_as_the_same_order(file: Path) -> None:
    """`order.toml` in the job folder says what this run works by, wherever the folder is."""
    file.write_text(
        '[job]\nname = "j"\nseeds = ["http://a.test/"]\nseed_files = ["s.txt"]\n[politeness]\nmin_delay = "250ms"\n'
        '[limits]\ntime = "1.5h"\n[fetch]\nmax_body = "1MB"\n[dns]\nservers = ["[::1]:53"]\n'
        '[dns.hosts]\n"a.test" = "127.0.0.1:8080"\n[politeness.groups]\n"com,example," = "mine"\n'
        '[frontier]\ntotal_budget = 500\nlease = "1h"\nstore = "postgresql://me@h/d"\n'
        '[[override]]\nsurt = "a.test"\nmin_delay = "250ms"\n[[override]]\nsurt = ["b.test", "c.test"]\nkey = "q"\n'
    )
    order = load_order(file, {"robots": "ignore"})
    dumped = file.parent / "elsewhere" / "order.toml"
    dumped.parent.mkdir()
    dumped.write_text(dump_order(order))
    assert load_order(dumped, {}) == order
    assert load_order(dumped, {}).robots.robots == "ignore"
    assert tomllib.loads(dumped.read_text())["politeness"]["min_delay"] == "250ms"


def test_a_dumped_default_order_has_every_key_but_the_name(file: Path) -> None:
    """It is also the list of what can be set."""
    dumped = tomllib.loads(dump_order(CrawlOrder()))
    known = {section: set(keys) for section, keys in KEYS.items()}
    assert [dumped.pop(name) for name in ENTRIES] == [[]] * len(ENTRIES)
    assert {section: set(table) for section, table in dumped.items()} == known | {
        "job": {
            *("seeds", "seed_files", "source_tags", "processors", "sinks", "sink_backlog", "worker"),
            *("schedule", "schedule_zone", "schedule_starts"),
        }
    }


def test_relative_seed_files_are_dumped_in_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The job folder is another folder than the shell's."""
    monkeypatch.chdir(tmp_path)
    dumped = dump_order(load_order(None, {"seed_files": ["s.txt"]}))
    assert tomllib.loads(dumped)["job"]["seed_files"] == [str(tmp_path / "s.txt")]


def test_the_sources_really_used_stand_in_for_those_of_the_order(tmp_path: Path) -> None:
    """Files and URLs apart, in their order; standard input cannot be read again; all else stays as it was."""
    file = tmp_path / "s.txt"
    file.touch()
    order = load_order(None, {"name": "j", "workers": 7, "seeds": ["http://old.test/"], "seed_files": ["old.txt"]})
    used = with_sources(order, ["http://b.test/", "-", str(file), "a.test"])
    assert (used.job.seeds, used.job.seed_files) == (("http://b.test/", "a.test"), (file,))
    assert (used.job.name, used.crawl) == ("j", order.crawl)
    assert order.job.seeds == ("http://old.test/",)


def test_a_source_that_is_no_file_is_a_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are read by the same rule: a folder named like a host is no file, and a URL may be too long for a file."""
    monkeypatch.chdir(tmp_path)
    Path("a.test").mkdir()
    sources = ["a.test", f"http://b.test/{'x' * 5000}"]
    assert with_sources(CrawlOrder(), sources).job.seeds == tuple(sources)


def test_a_seed_file_that_is_missing_stays_a_seed_file(tmp_path: Path) -> None:
    """It can be meant for nothing else, and is shown as what it is."""
    missing = tmp_path / "none.txt"
    job = with_sources(CrawlOrder(), ["a.test", str(missing)]).job
    assert (job.seeds, job.seed_files) == (("a.test",), (missing,))


def test_a_key_that_is_a_flag_is_in_one_section_only() -> None:
    """Else a flag would not say what it sets."""
    assert len(set(FLAGS.values())) == len(FLAGS)
    assert load_order(None, {"timeout": 7}).fetch.timeout_s == 7


@pytest.mark.parametrize(
    ("contact", "user_agent"),
    [("", f"anabranch/{VERSION}"), ("https://a.test/bot", f"anabranch/{VERSION} (+https://a.test/bot)")],
)
def test_the_user_agent_says_who_crawls(contact: str, user_agent: str) -> None:
    """Those who run the sites find the contact in their logs."""
    assert load_order(None, {"contact": contact}).agent.sent_user_agent == user_agent


def test_another_product_has_its_own_version() -> None:
    """Ours stands in the comment alone; robots.txt is read for the name."""
    agents = {
        ("mybot", ""): f"mybot (anabranch/{VERSION})",
        ("mybot/2.0", ""): f"mybot/2.0 (anabranch/{VERSION})",
        ("mybot/2.0", "https://a.test/"): f"mybot/2.0 (+https://a.test/; anabranch/{VERSION})",
        ("anabranch", "https://a.test/"): f"anabranch/{VERSION} (+https://a.test/)",
    }
    for (product, contact), user_agent in agents.items():
        agent = CrawlOrder.model_validate({"agent": {"product": product, "contact": contact}}).agent
        assert (agent.sent_user_agent, agent.token) == (user_agent, product.partition("/")[0])


def test_a_user_agent_of_the_operators_replaces_ours(file: Path) -> None:
    """Product and contact are not added; robots.txt is still read for the product."""
    file.write_text('[agent]\nproduct = "mybot/2.0"\ncontact = "https://a.test/"\n')
    agent = load_order(file, {"user_agent": "Mozilla/5.0 (compatible; MyBot)"}).agent
    assert (agent.sent_user_agent, agent.token) == ("Mozilla/5.0 (compatible; MyBot)", "mybot")


@pytest.mark.parametrize("text", ["Mozilla/5.0", "notanabranch/1", "anabranch-news/1", "ana branch"])
def test_a_user_agent_without_the_product_is_refused(text: str) -> None:
    """A site could not tell for which name its robots.txt is read."""
    line = refusal(None, user_agent=text)
    assert line.startswith("--user-agent: must contain anabranch, the name that robots.txt is read for; ")
    assert "-s agent.product=NAME" in line


@pytest.mark.parametrize("text", ["anabranch\r\nX: y", " anabranch", "anabranch é"])
def test_a_user_agent_that_cannot_be_sent_is_refused(text: str) -> None:
    """One line."""
    line = refusal(None, user_agent=text)
    assert line == "--user-agent must be printable ASCII, without blanks around it"


def test_the_version_is_the_distributions() -> None:
    """It is written in two places that must agree."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


@pytest.mark.parametrize("name", ["minimal.toml", "portals.toml"])
def test_the_orders_in_conf_load(name: str) -> None:
    """The examples of the repository work."""
    order = load_order(ROOT / "conf" / name, {})
    assert order.job.seeds or order.job.seed_files
    assert all(file.is_file() for file in order.job.seed_files)


def test_the_portals_order_shows_every_key_with_its_default() -> None:
    """It is the documentation of the order; what differs from the defaults is said in its first line."""
    text = (ROOT / "conf" / "portals.toml").read_text()
    shown = tomllib.loads(text)
    for name in ENTRIES:
        commented = text[text.index(f"# [[{name}]]") :].partition("\n\n")[0].rstrip()
        assert set(re.findall(r"^# (\w+) =", commented, re.MULTILINE)) == set(keys_of(ENTRIES[name]))
        entry = commented.replace("\n# ", "\n").removeprefix("# ")
        assert set(tomllib.loads(entry)[name][0]) == set(keys_of(ENTRIES[name]))
    assert {section: set(table) for section, table in shown.items()} == {
        section: set(keys) for section, keys in KEYS.items()
    }
    order = load_order(ROOT / "conf" / "portals.toml", {})
    changed = {name for name in CrawlOrder.model_fields if getattr(order, name) != getattr(CrawlOrder(), name)}
    assert changed <= {"job", "agent", "crawl"}


def test_importing_the_order_imports_no_heavy_library() -> None:
    """`--help` and a refused order are quick."""
    heavy = "{'aiohttp', 'numpy', 'sqlalchemy', 'structlog'}"
    script = f"import sys, anabranch.crawler.order.order; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_changed_keys_are_those_that_others_may_see(file: Path) -> None:
    """What is as by default is left out; so are seeds, places of this machine, proxies, and the values of headers."""
    file.write_text(
        """
        [job]
        seeds = ["http://me:hunter22@a.test/"]
        [scope]
        max_hops = 3
        [fetch]
        headers = { "X-Key" = "hunter22" }
        proxy = "http://me@p:1"
        proxy_password_env = "SECRET"
        cookie_file = "cookies.txt"
        bind = ["127.0.0.1"]
        [write]
        compression = "zstd"
        zstd_dictionary = "dictionary"
        [report]
        metrics = "127.0.0.1:9090"
        [[site]]
        surt = "a.test"
        headers = { "X-Key" = "hunter22" }
        """
    )
    assert changed_keys(load_order(file, {})) == {
        "scope.max_hops": 3,
        "fetch.headers": ["X-Key"],
        "write.compression": "zstd",
    }
    assert changed_keys(CrawlOrder()) == {}
