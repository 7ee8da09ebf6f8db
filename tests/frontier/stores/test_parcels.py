"""How the parcels of one transaction are joined."""

from anabranch.frontier.stores.messages import Parcel
from anabranch.frontier.stores.parcels import FULL_BYTES, joined


def test_the_parcels_of_one_share_become_one() -> None:
    """Under the number of the last, whatever came in between for others."""
    parcels = [Parcel(1, 1, b"a"), Parcel(2, 2, b"x"), Parcel(1, 3, b"b")]
    assert list(joined(parcels)) == [Parcel(1, 3, b"ab"), Parcel(2, 2, b"x")]


def test_a_parcel_that_is_full_is_joined_with_no_other() -> None:
    """So what is read and sent at once has a bound."""
    parcels = [Parcel(1, number, b"." * (FULL_BYTES // 2)) for number in range(1, 6)]
    assert [(parcel.number, len(parcel.content)) for parcel in joined(parcels)] == [
        (2, FULL_BYTES),
        (4, FULL_BYTES),
        (5, FULL_BYTES // 2),
    ]


def test_nothing_makes_no_parcel() -> None:
    """A transaction of a crawl without shares writes none."""
    assert list(joined([])) == []
