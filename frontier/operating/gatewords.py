"""What can be said of a gate in words and numbers: why it is closed, and how fast it lets through. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from anabranch.frontier.operating.timewords import duration_words
from anabranch.frontier.scheduling.gates import Gate


def rate_per_s(gate: Gate) -> float:
    """The highest rate of starts that its rules allow now, with fetches that take no time; infinity if no rest is due."""
    rest_s = max(gate.politeness.min_delay_s, gate.spacing_s, gate.throttle_s)
    return gate.slots / rest_s if rest_s else math.inf


def why_closed(gate: Gate, now_s: float) -> str:
    """Why no slot can be taken now, in short words, times counted from now; empty if one can."""
    opens_s = gate.opens_s()
    if opens_s <= now_s:
        return ""
    return ", ".join([*_closures(gate, opens_s, now_s), *_causes(gate)])


def _closures(gate: Gate, opens_s: float, now_s: float) -> Iterator[str]:
    """What keeps a closed gate closed."""
    if gate.blocked_until_s == math.inf:
        yield "blocked until it is unblocked"
    elif gate.blocked_until_s > now_s:
        yield f"blocked for another {duration_words(gate.blocked_until_s - now_s)}"
    if gate.out >= gate.slots:
        yield "its only slot is out" if gate.out == 1 else f"{gate.out} of {gate.slots} slots are out"
    elif opens_s > gate.blocked_until_s:
        yield f"rests for another {duration_words(opens_s - now_s)}"


def _causes(gate: Gate) -> Iterator[str]:
    """What makes it close for longer than others."""
    if gate.troubles:
        yield f"troubles in a row: {gate.troubles}"
    if gate.throttle_s:
        yield f"starts {duration_words(gate.throttle_s)} apart since a 429"
    if gate.spacing_s:
        yield f"Crawl-delay {duration_words(gate.spacing_s)}"
