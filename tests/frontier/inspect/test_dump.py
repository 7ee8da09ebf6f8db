"""The dump: what its lines say, in which order, and that it is read back as it was written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.frontier.errors import DumpDamaged, FormatMismatch
from anabranch.frontier.inspect.dump import Dump, dump_lines, load_dump
from anabranch.frontier.inspect.load import Known, Queued
from anabranch.frontier.records import (
    FRONT,
    NEW,
    NORMAL,
    WAITING,
    GateKey,
    Head,
    OutcomeKind,
    QueueKey,
    Row,
    UrlRecord,
    UrlState,
    Verdict,
    turn_of,
)
from anabranch.frontier.stores.contract import (
    Announced,
    Batch,
    Ended,
    EndedRecord,
    FailedRecord,
    Moved,
    Place,
    QueueFacts,
    QueueRow,
    Standing,
)
from anabranch.frontier.stores.memory.store import MemoryStore
from tests.rows import each_row


class Rows:
    """The questions of a store that a dump asks, over lists; it counts them."""

    def __init__(
        self, heads: Iterable[Head] = (), ended: Iterable[EndedRecord] = (), names: Iterable[int] = ()
    ) -> None:
        self.heads = sorted(heads, key=lambda head: place(head.row))
        self.records = sorted(ended, key=lambda record: record.ordinal)
        self.names = sorted(names)
        self.asked: list[str] = []
        self.retry_reads = self

    def failed_after(self, after: int, limit: int) -> list[FailedRecord]:
        """Their way there is known: from a seed, at the time that is their number."""
        failed = [one for one in self.records if one.outcome is OutcomeKind.FAILED and one.ordinal > after]
        return [
            FailedRecord(
                *one[:4], f"{'L' * (one.ordinal % 3)}", 0, one.ordinal % 1024, float(one.ordinal % 1024), b"\x00"
            )
            for one in failed[:limit]
        ]

    def queued(self, after: Place | None, limit: int) -> list[Head]:
        self.asked.append("queued")
        return [head for head in self.heads if after is None or place(head.row) > after][:limit]

    def ended_after(self, after: int, limit: int) -> list[EndedRecord]:
        self.asked.append("ended_after")
        return [record for record in self.records if record.ordinal > after][:limit]

    def ended(self, keys: Sequence[bytes]) -> dict[bytes, UrlRecord]:
        """A key stands for its last row only."""
        last = {key_of(record): record.ordinal for record in self.records}
        for queued in {head.row.dedup_key() for head in self.heads}:
            last.pop(queued, None)
        return {key: UrlRecord("", UrlState.ENDED, 200, "done", 0, last[key]) for key in keys if key in last}

    def queues(self, standing: Standing | None, after: int | None, limit: int) -> list[QueueFacts]:
        self.asked.append("queues")
        names = [queue for queue in self.names if after is None or queue > after][:limit]
        return [QueueFacts(queue_row(queue), 1, 0, 1) for queue in names]


def key_of(record: EndedRecord) -> bytes:
    return record.url.encode() if record.key is None else record.key


def place(row: Row) -> Place:
    return row.queue, row.gate, row.precedence, row.ordinal


def queue_row(queue: int) -> QueueRow:
    return QueueRow(queue, QueueKey(f"queue {queue}"), Standing.OPEN, 3, 0, None, 0, 0)


def row(ordinal: int, **facts: object) -> Row:
    plain = Row(1, 1, NORMAL, ordinal, f"http://a.example/{ordinal}", None, "", 0, 0, None, None)
    return plain._replace(**facts)


def dumped(store: Rows, **options: object) -> list[Mapping[str, object]]:
    return [json.loads(line) for line in dump_lines(store, **options)]


def test_the_first_line_names_the_format_its_version_and_what_the_caller_knows() -> None:
    """A reader sees at once what it has before it."""
    header = dumped(Rows(), facts={"policy": "bkdr:997"})[0]
    assert header == {"anabranch": "frontier", "version": 1, "policy": "bkdr:997"}


def test_ended_urls_come_before_queued_ones_and_the_last_line_counts_both() -> None:
    """Whoever reads in order knows what has ended before anything is queued, and sees that nothing is missing."""
    store = Rows([Head(row(2), None)], [EndedRecord(1, "http://a.example/", None, 200, OutcomeKind.DONE, 0)], [1])
    ended, queued, end = dumped(store)[1:]
    assert ended == {"url": "http://a.example/", "status": 200, "outcome": "done", "attempts": 0}
    assert queued == {"url": "http://a.example/2", "precedence": NORMAL, "queue": "queue 1"}
    assert end == {"end": True, "ended": 1, "queued": 1}


def test_a_waiting_url_keeps_the_precedence_that_it_had_before() -> None:
    """Behind all that can be served it stands in the table only, not in the dump."""
    waiting = row(1, precedence=FRONT + WAITING, due_s=12.5, attempts=2)
    queued = dumped(Rows([Head(waiting, "http://via.example/")]))[1]
    assert queued == {
        "url": "http://a.example/1",
        "via": "http://via.example/",
        "attempts": 2,
        "due_s": 12.5,
        "precedence": FRONT,
    }


def test_a_url_is_dumped_as_its_last_row() -> None:
    """One that was forced after it ended is queued only, else whoever loads the dump would take it for known."""
    done = [EndedRecord(number, "http://a.example/", None, 200, OutcomeKind.DONE, 0) for number in (1, 3)]
    other = EndedRecord(2, "http://b.example/", None, 404, OutcomeKind.DONE, 0)
    forced = Head(row(7, url="http://a.example/"), None)
    again = dumped(Rows([forced], [*done, other]), page=1)[1:-1]
    assert [(line["url"], line.get("outcome")) for line in again] == [
        ("http://b.example/", "done"),
        ("http://a.example/", None),
    ]
    assert [line["url"] for line in dumped(Rows([], [*done, other]))[1:-1]] == [
        "http://b.example/",
        "http://a.example/",
    ]


def test_without_ended_urls_only_queued_ones_are_written() -> None:
    """Ended URLs are left out, and the closing line counts none."""
    store = Rows([Head(row(2), None)], [EndedRecord(1, "http://b.example/", None, 200, OutcomeKind.DONE, 0)])
    assert [line.get("url") for line in dumped(store, with_ended=False)] == [None, "http://a.example/2", None]
    assert dumped(store, with_ended=False)[-1] == {"end": True, "ended": 0, "queued": 1}


def test_rows_are_read_a_page_at_a_time_as_the_lines_are_taken() -> None:
    """A dump of ten million URLs holds one page of them."""
    store = Rows([Head(row(number), None) for number in range(1, 10)])
    lines = dump_lines(store, page=3)
    for _ in range(4):  # the header and a page
        next(lines)
    assert store.asked.count("queued") == 1
    next(lines)
    assert store.asked.count("queued") == 2


def test_every_line_is_one_line_of_ascii() -> None:
    """Neither a newline in a URL nor a line separator of Unicode cuts a line in two."""
    odd = row(1, url="http://a.example/\n\u2028\x00é", hops="\n")
    for line in dump_lines(Rows([Head(odd, None)])):
        assert line.isascii()
        assert line.endswith("\n")
        assert len(line.splitlines()) == 1


ROWS = st.builds(
    Row,
    queue=st.integers(-3, 3),
    gate=st.integers(-2, 2),
    precedence=st.sampled_from([FRONT, NORMAL, FRONT + 7, NORMAL + 250]),
    ordinal=st.integers(1, 1 << 40),
    url=st.text(min_size=1, max_size=20),
    key=st.none() | st.binary(max_size=8),
    hops=st.text("LREXP", max_size=60),
    via=st.just(0),
    attempts=st.integers(0, 30),
    due_s=st.none() | st.floats(0, 1e10),
    payload=st.none() | st.binary(max_size=8),
)
QUEUED = st.lists(
    st.builds(Head, ROWS, st.none() | st.text(min_size=1, max_size=9)), max_size=12, unique_by=lambda h: place(h.row)
)
ENDED = st.builds(
    EndedRecord,
    ordinal=st.integers(1, 1 << 40),
    url=st.text(min_size=1, max_size=20),
    key=st.none() | st.binary(max_size=8),
    status=st.integers(-9998, 999),
    outcome=st.sampled_from([OutcomeKind.DONE, OutcomeKind.FAILED, OutcomeKind.DISREGARDED]),
    attempts=st.integers(0, 30),
)


@given(
    QUEUED,
    st.lists(ENDED, max_size=12, unique_by=(lambda record: record.ordinal, key_of)),
    st.integers(1, 5),
)
def test_what_is_read_back_is_what_was_written(heads: list[Head], ended: list[EndedRecord], page: int) -> None:
    """Whatever the rows hold and wherever the pages end."""
    queued_keys = {head.row.dedup_key() for head in heads}
    ended = [record for record in ended if key_of(record) not in queued_keys]
    store = Rows(heads, ended, {head.row.queue for head in heads})
    read = list(Dump(dump_lines(store, page=page)))
    known = [entry for entry in read if isinstance(entry, Known)]
    assert [entry[1:6] for entry in known] == [record[1:] for record in store.records]
    failed = [entry for entry in known if entry.outcome is OutcomeKind.FAILED]
    assert [(one.hops, one.precedence, one.failed_s, one.payload) for one in failed] == [
        (one.hops, one.precedence, one.ended_s, one.payload) for one in store.failed_after(-1, len(failed))
    ]
    assert {entry[6:] for entry in known if entry not in failed} <= {(None, "", None, None, None)}
    queued = [entry for entry in read if isinstance(entry, Queued)]
    assert len(queued) == len(heads)
    for entry, head in zip(queued, store.heads, strict=True):
        candidate, was = entry.candidate, head.row
        assert (candidate.url, candidate.key, candidate.hops, candidate.payload) == (
            was.url,
            was.key,
            was.hops,
            was.payload,
        )
        assert (3 - 2 * candidate.front) << 8 | candidate.precedence == was.precedence
        assert (entry.via, entry.attempts, entry.due_s) == (head.via, was.attempts, was.due_s)


@given(st.sets(st.integers(-9, 9)), st.sets(st.integers(-9, 9)), st.integers(1, 4))
def test_each_row_tells_its_queue_wherever_the_pages_end(held: set[int], listed: set[int], page: int) -> None:
    """A queue that the store does not list is left out; no other row loses its name by it."""
    store = Rows([Head(row(1, queue=queue), None) for queue in held], names=listed)
    names = [line.get("queue") for line in dumped(store, page=page)[1:-1]]
    assert names == [f"queue {queue}" if queue in listed else None for queue in sorted(held)]


def test_a_real_store_is_dumped_as_it_stands() -> None:
    """Queued, waiting, ended and forced rows of two queues, in the store's own order."""
    store = MemoryStore()
    store.open({}, 1000.0, lambda: None)
    first, second = Batch(1, 1000.0), Batch(2, 1001.0)
    first.queue_names += [(number, QueueKey(f"queue {number}"), 3) for number in (1, 2)]
    first.gate_names.append((1, GateKey("a.example")))
    first.announced += [Announced(number, 1, turn_of(3, 10 + number)) for number in (1, 2)]
    first.new += [row(6), row(1), row(2), row(3, queue=2), row(4, queue=2, via=1)]
    waiting = row(3, queue=2, precedence=NORMAL + WAITING, due_s=2000.0, attempts=1)
    second.ended += [Ended(row(number), 200, OutcomeKind.DONE) for number in (1, 6)]
    second.moved.append(Moved(row(3, queue=2), waiting))
    second.new.append(row(7, url="http://a.example/1"))
    second.forced.add(7)
    store.write(first)
    store.write(second)
    _, ended, *queued, _ = dumped(store, page=1)
    assert (ended["url"], ended["outcome"]) == ("http://a.example/6", "done")
    lines = {line["url"]: line for line in queued}
    assert {url: line["queue"] for url, line in lines.items()} == {
        "http://a.example/1": "queue 1",
        "http://a.example/2": "queue 1",
        "http://a.example/3": "queue 2",
        "http://a.example/4": "queue 2",
    }
    assert lines["http://a.example/3"]["due_s"] == 2000.0
    assert lines["http://a.example/4"]["via"] == "http://a.example/1"


HEADER = '{"anabranch": "frontier", "version": 1}\n'
END = '{"end": true, "ended": 0, "queued": 1}\n'


def line(**fields: object) -> str:
    return json.dumps({"url": "http://a.example/", **fields}) + "\n"


def only(text: str) -> Known | Queued:
    (entry,) = Dump([HEADER, text, END])
    return entry


class Taker:
    """Takes everything."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    def schedule_loaded(self, queued: list[Queued]) -> list[Verdict]:
        self.urls += [entry.candidate.url for entry in queued]
        return [NEW] * len(queued)

    def note_ended(self, ended: list[Known]) -> list[Verdict]:
        self.urls += [entry.url for entry in ended]
        return [NEW] * len(ended)

    def wait_until_durable(self) -> None:
        pass


@each_row(
    "lines", [[], ["\n"], ["[]"], ["http://a.example/\n"], ['{"url": "http://a.example/"}\n'], [b"\x1f\x8b\xff\n"]]
)
def test_what_does_not_begin_with_the_header_is_no_dump(lines: list[str | bytes]) -> None:
    """A list of URLs or a compressed file is refused before anything is loaded."""
    with pytest.raises(FormatMismatch, match=r"^urls.txt:1: no dump of a Frontier"):
        list(Dump(lines, "urls.txt"))


@pytest.mark.parametrize("version", [2, "1", None])
def test_another_version_is_refused(version: object) -> None:
    """Its fields may mean something else."""
    with pytest.raises(FormatMismatch, match=rf"version {version!r}, and this program reads version 1"):
        list(Dump([json.dumps({"anabranch": "frontier", "version": version})]))


def test_the_header_can_be_read_after_the_first_line() -> None:
    """The facts that the writer noted can be compared with others."""
    dump = Dump(['{"anabranch": "frontier", "version": 1, "policy": "host"}\n', line(), END])
    next(iter(dump))
    assert dump.facts["policy"] == "host"


def test_a_url_alone_is_a_queued_url() -> None:
    """A line written by hand need not say more: the order's policy gives its precedence."""
    entry = only(line())
    assert isinstance(entry, Queued)
    assert entry.place == "dump:2"
    assert entry.candidate.precedence is None
    assert not entry.candidate.front


def test_a_url_with_an_outcome_has_ended() -> None:
    """And keeps what it ended with."""
    entry = only(line(outcome="failed", status=-2, attempts=5, key="AAE="))
    assert entry == Known("dump:2", "http://a.example/", b"\x00\x01", -2, OutcomeKind.FAILED, 5)


@each_row(
    ("fields", "words"),
    [
        ({"url": None}, '"url" is missing'),
        ({"url": ""}, '"url" is missing'),
        ({"url": 7}, '"url" must be text'),
        ({"key": "?"}, '"key" must be base64'),
        ({"payload": "AA"}, '"payload" must be base64'),
        ({"payload": "é"}, '"payload" must be base64'),
        ({"attempts": -1}, '"attempts" must be a whole number from 0'),
        ({"attempts": True}, '"attempts" must be a whole number from 0'),
        ({"attempts": 1 << 31}, '"attempts" must be a whole number from 0'),
        ({"precedence": 1 << 20}, '"precedence" must be a whole number from 0 to 1048575'),
        ({"due_s": float("nan")}, '"due_s" must be a time'),
        ({"due_s": float("inf")}, '"due_s" must be a time'),
        ({"due_s": "now"}, '"due_s" must be a time'),
        ({"force": 1}, '"force" must be true or false'),
        ({"front": "yes"}, '"front" must be true or false'),
        ({"outcome": "retry"}, '"outcome" must be one of disregarded, done, failed'),
        ({"outcome": "done", "status": "200"}, '"status" must be a whole number'),
    ],
)
def test_a_field_of_the_wrong_kind_is_named_with_its_line(fields: dict[str, object], words: str) -> None:
    """The operator finds the line and the field."""
    with pytest.raises(DumpDamaged, match=rf"^dump:3: {words}"):
        list(Dump([HEADER, line(), line(**fields), END]))


@each_row("damage", ['{"url": "http://a.exam', "\n", "[]\n", "[" * 100_000, b"\xff\xfe\n", "9" * 5000])
def test_a_damaged_line_in_the_middle_is_an_error_after_all_before_it_was_given(damage: str | bytes) -> None:
    """Nothing is skipped silently."""
    entries = iter(Dump([HEADER, line(), damage, line(), END]))
    assert isinstance(next(entries), Queued)
    with pytest.raises(DumpDamaged, match=r"^dump:3: it is no JSON object; mend or remove"):
        next(entries)


@each_row("kept", range(1, len(line()) + len(line())))
def test_a_dump_that_was_cut_anywhere_gives_all_whole_lines_and_tells_the_cut(kept: int) -> None:
    """A writer that was killed leaves a file without an end, mostly in the middle of a line."""
    dump = Dump(io.StringIO(HEADER + (line() + line())[:kept]))
    whole = len(list(dump))
    assert whole == (kept >= len(line()) - 1) + (kept >= 2 * len(line()) - 1)
    assert dump.cut == f"dump: cut after line {1 + whole}; what came after it is missing"


def test_a_dump_with_its_end_is_not_cut() -> None:
    """Also if an editor left an empty line behind it."""
    for tail in ([], ["\n"]):
        dump = Dump([HEADER, line(), END, *tail])
        assert len(list(dump)) == 1
        assert dump.cut == ""


def test_a_line_behind_the_end_is_an_error() -> None:
    """Two dumps in one file are two files: which header would hold?"""
    with pytest.raises(DumpDamaged, match=r"^dump:4: it comes after the end"):
        list(Dump([HEADER, line(), END, HEADER]))


def test_loading_a_dump_reports_its_cut() -> None:
    """Entries before the cut are loaded all the same."""
    taker = Taker()
    report = load_dump([HEADER, line(outcome="done"), line(), '{"url'], taker, name="old.jsonl")
    assert len(taker.urls) == 2
    assert (report.known, report.queued) == (1, 1)
    assert report.cuts == ["old.jsonl: cut after line 3; what came after it is missing"]


def test_lines_may_be_bytes() -> None:
    """A file opened in binary mode has no other idea of what a line is."""
    (entry,) = Dump(io.BytesIO((HEADER + line() + END).encode()))
    assert isinstance(entry, Queued)
