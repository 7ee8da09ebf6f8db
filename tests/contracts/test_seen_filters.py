"""Rules that every filter which the Frontier may use keeps: one row of `FILTERS` each."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from anabranch.dedup.uniq import UniqFilter, UniqParameters
from anabranch.frontier.filters import BesideShared, DedupFilter, SharedFilter, open_shared
from anabranch.frontier.seen import ExactFilter, SeenFilter
from tests.redis_server import redis_servers

SMALL = UniqParameters(levels=(1, 1), expected=1000, leaf_bits=1 << 14)
KEYS = [b"http://a.test/%d" % number for number in range(300)]


def shared(folder: Path) -> SharedFilter:
    """On two servers, under a name of the test's own."""
    return open_shared(redis_urls(), folder.as_posix().replace("/", "-"), expect=1000, false_positive=1e-4)


@cache
def redis_urls() -> list[str]:
    """Two servers for all tests of this process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="anabranch-redis-")))
        servers = stack.enter_context(redis_servers(folder, 2))
        atexit.register(stack.pop_all().close)
    return [server.url for server in servers]


def own(folder: Path) -> DedupFilter:
    return DedupFilter(UniqFilter.open(folder / "own", SMALL))


FILTERS: dict[str, Callable[[Path], SeenFilter]] = {
    "exact": lambda _: ExactFilter(),
    "own": own,
    "shared": shared,
    "beside a shared one": lambda folder: BesideShared(own(folder), shared(folder)),
}


@pytest.fixture(params=FILTERS)
def seen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SeenFilter]:
    """An open filter of each kind."""
    opened = FILTERS[request.param](tmp_path)
    yield opened
    opened.close()


def test_what_was_marked_is_seen_and_nothing_else(seen: SeenFilter) -> None:
    """One answer per key, in order; asking changes nothing."""
    for _ in range(2):
        assert list(seen.unseen(KEYS)) == [True] * len(KEYS)
    seen.mark(KEYS[::2])
    assert list(seen.unseen(KEYS)) == [False, True] * (len(KEYS) // 2)


def test_marking_twice_and_marking_nothing_is_harmless(seen: SeenFilter) -> None:
    """In one batch, too."""
    seen.mark([])
    seen.mark([KEYS[0], KEYS[0]])
    seen.mark([KEYS[0]])
    assert list(seen.unseen(KEYS[:2])) == [False, True]
    assert list(seen.unseen([])) == []


def test_figures_are_numbers_by_name(seen: SeenFilter) -> None:
    """Two of them every filter has; its name and its parameters may be text."""
    seen.mark(KEYS)
    facts = seen.facts()
    assert all(isinstance(figure, float | int | str) for figure in facts.values())
    assert any(name.endswith("keys") for name in facts)
    assert any(name.endswith("expected_lost") for name in facts)


def test_it_may_be_synced_at_any_time_and_closed_twice(seen: SeenFilter) -> None:
    """Its position is a name and a number that rises, or empty."""
    seen.mark(KEYS[:1])
    seen.sync()
    name, _, number = seen.position().rpartition("-")
    assert bool(name) == number.isdecimal()
    seen.sync()
    seen.close()
    seen.close()
