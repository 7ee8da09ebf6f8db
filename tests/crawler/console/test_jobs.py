"""The jobs of a console, and what an order from the API may set."""

import io
import os
import sys
from pathlib import Path
from subprocess import DEVNULL, Popen

import pytest

from anabranch.crawler.console import launching
from anabranch.crawler.console.jobs import ConsoleJobs, seeds_line
from anabranch.crawler.console.orders import ALLOWED, machine_faults
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.seeds import read_seeds
from anabranch.crawler.operate.job import Job
from anabranch.crawler.order.order import ENTRIES, CrawlOrder
from anabranch.crawler.outcomes.errors import OrderError, UsageError
from tests.rows import each_row


def test_counters_of_several_workers_do_not_fall_when_one_leaves(tmp_path, monkeypatch) -> None:
    """They begin anew with the next run."""
    pages = "anabranch_pages_total"
    looks = iter([{("a", 1): {pages: 5}, ("a", 2): {pages: 7}}, {("a", 2): {pages: 8}}, {}, {("a", 3): {pages: 1}}])
    jobs = ConsoleJobs(str(tmp_path))
    monkeypatch.setattr(jobs, "job", lambda _: Job(None, "postgresql://db/x"))
    monkeypatch.setattr(Job, "worker_metrics", lambda _: next(looks))
    assert jobs.metrics("x") == {pages: 12}
    assert jobs.metrics("x") == {pages: 13}
    assert jobs.metrics("x") is None
    assert jobs.metrics("x") == {pages: 1}


def test_a_crawl_has_as_long_to_answer_as_the_console_gives(tmp_path) -> None:
    """Each job of a folder has this patience."""
    JobFolder.open(tmp_path / "news").close()
    job = ConsoleJobs(str(tmp_path), patience_s=0.5).job("news")
    assert isinstance(job, Job)
    assert job.patience_s == 0.5


KEYS = [
    (section, key)
    for section in CrawlOrder.model_fields
    for key in ENTRIES.get(section, type(getattr(CrawlOrder(), section))).model_fields
]
#: Parts of the types of keys by which files are read or code is run.
UNSAFE_TYPES = ("pathlib", "user_function", "user_folder")


@each_row(("section", "key"), KEYS)
def test_only_allowed_keys_may_be_set(section, key):
    """A new key is refused until somebody allows it; what is allowed has no type that names code or a file."""
    order, changed = CrawlOrder(), "another value"
    if section in ENTRIES:
        entry = ENTRIES[section]
        surt = {"surt": ()} if entry.model_fields["surt"].is_required() else {}
        value = (entry.model_construct(**{**surt, key: changed}),)
    else:
        value = getattr(order, section).model_copy(update={key: changed})
    found = [line.partition(" names ")[0] for line in machine_faults(order.model_copy(update={section: value}))]
    is_allowed = key in ALLOWED.get(section, "").split()
    assert found == ([] if is_allowed else [f"[[{section}]] {key}" if section in ENTRIES else f"[{section}] {key}"])
    field = ENTRIES.get(section, type(getattr(order, section))).model_fields[key]
    words = f"{field.annotation} {field.metadata}".lower()
    if is_allowed and (section, key) != ("job", "seed_files"):  # the console's own
        assert not any(word in words for word in UNSAFE_TYPES), words


def test_an_allowed_key_is_a_key():
    """No name is left over from a key that has gone."""
    assert {(section, key) for section, keys in ALLOWED.items() for key in keys.split()} <= {*KEYS}


def test_the_keys_that_are_refused():
    """By which whoever has a token would run code, read or write files, or read variables of the machine."""
    refused = {f"{section}.{key}" for section, key in KEYS if key not in ALLOWED.get(section, "").split()}
    assert refused >= {
        "job.processors", "job.sinks", "job.modules", "job.worker", "scope.rules", "frontier.store", "fetch.body_rules",
        "fetch.proxy_password_env", "dedup.leaves", "dedup.leaves_name", "write.upload", "logs.file", "report.metrics",
        "site.password_env", "site.proxy_password_env",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("order", "fault", "warning"),
    [
        ("[limits]\npages = 'x'", "[limits] pages", ""),
        (f"[limits]\npages = {10**20}", "[limits] pages must be at most 9007199254740992", ""),
        ("[logs]\nfile = 'x.log'", "[logs] file names code", ""),
        ("[frontier]\npolicy = 'nonsense'", "nonsense", ""),
        ("[limits]\npages = 1", "", "no contact is configured"),
        ("[agent]\ncontact = 'http://x.test/'", "", ""),
    ],
)
def test_an_order_is_checked_as_it_is_typed(tmp_path, order, fault, warning):
    """Keys that are refused are faults; warnings come when there are no faults."""
    found = ConsoleJobs(str(tmp_path)).check("a", order)
    for lines, words in ((found.faults, fault), (found.warnings, warning)):
        assert len(lines) == bool(words)
        assert all(words in line for line in lines)


FUNCTIONS = [
    "[frontier]\npolicy = 'os:getpid'",
    "[urls]\ncanonicalization = ['fragment', 'os.path:abspath']",
    "[[override]]\nsurt = ['http://(']\nqueue_precedence = 'os:getpid'",
    "[[override]]\nsurt = ['http://(']\nuri_precedence = 'os:getpid'",
    "[[override]]\nsurt = ['http://(']\nkey = 'os:getpid'",
]


@pytest.mark.parametrize("order", FUNCTIONS)
def test_a_user_function_is_refused_wherever_it_stands(tmp_path, order):
    """In allowed keys, too; nothing is made."""
    with pytest.raises((UsageError, OrderError)):
        ConsoleJobs(str(tmp_path)).create("a", "http://a.test/", order)
    assert not [*Path(tmp_path).iterdir()]


def test_a_folder_whose_name_no_url_can_hold_is_left_out(tmp_path) -> None:
    """The others are shown."""
    for name in (b"news", b"bad\xff"):
        JobFolder.open(tmp_path / os.fsdecode(name)).close()
    assert ConsoleJobs(str(tmp_path)).names == ["news"]


def test_seeds_that_are_left_out_of_a_new_job_are_named(tmp_path) -> None:
    """The first ten, and how many more."""
    seeds = "\n".join(["http://a.test/", *["ftp://x/"] * 12])
    warnings = ConsoleJobs(str(tmp_path)).create("a", seeds, '[agent]\ncontact = "http://x.test/"').warnings
    assert (len(warnings), warnings[-1]) == (11, "and 2 more lines that are no seeds")
    assert warnings[0].endswith("; the job starts without it")


def test_the_seeds_of_the_order_are_crawled_too(tmp_path) -> None:
    """With those that were given, and alone; one that names a file is a URL, and files of seeds are left out with a warning."""
    jobs, secret = ConsoleJobs(str(tmp_path)), tmp_path / "secret.txt"
    secret.write_text("http://secret.test/\n")
    order = f'[agent]\ncontact = "http://x.test/"\n[job]\nseeds = ["http://b.test/", "{secret}", "ftp://x/"]\n'
    left_out = [f"'{secret}", "'ftp://x/"]
    assert [line.partition("': ")[0] for line in jobs.check("both", order, "http://a.test/").warnings] == left_out
    for name, given, found in (
        ("both", "http://a.test/", ["http://a.test/", "http://b.test/"]),
        ("own", "", ["http://b.test/"]),
    ):
        assert [line.partition("': ")[0] for line in jobs.create(name, given, order).warnings] == left_out
        kept = jobs.job(name).order().job
        assert (kept.seeds, kept.seed_files) == ((), (tmp_path / name / "seeds.txt",))
        assert [seed.url for seed in read_seeds(kept.seed_file_names, io.BytesIO()).seeds] == found
    with_file = f'[job]\nname = "other"\nseed_files = ["{secret}"]\n'
    warnings = jobs.create("file", "http://a.test/", with_file).warnings
    assert [line.partition(":")[0] for line in warnings[1:]] == [
        f"[job] {key} is left out" for key in ("name", "seed_files")
    ]
    with pytest.raises(UsageError, match="the list is empty"):
        jobs.create("none", "", with_file)


def test_what_a_new_job_was_told_stays_with_it_until_it_is_dismissed(tmp_path) -> None:
    """As text files in its folder: the warnings, and the refused lines, which can be corrected and given again."""
    jobs = ConsoleJobs(str(tmp_path))
    made = jobs.create("a", "http://a.test/\nftp://x/\nhttp://b.test/\n", "")
    assert (made.seeds, len(made.refused)) == (2, 1)
    warnings, has_refused = jobs.notes("a")
    assert (warnings[0], has_refused) == ("2 seeds, 1 refused", True)
    assert any("no contact" in line for line in warnings)
    assert any(line.startswith("'ftp://x/': ") for line in warnings)
    (line,) = jobs.refused_seeds("a")
    assert line.startswith("ftp://x/ # line 2: ftp: is neither http: nor https:")
    again = read_seeds([str(tmp_path / "a" / "refused-seeds.txt")], io.BytesIO())
    assert [seed.text for seed in again.bad] == ["ftp://x/"]
    assert jobs.seeds("a").splitlines() == ["http://a.test/", "ftp://x/", "http://b.test/"]
    jobs.dismiss("a")
    assert jobs.notes("a") == ([], True)


def test_seeds_of_a_file_are_counted_as_typed_ones_are(tmp_path) -> None:
    """Both are checked by the same rules: how many there are, and which are refused."""
    seeds = "\n".join(["http://a.test/"] + [f"http://a.test/{number}" for number in range(3)] + ["no url here"] * 2)
    found = ConsoleJobs(str(tmp_path)).check("a", '[agent]\ncontact = "http://x.test/"', seeds)
    assert (found.seeds, len(found.refused), seeds_line(found.seeds, len(found.refused))) == (
        4,
        2,
        "4 seeds, 2 refused",
    )
    assert seeds_line(1, 0) == "1 seed"


def test_the_keys_of_a_template_count_where_the_order_has_none(tmp_path) -> None:
    """A fault in it says so."""
    jobs, template = ConsoleJobs(str(tmp_path)), {"limits": {"pages": 7}, "crawl": {"workers": 3}}
    jobs.create("a", "http://a.test/", "[limits]\npages = 9", template=template)
    order = jobs.job("a").order()
    assert (order.limits.pages, order.crawl.workers) == (9, 3)
    (fault,) = jobs.check("b", "", template={"limits": {"pages": "x"}}).faults
    assert fault.startswith("the template, [limits] pages")


def test_tags_are_lines_of_a_file_of_the_job(tmp_path) -> None:
    """The list has them, also if somebody else wrote the file; wrong ones are refused, and nothing is made."""
    jobs = ConsoleJobs(str(tmp_path))
    jobs.create("a", "http://a.test/", "", tags=["portals", " weekly ", "portals"])
    assert jobs.row("a")["tags"] == ["portals", "weekly"]
    (tmp_path / "a" / "tags.txt").write_bytes(b"one\n\n  two\n\x1b[31m\n\xff\n")
    assert jobs.row("a")["tags"] == ["one", "two", "\ufffd"]
    jobs.set_tags("a", [])
    assert jobs.row("a")["tags"] == []
    for wrong in (["x" * 41], [""], ["a\nb"], [str(number) for number in range(21)]):
        with pytest.raises(UsageError, match="tags: "):
            jobs.create("b", "http://a.test/", "", tags=wrong)
        with pytest.raises(UsageError, match="tags: "):
            jobs.set_tags("a", wrong)
    assert not (tmp_path / "b").exists()


def test_a_job_that_is_started_is_starting_until_its_crawl_answers(tmp_path, monkeypatch) -> None:
    """For everybody who looks, and never unknown; another start meanwhile waits for its turn."""
    jobs = ConsoleJobs(str(tmp_path))
    jobs.create("a", "http://a.test/", "")
    seen = []

    def look(process, *arguments, **options):
        seen.append(jobs.row("a"))
        with JobFolder.open(tmp_path / "a"):  # as the process does that opens it
            seen.append(jobs.row("a"))
        return Popen([sys.executable, "-c", ""], stdin=DEVNULL)

    monkeypatch.setattr(launching.subprocess, "Popen", look)
    jobs.start("a")
    assert [(row["state"], row["phase"], row["pid"]) for row in seen] == [("starting", "starting", None)] * 2
    assert jobs.row("a")["state"] == "stopped"


def test_two_rounds_of_a_job_are_compared_by_its_logs(tmp_path) -> None:
    """A job of one round says how to get another."""
    jobs = ConsoleJobs(str(tmp_path))
    jobs.create("a", "http://a.test/", "")
    with pytest.raises(UsageError, match="anabranch crawl --again"):
        jobs.compare_rounds("a")
