"""Which order a crawl runs by: its own one for a job that exists, under what is said now."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from anabranch.crawler.job.choosing import ChosenJob, CrawlRequest, choose
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.orderfile import change_order
from anabranch.crawler.job.seeds import COMMAND_LINE, ORDER, Seed
from anabranch.crawler.job.seedtable import opened_seeds
from anabranch.crawler.order.order import dump_order
from anabranch.crawler.outcomes.errors import BadArgument, ForeignJobFormat, OrderError

JOB = Path("job")
SEED = "http://a.test/"


def all_sources(named):
    return tuple(source for one in named for source in one.sources)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


def chosen(
    *sources: str, order_file: Path | None = None, fresh: bool = False, settings: tuple[str, ...] = (), **flags: object
) -> ChosenJob:
    return choose(
        CrawlRequest(sources=sources, order_file=order_file, job=JOB, fresh=fresh, flags=flags, settings=settings)
    )


def crawled(*sources: str, is_begun: bool = True, **flags: object) -> None:
    """A job as a run with these arguments leaves it; one that was killed early has recorded no seed yet."""
    run = chosen(*sources, **flags)
    with JobFolder.open(run.directory) as job:
        job.write_order(dump_order(run.order))
        if is_begun:
            with opened_seeds(job.state) as recorded:
                recorded.add_all([Seed(url=SEED, source=COMMAND_LINE)])


def test_what_an_operator_changed_holds_until_a_command_names_something_new() -> None:
    """The command that began the job is said again: the change holds, and is told. Another limit is newer."""
    crawled(SEED, limit=100)
    change_order(JOB, ["limits.pages=500"])
    run = chosen(limit=100)
    assert (run.order.limits.pages, run.edits) == (500, ("limits.pages: 100 -> 500 (`anabranch set`)",))
    assert chosen().order.limits.pages == 500
    assert chosen(limit=200).order.limits.pages == 200
    assert chosen(fresh=True, limit=100).order.limits.pages == 100


@pytest.mark.parametrize(
    ("key", "change", "flags", "default"),
    [("pages", "5", {"limit": 0}, 0), ("time", "1h", {"time_limit": "0s"}, "0s"), ("bytes", "1MB", {}, "0B")],
)
def test_a_command_line_that_names_the_default_ends_a_change_of_it(
    key: str, change: str, flags: dict[str, object], default: object
) -> None:
    """By a flag or by `-s`. The command that began the job did not name it."""
    crawled(SEED)
    change_order(JOB, [f"limits.{key}={change}"])
    assert limit_of(chosen(), key) != default
    assert limit_of(chosen(settings=(f"limits.{key}=0",)), key) == default
    if flags:
        assert limit_of(chosen(**flags), key) == default


def limit_of(run: ChosenJob, key: str) -> object:
    return run.order.model_dump(by_alias=True)["limits"][key]


def test_a_job_goes_on_by_its_own_order() -> None:
    """Options of the first command are remembered, limits included; the seeds come from the job's book, and none is read."""
    crawled(SEED, warc=True, limit=3, exclude=["/x"], min_delay="1s")
    run = chosen()
    order = run.order
    assert (order.write.warc, order.limits.pages, order.scope.exclude, order.politeness.min_delay_s) == (
        True,
        3,
        ("/x",),
        1.0,
    )
    assert (run.named, run.has_seeds, order.job.seeds) == ([], True, (SEED,))


def test_what_is_said_now_wins_and_is_kept() -> None:
    """Flags and settings, over the job's order; the next run goes on by both."""
    crawled(SEED, limit=3, workers=5)
    crawled(limit=7, settings=("fetch.timeout=9s",))
    order = chosen().order
    assert (order.limits.pages, order.crawl.workers, order.fetch.timeout_s) == (7, 5, 9.0)


def test_a_variable_wins_over_the_jobs_order_and_a_flag_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's order stands where a file would."""
    crawled(SEED, workers=5, limit=3)
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "6")
    monkeypatch.setenv("ANABRANCH_LIMITS__PAGES", "4")
    order = chosen(limit=9).order
    assert (order.crawl.workers, order.limits.pages) == (6, 9)


def test_another_order_file_stands_in_for_it_wholly() -> None:
    """Nothing of the first run is left but what the file says, too."""
    crawled(SEED, workers=5, limit=3)
    Path("x.toml").write_text('[crawl]\nworkers = 6\n[job]\nseeds = ["b.test"]\n')
    run = chosen(order_file=Path("x.toml"))
    assert (run.order.crawl.workers, run.order.limits.pages, run.order.job.seeds) == (6, 0, ("b.test",))
    assert run.named == [(("b.test",), ORDER, "x.toml: [job] seeds")]
    Path("x.toml").write_text("[crawl]\nworkers = 6\n")
    assert chosen(order_file=Path("x.toml")).has_seeds, "the job has its own"


def test_starting_afresh_begins_with_the_defaults_and_needs_seeds() -> None:
    """The seeds that the job has are removed with it."""
    crawled(SEED, workers=5)
    run = chosen(fresh=True)
    assert (run.order.crawl.workers, run.named, run.has_seeds) == (100, [], False)


def test_seeds_that_are_named_again_stand_in_the_order_once() -> None:
    """New ones are added to those that are there, files by their full name; all that is named now is read."""
    Path("list.txt").write_text("b.test\n")
    crawled(SEED, "list.txt")
    run = chosen(SEED, "list.txt", "http://new.test/")
    assert run.order.job.seeds == (SEED, "http://new.test/")
    assert run.order.job.seed_files == (Path("list.txt").absolute(),)
    assert run.named == [((SEED, "list.txt", "http://new.test/"), COMMAND_LINE, COMMAND_LINE)]


def test_seeds_of_settings_and_variables_are_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of now, like those of the command line."""
    crawled(SEED)
    assert chosen(settings=("job.seeds=b.test",)).named == [(("b.test",), ORDER, "-s job.seeds")]
    monkeypatch.setenv("ANABRANCH_JOB__SEEDS", "c.test")
    run = chosen()
    assert (all_sources(run.named), run.order.job.seeds) == (("c.test",), (SEED, "c.test"))


def test_a_job_that_was_killed_before_it_had_its_seeds_takes_those_of_its_order() -> None:
    """Its order is written before its seeds. What is typed now is the command line's, if it is typed again, too."""
    Path("list.txt").write_text("b.test\n")
    crawled(SEED, "http://old.test/", "list.txt", is_begun=False)
    run = chosen("http://new.test/", SEED, "list.txt")
    assert run.named == [
        (("http://old.test/",), ORDER, "job/order.toml: [job] seeds"),
        (("http://new.test/", SEED, "list.txt"), COMMAND_LINE, COMMAND_LINE),
    ]
    assert not run.has_seeds


def test_files_of_an_order_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are relative to the file that named them, and stay where they are."""
    Path("conf").mkdir()
    Path("conf/list.txt").write_text("b.test\n")
    Path("conf/x.toml").write_text('[job]\nseed_files = ["list.txt"]\n[logs]\nfile = "events.log"\n')
    crawled(order_file=Path("conf/x.toml"), is_begun=False)
    monkeypatch.chdir("/")
    run = choose(CrawlRequest(sources=(), order_file=None, job=tmp_path / JOB, fresh=False, flags={}))
    assert all_sources(run.named) == (str(tmp_path / "conf" / "list.txt"),)
    assert run.order.logs.file == str(tmp_path / "events.log")


def test_a_seed_file_that_is_missing_is_never_taken_for_a_host() -> None:
    """Its name is told in full."""
    Path("x.toml").write_text('[job]\nseed_files = ["portals"]\n')
    assert all_sources(chosen(order_file=Path("x.toml")).named) == (str(Path("portals").absolute()),)


def test_a_flag_that_makes_sense_beside_the_jobs_order_only_is_taken() -> None:
    """Not measured by the defaults; and one that does not is refused as the command line's."""
    crawled(SEED, min_delay="0s")
    assert chosen(max_delay="1s").order.politeness.max_delay_s == 1.0
    with pytest.raises(BadArgument, match=r"^--min-delay: max_delay \(30s\) is less than min_delay"):
        chosen(min_delay="60s")


def test_a_job_that_is_being_removed_has_no_order_any_more() -> None:
    """--fresh was killed in the middle of it; whoever comes next ends the removal."""
    crawled(SEED, workers=5)
    (JOB / "state" / "fresh").touch()
    assert chosen("b.test").order.crawl.workers == 100


def test_a_job_of_another_format_is_refused_before_its_order_is_read() -> None:
    """That one may have keys which nobody knows here."""
    crawled(SEED)
    (JOB / "order.toml").write_text("new = 1")
    (JOB / "state" / "format.json").write_text(json.dumps({"format": "anabranch job", "version": 99}))
    with pytest.raises(ForeignJobFormat):
        chosen()


@pytest.mark.parametrize("text", ["[crawl]\nworkers = 0", "[nosuch]\nx = 1", "[job]\nseeds = 3"])
def test_a_damaged_order_of_the_job_is_told_with_the_ways_out(text: str) -> None:
    """Another order is one of them."""
    crawled(SEED)
    (JOB / "order.toml").write_text(text)
    with pytest.raises(
        OrderError, match=r"^job/order\.toml: .* \(it is the order that the job goes on by: mend it"
    ) as raised:
        chosen()
    assert not isinstance(raised.value, BadArgument)
    Path("x.toml").write_text("")
    assert chosen(order_file=Path("x.toml")).has_seeds


def test_an_edited_order_of_the_job_is_gone_on_by_and_told() -> None:
    """An edit takes effect and is reported, except if the command names the edited file as its order."""
    crawled(SEED)
    file = JOB / "order.toml"
    before = chosen().order.crawl.workers
    file.write_text(file.read_text().replace(f"workers = {before}", "workers = 7"))
    found = chosen()
    assert found.order.crawl.workers == 7
    assert list(found.edits) == [f"job/order.toml: edited: [crawl] workers: {before} is now 7"]
    assert chosen(order_file=file).edits == ()
