"""What every store promises about what a share of a crawl keeps for the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.frontier.stores.contract import Batch, Exchanged, FrontierStore, HeadsRead, Parcel
from tests.frontier.stores.rows import A_LANE, KINDS, Home, Teller, answers_of, done, home, row


@pytest.fixture(params=KINDS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with home(request.param, tmp_path) as made:
        made.open()
        yield made


def tell(
    teller: Teller,
    parcels: list[Parcel] | None = None,
    delivered: list[tuple[int, int]] | None = None,
    pages: list[tuple[int, str]] | None = None,
) -> None:
    """A batch that speaks of other shares alone."""
    teller.number += 1
    batch = Batch(teller.number, teller.now_s)
    batch.exchanged = Exchanged()
    batch.exchanged.parcels += parcels or []
    batch.exchanged.delivered += delivered or []
    batch.exchanged.pages += pages or []
    batch.last_number = teller.last_number = max([teller.last_number, *(parcel.number for parcel in parcels or [])])
    assert not batch.is_empty
    teller.store.write(batch)


def contents(store: FrontierStore, share: int, after: int = 0, limit: int = 100) -> bytes:
    return b"".join(parcel.content for parcel in store.parcels(share, after, limit))


def test_a_parcel_is_kept_until_its_share_has_it(kept: Home) -> None:
    """Each share has its own; what one has received goes, what another has not received stays."""
    teller = kept.teller
    tell(teller, [Parcel(1, 5, b"five"), Parcel(2, 6, b"six")])
    assert (contents(teller.store, 1), contents(teller.store, 2), contents(teller.store, 3)) == (b"five", b"six", b"")
    tell(teller, delivered=[(1, 5)])
    assert (contents(teller.store, 1), contents(teller.store, 2)) == (b"", b"six")


def test_a_parcel_that_comes_after_what_was_delivered_stays(kept: Home) -> None:
    """Numbers rise: what is said to be delivered in the same transaction takes nothing that is newer."""
    teller = kept.teller
    tell(teller, [Parcel(1, 1, b"one")])
    teller.answers()
    tell(teller, [Parcel(1, 2, b"two")])
    tell(teller, delivered=[(1, 1)])
    assert contents(teller.store, 1) == b"two"


def test_parcels_come_in_their_order_and_nothing_of_them_is_lost(kept: Home) -> None:
    """Several may have become one, whose number is the last one's."""
    teller = kept.teller
    sent = [Parcel(1, number, b"%d\n" % number) for number in range(1, 40)]
    for parcel in sent:
        tell(teller, [parcel])
    assert contents(teller.store, 1) == b"".join(parcel.content for parcel in sent)
    assert teller.store.parcels(1, 0, 100)[-1].number == 39


def test_parcels_are_read_on_behind_a_number(kept: Home) -> None:
    """As many as are asked for."""
    teller = kept.teller
    for number in (3, 7, 9):
        tell(teller, [Parcel(1, number, b"%d" % number)])
        teller.answers()
    assert [parcel.number for parcel in teller.store.parcels(1, 0, 2)] == [3, 7]
    assert [parcel.number for parcel in teller.store.parcels(1, 7, 2)] == [9]


def test_what_is_read_is_durable(kept: Home) -> None:
    """A parcel that is handed over survives its owner, and so does the page's end that it came with."""
    teller = kept.teller
    teller.say([row(1)])
    tell(teller, [Parcel(1, 2, b"two")])
    teller.say(ended=[done(row(1))])
    found = teller.store.parcels(1, 0, 100)
    kept.reopen(clean=False)
    assert kept.teller.store.parcels(1, 0, 100) == found


def test_a_head_knows_the_page_of_another_share(kept: Home) -> None:
    """By the negative of the page's number, beside rows that were found here."""
    teller = kept.teller
    tell(teller, pages=[(3, "http://elsewhere.test/page")])
    teller.say([row(1), row(4, via=-3), row(5, via=-9), row(6, via=2)])
    teller.say([row(2, "http://a.test/here")])
    teller.say(ended=[done(row(2, "http://a.test/here"))])
    teller.store.ask_heads(A_LANE, 16, with_queue=False)
    (read,) = answers_of(HeadsRead, teller.answers())
    assert [(head.row.ordinal, head.via) for head in read.heads] == [
        (1, None),
        (4, "http://elsewhere.test/page"),
        (5, None),
        (6, "http://a.test/here"),
    ]
    assert [head.via for head in teller.store.queued(None, 10)] == [head.via for head in read.heads]
