"""The store in memory and the store in SQL give the same answers to the same words, whatever they are."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.models import FRONT, NORMAL, OutcomeKind, Row, UrlRecord
from frontier.stores.base import Counters, Ended, FrontierStore, HeadsRead, LaneId, Moved
from frontier.stores.memory import MemoryStore
from frontier.stores.sql import SqlStore
from tests.frontier.stores.rows import A_LANE, IDENTITY, OTHER_LANE, Teller, duplicates, read, synced, waiting
from tests.frontier.stores.rows import row as make_row

LANES: list[LaneId] = [A_LANE, OTHER_LANE, (A_LANE[0], OTHER_LANE[1])]
KEYS = [f"http://a.test/{number}" for number in range(8)]
KINDS = [OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED]

#: (URL, lane, goes first, forced) of a new row.
NEW = st.tuples(st.sampled_from(KEYS), st.sampled_from(LANES), st.booleans(), st.integers(0, 9).map(lambda n: n == 0))
#: What becomes of a live row: (which one, to its end or to wait or back, kind of end).
FATE = st.tuples(st.integers(0, 99), st.sampled_from(["end", "wait", "back"]), st.sampled_from(KINDS))
WRITE = st.tuples(st.lists(NEW, max_size=6), st.lists(FATE, max_size=4))
READ = st.tuples(st.sampled_from(LANES), st.integers(1, 5))
FLUSH = st.just(None)


@dataclass
class Pair:
    """Says the same to both stores; which rows live is known from the store in memory, which answers at once."""

    memory: Teller
    sql: Teller
    live: list[Row] = field(default_factory=list)
    last_ordinal: int = 0
    answers: list[object] = field(default_factory=list)

    def write(self, new: list[tuple[str, LaneId, bool, bool]], fates: list[tuple[int, str, OutcomeKind]]) -> None:
        ended, moved = self._decide(fates)
        first = self.last_ordinal + 1
        self.last_ordinal += len(new)
        rows = [
            make_row(ordinal, url, lane, FRONT if goes_first else NORMAL, via=ordinal // 2)
            for ordinal, (url, lane, goes_first, _) in enumerate(new, start=first)
        ]
        forced = {ordinal for ordinal, (*_, is_forced) in enumerate(new, start=first) if is_forced}
        for teller in (self.memory, self.sql):
            teller.say(rows, forced=forced, ended=ended, moved=moved)
        answers = self.memory.store.take_answers()
        self.answers += answers
        dead = {row.ordinal for answer in synced(answers) for row in answer.duplicates}
        self.live += [row for row in rows if row.ordinal not in dead]

    def _decide(self, fates: list[tuple[int, str, OutcomeKind]]) -> tuple[list[Ended], list[Moved]]:
        """Each row at most once in a batch, as a lease comes back once."""
        ended, moved, back = [], [], []
        for index, fate, kind in fates[: len(self.live)]:
            row = self.live.pop(index % len(self.live))
            if fate == "end":
                ended.append(Ended(row, index, kind))
                continue
            place = waiting(row, float(index)) if fate == "wait" else row._replace(precedence=FRONT, due_s=None)
            moved.append(Moved(row, place))
            back.append(place)
        self.live += back
        return ended, moved

    def ask(self, lane: LaneId, limit: int) -> None:
        for teller in (self.memory, self.sql):
            teller.store.ask_heads(lane, limit)


def facts(store: FrontierStore) -> tuple[list[UrlRecord | None], dict[bytes, UrlRecord], Counters, list[bytes]]:
    """What a store knows, counted and one by one."""
    keys = sorted(key for chunk in store.keys(3) for key in chunk)
    named = [key.encode() for key in KEYS]
    return [store.look_up(key) for key in named], store.ended(named), store.counters(), keys


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(WRITE.map(lambda said: ("write", said)), READ.map(lambda said: ("ask", said)), FLUSH)))
def test_both_stores_say_the_same(steps: list[tuple[str, tuple[object, object]] | None]) -> None:
    """Reads, duplicates, look-ups, counters and keys: neither grouping nor coalescing can be seen from outside."""
    with tempfile.TemporaryDirectory() as folder:
        memory, sql = MemoryStore(), SqlStore(Path(folder) / "frontier.db")
        for store in (memory, sql):
            store.open(IDENTITY, lambda: None)
        pair = Pair(Teller(memory), Teller(sql))
        for step in steps:
            if step is None:
                sql.flush()
            else:
                getattr(pair, step[0])(*step[1])
        expected, said = [*pair.answers, *memory.take_answers()], pair.sql.answers()
        assert by_read(read(said)) == by_read(read(expected))  # type: ignore[arg-type]
        assert duplicates(said) == duplicates(expected)  # type: ignore[arg-type]
        assert facts(sql) == facts(memory)
        sql.close(clean=False)


def by_read(reads: list[HeadsRead]) -> list[tuple[LaneId, list[tuple[int, str | None]]]]:
    """The reads in their order; a head by its ordinal and its parent."""
    return [(answer.lane, [(head.row.ordinal, head.via) for head in answer.heads]) for answer in reads]
