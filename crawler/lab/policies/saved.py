"""A comparison as JSON, for other programs and for a simulation that is compared with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from anabranch.crawler.lab.policies.options import PolicyOptions, check
from anabranch.crawler.lab.policies.series import PolicyComparison, RunResult, Sample, compared_s, means
from anabranch.crawler.outcomes.errors import UsageError

#: The first key; its value is the kind of the file.
MAGIC = "anabranch"
COMPARISON, SIMULATION = "comparison", "simulation"
VERSION = 1

_WANTED = "name what `anabranch compare --json` wrote"


def saved(what: str, options: Any, comparisons: Sequence[PolicyComparison]) -> dict[str, object]:
    """All options (a dataclass) and measurements. A sample is a list, in the order of `columns`."""
    asked = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(options).items()}
    return {
        MAGIC: what,
        "version": VERSION,
        "options": asked,
        "columns": list(Sample._fields),
        "comparisons": list(map(_comparison, comparisons)),
    }


def _comparison(comparison: PolicyComparison) -> dict[str, object]:
    """With the interval of the comparison and the means, as in the tables."""
    until_s = compared_s(comparison.runs)
    return {
        "setting": asdict(comparison.setting),
        "compared_s": until_s,
        "means": {run.policy: means(run, until_s)._asdict() for run in comparison.runs},
        "runs": list(map(_run, comparison.runs)),
        "simulated": list(map(_run, comparison.simulated)),
    }


def _run(run: RunResult) -> dict[str, object]:
    facts = {field.name: getattr(run, field.name) for field in fields(run)}
    return {name: _plain(value) if name != "samples" else value for name, value in facts.items()}


def _plain(value: Any) -> Any:
    """Records by the names of their fields."""
    if hasattr(value, "_asdict"):
        return value._asdict()
    return [each._asdict() for each in value] if isinstance(value, tuple) else value


def load(path: Path) -> tuple[PolicyOptions, list[PolicyComparison]]:
    """The live comparison that `saved` wrote. Raises: UsageError if the file cannot be read or is invalid."""
    value = _value(path)
    try:
        options = TypeAdapter(PolicyOptions).validate_python(value.get("options"))
        comparisons = TypeAdapter(list[PolicyComparison]).validate_python(value.get("comparisons"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(f"{path}: a comparison that somebody changed: {place}: {first['msg'].lower()}") from error
    if options.seeds is not None:
        raise UsageError(
            f"{path}: a crawl of real sites, which cannot be simulated; replay its crawl.log with --replay"
        )
    check(options)
    policies = [tuple(run.policy for run in each.runs) for each in comparisons]
    if policies != [options.policies] * options.webs:
        raise UsageError(f"{path}: a comparison that somebody changed: its runs are not those of its options")
    return options, comparisons


def _value(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON; {_WANTED}") from error
    if (
        not isinstance(value, dict)
        or value.get("version") != VERSION
        or value.get(MAGIC) not in (COMPARISON, SIMULATION)
    ):
        raise UsageError(f"{path}: not a comparison of version {VERSION}; {_WANTED}")
    if value[MAGIC] == SIMULATION:
        raise UsageError(f"{path}: a simulation; {_WANTED}")
    return value
