"""The product beside the bare loop as the site grows: 30,000 pages, 300,000, and 30,000 hosts of a page each.

The steady state, from a fifth of the pages to four fifths, is apart from the whole run, with its start and its end.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence

from scripts.benchmarks.crawl.contestants import BARE, DURABLE, MEMORY, WARC, Contestant
from scripts.benchmarks.crawl.race import Compared, Outcome, Result, raced, ratio
from scripts.benchmarks.rows import Row, Setting
from scripts.benchmarks.site.pages import Site

_PAGES = (30_000, 300_000)
_LARGE_ROUNDS = 2
_SMALL = (
    Compared(name="durable", over="bare", target=0.55, by_cpu=True),
    Compared(name="memory", over="bare", target=0.65, by_cpu=True),
    Compared(name="warc", over="bare", target=0.38, by_cpu=True),
)
_LARGE = (Compared(name="durable", over="bare", target=0.53, by_cpu=True),)
_HOSTS = (Compared(name="durable", over="bare", target=0.5, by_cpu=True),)
#: By how much more than the bare loop's the product's cost may grow from the small site to the large one.
_GROWTH = 0.05


def size(setting: Setting) -> Iterable[Row]:
    """Both sites, the large one in two rounds, and the growth between them."""
    small, large = map(setting.count, _PAGES)
    contestants = (BARE, MEMORY, DURABLE, WARC)
    of_small = raced(Site(pages=small), contestants, setting)
    yield from rows(f"size-{small}", contestants, _SMALL, of_small)
    of_large = raced(Site(pages=large), (BARE, DURABLE), setting, rounds=min(_LARGE_ROUNDS, setting.rounds))
    yield from rows(f"size-{large}", (BARE, DURABLE), _LARGE, of_large)
    yield growth(of_small, of_large)


def hosts(setting: Setting) -> Iterable[Row]:
    """As many hosts as pages, each with one."""
    pages = setting.count(_PAGES[0])
    site = Site(pages=pages, hosts=pages, is_named=True)
    yield from rows("hosts", (BARE, DURABLE), _HOSTS, raced(site, (BARE, DURABLE), setting))


def growth(small: Outcome, large: Outcome) -> Row:
    """The factor by which a durable page costs more on the large site, over that of the bare loop."""
    names = ("bare", "durable")
    if any(name in one.faults for one in (small, large) for name in names):
        return Row(name="size/growth", what="cost on the large site over the small one", measured=None, unit="x")
    factors = [
        statistics.median(result.steady_us for result in large.results[name])
        / max(statistics.median(result.steady_us for result in small.results[name]), 0.01)
        for name in names
    ]
    return Row(
        name="size/growth",
        what="CPU of a durable page on the large site over the small one",
        measured=factors[1],
        unit="x",
        target=factors[0] + _GROWTH,
        is_bound=True,
        note=f"the bare loop's factor is {factors[0]:.3g}",
    )


def rows(group: str, contestants: Sequence[Contestant], ratios: Sequence[Compared], outcome: Outcome) -> Iterator[Row]:
    """Medians of each contestant, steady and whole, then the ratios. A failed contestant has a row with the reason."""
    for one in contestants:
        if one.name in outcome.faults:
            yield Row(name=f"{group}/{one.name}", what=one.what, measured=None, unit="", note=outcome.faults[one.name])
        else:
            yield from _figures(f"{group}/{one.name}", one.what, outcome.results[one.name])
    for asked in ratios:
        yield ratio(group, asked, outcome)


def _figures(name: str, what: str, results: Sequence[Result]) -> Iterator[Row]:
    per_s = statistics.median(result.steady_per_s for result in results)
    whole_s = statistics.median(result.took_s for result in results)
    yield Row(name=name, what=what, measured=per_s, unit="pages/s", note=f"start and end included {whole_s:.1f} s")
    for row, of, figures in (
        ("cpu", "CPU time of a page, steady", [result.steady_us for result in results]),
        ("whole-cpu", "CPU time of a page, whole run", [result.whole_us for result in results]),
    ):
        spread = f"{min(figures):,.0f} to {max(figures):,.0f} in {len(figures)} rounds"
        yield Row(name=f"{name}/{row}", what=of, measured=statistics.median(figures), unit="µs", note=spread)
    for row, of, sizes in (
        ("memory", "peak of resident memory", [result.peak_bytes for result in results]),
        ("own-memory", "peak of RssAnon", [result.own_bytes for result in results]),
    ):
        yield Row(name=f"{name}/{row}", what=of, measured=statistics.median(sizes), unit="bytes")
