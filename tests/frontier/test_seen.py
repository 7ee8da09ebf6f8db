"""The exact filter: a set that forgets at the end of the process."""

from anabranch.frontier.seen import ExactFilter, SeenFilter


def test_a_key_is_unseen_until_it_is_marked() -> None:
    """One answer per key, in order."""
    seen: SeenFilter = ExactFilter()
    assert list(seen.unseen([b"a", b"b"])) == [True, True]
    seen.mark([b"b"])
    assert list(seen.unseen([b"a", b"b", b"b"])) == [True, False, False]


def test_marking_twice_is_harmless() -> None:
    """The second mark changes nothing."""
    seen = ExactFilter()
    seen.mark([b"a", b"a"])
    seen.mark([b"a"])
    assert seen.facts() == {
        "filter": "memory",
        "keys": 1,
        "asked": 0,
        "memory_known": 0,
        "memory_new": 0,
        "false_drop_probability": 0.0,
        "expected_lost": 0.0,
    }


def test_sync_and_close_may_be_called_at_any_time() -> None:
    """There is nothing to write and nothing to let go of; what is known stays known."""
    seen = ExactFilter()
    seen.mark([b"a"])
    seen.sync()
    seen.close()
    seen.close()
    assert seen.unseen([b"a"]) == [False]


def test_nothing_outlives_the_process() -> None:
    """So it has no position, whatever was synced, and a store that lasts tells it every row at each opening."""
    seen: SeenFilter = ExactFilter()
    seen.mark([b"a"])
    seen.sync()
    assert seen.position() == ""


def test_memory_never_waits_for_a_network() -> None:
    """The core may ask it in its own thread."""
    seen: SeenFilter = ExactFilter()
    assert not seen.blocks
