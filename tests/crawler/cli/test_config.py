"""`anabranch config` in this process: files are written once, shown, checked, and no job is touched."""

import json
import os
import tomllib
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from anabranch.crawler.cli.app import app
from anabranch.crawler.job.folder import JobFolder
from anabranch.crawler.order.loading import load_order
from anabranch.crawler.order.order import CrawlOrder, dump_order, with_modules


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("ANABRANCH_"):
            monkeypatch.delenv(name)
    yield
    structlog.reset_defaults()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "x.toml"


def config(*arguments):
    return CliRunner().invoke(app, ["config", *map(str, arguments)])


def test_init_writes_an_order_that_says_nothing_but_the_defaults(file) -> None:
    """To a new file, or to standard output."""
    assert config("init", file).exit_code == 0
    assert load_order(file, {}) == with_modules(CrawlOrder(), file.parent)
    assert config("init").output == config("init", "-").output == file.read_text()


def test_init_overwrites_nothing(file) -> None:
    """Somebody's order is somebody's work."""
    file.write_text("mine")
    result = config("init", file)
    assert (result.exit_code, file.read_text()) == (2, "mine")
    assert "exists; nothing was written" in result.stderr
    assert config("init", file / "below").exit_code == 1


def test_show_takes_what_crawl_takes(file, monkeypatch) -> None:
    """The seeds, the file, -s, flags and variables: what is given, and nothing else."""
    monkeypatch.setenv("ANABRANCH_CRAWL__WORKERS", "3")
    file.write_text('[job]\nseeds = ["http://old.test/"]\n[fetch]\ntimeout = 5\n')
    result = config(
        "show", "-c", file, "http://a.test/", "--min-delay", "1s", "-s", "limits.pages=7", "--allow-private"
    )
    assert result.exit_code == 0, result.output
    assert tomllib.loads(result.stdout) == {
        "job": {"seeds": ["http://a.test/"], "seed_files": []},
        "politeness": {"min_delay": "1s"},
        "crawl": {"workers": 3},
        "limits": {"pages": 7},
        "fetch": {"timeout": "5s", "allow_private": True},
    }
    assert not Path("jobs").exists()


def test_show_effective_has_every_key_and_origin_says_where_each_comes_from(file) -> None:
    """In any order of its own options and those of crawl."""
    file.write_text("[fetch]\ntimeout = 5\n")
    result = config("show", "--origin", "-c", file, "--workers", "7", "--effective")
    assert result.exit_code == 0, result.output
    assert (
        load_order(None, {}).model_dump().keys() - {"override", "site", "body"} == tomllib.loads(result.stdout).keys()
    )
    lines = {line.split(" = ")[0]: line.partition("  # ")[2] for line in result.stdout.splitlines()}
    assert (lines["timeout"], lines["workers"], lines["min_delay"]) == ("default", "--workers", "default")  # of [dns]
    assert f"# {file}:2" in result.stdout


def test_show_of_a_job_that_exists_begins_with_its_own_order(file) -> None:
    """It shows the order by which `crawl` with these arguments would run."""
    with JobFolder.open(Path("job")) as job:
        job.write_order(dump_order(load_order(None, {"workers": 7, "limit": 9})))
    lines = config("show", "--origin", "--job", "job", "--limit", "20").stdout.splitlines()
    origins = {line.partition("#")[0].strip(): line.partition("  # ")[2] for line in lines}
    assert (origins["pages = 20"], origins["workers = 7"].partition(":")[0]) == ("--limit", "job/order.toml")
    assert config("show", "--job", "job", "--fresh").stdout.startswith("# nothing is given")


def test_show_without_anything_says_so() -> None:
    """It says so in a comment, so that the output is still an order."""
    assert config("show").output.startswith("# nothing is given")


@pytest.mark.parametrize("wrong", [("--nonsense",), ("--workers", "many")])
def test_show_refuses_what_crawl_refuses(wrong) -> None:
    """With the words of crawl."""
    result = config("show", *wrong)
    assert result.exit_code == 2
    assert " crawl [OPTIONS]" in result.output + result.stderr


def test_a_wrong_order_is_not_shown(file) -> None:
    """One line, exit code 4."""
    file.write_text("[crawl]\nworkers = 0")
    result = config("show", "-c", file)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr == f"anabranch: {file}: [crawl] workers must be at least 1; not 0\n"


def test_validate_tells_all_that_is_wrong(file, monkeypatch) -> None:
    """In the file, in the environment, in settings; a line for each."""
    monkeypatch.setenv("ANABRANCH_FETCH__TIMEOUT", "x")
    file.write_text("[crawl]\nworkers = 0\n[fetch]\nmax_body = 'y'")
    result = config("validate", file, "-s", "limits.pages=z")
    assert (result.exit_code, result.stdout) == (4, "")
    assert len(result.stderr.splitlines()) == 4
    assert all(line.startswith("anabranch: ") for line in result.stderr.splitlines())


def test_validate_tries_what_the_order_names(file) -> None:
    """Policies, own functions, seeds."""
    file.write_text('[frontier]\npolicy = "nope"\ncost = "no.such:thing"\n[job]\nseeds = ["::"]')
    result = config("validate", file)
    assert result.exit_code == 4
    said = result.stderr.splitlines()
    words = ("[frontier] policy", "[frontier] cost", "[job] seeds: '::'", "no seed is left")
    assert [line.startswith(f"anabranch: {file}: {word}") for word, line in zip(words, said, strict=True)] == [True] * 4


def test_validate_names_each_proxy_that_could_reach_private_addresses(file) -> None:
    """It names those of the section and of the entries; `fetch.proxy_resolves` settles all of them."""
    file.write_text(
        '[job]\nseeds = ["http://a.test/"]\n[fetch]\nproxy = "http://p"\n[[site]]\nsurt = "b.test"\nproxy = "http://q"\n'
    )
    lines = config("validate", file).stderr.splitlines()
    assert [line.partition(" proxy: ")[0] for line in lines] == [
        f"anabranch: {file}: [fetch]",
        f"anabranch: {file}: [[site]] 1",
    ]
    assert config("validate", file, "-s", "fetch.proxy_resolves=true").exit_code == 0


def test_validate_says_that_a_seed_would_be_skipped_only_if_a_run_would_begin(file) -> None:
    """With the exit code of a run that begins; else it is one of the things that are wrong."""
    file.write_text('[job]\nseeds = ["::", "a.test"]')
    result = config("validate", file)
    reason = "it is not an http or https URL; write it like http://example.org/"
    assert (result.exit_code, result.stdout) == (0, f"{file}: nothing is wrong with it\n")
    assert result.stderr == f"anabranch: {file}: [job] seeds: '::': {reason}; it would be skipped\n"
    result = config("validate", file, "-s", "frontier.policy=nope")
    assert result.exit_code == 4
    policy, seed = result.stderr.splitlines()
    assert policy.startswith("anabranch: -s frontier.policy: policy nope is unknown")
    assert seed == f"anabranch: {file}: [job] seeds: '::': {reason}"


def test_validate_says_that_nothing_is_wrong(file) -> None:
    """Exit code 0; nothing is left behind."""
    file.write_text("[crawl]\nworkers = 3")
    result = config("validate", file)
    said = f"{file}: nothing is wrong with it; it has no seeds, so name some on the command line\n"
    assert (result.exit_code, result.output) == (0, said)
    file.write_text('[job]\nseeds = ["a.test"]')
    assert config("validate", file).output == f"{file}: nothing is wrong with it\n"
    assert [entry.name for entry in file.parent.iterdir()] == ["x.toml"]


def test_validate_needs_a_file_that_can_be_read(tmp_path) -> None:
    """One line."""
    result = config("validate", tmp_path / "none.toml")
    assert (result.exit_code, "cannot be read" in result.stderr) == (4, True)


def test_schema_is_json() -> None:
    """Which says what it is."""
    schema = json.loads(config("schema").stdout)
    assert schema["$schema"].endswith("2020-12/schema")
    assert "limits" in schema["properties"]
