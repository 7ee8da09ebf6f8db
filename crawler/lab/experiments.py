"""The experiments by name. Each is imported when it runs; its expected errors become CrawlerErrors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from anabranch.crawler.lab.report import LabReport, OnProgress
from anabranch.crawler.outcomes.errors import STORAGE_ERRORS, CrawlerError, StorageError, UsageError
from anabranch.dedup.errors import BadParameters, DedupError
from anabranch.extras import install_command

#: Fields of an experiment's options -> values; a missing field has its default.
Flags: TypeAlias = Mapping[str, Any]

#: The name of a filter's parameter, with which the filter's messages begin -> the option that sets it.
_FLAGS = {
    "expected": "--expected",
    "filter": "--filters:",
    "false_positive": "--false-positive",
    "leaf_bits": "--leaf-bits",
    "levels": "--levels",
    "signature": "--signature",
    "split_fan_out": "--fan-out",
}

_ADVICE = "see to the disk, or name another folder in TMPDIR"


def run_experiment(name: str, flags: Flags, on_progress: OnProgress) -> LabReport:
    """Run an experiment. Raises: CrawlerError of the fitting kind, with a message of one line."""
    try:
        return EXPERIMENTS[name](flags, on_progress)
    except (DedupError, OSError) as error:
        raise _translated(error, name) from error
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise UsageError(f"lab redis needs redis-py: {install_command('redis')}") from error


def _translated(error: DedupError | OSError, name: str) -> CrawlerError:
    match error:
        case BadParameters():
            parameter, _, rest = str(error).partition(" ")
            return UsageError(f"{_FLAGS.get(parameter, parameter)} {rest}")
        case OSError():
            words = f"{error.filename or name}: {(error.strerror or str(error)).lower()}"
            kind = STORAGE_ERRORS.get(error.errno or 0)
            return kind(f"{words}; {_ADVICE}") if kind else StorageError(words)
        case _:
            return CrawlerError(str(error))


def _imported(module: str, options: str, flags: Flags, on_progress: OnProgress) -> LabReport:
    """Import the module of an experiment, and call its `run` with an instance of its class `options`."""
    imported = import_module(f"anabranch.crawler.lab.{module}")
    report: LabReport = imported.run(getattr(imported, options)(**flags), on_progress)
    return report


#: In the order of the help.
EXPERIMENTS: dict[str, Callable[[Flags, OnProgress], LabReport]] = {
    "smm": partial(_imported, "filters.smm", "SmmOptions"),
    "fpr": partial(_imported, "filters.fpr", "FprOptions"),
    "split": partial(_imported, "filters.split", "SplitOptions"),
    "redis": partial(_imported, "filters.redis", "RedisOptions"),
    "balance": partial(_imported, "filters.balance", "BalanceOptions"),
    "filters": partial(_imported, "filters.compare", "FilterOptions"),
    "policies": partial(_imported, "policies.compare", "PolicyOptions"),
    "simulate": partial(_imported, "simulation.simulate", "SimulationOptions"),
}
