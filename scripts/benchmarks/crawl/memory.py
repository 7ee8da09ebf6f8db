"""RssAnon of a crawl: of a small site, and of one ten times as large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scripts.benchmarks.crawl.contestants import DURABLE
from scripts.benchmarks.crawl.observing import CrawlFailed
from scripts.benchmarks.crawl.race import Result, raced
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site import process
from scripts.benchmarks.site.pages import Site

_PAGES = (20_000, 200_000)
_ADDED_BYTES = 50_000_000


def grown(setting: Setting) -> Iterable[Row]:
    """One crawl of each, both by the small server: what one takes more than the other is the crawl's then.

    Pages of the large one are made when they are asked for.
    """
    yield from rows({pages: _crawled(pages, setting) for pages in map(setting.count, _PAGES)})


def rows(results: Mapping[int, Result]) -> Iterator[Row]:
    """RssAnon of the two sizes, the small one first, and their difference."""
    for pages, result in results.items():
        yield Row(
            name=f"memory/{pages}",
            what=f"RssAnon of a crawl of {pages:,} pages, at its most",
            measured=result.own_bytes,
            unit="bytes",
            note=f"{result.own_last_bytes / 2**20:.1f} MiB at the last page; {result.cpu_us:,.0f} µs of CPU a page, "
            f"{result.pages_per_s:,.0f} pages/s",
        )
    (few, small), (many, large) = results.items()
    yield Row(
        name="memory/added",
        what=f"what {many:,} pages take beyond {few:,}",
        measured=large.own_bytes - small.own_bytes,
        unit="bytes",
        target=float(_ADDED_BYTES),
        is_bound=True,
        note=f"{(large.own_last_bytes - small.own_last_bytes) / 2**20:.1f} MiB at the last page",
    )


def _crawled(pages: int, setting: Setting) -> Result:
    setting.say(f"a crawl of {pages:,} pages")
    outcome = raced(Site(pages=pages), (DURABLE,), setting, rounds=1, serve=process.serving)
    if outcome.faults:
        raise CrawlFailed(outcome.faults[DURABLE.name])
    return outcome.results[DURABLE.name][0]
