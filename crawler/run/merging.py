"""Answers of several workers as one. Pure.

Each of them has the totals of the job, and sees the rows of all queues; what is in memory only the holder of a share has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.crawler.run.verbs import Arguments, Facts, whole_argument
from anabranch.frontier.scheduling.lifecycle import RESTS_IN, QueueState

#: States of queues that only the worker has seen that holds them.
_ACTIVE = frozenset(state.value for state in (QueueState.LOADING, QueueState.READY, QueueState.IN_FLIGHT))

#: A queue in the memory of several workers is in the strongest of its states.
_STRONGEST_FIRST = [state.value for state in RESTS_IN.values()]


def merged_listing(workers_said: Sequence[Facts], given: Arguments) -> Facts:
    """The queues as the worker sees each that holds it; the others see its rows alone. Pure."""
    queues: dict[str, Facts] = {}
    for said in workers_said:
        for queue in said["queues"]:
            known = queues.get(queue["queue"])
            if known is None or queue["state"] in _ACTIVE:
                queues[queue["queue"]] = queue
    longest = sorted(queues.values(), key=lambda queue: (-queue["urls"], queue["queue"]))
    return {
        "now_s": max(said["now_s"] for said in workers_said),
        "queues": longest[: whole_argument(given, "limit", least=0)],
        "totals": merged_totals([said["totals"] for said in workers_said]),
    }


def merged_active(workers_said: Sequence[Facts], now_s: float) -> Facts:
    """The queues and gates in the memory of any worker. The parts of a queue may be with several. Pure."""
    queues: dict[str, tuple[str, int]] = {}
    gates: dict[str, tuple[float | None, int]] = {}
    for said in workers_said:
        for key, state, out in said["queues"]:
            known, known_out = queues.get(key, (state, 0))
            queues[key] = (min(state, known, key=_STRONGEST_FIRST.index), known_out + out)
        for key, opens_in_s, out in said["gates"]:
            gates[key] = (opens_in_s, gates.get(key, (None, 0))[1] + out)
    return {
        "now_s": now_s,
        "queues": [[key, *facts] for key, facts in queues.items()],
        "gates": [[key, *facts] for key, facts in gates.items()],
    }


def merged_totals(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All have the job's totals; what is in memory is added."""
    totals = dict(each[0])
    active = {state: sum(one["queues"].get(state, 0) for one in each) for state in _ACTIVE}
    own = sum(number for state, number in totals["queues"].items() if state in _ACTIVE)
    inactive = totals["queues"].get(QueueState.INACTIVE.value, 0) + own - sum(active.values())
    totals["queues"] = {**totals["queues"], **active, QueueState.INACTIVE.value: max(inactive, 0)}
    for name in ("in_flight", "gates_open"):
        totals[name] = sum(one[name] for one in each)
    reasons = [one["why_idle"] for one in each]
    totals["why_idle"] = "" if "" in reasons else "; ".join(sorted({*reasons}))
    return totals


def joined_rows(workers_said: Sequence[Facts], limit: int) -> Facts:
    """The rows of each worker, one after another; of facts by name those of the first."""
    first = workers_said[0]
    if "rows" not in first:
        return first
    rows = [row for said in workers_said for row in said["rows"]]
    return {**first, "rows": rows[:limit], "more": len(rows) > limit or any(said["more"] for said in workers_said)}
