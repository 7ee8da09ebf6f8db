"""Reading a dump: what is no dump, what is damaged, and where it was cut."""

from __future__ import annotations

import io
import json

import pytest

from anabranch.frontier.errors import FormatMismatch
from anabranch.frontier.models import NEW, OutcomeKind, Verdict
from anabranch.frontier.operating.dumpreading import Dump, DumpDamaged, load_dump
from anabranch.frontier.operating.load import Known, Queued

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


@pytest.mark.parametrize(
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
    """What the writer noted is there for whoever wants to compare it."""
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


@pytest.mark.parametrize(
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
        ({"share": -1}, '"share" must be a whole number from 0'),
        ({"outcome": "retry"}, '"outcome" must be one of disregarded, done, failed'),
        ({"outcome": "done", "status": "200"}, '"status" must be a whole number'),
    ],
)
def test_a_field_of_the_wrong_kind_is_named_with_its_line(fields: dict[str, object], words: str) -> None:
    """The operator finds the line and the field."""
    with pytest.raises(DumpDamaged, match=rf"^dump:3: {words}"):
        list(Dump([HEADER, line(), line(**fields), END]))


@pytest.mark.parametrize("damage", ['{"url": "http://a.exam', "\n", "[]\n", "[" * 100_000, b"\xff\xfe\n", "9" * 5000])
def test_a_damaged_line_in_the_middle_is_an_error_after_all_before_it_was_given(damage: str | bytes) -> None:
    """Nothing is skipped silently."""
    entries = iter(Dump([HEADER, line(), damage, line(), END]))
    assert isinstance(next(entries), Queued)
    with pytest.raises(DumpDamaged, match=r"^dump:3: it is no JSON object; mend or remove"):
        next(entries)


@pytest.mark.parametrize("kept", range(1, len(line()) + len(line())))
def test_a_dump_that_was_cut_anywhere_gives_all_whole_lines_and_tells_the_cut(kept: int) -> None:
    """A writer that was killed leaves a file without an end, mostly in the middle of a line."""
    dump = Dump(io.StringIO(HEADER + (line() + line())[:kept]))
    whole = len(list(dump))
    assert whole == (kept >= len(line()) - 1) + (kept >= 2 * len(line()) - 1)
    assert dump.cut == f"dump: cut after line {1 + whole}; what stood behind it is missing"


def test_a_dump_with_its_end_is_not_cut() -> None:
    """Also if an editor left an empty line behind it."""
    for tail in ([], ["\n"]):
        dump = Dump([HEADER, line(), END, *tail])
        assert len(list(dump)) == 1
        assert dump.cut == ""


def test_a_line_behind_the_end_is_an_error() -> None:
    """Two dumps in one file are two files: which header would hold?"""
    with pytest.raises(DumpDamaged, match=r"^dump:4: it stands behind the end"):
        list(Dump([HEADER, line(), END, HEADER]))


def test_loading_a_dump_reports_its_cut() -> None:
    """What was there is loaded all the same."""
    taker = Taker()
    report = load_dump([HEADER, line(outcome="done"), line(), '{"url'], taker, name="old.jsonl")
    assert len(taker.urls) == 2
    assert (report.known, report.queued) == (1, 1)
    assert report.cuts == ["old.jsonl: cut after line 3; what stood behind it is missing"]


def test_lines_may_be_bytes() -> None:
    """A file opened in binary mode has no other idea of what a line is."""
    (entry,) = Dump(io.BytesIO((HEADER + line() + END).encode()))
    assert isinstance(entry, Queued)
