"""What was sent elsewhere lately."""

from anabranch.frontier.division.lately import BesideLately, Lately
from anabranch.frontier.seen import ExactFilter


def test_the_latest_are_remembered_and_the_others_forgotten() -> None:
    """The set is bounded by two generations."""
    lately = Lately(generation=10)
    keys = [b"%d" % number for number in range(40)]
    for key in keys:
        lately.add([key])
    remembered = [key for key in keys if key in lately]
    assert remembered == keys[-len(remembered) :]
    assert 10 <= len(remembered) <= 20


def test_what_is_met_again_and_again_is_not_forgotten() -> None:
    """The links that stand on every page are the ones that are worth it."""
    lately = Lately(generation=10)
    lately.add([b"home"])
    for number in range(100):
        lately.add([b"%d" % number])
        assert b"home" in lately


def test_what_was_sent_is_seen_and_all_else_is_asked_of_the_own_filter() -> None:
    """Each answer stands at the place of its key."""
    own, lately = ExactFilter(), Lately()
    beside = BesideLately(own, lately)
    own.mark([b"own"])
    assert list(beside.unseen([b"own", b"sent", b"new"])) == [False, True, True]
    lately.add([b"sent"])
    assert list(beside.unseen([b"sent", b"own", b"new", b"sent"])) == [False, False, True, False]
