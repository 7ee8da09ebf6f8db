"""The reports of several shares as one, from what each answers to `report`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from anabranch.crawler.run.crawl_verbs import report_limit
from anabranch.crawler.run.verbs import Arguments, Facts

#: Reports of counts, and the columns that say what is counted: rows that are equal there are one, the others are sums.
_COUNTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "hosts": ("host",),
        "mimetypes": ("mime-types",),
        "response-codes": ("rescode",),
        "processors": ("processor", "counter"),
        "source": ("source", "host"),
    }
)
_URLS = "#urls"
_NAME = "Crawl Name"


def merged_report(shares: Sequence[Facts], given: Arguments, job: str) -> Facts:
    """Counts are added, rows of other tables stand one after another; the name is the job's. There must be a share."""
    if "facts" in shares[0]:
        facts = _summed([share["facts"] for share in shares])
        return {"facts": {**facts, _NAME: job} if _NAME in facts else facts}
    rows = [row for share in shares for row in share["rows"]]
    keys = _COUNTED.get(given["name"])
    if keys is not None:
        rows = sorted(_counted(rows, keys), key=lambda row: -int(row.get(_URLS) or 0))
    limit = report_limit(given)
    more = len(rows) > limit or any(share["more"] for share in shares)
    return {"heads": shares[0]["heads"], "rows": rows[:limit], "more": more, "widths": shares[0]["widths"]}


def _counted(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        before = known.get(key)
        known[key] = dict(row) if before is None else {**_summed([before, row]), **dict(zip(keys, key, strict=True))}
    return list(known.values())


def _summed(shares: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers are added; of anything else the first that is there counts."""
    total: dict[str, Any] = {}
    for share in shares:
        for name, value in share.items():
            before = total.get(name)
            is_number = isinstance(value, int | float) and isinstance(before, int | float)
            total[name] = before + value if is_number else value if before is None else before
    return total
