"""Whether a command goes on with the job that is there, with the real command on a real site."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import forkserver
from tests.acceptance.command import Ended, environment
from tests.formats.site import HOSTS, PAGES, SEEDS, served

SEED, OTHER = SEEDS[0], SEEDS[2]
JOB = Path("jobs/c.test")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with an order whose names are the site's."""
    with served() as port:
        hosts = "\n".join(f'"{host}" = "127.0.0.1:{port}"' for host in HOSTS)
        (tmp_path / "site.toml").write_text(
            "[crawl]\nworkers = 2\n[politeness]\nmin_delay = 0\nmax_delay = 0\n[fetch]\nallow_private = true\n"
            f'[agent]\ncontact = "https://example.org/bot"\n[dedup]\nexact = true\n[dns.hosts]\n{hosts}\n'
        )
        yield tmp_path


def crawl(place: Path, *arguments: str) -> Ended:
    ended = forkserver.run(["-m", "anabranch", "crawl", *arguments], cwd=place, env=environment())
    return Ended(code=ended.returncode, out=ended.stdout, err=ended.stderr)


def begun(place: Path, *more: str) -> None:
    """A job that is stopped after five pages, with the rest of the site queued."""
    first = crawl(place, SEED, "-c", "site.toml", "--limit", "5", *more)
    assert first.code == 0, first.err


def pages(job: Path) -> list[str]:
    return [json.loads(line)["url"] for line in (job / "pages.jsonl").read_text().splitlines()]


def test_the_same_command_goes_on(place: Path) -> None:
    """With the same seeds and scope a name of a host is enough."""
    begun(place)
    again = crawl(place, SEED, "--limit", "0")
    assert again.code == 0, again.err
    assert len(pages(place / JOB)) == PAGES + 1


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        ((f"{SEED}7",), "'http://c.test/7' is not among its seeds; add seeds with `anabranch add c.test SEED`, begin"),
        pytest.param(
            *((SEED, "--scope", "page"), "[scope] scope is 'host' there and 'page' here; begin another job"),
            marks=pytest.mark.slow,
        ),
        ((f"{SEED}7", "--scope", "page", "--yes"), "'http://c.test/7' is not among its seeds; [scope] scope is 'host'"),
        ((SEED, "--exclude", "7$", "--again"), "[scope] exclude is () there and ('7$',) here"),
    ],
)
def test_another_crawl_does_not_join_a_job_by_its_host_alone(
    place: Path, arguments: tuple[str, ...], difference: str
) -> None:
    """It is refused in one line that names the difference and the ways on; nothing is changed."""
    begun(place)
    before = (place / JOB / "state" / "job.db").read_bytes(), (place / JOB / "order.toml").read_bytes()
    refused = crawl(place, *arguments)
    assert refused.code == 2
    assert difference in refused.err
    assert refused.err.count("\n") == 1
    assert "--name OTHER" in refused.err
    assert before == ((place / JOB / "state" / "job.db").read_bytes(), (place / JOB / "order.toml").read_bytes())
    assert crawl(place, SEED, "--limit", "0").code == 0
    assert len(pages(place / JOB)) == PAGES + 1


def test_a_job_that_is_named_takes_more_seeds_and_says_so_first(place: Path) -> None:
    """`--name` with a further URL adds it as a seed, and the first line of the output says so."""
    begun(place)
    added = crawl(place, OTHER, "--name", "c.test", "--limit", "0")
    assert added.code == 0, added.err
    assert added.out.startswith("job jobs/c.test: 1 seed added\n")
    assert len(pages(place / JOB)) == 2 * (PAGES + 1)


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_scope_that_ends_queued_urls_needs_consent(place: Path, processes: str) -> None:
    """The number is told, and nothing is changed."""
    begun(place, "--processes", processes)
    queued = PAGES + 1 - len(pages(place / JOB))
    narrow = ("--job", str(JOB), "--exclude", "/[0-9]$", "--limit", "0")
    refused = crawl(place, *narrow)
    assert refused.code == 2
    ended = [n for n in range(PAGES) if n < 10 and f"{SEED}{n}" not in pages(place / JOB)]
    assert (
        f"the scope would end {len(ended)} of {queued} queued URLs (-5000, -5001); nothing was changed" in refused.err
    )
    wide = crawl(place, "--job", str(JOB), "--limit", str(len(pages(place / JOB)) + 1))
    assert wide.code == 0, wide.err
    yes = crawl(place, *narrow, "--yes")
    assert yes.code == 0, yes.err
    left = set(map(str, (place / JOB / "logs" / "crawl.log").read_text().splitlines()))
    assert sum(" -5000 " in line for line in left) >= len(ended) - 1


def test_an_edited_scope_needs_consent_like_a_flag(place: Path) -> None:
    """The job was crawled by another one."""
    begun(place)
    order = place / JOB / "order.toml"
    order.write_text(order.read_text().replace("block = []", 'block = ["/1[0-9]$"]'))
    refused = crawl(place, "--job", str(JOB), "--limit", "0")
    assert refused.code == 2
    assert "edited: [scope] block: [] is now ['/1[0-9]$']" in refused.err
    assert "the scope would end 5 of" in refused.err


def test_a_scope_that_ends_nothing_needs_none(place: Path) -> None:
    """A wider one, or one that closes what is not queued."""
    begun(place)
    wider = crawl(place, "--job", str(JOB), "--scope", "domain", "--exclude", "\\.jpg$", "--limit", "0")
    assert wider.code == 0, wider.err
    assert len(pages(place / JOB)) == PAGES + 1
