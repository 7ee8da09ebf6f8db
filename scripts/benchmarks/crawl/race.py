"""Rounds of crawls in turns, each on a core of its own, and the rows that come of them.

Of each round the ratios are taken, and of the ratios the median, since a disturbance of the machine falls on one round. A round
in which the bare loop had less than 80 % of its core was shared with others: its ratios are hints, and the rows say so.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from scripts.benchmarks.crawl.contestants import BARE, Contestant, Task
from scripts.benchmarks.crawl.observing import CrawlFailed, Use, cpu_s_of_family, observe
from scripts.benchmarks.crawl.peers import PeerMissing, Peers, cache_folder
from scripts.benchmarks.rows import Row, Setting, rounds_row
from scripts.benchmarks.site import nginx, process
from scripts.benchmarks.site.pages import Site
from scripts.benchmarks.site.process import Server
from scripts.benchmarks.site.tally import Tally

#: A bare loop that had less of its core than that shared it with others.
UNSHARED = 0.8
#: CPU time of crawls that used less is not compared: the kernel reports it in steps of 10 ms.
TOLD_CPU_S = 0.2
#: The kernel reports CPU time in steps, so that of a short crawl may be 0.
_LEAST_US = 0.01
#: Serves a site on these cores until the block ends.
Serve = Callable[[Site, Set[int]], AbstractContextManager[Server]]


class Tenth(NamedTuple):
    """A tenth of the pages of a crawl."""

    cpu_us: float  #: of a page
    own_bytes: int  #: RssAnon at its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One crawl."""

    pages_per_s: float  #: from the first request to the last
    cpu_us: float  #: of a page, in the same time
    cpu_s: float  #: of all pages
    steady_per_s: float  #: pages/s, of the middle three fifths of the pages
    steady_us: float  #: CPU time of one of them
    whole_us: float  #: CPU time of a page from the process's start to its end
    share: float  #: of its cores that it had: 1 is all of one core
    peak_bytes: int
    own_bytes: int  #: RssAnon at its most
    own_last_bytes: int  #: RssAnon when the last page was asked for
    took_s: float  #: from the process's start to its end
    tenths: tuple[Tenth, ...] = ()  #: of the pages, in order
    server_us: float = 0.0  #: CPU time of the site's server a page


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A ratio to show: how many times faster `name` is than `over`."""

    name: str
    over: str
    target: float | None = None
    #: By the CPU time of a page of the steady state, which other work on the machine disturbs less.
    by_cpu: bool = False


@dataclass(slots=True)
class Outcome:
    """The results of all rounds, by contestant."""

    results: dict[str, list[Result]] = field(default_factory=dict)  #: one a round, of those that always succeeded
    faults: dict[str, str] = field(default_factory=dict)  #: why the others did not
    server: str = ""  #: what served the site, in a word or two

    @property
    def shared(self) -> list[float]:
        """The bare loop's shares of its core where they were too small."""
        return [result.share for result in self.results.get(BARE.name, []) if result.share < UNSHARED]


def cores() -> tuple[Set[int], Set[int]]:
    """The server's core and the contestant's: the first and the last that this process may use."""
    usable = sorted(os.sched_getaffinity(0))
    return {usable[0]}, {usable[-1]}


def crawled(contestant: Contestant, task: Task, pinned: Set[int]) -> Result:
    """One crawl of the whole site. Raises: CrawlFailed, PeerMissing."""
    command = contestant.command(task)
    task.server.tally()
    server_s = cpu_s_of_family(task.server.pid)
    used = observe(command, pinned, contestant.environment)
    server_s = cpu_s_of_family(task.server.pid) - server_s
    tally = task.server.tally()
    if fault := tally.fault(task.server.site.pages, may_repeat=contestant.strays):
        raise CrawlFailed(fault)
    if tally.others and not contestant.strays:
        raise CrawlFailed(f"{tally.others:,} requests were for what is no page")
    return replace(result_of(tally, used), server_us=1e6 * server_s / tally.pages)


def result_of(tally: Tally, used: Use) -> Result:
    """The figures of the server and of the processes together. Raises: CrawlFailed."""
    if not tally.took_s:
        raise CrawlFailed("a single request has no rate")
    cpu_s = used.cpu_between_s(tally.first_s, tally.last_s)
    return Result(
        pages_per_s=tally.pages / tally.took_s,
        cpu_us=1e6 * cpu_s / tally.pages,
        cpu_s=cpu_s,
        **_steady(tally, used),
        whole_us=1e6 * used.cpu_s / tally.pages,
        share=cpu_s / tally.took_s,
        peak_bytes=used.peak_bytes,
        own_bytes=used.own_peak_bytes(),
        own_last_bytes=used.own_bytes_at(tally.last_s),
        took_s=used.took_s,
        tenths=tuple(
            Tenth(10e6 * used.cpu_between_s(first_s, last_s) / tally.pages, used.own_bytes_at(last_s))
            for first_s, last_s in pairwise(tally.tenths_s)
        ),
    )


def _steady(tally: Tally, used: Use) -> dict[str, float]:
    """Figures of the middle three fifths of the pages; of all if they are too few to tell."""
    share, first_s, last_s = 0.6, tally.tenths_s[2], tally.tenths_s[8]
    if first_s == last_s:
        share, first_s, last_s = 1.0, tally.first_s, tally.last_s
    pages = share * tally.pages
    return {
        "steady_per_s": pages / (last_s - first_s),
        "steady_us": 1e6 * used.cpu_between_s(first_s, last_s) / pages,
    }


class Kept:
    """Finished crawls, in a file of one JSON object a line if there is a path, so that an interrupted run goes on."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._results: dict[str, Result] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path and path.exists() else ():
            try:
                found = json.loads(line)
            except ValueError:  # the last line of a run that was killed
                continue
            crawl = found.pop("crawl")
            self._results[crawl] = Result(**found | {"tenths": tuple(Tenth(*one) for one in found["tenths"])})

    def __contains__(self, crawl: object) -> bool:
        return crawl in self._results

    def __getitem__(self, crawl: str) -> Result:
        return self._results[crawl]

    def __setitem__(self, crawl: str, result: Result) -> None:
        self._results[crawl] = result
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"crawl": crawl} | asdict(result)) + "\n")


def raced(
    site: Site,
    contestants: Sequence[Contestant],
    setting: Setting,
    *,
    pinned_to: tuple[Set[int], Set[int]] | None = None,
    rounds: int | None = None,
    serve: Serve | None = None,
) -> Outcome:
    """All rounds, each in the reverse order of the one before; a contestant that failed is not run again.

    So neighbours are neighbours in all rounds, and are compared within minutes, because shared machines change speed.

    `pinned_to`: the server's cores and the contestants', if not `cores()`; `rounds`: how many, if not as many as asked for;
    `serve`: by what, if not by nginx where it is there and the site fits.
    """
    outcome, kept = Outcome(results={one.name: [] for one in contestants}), Kept(setting.wishes.resume)
    servers, pinned = pinned_to or cores()
    serve = serve or (partial(nginx.serving, folder=setting.folder) if nginx.fits(site) else process.serving)
    with ExitStack() as running:
        task: Task | None = None
        for number in range(rounds or setting.rounds):
            for one in contestants[:: -1 if number % 2 else 1]:
                crawl = f"{site.text} {setting.wishes.loop} {one.name} {number}"
                if crawl in kept:
                    outcome.results[one.name].append(kept[crawl])
                elif one.name not in outcome.faults:
                    task = task or task_of(running.enter_context(serve(site, servers)), setting)
                    outcome.server = task.server.program
                    result = _tried(one, task, outcome, lambda one, task: crawled(one, task, pinned), setting.say)
                    if result is not None:
                        kept[crawl] = result
    return outcome


def task_of(server: Server, setting: Setting) -> Task:
    """The task of the contestants of this run."""
    peers = Peers(folder=setting.wishes.peers or cache_folder(), say=setting.say)
    return Task(server=server, loop=setting.wishes.loop, folder=setting.folder, peers=peers)


def _tried(
    one: Contestant,
    task: Task,
    outcome: Outcome,
    crawl: Callable[[Contestant, Task], Result],
    say: Callable[[str], None],
) -> Result | None:
    folder = task.folder / one.name
    folder.mkdir()
    try:
        result = crawl(one, replace(task, folder=folder))
    except (CrawlFailed, PeerMissing) as error:
        outcome.faults[one.name] = str(error)
        del outcome.results[one.name]
        say(f"{one.name}: {error}")
        return None
    finally:
        shutil.rmtree(folder)
    outcome.results[one.name].append(result)
    say(f"{one.name}: {result.pages_per_s:,.0f} pages/s, {result.cpu_us:,.0f} µs of CPU a page")
    return result


def rows(group: str, contestants: Sequence[Contestant], ratios: Sequence[Compared], outcome: Outcome) -> Iterator[Row]:
    """Medians of three figures per contestant, then the ratios. A failed contestant has a row with the reason."""
    for one in contestants:
        if one.name in outcome.faults:
            yield Row(name=f"{group}/{one.name}", what=one.what, measured=None, unit="", note=outcome.faults[one.name])
        else:
            server = f"; the site is served by {outcome.server}" if one is BARE else ""
            yield from _figures(f"{group}/{one.name}", one.what, outcome.results[one.name], server)
    for asked in ratios:
        yield ratio(group, asked, outcome)


def _figures(name: str, what: str, results: Sequence[Result], more: str) -> Iterator[Row]:
    def middle(figure: Callable[[Result], float]) -> float:
        return statistics.median(map(figure, results))

    yield Row(
        name=name,
        what=what,
        measured=middle(lambda result: result.pages_per_s),
        unit="pages/s",
        note=f"{100 * middle(lambda result: result.share):.0f} % of a core; start and end included "
        f"{middle(lambda result: result.took_s):.1f} s{more}",
    )
    yield Row(name=f"{name}/cpu", what="CPU time of a page", measured=middle(lambda r: r.cpu_us), unit="µs")
    yield Row(name=f"{name}/memory", what="peak", measured=middle(lambda r: r.peak_bytes), unit="bytes")


def ratio(group: str, asked: Compared, outcome: Outcome) -> Row:
    """The ratio of two contestants, with its interval if there are rounds enough; its note says whether it is a hint.

    By the clock, and the note has that by CPU time; or the reverse.
    """
    name = f"{group}/{asked.name}-{asked.over}-x"
    missing = [who for who in (asked.name, asked.over) if who not in outcome.results]
    what = f"{'CPU a page' if asked.by_cpu else 'pages/s'}, {asked.name} / {asked.over}"
    if missing:
        return Row(name=name, what=what, measured=None, unit="x", note=f"there is no figure of {' and '.join(missing)}")
    clock = _ratios(outcome.results, asked, lambda result: result.pages_per_s)
    cpu = _ratios(outcome.results, asked, lambda result: 1 / max(result.steady_us, _LEAST_US))
    found = cpu if asked.by_cpu else clock
    other = f"by the clock {statistics.median(clock):.3g}" if asked.by_cpu else _by_cpu(outcome.results, asked)
    note = "; ".join(filter(None, (other, _hint(outcome.shared, len(found)))))
    return rounds_row(name, what, found, "x", target=asked.target, note=note)


def _ratios(results: Mapping[str, Sequence[Result]], asked: Compared, speed: Callable[[Result], float]) -> list[float]:
    """One of each round."""
    pairs = zip(results[asked.name], results[asked.over], strict=True)
    return [speed(one) / speed(over) for one, over in pairs]


def _by_cpu(results: Mapping[str, Sequence[Result]], asked: Compared) -> str:
    """The ratio by CPU time; nothing if a crawl was too short for it."""
    if min(result.cpu_s for name in (asked.name, asked.over) for result in results[name]) < TOLD_CPU_S:
        return ""
    return f"by CPU time {statistics.median(_ratios(results, asked, lambda result: 1 / result.cpu_us)):.3g}"


def _hint(shared: Sequence[float], rounds: int) -> str:
    if not shared:
        return ""
    return (
        f"A HINT: in {len(shared)} of {rounds} rounds the bare loop had less than {UNSHARED:.0%} of its core"
        f" (down to {min(shared):.0%})"
    )
