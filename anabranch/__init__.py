"""Anabranch: a crawler whose Frontier spreads a portal over many work queues and stays polite.

The public names of the three rooms. A name is imported when it is first used, so `import anabranch` loads no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.dedup import (
        BadParameters,
        DedupError,
        Dsbf,
        DsbfParameters,
        ExactIndex,
        FormatMismatch,
        Smm,
        UniqFilter,
        UniqParameters,
    )
    from anabranch.frontier import (
        AsyncFrontier,
        Budgets,
        Candidate,
        Drained,
        Frontier,
        FrontierError,
        FrontierOrder,
        HostTrouble,
        Lease,
        LeaseLost,
        Outcome,
        OutcomeKind,
        Override,
        Politeness,
        StoreUnavailable,
        Verdict,
        VerdictKind,
        WaitsFor,
        Wake,
        open_frontier,
    )

__all__ = [
    "AsyncFrontier",
    "BadParameters",
    "Budgets",
    "Candidate",
    "DedupError",
    "Drained",
    "Dsbf",
    "DsbfParameters",
    "ExactIndex",
    "FormatMismatch",
    "Frontier",
    "FrontierError",
    "FrontierOrder",
    "HostTrouble",
    "Lease",
    "LeaseLost",
    "Outcome",
    "OutcomeKind",
    "Override",
    "Politeness",
    "Smm",
    "StoreUnavailable",
    "UniqFilter",
    "UniqParameters",
    "Verdict",
    "VerdictKind",
    "WaitsFor",
    "Wake",
    "open_frontier",
]

_OF_DEDUP = {
    "BadParameters",
    "DedupError",
    "Dsbf",
    "DsbfParameters",
    "ExactIndex",
    "FormatMismatch",
    "Smm",
    "UniqFilter",
    "UniqParameters",
}


def __getattr__(name: str) -> object:
    """The public name, imported on first use. Raises: AttributeError."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{'dedup' if name in _OF_DEDUP else 'frontier'}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
