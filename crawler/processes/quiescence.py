"""When a crawl of several shares is over. Pure.

A share is quiet when it has nothing queued, nothing leased and nothing to send that its receiver does not have durably. Quiet
shares stay so until they are stirred from outside: by a parcel, a seed, an operator. Two rounds of questions that find all
quiet and none stirred in between prove that all were quiet at the moment between the rounds, and so for ever: nothing was
under way, as whoever sends it would not be quiet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Quiet(NamedTuple):
    """What a share answers."""

    is_quiet: bool
    stirred: int  #: how often anything came from outside
    life: int  #: which process of the share it is that answers


def is_over(first: Mapping[int, Quiet], second: Mapping[int, Quiet]) -> bool:
    """Whether two rounds, the second begun when the first had ended, prove that nothing is left."""
    return bool(first) and first == second and all(answer.is_quiet for answer in first.values())
