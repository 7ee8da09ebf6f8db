"""A ledger as a table: the busiest hosts, those that were wronged first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.crawler.lab.report import Cell, Table
from anabranch.crawler.lab.web.ledger import HostEntry, Ledger

#: Hosts that have a row; the others share one.
ROWS = 40

_COLUMNS = (
    "host",
    "requests",
    "most at once",
    "shortest gap ms",
    "between starts ms",
    "starts/s",
    "KB",
    "client gone",
    "too many",
    "too early",
)


def ledger_table(ledger: Ledger, rows: int = ROWS) -> Table:
    """What each host has borne. A gap is from the end that freed a slot to the start that took it."""
    entries = sorted(ledger.hosts, key=lambda entry: -(entry.too_many + entry.too_early))
    shown, others = entries[:rows], entries[rows:]
    cells = [_cells(entry.host, (entry,)) for entry in shown]
    if others:
        cells.append(_cells(f"{len(others):,} others", others))
    rule = ledger.rule
    strangers = f" {ledger.strangers:,} requests were for hosts that the web does not have." if ledger.strangers else ""
    return Table(
        title=f"What the server saw of {len(ledger.hosts):,} hosts in {ledger.wall_s:,.1f} s",
        columns=_COLUMNS,
        rows=tuple(cells),
        note=(
            f"Gaps: a slot's end to its next start, with {rule.slots} slot{'s' * (rule.slots > 1)} a host. The server took"
            f" {ledger.busy:.0%} of a core and was at worst {ledger.longest_lag_s * 1000:.1f} ms late.{strangers}"
        ),
    )


def _cells(name: str, entries: Sequence[HostEntry]) -> tuple[Cell, ...]:
    """A row: sums, and the worst of the others."""
    return (
        name,
        sum(entry.requests for entry in entries),
        max(entry.most_at_once for entry in entries),
        _milliseconds(entry.shortest_gap_s for entry in entries),
        _milliseconds(entry.shortest_start_gap_s for entry in entries),
        max((entry.starts_per_s for entry in entries if entry.starts_per_s is not None), default=None),
        round(sum(entry.size_bytes for entry in entries) / 1000),
        sum(entry.gone for entry in entries),
        sum(entry.too_many for entry in entries),
        sum(entry.too_early for entry in entries),
    )


def _milliseconds(seconds: Iterable[float | None]) -> float | None:
    """The least of those that are known."""
    known = [each for each in seconds if each is not None]
    return round(min(known) * 1000, 1) if known else None
