"""What `anabranch lab redis` measured, as a table, a panel and words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.crawler.lab.report import NOT_RECOVERABLE, Cell, Curve, Panel, Report, Table

#: Of the paper's prose; the figure itself is lost.
PUBLISHED_LEAVES = 3
PUBLISHED_URLS_PER_S = 15_000
#: Checks per second that a crawler of 300 pages/s needs, as the paper says.
NEEDED_PER_S = 2_000

_SATURATED = 0.85  # of a core: little more is to be had from one interpreter
_IDLE = 0.5  # of a core: the threads mostly wait
_COLUMNS = (
    "leaves c",
    "threads",
    "new URLs/s",
    "known URLs/s",
    "published URLs/s",
    "new / published",
    "client's cores",
    "falsely known",
    "splits",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One filter of c leaves on c servers, fed by some threads."""

    leaves: int
    threads: int
    new_per_s: float  #: URLs per second, each added for the first time
    known_per_s: float  #: the same, each added before
    client_cores: float  #: CPU time of all threads per second, while new URLs were added
    falsely_known: int  #: new URLs that were taken for known
    splits: int  #: of leaves, while they were added


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all rows have in common."""

    urls: int
    known: int  #: URLs of the second pass
    batch: int
    latency_s: float  #: of all servers but the first, simulated; 0: none
    false_positive: float
    cores: int


def report(setup: Setup, rows: Sequence[Measured]) -> Report:
    """The whole report."""
    return Report(
        name="redis", tables=(_table(setup, rows),), panels=(_panel(rows),), closing=tuple(_closing(setup, rows))
    )


def _table(setup: Setup, rows: Sequence[Measured]) -> Table:
    wire = f"{setup.latency_s * 1000:g} ms to all servers but one" if setup.latency_s else "loopback without a wire"
    return Table(
        title=f"Figure 9: {setup.urls:,} URLs, c leaves (height 1) on c Redis servers, batches of {setup.batch:,}, {wire}",
        columns=_COLUMNS,
        rows=tuple(_cells(row) for row in rows),
        note=(
            f"New: test-and-set of URLs that no one added before, logged and checked, AOF everysec. Known: the first "
            f"{setup.known:,} of them again. The published figure is the paper's prose for c = {PUBLISHED_LEAVES}, "
            f"several threads; its curves are lost. Its leaves stood on three machines, with 0.35-0.45 ms for a ping; "
            f"here all servers and the threads share {setup.cores} cores."
        ),
    )


def _cells(row: Measured) -> tuple[Cell, ...]:
    is_published = row.leaves == PUBLISHED_LEAVES
    return (
        row.leaves,
        row.threads,
        row.new_per_s,
        row.known_per_s,
        f"about {PUBLISHED_URLS_PER_S:,}" if is_published else NOT_RECOVERABLE,
        row.new_per_s / PUBLISHED_URLS_PER_S if is_published else None,
        row.client_cores,
        row.falsely_known,
        row.splits,
    )


def _panel(rows: Sequence[Measured]) -> Panel:
    threads = sorted({row.threads for row in rows})
    ends = (float(threads[0]), float(threads[-1]))
    curves = [_curve(leaves, [row for row in rows if row.leaves == leaves]) for leaves in _counts(rows)]
    bounds = ((f"published, c = {PUBLISHED_LEAVES}", PUBLISHED_URLS_PER_S), ("300 pages/s need", NEEDED_PER_S))
    lines = [Curve(label=label, x=ends, y=(float(y), float(y)), is_dashed=True) for label, y in bounds]
    return Panel(
        title="New URLs through a DSBF in Redis",
        x_label="threads",
        y_label="URLs per second",
        curves=(*curves, *lines),
        is_log_x=True,
        is_log_y=True,
    )


def _curve(leaves: int, rows: Sequence[Measured]) -> Curve:
    x, y = tuple(float(row.threads) for row in rows), tuple(row.new_per_s for row in rows)
    return Curve(label=f"c = {leaves}", x=x, y=y)


def _counts(rows: Sequence[Measured]) -> list[int]:
    """The numbers of leaves, the smallest first."""
    return sorted({row.leaves for row in rows})


def _closing(setup: Setup, rows: Sequence[Measured]) -> Iterator[str]:
    yield _need(rows)
    if published := [row for row in rows if row.leaves == PUBLISHED_LEAVES]:
        best = _best(published)
        yield (
            f"c = {PUBLISHED_LEAVES}: {best.new_per_s:,.0f} URLs/s with {_threads(best)}, "
            f"{best.new_per_s / PUBLISHED_URLS_PER_S:.1f} times the published {PUBLISHED_URLS_PER_S:,}."
        )
    yield from _more_leaves(rows)
    yield from _more_threads(rows)
    yield _limit(setup, _best(rows))
    yield (
        f"The wire is simulated: a thread waits {setup.latency_s * 1000:g} ms longer for each round trip that goes beyond the "
        "first server; all servers are asked at once, so it waits once for all of them."
        if setup.latency_s
        else "Loopback has no wire, so this is no match for the paper's three machines: --latency 0.4ms simulates theirs."
    )
    splits, wrong = sum(row.splits for row in rows), max(row.falsely_known for row in rows)
    yield (
        f"At most {wrong:,} of {setup.urls:,} new URLs were falsely taken for known ({wrong / setup.urls:.1e}; "
        f"the bound is {setup.false_positive:g}); leaves split {splits} times."
    )


def _need(rows: Sequence[Measured]) -> str:
    slowest = min(rows, key=lambda row: min(row.new_per_s, row.known_per_s))
    speed = min(slowest.new_per_s, slowest.known_per_s)
    told = f"A crawler at 300 pages/s needs at least {NEEDED_PER_S:,} checks/s: "
    where = f"(c = {slowest.leaves}, {_threads(slowest)})"
    if speed < NEEDED_PER_S:
        return f"{told}the slowest row {where} is too slow for it with {speed:,.0f}."
    return f"{told}the slowest row {where} does {speed:,.0f}, {speed / NEEDED_PER_S:.0f} times as many."


def _limit(setup: Setup, fastest: Measured) -> str:
    used = fastest.client_cores
    told = (
        "The threads share one Python interpreter, whose lock lets one of them hash and pack at a time; in the fastest row "
        f"they took {used:.2f} of {setup.cores} cores"
    )
    if used > _SATURATED:
        return f"{told}, so Python is the limit, and more crawlers would do more."
    if used < _IDLE:
        return (
            f"{told}, so the limit is {_servers(fastest)}, each of which runs one script at a time, on the same cores."
        )
    return f"{told}, the rest was for {_servers(fastest)}."


def _more_leaves(rows: Sequence[Measured]) -> Iterator[str]:
    """Whether the speed rises with c, by the best row of each c."""
    best = [_best([row for row in rows if row.leaves == leaves]) for leaves in _counts(rows)]
    if len(best) > 1:
        few, many, highest = best[0], best[-1], _best(best)
        verb = _verb(many.new_per_s / few.new_per_s)
        peak = f", with its peak at c = {highest.leaves}" if highest not in (few, many) else ""
        figures = "; ".join(f"c = {row.leaves}: {row.new_per_s:,.0f}" for row in best)
        yield (
            f"The paper says that the speed rises with c. Here it {verb} from c = {few.leaves} to c = {many.leaves}{peak} "
            f"(best rows, URLs/s: {figures})."
        )


def _verb(change: float) -> str:
    if change > 1.1:
        return "rises"
    return "falls" if change < 1 / 1.1 else "hardly changes"


def _more_threads(rows: Sequence[Measured]) -> Iterator[str]:
    """How much the threads bring, for the largest number of leaves."""
    most = max(row.leaves for row in rows)
    ranked = sorted((row for row in rows if row.leaves == most), key=lambda row: row.threads)
    if len(ranked) > 1:
        fewest, *_, many = ranked
        best = _best(ranked)
        yield (
            f"c = {most}: {fewest.new_per_s:,.0f} URLs/s with {_threads(fewest)}, {many.new_per_s:,.0f} with "
            f"{_threads(many)}; the best are {best.new_per_s:,.0f} with {_threads(best)}."
        )


def _best(rows: Sequence[Measured]) -> Measured:
    return max(rows, key=lambda row: row.new_per_s)


def _threads(row: Measured) -> str:
    return f"{row.threads} thread{'s' * (row.threads > 1)}"


def _servers(row: Measured) -> str:
    return f"{row.leaves} server{'s' * (row.leaves > 1)}"
