"""The experiments by name; each is imported when it is run, and its foreseeable errors become the crawler's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from anabranch.crawler.lab.report import Report, Tell
from anabranch.crawler.outcomes.errors import STORAGE_ERRORS, CrawlerError, StorageError, UsageError
from anabranch.dedup.errors import BadParameters, DedupError

#: What an experiment may be told: the fields of its options; what is missing has the default.
Flags: TypeAlias = Mapping[str, Any]

#: What a filter calls a parameter that an experiment passes on, with which its messages begin -> its option.
_FLAGS = {"false_positive": "--false-positive", "levels": "--levels", "signature": "--signature"}

_ADVICE = "see to the disk, or name another folder in TMPDIR"


def run_experiment(name: str, flags: Flags, tell: Tell) -> Report:
    """Run it. Raises: CrawlerError of the fitting kind; its message is one line."""
    try:
        return EXPERIMENTS[name](flags, tell)
    except (DedupError, OSError) as error:
        raise _translated(error, name) from error
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise UsageError("lab redis needs redis-py: pip install 'anabranch[redis]'") from error


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


def _smm(flags: Flags, tell: Tell) -> Report:
    from anabranch.crawler.lab.filters import smm  # noqa: PLC0415

    return smm.run(smm.SmmOptions(**flags), tell)


def _fpr(flags: Flags, tell: Tell) -> Report:
    from anabranch.crawler.lab.filters import fpr  # noqa: PLC0415

    return fpr.run(fpr.FprOptions(**flags), tell)


def _redis(flags: Flags, tell: Tell) -> Report:
    from anabranch.crawler.lab.filters import redis  # noqa: PLC0415

    return redis.run(redis.RedisOptions(**flags), tell)


def _balance(flags: Flags, tell: Tell) -> Report:
    from anabranch.crawler.lab.filters import balance  # noqa: PLC0415

    return balance.run(balance.BalanceOptions(**flags), tell)


def _policies(flags: Flags, tell: Tell) -> Report:
    from anabranch.crawler.lab.policies import compare  # noqa: PLC0415
    from anabranch.crawler.lab.policies.options import PolicyOptions  # noqa: PLC0415

    return compare.run(PolicyOptions(**flags), tell)


def _simulate(flags: Flags, tell: Tell) -> Report:
    from anabranch.crawler.lab.simulation import simulate  # noqa: PLC0415
    from anabranch.crawler.lab.simulation.options import SimulationOptions  # noqa: PLC0415

    return simulate.run(SimulationOptions(**flags), tell)


#: In the order of the help.
EXPERIMENTS: dict[str, Callable[[Flags, Tell], Report]] = {
    "smm": _smm,
    "fpr": _fpr,
    "redis": _redis,
    "balance": _balance,
    "policies": _policies,
    "simulate": _simulate,
}
