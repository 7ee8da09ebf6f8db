"""What was sent elsewhere lately."""

from anabranch.dedup.recent import RecentKeys
from anabranch.frontier.division.lately import BesideLately
from anabranch.frontier.seen import ExactFilter


def test_what_was_sent_is_seen_and_all_else_is_asked_of_the_own_filter() -> None:
    """Each answer stands at the place of its key."""
    own, lately = ExactFilter(), RecentKeys[bytes](50)
    beside = BesideLately(own, lately)
    own.mark([b"own"])
    assert list(beside.unseen([b"own", b"sent", b"new"])) == [False, True, True]
    lately.add([b"sent"])
    assert list(beside.unseen([b"sent", b"own", b"new", b"sent"])) == [False, False, True, False]
