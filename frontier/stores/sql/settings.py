"""The settings of queues and hosts, copied from a job of one worker to one of several: pauses, budgets, blocks, delays.

Where queues hold many hosts, each share has its own part of a queue (`policies.shares`). The parts have its standing, and
together what is left of its budget.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, insert, select

from anabranch.frontier.policies.assignment import Assignment
from anabranch.frontier.policies.budgets import UNLIMITED
from anabranch.frontier.policies.shares import ShareRule, share_queue
from anabranch.frontier.records import GateKey, QueueKey, name_id
from anabranch.frontier.stores.sql import GATE, LANE, QUEUE

#: A row, by column.
Fields = Mapping[Any, Any]

_QUEUE_GATE = "queue:"
_AT_ONCE = 1000


def copy_settings(
    source: Connection, target: Connection, rule: ShareRule, assignment: Assignment, total_budget: int
) -> None:
    """Copy the rows of queues and gates, before the URLs are loaded. Cost: linear in queues, hosts and their lanes.

    `assignment` is that of the target; `total_budget` is that of queues without one of their own. Both connections have a
    transaction.
    """
    hosts = {gate.id: GateKey(gate.key) for gate in source.execute(select(GATE.c.id, GATE.c.key))}
    lanes: dict[int, dict[GateKey, int]] = defaultdict(dict)  # queue -> host -> URLs
    for queue, gate, urls in source.execute(select(LANE.c.queue, LANE.c.gate, LANE.c["count"])):
        lanes[queue][hosts[gate]] = urls
    queues: list[Fields] = []
    for row in source.execute(select(QUEUE)).mappings():
        parts = _parts(QueueKey(row["key"]), lanes[row["id"]], rule, assignment)
        queues += _shared_out(dict(row), parts, total_budget)
    gates = [part for row in source.execute(select(GATE)).mappings() for part in _gates(dict(row), rule)]
    for table, rows in ((QUEUE, queues), (GATE, gates)):
        for start in range(0, len(rows), _AT_ONCE):
            target.execute(insert(table), rows[start : start + _AT_ONCE])


def _parts(
    queue: QueueKey, lanes: Mapping[GateKey, int], rule: ShareRule, assignment: Assignment
) -> Mapping[QueueKey, int]:
    """The keys of a queue in the job of several workers, and the URLs of each."""
    parts: dict[QueueKey, int] = defaultdict(int)
    for gate, urls in lanes.items():
        if not gate.startswith(_QUEUE_GATE):
            parts[assignment.lane(queue, gate)[0]] += urls
    if parts:
        return parts
    if assignment.share_of_queue(queue) != -1:
        return {queue: 0}
    # It is unknown which hosts it will have.
    return dict.fromkeys((share_queue(share, queue) for share in range(rule.shares)), 0)


def _shared_out(queue: Fields, parts: Mapping[QueueKey, int], total_budget: int) -> list[Fields]:
    """The rows of the parts of a queue."""
    budget = total_budget if queue["budget"] is None else queue["budget"]
    left = [0] * len(parts) if budget == UNLIMITED else _divided(max(budget - queue["spent"], 0), list(parts.values()))
    rows: list[Fields] = []
    for key, rest in zip(parts, left, strict=True):
        spent = queue["spent"] if budget == UNLIMITED or len(parts) == 1 else budget - rest
        rows.append({**queue, "id": name_id(key), "key": key, "spent": spent})
    return rows


def _divided(whole: int, weights: Sequence[int]) -> list[int]:
    """A whole in parts by weight; together no more than it. Equal weights if all are 0. Pure."""
    weights = weights if any(weights) else [1] * len(weights)
    total, done, parts = sum(weights), 0, []
    for weight in weights:
        before, done = whole * done // total, done + weight
        parts.append(whole * done // total - before)
    return parts


def _gates(gate: Fields, rule: ShareRule) -> list[Fields]:
    """The rows of a gate: that of a queue has one in each share. None of them is held, or has a turn."""
    row = {**gate, "held": 0, "turn": None, "wakes_s": None}
    if not row["key"].startswith(_QUEUE_GATE):
        return [{**row, "share": rule.of_gate(GateKey(row["key"]))}]
    queue = QueueKey(row["key"].removeprefix(_QUEUE_GATE))
    keys = [f"{_QUEUE_GATE}{share_queue(share, queue)}" for share in range(rule.shares)]
    return [{**row, "id": name_id(key), "key": key, "share": share} for share, key in enumerate(keys)]
