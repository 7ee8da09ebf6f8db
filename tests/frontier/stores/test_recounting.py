"""The recount finds what does not agree, and names it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.frontier.errors import InvariantBroken
from anabranch.frontier.stores.messages import Moved, Standing
from anabranch.frontier.stores.recounting import recount
from tests.frontier.stores.crawl_file import Crawl, crawl
from tests.frontier.stores.rows import A_LANE, OTHER_LANE, done, row, waiting


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crawl]:
    with crawl(tmp_path / "frontier.db") as made:
        made.add(row(1), row(2), row(3), row(4, lane=OTHER_LANE))
        batch = made.batch(ended=[done(row(1))], moved=[Moved(row(2), waiting(row(2), 5.0))])
        batch.standings = [(OTHER_LANE[0], Standing.PAUSED)]
        made.write(batch)
        yield made


def test_what_agrees_is_told(store: Crawl) -> None:
    """As it was counted all along."""
    with store.connection.begin():
        assert recount(store.connection) == store.totals == (4, 3, 1, 0, 0, 0, 1, 1, 2)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM url WHERE ordinal = 3", "the rows make"),
        ("DELETE FROM done", "the rows make"),
        ("DELETE FROM queue WHERE standing = 0", "the rows make"),
        ("UPDATE crawl SET value = '1' WHERE name = 'last_ordinal'", "a row has the number 4, the last is 1"),
        ("UPDATE crawl SET value = '2' WHERE name = 'waiting'", "the rows make"),
        ("UPDATE lane SET count = 3 WHERE count = 2", "counts 3 rows and 1 waiting, and holds 2 and 1"),
        ("UPDATE lane SET waiting = 0", "counts 2 rows and 0 waiting, and holds 2 and 1"),
        ("UPDATE lane SET shelved = 2 WHERE shelved = 1", "stands at 2, its queue at 1"),
        ("UPDATE lane SET servable = 1 - servable", "is kept as servable"),
        (f"DELETE FROM lane WHERE queue = {A_LANE[0]}", "the lanes count 1 rows, the table url holds 3"),
        ("DELETE FROM seen WHERE ordinal = 1", "the key of row 1 is seen at None"),
        ("UPDATE seen SET ordinal = 2 WHERE ordinal = 3", "the key of row 3 is seen at 2"),
        ("INSERT INTO seen VALUES (5, 5)", "5 keys are seen, 4 of them have a row"),
    ],
)
def test_each_kind_of_damage_is_found(store: Crawl, damage: str, words: str) -> None:
    """One line, for the first difference."""
    with store.connection.begin():
        store.connection.exec_driver_sql(damage)
        with pytest.raises(InvariantBroken, match=words):
            recount(store.connection)
