"""URLs of made-up hosts for the Frontier, 53 characters each, and how they come in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch.frontier.records import Candidate

#: As many as an average URL has.
URL_CHARACTERS = 53
#: Links of a page: what comes in one call.
BATCH = 60
#: Links of a page that lead to the same host.
SAME_HOST = 5

#: A prime, so that it steps all over the hosts: it divides no number of them that is used.
_STRIDE = 7_368_787


def host_name(number: int) -> str:
    """The name of a host, 20 characters."""
    return f"h{number:07d}.example.com"


def url_of(host: str, number: int) -> str:
    """A URL of `URL_CHARACTERS`, for a number below 10^8."""
    return f"http://{host}/archives/no/{number:08d}.html"


class Web:
    """Numbered URLs over so many hosts: a run of `SAME_HOST` numbers is one host's, the next run is of another, far away."""

    def __init__(self, hosts: int) -> None:
        self.hosts = hosts

    def url(self, number: int) -> str:
        """The URL of a number; different numbers give different URLs."""
        return url_of(host_name(number // SAME_HOST * _STRIDE % self.hosts), number)

    def candidates(self, numbers: Sequence[int]) -> list[Candidate]:
        """A candidate for each number."""
        return [Candidate(self.url(number)) for number in numbers]

    def batches(self, numbers: range) -> list[list[Candidate]]:
        """Candidates for the numbers in batches of `BATCH`; the last one may be shorter."""
        return [self.candidates(numbers[start : start + BATCH]) for start in range(0, len(numbers), BATCH)]

    def pages(self, new: range, known: int) -> Iterator[list[Candidate]]:
        """For each number of `new` a page with 59 links scattered below `known`, and that one."""
        for number in new:
            scattered = ((number * BATCH + place) * _STRIDE % known for place in range(1, BATCH))
            yield self.candidates([*scattered, number])
