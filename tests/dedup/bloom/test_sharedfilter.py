from __future__ import annotations

import contextlib
import json
import math
import random
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.dedup.bloom.formulas import DsbfParameters
from anabranch.dedup.bloom.sharedfilter import SharedDsbf
from anabranch.dedup.bloom.sharedleaves import Call, LeafAddress, RemoteLeaves
from anabranch.dedup.bloom.sharedsplitting import MOVE_AT_LEAST
from anabranch.dedup.errors import (
    BadParameters,
    FilterClosed,
    FormatMismatch,
    InvariantBroken,
    StoreFull,
    StoreUnavailable,
)
from anabranch.extras import install_command
from tests.acceptance.blocking import Process
from tests.acceptance.forkserver import DEDUP
from tests.dedup.bloom import shared_crawler
from tests.dedup.bloom.shared_crawler import SMALL, key
from tests.redis_server import redis_servers

#: Leaves that hold six elements: splits happen all the time.
TINY = DsbfParameters(expected=0, false_positive=0.05, leaf_bits=64, split_fan_out=2)
#: One leaf of 500,000 elements: nothing splits.
LARGE = DsbfParameters(expected=100_000, false_positive=1e-6, leaf_bits=1 << 22)

CLONE = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with redis_servers(tmp_path_factory.mktemp("redis"), 3) as running:
        yield running


@pytest.fixture
def urls(servers: list[RedisServer]) -> list[str]:
    """Three empty servers."""
    for server in servers:
        client(server.url).flushall()
    return [server.url for server in servers]


def crawling(start: int, stop: int, seed: int, urls: Sequence[str]) -> Process:
    """A crawler in a process of its own."""
    command = [shared_crawler.__file__, str(start), str(stop), str(seed), *urls]
    return Process(command, cwd=CLONE, stderr=None, preload=(*DEDUP, "redis"))


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, protocol=2)


def keys(*ranges: int) -> list[bytes]:
    return [key(number) for number in range(*ranges)]


def opened(urls: Sequence[str], parameters: DsbfParameters = SMALL, **options: object) -> SharedDsbf:
    return SharedDsbf.open(urls, parameters=parameters, **options)


def full_leaf(urls: Sequence[str]) -> tuple[SharedDsbf, int]:
    """A filter of one leaf that takes no more, and how many keys it holds: `keys(0, n)`."""
    dsbf = opened(urls)
    count = SMALL.split_above
    assert dsbf.add(keys(count)).all()
    assert dsbf.statistics().splits == 0
    return dsbf, count


def end_splits(dsbf: SharedDsbf) -> None:
    while dsbf.statistics().splitting:
        dsbf._splitter.move(0)


class Interleaved:
    """Lets something happen before each single call of a crawler; replies of different servers in any order."""

    def __init__(self, dsbf: SharedDsbf, between: Callable[[], None], dice: random.Random) -> None:
        self._call, self._between, self._dice = dsbf._servers.call, between, dice
        dsbf._servers.call = self.call  # type: ignore[method-assign]

    def call(self, calls: Sequence[Call]) -> list[object]:
        replies: list[object] = [None] * len(calls)
        waiting: dict[int, list[int]] = {}
        for place, call in enumerate(calls):
            waiting.setdefault(call.server, []).append(place)
        while waiting:
            server = self._dice.choice(sorted(waiting))
            place = waiting[server].pop(0)
            if not waiting[server]:
                del waiting[server]
            self._between()
            replies[place] = self._call([calls[place]])[0]
        return replies


class Crash(Exception):
    pass


# --- the set


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 3),
    st.lists(
        st.tuples(
            st.sampled_from(["add", "mark", "unseen"]), st.integers(0, 1), st.lists(st.integers(0, 200), max_size=25)
        ),
        max_size=12,
    ),
)
def test_two_crawlers_with_tiny_leaves_are_one_set(
    servers: list[RedisServer], number: int, steps: list[tuple[str, int, list[int]]]
) -> None:
    """Against a Python set, on one to three servers, with old trees all the time: nothing put in is ever new again."""
    for server in servers:
        client(server.url).flushall()
    urls, model = [server.url for server in servers[:number]], set[int]()
    crawlers = [opened(urls, TINY), opened(urls, TINY)]
    for action, who, numbers in steps:
        batch = [b"%d" % n for n in numbers]
        if action == "mark":
            crawlers[who].mark(batch)
            model |= set(numbers)
        elif action == "unseen":
            new = crawlers[who].unseen(batch).tolist()
            assert not any(is_new and n in model for n, is_new in zip(numbers, new, strict=True))
        else:
            for n, is_new in zip(numbers, crawlers[who].add(batch).tolist(), strict=True):
                assert not (is_new and n in model)
                model |= {n} if is_new else set()
        crawlers[1 - who].check()
    for crawler in crawlers:
        assert not crawler.unseen([b"%d" % n for n in model]).any()
        crawler.close()


def test_few_keys_in_a_large_leaf_are_an_exact_set(urls: list[str]) -> None:
    """At a rate far below one in the number of questions, answers are those of a set, for every crawler."""
    with opened(urls, LARGE) as one, opened(urls, LARGE) as other:
        assert one.add(keys(500)).all()
        assert other.unseen(keys(1000)).tolist() == [False] * 500 + [True] * 500
        assert other.add(keys(400, 600) + keys(400, 600)).tolist() == [False] * 100 + [True] * 100 + [False] * 200
        one.mark(keys(600, 700) + keys(600, 700))
        assert not other.unseen(keys(700)).any()
        assert one.statistics().elements == 700
        assert one.statistics().log_bytes == 16 * 700
        assert repr(one).startswith("<SharedDsbf anabranch 1 leaves on 3 servers, 0 splitting")


def test_a_batch_of_any_size_goes_in(urls: list[str]) -> None:
    """9,000 keys at once, in one leaf and through many splits; and none at all."""
    with opened(urls, LARGE) as large, SharedDsbf.open(urls, "other", SMALL) as small:
        for dsbf in (large, small):
            assert np.count_nonzero(dsbf.add(keys(9000))) >= 8990
            assert np.count_nonzero(~dsbf.unseen(keys(9000, 18_000))) <= 10
            assert dsbf.unseen([]).tolist() == dsbf.add([]).tolist() == []
        assert small.statistics().splits > 15
        assert small.statistics().worst_rate <= SMALL.false_positive
        small.check()


def test_the_rate_is_the_one_asked_for_also_after_splits(urls: list[str]) -> None:
    """Thirty times what one leaf holds: at most 1.05 f + 3 sigma of other keys are known, as stated."""
    shape = DsbfParameters(expected=0, false_positive=0.01, leaf_bits=1 << 13)
    with opened(urls, shape) as dsbf:
        for start in range(0, 25_000, 500):
            dsbf.mark(keys(start, start + 500))
        shown = dsbf.statistics()
        rate = np.count_nonzero(~dsbf.unseen(keys(100_000, 150_000))) / 50_000
        dsbf.check()
    assert rate <= 1.05 * 0.01 + 3 * math.sqrt(0.01 * 0.99 / 50_000)
    assert abs(rate - shown.mean_rate) <= 5 * math.sqrt(0.01 * 0.99 / 50_000)
    assert shown.splits > 10
    assert 0.98 * 25_000 <= shown.elements <= 25_000
    assert (shown.leaves - 1) == 3 * shown.splits
    assert shown.worst_rate <= 0.01
    assert shown.log_bytes >= 16 * shown.elements
    assert shown.bits_bytes >= 1024 * shown.leaves


def test_a_key_falsely_known_is_logged_by_mark_all_the_same(urls: list[str]) -> None:
    """After the splits that follow it is still known: its fingerprint was kept though its bits were all set."""
    with opened(urls, TINY) as dsbf:
        dsbf.mark(keys(6))
        falsely = [k for k, is_new in zip(keys(6, 5000), dsbf.unseen(keys(6, 5000)), strict=True) if not is_new]
        assert len(falsely) > 3
        dsbf.mark(falsely)
        assert dsbf.statistics().splits == 0
        dsbf.mark(keys(6, 300))
        end_splits(dsbf)
        assert dsbf.statistics().splits > 5
        assert not dsbf.unseen(falsely + keys(300)).any()


def test_four_processes_find_each_key_new_exactly_once(urls: list[str]) -> None:
    """They add overlapping ranges through several splits at the same time, each in an order of its own."""
    ranges = [(0, 1500), (500, 2000), (0, 2000), (250, 1750)]
    with ExitStack() as stack:
        running = [stack.enter_context(crawling(start, stop, seed, urls)) for seed, (start, stop) in enumerate(ranges)]
        found = Counter(int(word) for process in running for word in process.communicate()[0].split())
        assert [process.returncode for process in running] == [0] * 4
    assert {number: count for number, count in found.items() if count > 1} == {}
    assert len(found) == 2000
    with opened(urls) as dsbf:
        assert dsbf.statistics().splits > 3
        assert not dsbf.unseen([key(number) for number in found]).any()
        dsbf.check()


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(2, 3))
def test_a_key_is_new_once_whatever_others_do_between_two_calls(
    servers: list[RedisServer], seed: int, number: int
) -> None:
    """Before each single script of one crawler another one may add the same keys, split and move; all orders occur."""
    for server in servers:
        client(server.url).flushall()
    urls, dice = [server.url for server in servers[:number]], random.Random(seed)
    shape = DsbfParameters(expected=0, false_positive=1e-6, leaf_bits=512, split_fan_out=2)
    one, other = opened(urls, shape), opened(urls, shape)
    found = Counter[int]()

    def add(dsbf: SharedDsbf) -> None:
        batch = [dice.randrange(80) for _ in range(dice.randrange(1, 8))]
        new = dsbf.add([key(n) for n in batch]).tolist()
        found.update(n for n, is_new in zip(batch, new, strict=True) if is_new)

    def between() -> None:
        if dice.random() < 0.4:
            add(other)
        asked = [n for n in found if dice.random() < 0.1]
        assert not other.unseen([key(n) for n in asked]).any()

    Interleaved(one, between, dice)
    for _ in range(12):
        add(one)
    assert set(found.values()) <= {1}
    assert not one.unseen([key(n) for n in found]).any()
    assert one.statistics().splits
    end_splits(other)
    other.check()
    assert len(found) == other.statistics().elements
    one.close()
    other.close()


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1 << 30))
def test_a_crawler_may_die_before_any_call(servers: list[RedisServer], seed: int) -> None:
    """Whatever step of a split it died at, the others go on, and all that was said to be new is known for ever."""
    for server in servers:
        client(server.url).flushall()
    urls, dice = [server.url for server in servers], random.Random(seed)
    shape = DsbfParameters(expected=0, false_positive=1e-6, leaf_bits=512, split_fan_out=2)
    found = Counter[int]()
    for life in range(8):
        left = dice.randrange(2, 30)

        def between() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Crash

        crawler = SharedDsbf.open(urls, parameters=shape)
        crawler._splitter._lease_ms = 1
        Interleaved(crawler, between, dice)
        try:
            for start in range(0, 200, 5):
                batch = range(life * 40 + start, life * 40 + start + 5)
                new = crawler.add([key(n) for n in batch]).tolist()
                found.update(n for n, is_new in zip(batch, new, strict=True) if is_new)
        except Crash:
            crawler.close()
    with SharedDsbf.open(urls, parameters=shape) as dsbf:
        dsbf._splitter._lease_ms = 1
        assert set(found.values()) <= {1}
        assert not dsbf.unseen([key(n) for n in found]).any()
        end_splits(dsbf)
        assert not dsbf.unseen([key(n) for n in found]).any()
        dsbf.check()


# --- the split, step by step


def test_two_crawlers_at_the_split_change_the_manifest_once(urls: list[str]) -> None:
    """Both freeze the leaf and make the same children; one replaces the manifest, the other takes that tree over."""
    one, count = full_leaf(urls)
    other = opened(urls)
    old = other._manifest.tree
    one._splitter.split([1])
    first = one._manifest.tree
    assert other._manifest.tree is old
    other._splitter.split([1])
    assert other._manifest.tree.revision == first.revision
    assert client(urls[0]).hget("anabranch:manifest", "revision").decode() == first.revision
    assert one.statistics().splits == other.statistics().splits == 1
    assert not other.unseen(keys(count)).any()
    assert len(client(urls[0]).keys("*leaf:0.*")) >= 1


def test_a_leaf_frozen_by_a_dead_crawler_is_split_by_the_next(urls: list[str]) -> None:
    """Its leaf takes nothing and the manifest knows of no split: who meets this takes the missing steps."""
    dead, count = full_leaf(urls)
    assert dead._leaves.freeze([dead._manifest.tree.places[1]], count) == [True]
    with opened(urls) as dsbf:
        assert not dsbf.unseen(keys(count)).any()
        assert dsbf.add(keys(count - 10, count + 10)).tolist() == [False] * 10 + [True] * 10
        assert dsbf.statistics().splits == 1


def test_a_leaf_that_is_not_full_is_not_frozen(urls: list[str]) -> None:
    """A crawler with an old idea of a leaf cannot make it split."""
    with opened(urls) as dsbf:
        dsbf.add(keys(5))
        dsbf._splitter.split([1])
        assert dsbf.statistics().splits == 0
        assert dsbf.add(keys(10)).sum() == 5


def test_a_movers_lease_keeps_others_away_until_it_ends(urls: list[str]) -> None:
    """While it lasts, others add and do not move; then the next one begins where the dead one had come to."""
    dead, count = full_leaf(urls)
    dead._splitter.split([1])
    place = dead._manifest.tree.places[1]
    (step,) = dead._leaves.fetch([place], dead._splitter._mover, 60_000, 10, steal=False)
    assert dead._splitter._put([step])
    assert dead._leaves.advance([place], [step]) == [False]
    with opened(urls) as dsbf:
        assert dsbf.add(keys(count + 5)).sum() == 5
        assert dsbf._leaves.states([place])[0].moved == 10
        client(urls[place.server]).delete("anabranch:leaf:0:mover")  # as its time-out does
        dsbf._splitter._busy_until.clear()
        dsbf._splitter.move(1)
        assert dsbf.statistics().splitting == 0
        assert not dsbf.unseen(keys(count + 5)).any()
        assert not client(urls[place.server]).exists("anabranch:leaf:0:bits", "anabranch:leaf:0:log")
        assert dsbf.statistics().elements == count + 5


def test_of_two_movers_with_the_same_part_one_advances(urls: list[str]) -> None:
    """The second's step began at a place that is passed: it changes nothing, so no part is ever skipped."""
    dsbf, _ = full_leaf(urls)
    dsbf._splitter.split([1])
    place = [dsbf._manifest.tree.places[1]]
    (one,) = dsbf._leaves.fetch(place, "a", 1000, 10, steal=False)
    (two,) = dsbf._leaves.fetch(place, "b", 1000, 20, steal=True)
    assert dsbf._leaves.fetch(place, "a", 1000, 10, steal=False) == [None]
    dsbf._leaves.advance(place, [one])
    dsbf._leaves.advance(place, [two])
    assert dsbf._leaves.states(place)[0].moved == 10
    dsbf._leaves.rewind(place)
    (late,) = dsbf._leaves.fetch(place, "a", 1000, 10, steal=True)
    dsbf._leaves.advance(place, [one])  # of the turn before
    assert dsbf._leaves.states(place)[0].moved == 0
    dsbf._leaves.advance(place, [late])
    assert dsbf._leaves.states(place)[0].moved == 10


def test_one_call_moves_a_bounded_number_of_elements(urls: list[str]) -> None:
    """At most MOVE_AT_LEAST for a call with few keys, although thousands wait to be moved."""
    shape = DsbfParameters(expected=0, false_positive=1e-3, leaf_bits=1 << 18)
    with opened(urls, shape) as dsbf:
        assert shape.split_above > 5 * MOVE_AT_LEAST
        dsbf.mark(keys(shape.split_above))
        place = dsbf._manifest.tree.places[1]
        dsbf._leaves.freeze([place], 1)
        dsbf._splitter.split([1])
        for turn in range(1, 5):
            dsbf.add(keys(turn))
            assert dsbf._leaves.states([place])[0].moved == turn * MOVE_AT_LEAST


def test_a_crawler_with_an_old_tree_sees_what_is_in_the_children(urls: list[str]) -> None:
    """A frozen leaf does not answer those who do not know that it splits, since what is newer is below it."""
    one, count = full_leaf(urls)
    stale = opened(urls)
    assert one.add(keys(count, count + 20)).all()
    assert len(stale._manifest.tree.tree) == 2
    assert not stale.unseen(keys(count + 20)).any()
    end_splits(one)
    stale = opened(urls)
    one.mark(keys(count + 20, 3 * count))
    end_splits(one)
    assert not stale.unseen(keys(3 * count)).any()
    assert not stale.add(keys(3 * count)).any()


def test_a_leaf_is_never_made_a_second_time(urls: list[str]) -> None:
    """A crawler that comes to help after the split of the children cannot revive one of them, empty."""
    dsbf, count = full_leaf(urls)
    late = dsbf._manifest.tree.children(1, 3)
    dsbf.mark(keys(20 * count))
    end_splits(dsbf)
    dsbf._leaves.create(late)
    assert {state.stage for state in dsbf._leaves.states(late)} == {"gone"}
    assert not dsbf.unseen(keys(20 * count)).any()


# --- crashes of crawlers and servers


@pytest.mark.slow
def test_a_crawler_killed_while_it_moves_elements_loses_nothing(urls: list[str]) -> None:
    """SIGKILL, five times over at different moments: what it had said to be new is known, and is never new again."""
    found = Counter[int]()
    for life, lines in enumerate((7, 12, 19, 26, 31)):
        with crawling(life * 700, life * 700 + 1500, life, urls) as process:
            read = [process.stdout.readline() for _ in range(lines)]
            process.kill()
            read += process.communicate()[0].splitlines()
        found.update(int(word) for line in read for word in line.split())
    assert set(found.values()) == {1}
    with opened(urls) as dsbf:
        assert dsbf.statistics().splits > 3
        assert not dsbf.unseen([key(number) for number in found]).any()
        for place in dsbf._manifest.tree.places[1:]:
            client(urls[place.server]).delete(f"anabranch:leaf:{place.path}:mover")
        end_splits(dsbf)
        assert not dsbf.unseen([key(number) for number in found]).any()
        dsbf.check()


@pytest.mark.slow
def test_a_server_killed_and_restarted_with_its_file_has_everything(tmp_path: Path) -> None:
    """SIGKILL while leaves split: an error at once that names it; afterwards the same instances go on, nothing is lost."""
    with redis_servers(tmp_path, 2, appendonly="yes", appendfsync="always") as running:
        addresses = [server.url for server in running]
        with opened(addresses) as one, opened(addresses) as other:
            for turn in range(4):
                assert one.add(keys(turn * 700, turn * 700 + 700)).all()
                running[turn % 2].kill()
                for dsbf in (one, other):
                    with pytest.raises(StoreUnavailable, match=f"{running[turn % 2].port} does not answer"):
                        dsbf.unseen(keys(5000))
                running[turn % 2].start()
                for dsbf in (one, other):
                    assert not dsbf.unseen(keys(turn * 700 + 700)).any()
                    assert dsbf.unseen(keys(50_000, 51_000)).all()
            end_splits(other)
            assert not one.unseen(keys(2800)).any()
            one.check()


def test_what_a_server_forgot_of_a_split_is_done_again(urls: list[str]) -> None:
    """Its last second before a crash held the making of two children: the splitting leaf still has their elements."""
    dsbf, count = full_leaf(urls)
    dsbf._splitter.split([1])
    place = dsbf._manifest.tree.places[1]
    (step,) = dsbf._leaves.fetch([place], dsbf._splitter._mover, 1, 100, steal=False)
    assert dsbf._splitter._put([step])
    dsbf._leaves.advance([place], [step])
    for child in dsbf._manifest.tree.children(1, 3)[:2]:
        name = f"anabranch:leaf:{child.path}"
        client(urls[child.server]).delete(name, f"{name}:bits", f"{name}:log")
    assert dsbf.unseen(keys(count, count + 50)).all()
    assert dsbf._leaves.states([place])[0].moved == 0
    end_splits(dsbf)
    assert not dsbf.unseen(keys(count)).any()
    dsbf.check()


def test_a_freeze_that_a_server_forgot_is_made_up_for(urls: list[str]) -> None:
    """A leaf that the manifest calls splitting is frozen by whoever asks it, so that two never find one key new."""
    dsbf, count = full_leaf(urls)
    stale = opened(urls, SMALL)
    dsbf._splitter.split([1])
    place = dsbf._manifest.tree.places[1]
    client(urls[place.server]).hset("anabranch:leaf:0", mapping={"stage": "open", "count": count - 5})
    assert dsbf.unseen(keys(count, count + 1)).all()
    assert dsbf._leaves.states([place])[0].stage == "frozen"
    assert dsbf.add(keys(count, count + 1)).all()
    assert not stale.add(keys(count, count + 1)).any()


def test_a_manifest_that_went_back_is_brought_up_again(urls: list[str]) -> None:
    """The first server lost the last changes of the tree; the leaves know better, and say so."""
    dsbf, count = full_leaf(urls)
    held = client(urls[0]).hgetall("anabranch:manifest")
    assert dsbf.add(keys(count, 4 * count)).all()
    end_splits(dsbf)
    client(urls[0]).hset("anabranch:manifest", mapping=held)
    with opened(urls) as fresh:
        assert fresh.statistics().splits == 0
        assert not fresh.unseen(keys(4 * count)).any()
        assert not fresh.add(keys(4 * count)).any()
        assert not dsbf.add(keys(4 * count)).any()
        end_splits(fresh)
        assert fresh.statistics().elements == 4 * count


@pytest.mark.parametrize("flushed", [0, 1])
def test_a_flushed_server_is_told_apart_from_an_empty_filter(urls: list[str], flushed: int) -> None:
    """Neither those who have the filter open nor those who open it get an answer; the message says what to do."""
    with opened(urls) as dsbf:
        dsbf.add(keys(1000))
        client(urls[flushed]).flushall()
        lost = f"{urls[flushed].removeprefix('redis://')} has lost .* remove all keys anabranch:\\*"
        for call in (dsbf.unseen, dsbf.add, dsbf.mark):
            with pytest.raises(StoreUnavailable, match=lost):
                call(keys(1000))
        with pytest.raises(StoreUnavailable, match=lost):
            opened(urls)
        with pytest.raises(StoreUnavailable, match=lost):
            dsbf.statistics()
        assert not client(urls[flushed]).keys("*:bits")


def test_a_filter_made_anew_is_not_the_old_one(urls: list[str]) -> None:
    """All servers were flushed and another crawler began again: the old instance stops, a new one sees an empty set."""
    with opened(urls) as old:
        old.add(keys(10))
        for url in urls:
            client(url).flushall()
        with opened(urls) as new, opened(urls) as other:
            assert new.generation == other.generation != old.generation
            assert new.add(keys(10)).all()
            for call in (old.unseen, old.add):
                with pytest.raises(StoreUnavailable, match="made anew"):
                    call(keys(20))
            assert new.unseen(keys(20)).sum() == 10


@pytest.mark.parametrize("removed", ["leaf:0", "leaf:0:bits", "leaf:0:log", "manifest"])
def test_a_missing_key_is_never_an_answer(urls: list[str], removed: str) -> None:
    """Evicted or deleted by hand: no question about that leaf is answered, and nothing is made in its place."""
    with opened(urls[:1]) as dsbf:
        dsbf.add(keys(10))
        client(urls[0]).delete(f"anabranch:{removed}")
        with pytest.raises(StoreUnavailable, match="has lost"):
            dsbf.statistics() if removed == "manifest" else dsbf.add(keys(20))
        assert not client(urls[0]).exists(f"anabranch:{removed}")


def test_a_token_of_another_making_is_never_answered(urls: list[str]) -> None:
    """Each call names the generation of its server's part; a wrong one is refused by every script."""
    with opened(urls[:1]) as dsbf:
        dsbf.add(keys(10))
        leaves, place, element = (
            RemoteLeaves(dsbf._servers, "anabranch", ["x"], 1 << 14, 29),
            LeafAddress(0, "0"),
            np.zeros((1, 2)),
        )
        elements, of = element.astype(np.uint64), np.zeros(1, dtype=np.int64)
        for call in (
            lambda: leaves.test([place], of, elements),
            lambda: leaves.put([place], of, elements, [9], "new"),
            lambda: leaves.create([place]),
            lambda: leaves.freeze([place], 0),
            lambda: leaves.fetch([place], "me", 1, 1, steal=True),
            lambda: leaves.rewind([place]),
            lambda: leaves.drop([place]),
            lambda: leaves.states([place]),
            lambda: leaves.read(place),
        ):
            with pytest.raises(StoreUnavailable, match="has lost its part"):
                call()
        dsbf.check()
        assert dsbf._leaves.states([place])[0].stage == "open"


# --- opening


def test_two_who_make_a_filter_at_once_make_one(urls: list[str]) -> None:
    """Between any two steps of the first the second does all of them; both then share one set."""
    made: list[SharedDsbf] = []
    for before in range(1, 9):
        for url in urls:
            client(url).flushall()
        made.clear()

        def sent(_: list[int], turns: list[int] = [before]) -> None:  # noqa: B006
            turns[0] -= 1
            if turns[0] == 0:
                made.append(opened(urls))

        with opened(urls, on_sent=sent) as slow:
            other = made[0] if made else opened(urls)
            assert slow.add(keys(10)).all()
            assert not other.add(keys(10)).any()
            other.close()


def test_a_filter_half_made_is_completed(urls: list[str]) -> None:
    """Its maker died at any of its calls: the next one goes on, and nothing was in it yet."""
    for before in range(1, 9):
        for url in urls:
            client(url).flushall()

        def die(_: list[int], turns: list[int] = [before]) -> None:  # noqa: B006
            turns[0] -= 1
            if turns[0] == 0:
                raise Crash

        with contextlib.suppress(Crash):
            opened(urls, on_sent=die).close()
        with opened(urls) as dsbf:
            assert dsbf.add(keys(10)).all()


def test_other_parameters_are_refused(urls: list[str]) -> None:
    """The message names what differs; the filter is not touched."""
    with opened(urls) as dsbf:
        dsbf.add(keys(10))
        with pytest.raises(FormatMismatch, match="leaf_bits is 16384 on the server, 64 here"):
            opened(urls, TINY)
        assert not dsbf.unseen(keys(10)).any()


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 1), (2,), (0, 1, 2, 0)])
def test_other_servers_are_refused(urls: list[str], order: tuple[int, ...]) -> None:
    """Another order, fewer or more servers: leaves would be looked for on the wrong one."""
    opened(urls).close()
    with pytest.raises(FormatMismatch, match="in the same order"):
        opened([urls[place] for place in order])


def test_the_same_server_twice_is_refused(urls: list[str]) -> None:
    """A new filter cannot have two parts on one server."""
    with pytest.raises(FormatMismatch, match="in the same order"):
        opened([urls[0], urls[0]])


@pytest.mark.parametrize("name", ["part", "manifest"])
@pytest.mark.parametrize(
    "value",
    ["text", {"field": "of another program"}, {"body": "no tree", "record": "{}", "token": "t", "revision": "r"}],
)
def test_keys_of_something_else_are_refused(urls: list[str], name: str, value: str | dict[str, str]) -> None:
    """Keys of another kind, or of another program, under the filter's name."""
    if isinstance(value, str):
        client(urls[0]).set(f"anabranch:{name}", value)
    else:
        client(urls[0]).hset(f"anabranch:{name}", mapping=value)
    with pytest.raises(FormatMismatch):
        opened(urls)


@pytest.mark.parametrize(
    "change", [{"splitting": 3}, {"splitting": [1]}, {"magic": "x"}, {"fan_out": [1]}, {"version": 2}]
)
def test_a_damaged_manifest_is_refused(urls: list[str], change: dict[str, object]) -> None:
    """Its text is JSON but not a tree."""
    opened(urls).close()
    body = json.loads(client(urls[0]).hget("anabranch:manifest", "body"))
    client(urls[0]).hset("anabranch:manifest", "body", json.dumps(body | change))
    with pytest.raises(FormatMismatch, match="damaged"):
        opened(urls)


def test_a_manifest_with_a_token_too_few_is_refused(urls: list[str]) -> None:
    """Its leaves would be looked for on servers that it does not name."""
    opened(urls).close()
    body = json.loads(client(urls[0]).hget("anabranch:manifest", "body"))
    body["tokens"].pop()
    client(urls[0]).hset("anabranch:manifest", "body", json.dumps(body))
    with pytest.raises(FormatMismatch, match="one token for each server"):
        opened(urls)


def test_filters_of_several_names_share_the_servers(urls: list[str]) -> None:
    """A name is a set of its own."""
    with SharedDsbf.open(urls, "one", SMALL) as one, SharedDsbf.open(urls, "two", LARGE) as two:
        one.add(keys(10))
        assert two.unseen(keys(10)).all()


# --- errors


def test_without_redis_py_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """redis-py is an extra of the distribution."""
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "anabranch.dedup.bloom.redis")
    with pytest.raises(BadParameters, match=re.escape(install_command("redis"))):
        opened(["redis://127.0.0.1:1"])


@pytest.mark.parametrize("bad", ["http://127.0.0.1:1", "127.0.0.1:6379", "redis://u:secret@h:port", ""])
def test_a_bad_url_is_named_without_its_password(bad: str) -> None:
    """Found before anything is connected."""
    with pytest.raises(BadParameters, match="is not the URL of a Redis server") as caught:
        opened([bad])
    assert "secret" not in str(caught.value)


def test_no_url_is_an_error() -> None:
    """There is no default server."""
    with pytest.raises(BadParameters, match="at least one URL"):
        opened([])


def test_a_server_that_is_down_is_named(urls: list[str]) -> None:
    """Also if the others are up; nothing is made on them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match=f"{address} does not answer"):
            opened([urls[0], f"redis://{address}"])
    assert client(urls[0]).dbsize() == 0


def test_a_server_that_says_nothing_is_given_up(urls: list[str]) -> None:
    """After the time-out that the caller chose."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnavailable, match="does not answer"):
            opened([urls[0], url], timeout_s=0.1)


def test_what_is_not_a_redis_server_is_told() -> None:
    """Another service listens there."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(100)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(BadParameters, match="is not a Redis server"):
            opened([f"redis://127.0.0.1:{other.getsockname()[1]}"])
        thread.join()


def test_a_wrong_password_and_a_full_memory_are_told(tmp_path: Path) -> None:
    """Each with a line of its own; after a full memory the set is as it was, and room lets the call succeed."""
    with redis_servers(tmp_path, 1, requirepass="secret") as (server,):
        for url in (server.url, server.url.replace("//", "//:wrong@")):
            with pytest.raises(BadParameters, match="refuses user or password") as caught:
                opened([url])
            assert "wrong" not in str(caught.value)
        url = server.url.replace("//", "//:secret@")
        with opened([url]) as dsbf:
            dsbf.add(keys(10))
            client(url).config_set("maxmemory", "1")
            for call in (dsbf.add, dsbf.mark):
                with pytest.raises(StoreFull, match="no memory left") as full:
                    call(keys(20))
            assert isinstance(full.value, OSError)
            assert dsbf.unseen(keys(20)).tolist() == [False] * 10 + [True] * 10
            client(url).config_set("maxmemory", "0")
            assert dsbf.add(keys(20)).tolist() == [False] * 10 + [True] * 10


def test_scripts_that_a_server_forgot_are_loaded_again(urls: list[str]) -> None:
    """SCRIPT FLUSH by an operator stops no crawler."""
    with opened(urls) as dsbf:
        client(urls[0]).script_flush()
        assert dsbf.add(keys(300)).all()
        for url in urls:
            client(url).script_flush()
        assert not dsbf.unseen(keys(300)).any()


def test_a_closed_filter_answers_nothing(urls: list[str]) -> None:
    """`close` may be repeated; the servers keep the set."""
    dsbf = opened(urls)
    dsbf.close()
    dsbf.close()
    for call in (dsbf.unseen, dsbf.add, dsbf.mark):
        with pytest.raises(FilterClosed):
            call(keys(1))
    assert repr(dsbf) == "<SharedDsbf anabranch closed>"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("SETBIT", "anabranch:leaf:0:bits", "7", "BIT"), "bits are not those of its log"),
        (("SETRANGE", "anabranch:leaf:0:log", "0", "x" * 16), "bits are not those of its log"),
        (("APPEND", "anabranch:leaf:0:log", "x" * 16), "its log has 11"),
        (("HSET", "anabranch:leaf:0", "count", "11"), "counts 11 elements"),
    ],
)
def test_check_finds_a_leaf_that_contradicts_itself(urls: list[str], command: tuple[str, ...], message: str) -> None:
    """Bits, log and count are compared."""
    with opened(urls) as dsbf:
        dsbf.add(keys(10))
        dsbf.check()
        flipped = 1 - client(urls[0]).getbit("anabranch:leaf:0:bits", 7)
        client(urls[0]).execute_command(*[str(flipped) if word == "BIT" else word for word in command])
        with pytest.raises(InvariantBroken, match=message):
            dsbf.check()


def test_check_tells_lost_bits_from_wrong_ones(urls: list[str]) -> None:
    """A leaf without its bits was lost in part by its server."""
    with opened(urls) as dsbf:
        dsbf.add(keys(10))
        client(urls[0]).delete("anabranch:leaf:0:bits")
        with pytest.raises(StoreUnavailable, match="has lost its part"):
            dsbf.check()
