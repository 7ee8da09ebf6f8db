"""Why the whole Frontier serves nothing now, in one line. Pure; the time is an argument."""

from __future__ import annotations

import math
from typing import NamedTuple

from anabranch.frontier.operating.timewords import counted, in_time

#: Said if there is no URL at all.
NOTHING_QUEUED = "nothing is queued"


class IdleFacts(NamedTuple):
    """What is known of the whole Frontier when `lease()` has just answered None."""

    pending: int  #: URLs queued and not leased; the next three are parts of it
    waiting: int = 0  #: for a retry
    paused: int = 0  #: in paused queues
    retired: int = 0  #: in retired queues
    in_flight: int = 0  #: leases out
    trouble: str = ""  #: what the store waits for, if it cannot write now
    store_behind: bool = False  #: no lease is given until the store has written what it was told
    reading: bool = False  #: rows were asked of the store
    closed_gates: int = 0  #: gates in memory that have something to serve and are closed
    opens_s: float | None = None  #: when the first of these opens, or of those that are not in memory
    due_s: float | None = None  #: when the first retry is due


def why_idle(facts: IdleFacts, now_s: float) -> str:
    """Why `lease()` answers None, in one line; empty if nothing stands in the way."""
    if facts.trouble:
        return f"the store {facts.trouble}"
    if facts.store_behind:
        return "the store is behind: nothing is leased until it has written what it was told"
    if not facts.pending:
        return f"{counted(facts.in_flight, 'URL')} leased, none queued" if facts.in_flight else NOTHING_QUEUED
    held = _held_words(facts)
    words = _time_words(facts, now_s) or _others_words(facts)
    if not words and held:
        return f"all that is left: {held}; resume them, or raise their budgets"
    return f"{words}; {held}" if held else words


def _time_words(facts: IdleFacts, now_s: float) -> str:
    """What time alone will change; empty if nothing."""
    if facts.closed_gates:
        gates = counted(facts.closed_gates, "gate that has URLs is", "gates that have URLs are")
        return f"{gates} closed, none is open" + in_time("the first opens", facts.opens_s, now_s)
    if facts.opens_s is not None and now_s < facts.opens_s < math.inf:
        return "every gate that has URLs is closed" + in_time("the first opens", facts.opens_s, now_s)
    if facts.waiting and facts.waiting + facts.paused + facts.retired >= facts.pending:
        return f"{counted(facts.waiting, 'URL')} wait for a retry" + in_time("the first is due", facts.due_s, now_s)
    return ""


def _others_words(facts: IdleFacts) -> str:
    """What the store or whoever has a lease must do; empty if nothing."""
    if facts.reading:
        return "rows of the store are awaited"
    return f"one of {counted(facts.in_flight, 'lease')} must come back" if facts.in_flight else ""


def _held_words(facts: IdleFacts) -> str:
    parts = {"paused": facts.paused, "retired": facts.retired}
    return " and ".join(f"{counted(count, 'URL')} in {state} queues" for state, count in parts.items() if count)
