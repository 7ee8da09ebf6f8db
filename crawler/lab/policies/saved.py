"""A comparison as JSON holds it, for machines and for a simulation that is drawn beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from crawler.lab.policies.comparison import Comparison, Setting
from crawler.lab.policies.options import PolicyOptions
from crawler.lab.policies.series import Busy, HostSeen, RunResult, Sample
from crawler.outcomes.errors import UsageError
from frontier.policies.balance import Balance

#: The first key and its value: says what a file is.
MAGIC = ("anabranch", "comparison")
VERSION = 1

_PATHS = ("replay", "seeds")


def saved(options: PolicyOptions, comparisons: Sequence[Comparison]) -> dict[str, object]:
    """All that was asked for and measured; records are lists in the order of their fields, `columns` has those of a sample."""
    asked = asdict(options) | {name: str(path) for name in _PATHS if (path := getattr(options, name))}
    return {
        MAGIC[0]: MAGIC[1],
        "version": VERSION,
        "options": asked,
        "columns": list(Sample._fields),
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }


def load(path: Path) -> tuple[PolicyOptions, list[Comparison]]:
    """What `saved` wrote. Raises: UsageError if the file cannot be read or is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON; name what `anabranch compare --json` wrote") from error
    if not isinstance(value, dict) or value.get(MAGIC[0]) != MAGIC[1] or value.get("version") != VERSION:
        raise UsageError(f"{path}: not a comparison of version {VERSION}; name what `anabranch compare --json` wrote")
    try:
        return _options(value["options"]), [_comparison(each) for each in value["comparisons"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: a comparison that somebody changed: {error!r}") from error


def _options(value: Mapping[str, Any]) -> PolicyOptions:
    lists = {name: tuple(each) for name, each in value.items() if isinstance(each, list)}
    paths = {name: Path(value[name]) for name in _PATHS if value[name] is not None}
    return PolicyOptions(**{**value, **lists, **paths})


def _comparison(value: Mapping[str, Any]) -> Comparison:
    return Comparison(
        setting=Setting(**value["setting"]),
        runs=tuple(map(_run, value["runs"])),
        simulated=tuple(map(_run, value["simulated"])),
    )


def _run(value: Mapping[str, Any]) -> RunResult:
    plain = {field.name: value[field.name] for field in fields(RunResult)}
    records = {
        "samples": tuple(Sample(*each) for each in value["samples"]),
        "hosts": tuple(HostSeen(*each) for each in value["hosts"]),
        "queue_lengths": Balance(*value["queue_lengths"]),
        "server": None if value["server"] is None else Busy(*value["server"]),
        "crawler": None if value["crawler"] is None else Busy(*value["crawler"]),
    }
    return RunResult(**{**plain, **records})
