"""`anabranch frontier rebuild-filter`: the job's filter anew, by its order or by -s, which the order then keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.crawler.cli.app import app
from anabranch.crawler.cli.operate import run_report
from anabranch.crawler.cli.rebuild_filter import run_rebuild_filter
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.job.inspection import opened
from anabranch.crawler.job.state import is_finished
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.outcomes.errors import ExitCode, UsageError
from anabranch.dedup.uniq import recorded
from anabranch.frontier.errors import FormatMismatch, StoreFull
from anabranch.frontier.hosts.embedding.job import EmbeddedJob
from anabranch.frontier.records import SEEN, Candidate
from tests.crawler.cli.test_frontier import URLS, make_job


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path / "jobs" / "news", URLS, fetched=1)


def mode(job: Path) -> str:
    parameters = recorded(job / "state" / "seen")
    assert parameters is not None
    return parameters.mode


def test_the_new_filter_knows_all_urls_and_the_order_keeps_it(job: Path, capsys) -> None:
    """The next crawl goes on with it, and fetches nothing again."""
    assert run_rebuild_filter("news", ["dedup.filter=exact"]) == 0
    assert capsys.readouterr().out.startswith("filter exact: 3 URLs known, ")
    assert mode(job) == "exact"
    assert load_order(job / "order.toml", {}).dedup.filter == "exact"
    with opened(job) as (frontier, _):
        assert set(frontier.schedule([Candidate(url) for url in URLS])) == {SEEN}
    assert run_report("news", "filter", limit=100, as_json=False) == 0
    assert "filter                                  exact" in capsys.readouterr().out


def test_without_a_setting_the_order_of_the_job_counts(job: Path, capsys) -> None:
    """After an edit of the order was refused, the filter is rebuilt by the edited order."""
    text = (job / "order.toml").read_text()
    (job / "order.toml").write_text(text.replace('filter = "both"', 'filter = "smm"'))
    assert run_report("news", "filter", limit=100, as_json=False) == ExitCode.BAD_ORDER
    assert "rebuild-filter" in capsys.readouterr().err
    assert run_rebuild_filter("news", []) == 0
    assert mode(job) == "smm"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["politeness.min_delay=1s"], "only the filter's own keys can be changed here"),
        (["dedup.filter=bloom"], "filter 'bloom' is unknown"),
        (["dedup.filter=similar"], "is a stage in front of a filter"),
        (["dedup.filter"], "only the filter's own keys"),
    ],
)
def test_what_cannot_be_is_refused_and_the_filter_stays(job: Path, capsys, settings: list[str], words: str) -> None:
    """One line."""
    if settings == ["dedup.filter"]:
        words = "write it as section.key=value"
    assert run_rebuild_filter("news", settings) in {ExitCode.USAGE, ExitCode.BAD_ORDER}
    assert words in capsys.readouterr().err
    assert mode(job) == "both"
    with opened(job) as (frontier, _):
        assert set(frontier.schedule([Candidate(url) for url in URLS])) == {SEEN}


def test_a_rebuilding_that_fails_leaves_a_job_that_opens(job: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or an interrupt after the new filter was made: either order goes on, with all URLs known."""

    def full(*_: object) -> None:
        raise StoreFull("no room")

    for broken in ("anabranch.frontier.filters.DedupFilter.mark", "anabranch.frontier.filters.DedupFilter.facts"):
        with monkeypatch.context() as patch:
            patch.setattr(broken, full)
            assert run_rebuild_filter("news", ["dedup.filter=exact"]) != 0
        assert load_order(job / "order.toml", {}).dedup.filter == "both"
        with opened(job) as (frontier, _):
            assert set(frontier.schedule([Candidate(url) for url in URLS])) == {SEEN}
        assert mode(job) == "both"
    assert run_rebuild_filter("news", ["dedup.filter=exact"]) == 0
    assert mode(job) == "exact"


def test_a_job_that_runs_is_not_touched(job: Path, capsys) -> None:
    """Its lock says so."""
    with opened(job):
        assert run_rebuild_filter("news", []) == ExitCode.STORE_OR_JOB_IN_USE
    assert "news" in capsys.readouterr().err


def test_a_job_that_an_earlier_version_divided_is_brought_to_this_one_first(tmp_path: Path, capsys) -> None:
    """The line names the command."""
    job = make_job(tmp_path / "jobs" / "divided", [])
    (job / "state" / "processes").write_text("2\n")
    assert run_rebuild_filter("divided", []) == ExitCode.USAGE
    assert "`anabranch divide jobs/divided` completes it" in capsys.readouterr().err


def test_the_job_of_a_host_program_is_rebuilt_too(tmp_path: Path, capsys) -> None:
    """Its program then opens it with the same settings."""
    first = EmbeddedJob(tmp_path / "mine", {})
    first.frontier.schedule([Candidate(url) for url in URLS])
    first.close()
    with pytest.raises(FormatMismatch, match=rf"rebuild-filter {tmp_path / 'mine'} -s dedup.filter=exact"):
        EmbeddedJob(tmp_path / "mine", {"filter": "exact"})
    assert run_rebuild_filter(str(tmp_path / "mine"), ["dedup.filter=exact"]) == 0
    second = EmbeddedJob(tmp_path / "mine", {"filter": "exact"})
    assert set(second.frontier.schedule([Candidate(url) for url in URLS])) == {SEEN}
    second.close()


def test_the_command_line_has_it(job: Path) -> None:
    """The command works as the refusal of an edited order writes it."""
    done = CliRunner().invoke(app, ["frontier", "rebuild-filter", str(job), "-s", "dedup.filter=dsbf"])
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("filter dsbf: 3 URLs known")


@pytest.mark.parametrize("settings", [["dedup.filter=exact"], ["dedup.filter=none"]])
def test_a_job_that_was_finished_still_is(tmp_path: Path, settings: list[str]) -> None:
    """Also if the settings are refused: it queues nothing, and `--again` needs no consent then."""
    job = make_job(tmp_path / "jobs" / "done", URLS[:1], fetched=1)
    with JobFolder.open(job) as folder:
        folder.mark_finished()
    run_rebuild_filter("done", settings)
    assert is_finished(job / "state")


def test_a_job_that_was_finished_is_left_so_by_what_a_command_refuses(tmp_path: Path) -> None:
    job = make_job(tmp_path / "jobs" / "done", URLS[:1], fetched=1)
    with JobFolder.open(job) as folder:
        folder.mark_finished()
    with pytest.raises(UsageError), opened(job):
        raise UsageError("there is no such queue")
    assert is_finished(job / "state")
    with opened(job) as (frontier, _):
        frontier.schedule([Candidate("http://new.test/")])
    assert not is_finished(job / "state")
