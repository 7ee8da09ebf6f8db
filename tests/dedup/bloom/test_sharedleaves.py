from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import redis

from anabranch.crawler.lab.filters.redis_servers import RedisServer
from anabranch.dedup.bloom.redis import RedisServers
from anabranch.dedup.bloom.sharedleaves import KNOWN, NEW, NOT_TAKEN
from anabranch.dedup.errors import FormatMismatch, StoreUnavailable
from anabranch.dedup.keys import fingerprint, fingerprints, map_hashes_of
from tests.redis_leaves import RedisLeaves
from tests.redis_server import redis_servers

BITS, HASHES = 1 << 12, 7


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    with redis_servers(tmp_path_factory.mktemp("redis"), 2) as servers:
        yield servers


@pytest.fixture
def servers(running: list[RedisServer]) -> Iterator[RedisServers]:
    for server in running:
        redis.Redis.from_url(server.url).flushall()
    connected = RedisServers([server.url for server in running])
    yield connected
    connected.close()


def elements(*ranges: int) -> np.ndarray:
    return fingerprints([b"%d" % number for number in range(*ranges)])


def test_a_server_sets_the_positions_of_map_hash(servers: RedisServers) -> None:
    """Lua, numpy and plain numbers name the same ones, for 40-bit hashes of any size."""
    leaves = RedisLeaves.open(servers, "x", BITS, HASHES)
    slot, many = leaves.take(), elements(300)
    assert leaves.mark(np.full(300, slot), many).all()
    found = leaves._leaves.read(leaves._places[slot])
    assert found
    state, bits, log = found
    assert np.array_equal(bits, leaves._leaves.image(many))
    hashes = [map_hashes_of(fingerprint(b"%d" % number)) for number in range(300)]
    positions = {(first + i * second) % BITS for first, second in hashes for i in range(HASHES)}
    assert set(np.flatnonzero(np.unpackbits(bits)).tolist()) == positions
    assert np.array_equal(log, many)
    assert state == ("open", 300, 300, 0)


def test_slots_are_spread_over_the_servers(servers: RedisServers, running: list[RedisServer]) -> None:
    """In turn; a dropped slot's bits and log are removed."""
    leaves = RedisLeaves.open(servers, "x", BITS, HASHES)
    slots = [leaves.take() for _ in range(4)]
    leaves.mark(np.array(slots), elements(4))
    clients = [redis.Redis.from_url(server.url) for server in running]
    assert [len(client.keys("*:bits")) for client in clients] == [2, 2]
    leaves.drop(slots[0])
    assert [len(client.keys("*:log")) for client in clients] == [1, 2]
    with pytest.raises(StoreUnavailable):
        leaves.unseen(np.array(slots[:1]), elements(1))


def test_two_processes_never_have_one_slot(servers: RedisServers) -> None:
    """Both count from 0, and mean different leaves."""
    one, other = (RedisLeaves.open(servers, "x", BITS, HASHES) for _ in range(2))
    slot = np.array([one.take()])
    assert slot[0] == other.take()
    one.mark(slot, elements(1))
    assert other.unseen(slot, elements(1)).all()


def test_leaves_of_another_shape_are_refused(servers: RedisServers) -> None:
    """The part on each server says of what shape its leaves are."""
    RedisLeaves.open(servers, "x", BITS, HASHES)
    with pytest.raises(FormatMismatch, match="leaves of 8192 bits"):
        RedisLeaves.open(servers, "x", 2 * BITS, HASHES)


def test_a_full_leaf_answers_what_it_knows_and_takes_no_more(servers: RedisServers) -> None:
    """Its count never exceeds the limit; elements beyond it change nothing, and marked ones that it knows are logged."""
    leaves = RedisLeaves.open(servers, "x", BITS, HASHES)
    leaves.take()
    place, of = leaves._places, np.zeros(30, dtype=np.int64)
    first = leaves._leaves.put(place, of, elements(30), [20], "new")
    assert bytes(first) == bytes([NEW] * 20 + [NOT_TAKEN] * 10)
    assert bytes(leaves._leaves.put(place, of, elements(30), [20], "all")) == bytes([KNOWN] * 20 + [NOT_TAKEN] * 10)
    assert leaves._leaves.states(place) == [("open", 20, 40, 0)]
    found = leaves._leaves.read(place[0])
    assert found
    assert np.array_equal(found[1], leaves._leaves.image(elements(20)))


def test_known_elements_write_nothing(servers: RedisServers, running: list[RedisServer]) -> None:
    """The append-only file does not grow by questions: the server counts no change."""
    leaves = RedisLeaves.open(servers, "x", BITS, HASHES)
    leaves.take()
    of = np.zeros(30, dtype=np.int64)
    leaves._leaves.put(leaves._places, of, elements(30), [99], "new")
    client = redis.Redis.from_url(running[0].url)
    before = client.info("persistence")["rdb_changes_since_last_save"]
    assert bytes(leaves._leaves.put(leaves._places, of, elements(30), [99], "new")) == bytes([KNOWN] * 30)
    assert not leaves.unseen(of, elements(30)).any()
    assert client.info("persistence")["rdb_changes_since_last_save"] == before
