"""Lines in, each new one out, once: what is a line, in which order things happen, and how the descriptors behave."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup import stream
from anabranch.dedup.keys import BoolArray
from anabranch.dedup.stream import Cadence, Lines, LineUniq, Output, OutputFailed, ReaderGone, pieces

#: Few letters, so that lines repeat, and every byte that has a meaning.
TEXT = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r", b"\r\n", b"\xff", b"\0"])).map(b"".join)


class Known:
    """A filter that never errs: a set."""

    def __init__(self, log: list[tuple[str, object]] | None = None) -> None:
        self.keys: set[bytes] = set()
        self._log = [] if log is None else log

    def unseen(self, keys: Sequence[bytes]) -> BoolArray:
        return np.array([key not in self.keys for key in keys], dtype=np.bool_)

    def mark(self, keys: Sequence[bytes]) -> None:
        self._log.append(("mark", list(keys)))
        self.keys.update(keys)


def passed_on(*parts: bytes, seen: Known | None = None, limit: int = 1 << 20) -> tuple[bytes, LineUniq]:
    """Return the output for a stream that comes in these pieces, and the `LineUniq` that made it."""
    out = bytearray()
    uniq = LineUniq(seen or Known(), out.extend, limit_bytes=limit)
    for part in parts:
        uniq.feed(part)
    uniq.end()
    return bytes(out), uniq


def first_occurrences(text: bytes) -> bytes:
    """The rule, said the slow way."""
    met, out = set(), b""
    for line in text.split(b"\n")[:-1]:
        key = line.removesuffix(b"\r")
        if key and key not in met:
            out += line + b"\n"
        met.add(key)
    last = text.rpartition(b"\n")[2]
    key = last.removesuffix(b"\r")
    return out + (last if key and key not in met else b"")


@given(TEXT)
def test_what_comes_out_is_each_line_that_came_first_byte_for_byte(text: bytes) -> None:
    """In the order of the stream, with the ends that the lines had."""
    assert passed_on(text)[0] == first_occurrences(text)


@given(st.lists(TEXT))
def test_where_the_stream_is_cut_into_pieces_makes_no_difference(parts: list[bytes]) -> None:
    """A read may end inside a line, and even between a carriage return and its line feed."""
    cut, whole = passed_on(*parts), passed_on(b"".join(parts))
    assert cut[0] == whole[0]
    assert cut[1].totals == whole[1].totals


@given(TEXT)
def test_every_line_is_counted_once(text: bytes) -> None:
    """New, seen, empty and too long ones are all lines."""
    totals = passed_on(text, limit=3)[1].totals
    assert totals.lines == text.count(b"\n") + (not text.endswith(b"\n") and bool(text))
    assert totals.lines == totals.new + totals.seen + totals.empty + totals.too_long
    assert totals.read_bytes == len(text)


def test_a_line_that_ends_in_cr_lf_is_the_line_that_ends_in_lf() -> None:
    """Lists written on different systems agree; what came first comes out."""
    assert passed_on(b"a\r\na\nb\nb\r\nc\nc\r")[0] == b"a\r\nb\nc\n"


def test_only_one_carriage_return_belongs_to_the_end() -> None:
    """The rest is the line's own."""
    assert passed_on(b"a\r\r\na\r\na\rb\n")[0] == b"a\r\r\na\r\na\rb\n"


def test_a_last_line_without_an_end_comes_out_without_one() -> None:
    """Nothing is added to the stream."""
    assert passed_on(b"a\nb")[0] == b"a\nb"


def test_empty_lines_are_counted_and_left_out() -> None:
    """They are no URLs, whichever end they have."""
    out, uniq = passed_on(b"\n\r\na\n\n\r")
    assert (out, uniq.totals.empty, uniq.totals.new) == (b"a\n", 4, 1)


@given(st.lists(st.sampled_from([b"abcd", b"abc", b"\n", b"\r\n"])))
def test_a_line_beyond_the_limit_is_counted_and_left_out(parts: list[bytes]) -> None:
    """Wherever it is cut; the lines around it come out."""
    text = b"".join(parts)
    too_long = [line for line in text.split(b"\n") if len(line) > 5]
    rest = b"\n".join(line for line in text.split(b"\n") if len(line) <= 5)
    for cut in (parts, [text]):
        out, uniq = passed_on(*cut, limit=5)
        assert out.removesuffix(b"\n") == first_occurrences(rest).removesuffix(b"\n")
        assert uniq.totals.too_long == len(too_long)


def test_the_first_line_beyond_the_limit_is_reported_at_once() -> None:
    """The stream may never end; the others are counted."""
    reported: list[int] = []
    uniq = LineUniq(Known(), lambda data: None, on_too_long=lambda: reported.append(uniq.totals.lines), limit_bytes=3)
    for part in (b"a\nb\n", b"long\nlong\n", b"long\n"):
        uniq.feed(part)
    assert reported == [2]
    assert uniq.totals.too_long == 3


def test_a_stream_without_line_ends_takes_no_memory() -> None:
    """Beyond the limit nothing of the line is kept."""
    lines = Lines(limit_bytes=10)
    for _ in range(100):
        assert lines.feed(b"x" * 10) == []
        assert len(lines._rest) <= 10
    assert lines.feed(b"\nb\n") == [b"b"]
    assert lines.too_long == 1


def test_a_line_is_written_before_it_is_marked() -> None:
    """So a crash in between repeats it and does not lose it."""
    log: list[tuple[str, object]] = []
    uniq = LineUniq(Known(log), lambda data: log.append(("write", data)))
    uniq.feed(b"a\nb\na\n")
    assert log == [("write", b"a\nb\n"), ("mark", [b"a", b"b"])]


def test_what_could_not_be_written_is_not_marked() -> None:
    """The next run writes it."""
    seen = Known()

    def fail(data: bytes) -> None:
        raise OutputFailed(errno.ENOSPC, "full")

    uniq = LineUniq(seen, fail)
    with pytest.raises(OutputFailed):
        uniq.feed(b"a\n")
    assert (seen.keys, uniq.totals.new) == (set(), 0)
    assert passed_on(b"a\n", seen=seen)[0] == b"a\n"


def test_what_the_filter_knows_is_left_out() -> None:
    """In this run or an earlier one."""
    seen = Known()
    passed_on(b"a\nb\n", seen=seen)
    out, uniq = passed_on(b"b\nc\n", seen=seen)
    assert (out, uniq.totals.seen) == (b"c\n", 1)


def test_nothing_is_written_when_nothing_is_new() -> None:
    """No empty writes: a reader of a datagram socket would take them for a line."""
    seen, written = Known(), []
    seen.keys.add(b"a")
    LineUniq(seen, written.append).feed(b"a\n\n")
    assert written == []


# Reading


def test_what_is_there_is_given_at_once() -> None:
    """A line is not kept back until there are more."""
    reading, writing = os.pipe()
    stream_of = pieces(reading, "pipe")
    os.write(writing, b"first\n")
    assert next(stream_of) == b"first\n"
    os.write(writing, b"second\n")
    os.close(writing)
    assert list(stream_of) == [b"second\n"]
    os.close(reading)


def test_without_input_the_owner_may_look_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty piece says that nothing came."""
    monkeypatch.setattr(stream, "IDLE_S", 0.001)
    reading, writing = os.pipe()
    assert next(pieces(reading, "pipe")) == b""
    os.close(writing)
    os.close(reading)


def test_the_wake_descriptor_ends_the_stream_though_there_is_more() -> None:
    """It is looked at before each read."""
    reading, writing = os.pipe()
    wake, waker = os.pipe()
    os.write(writing, b"a\n")
    stream_of = pieces(reading, "pipe", wake)
    assert next(stream_of) == b"a\n"
    os.write(writing, b"b\n")
    os.write(waker, b"!")
    assert list(stream_of) == []
    for fd in (reading, writing, wake, waker):
        os.close(fd)


def test_a_file_is_read_in_large_pieces_to_its_end(tmp_path: Path) -> None:
    """Each read takes what a batch wants."""
    path = tmp_path / "urls"
    path.write_bytes(b"x" * (stream.READ_BYTES + 1))
    with path.open("rb") as file:
        assert [len(piece) for piece in pieces(file.fileno(), "urls")] == [stream.READ_BYTES, 1]


def test_a_descriptor_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The operator learns which input it was."""
    fd = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(IsADirectoryError) as raised:
        next(pieces(fd, "some folder"))
    os.close(fd)
    assert raised.value.filename == "some folder"


# Writing


def test_more_than_a_pipe_holds_is_written_whole_even_if_the_pipe_does_not_wait() -> None:
    """Another process that shares the descriptor may have made it non-blocking."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data, got = os.urandom(1 << 20), bytearray()

    def read() -> None:
        while piece := os.read(reading, 1 << 16):
            got.extend(piece)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    Output(writing, lasting=True).write(data)
    os.close(writing)
    reader.join()
    os.close(reading)
    assert bytes(got) == data


def test_a_reader_that_has_gone_is_reported_apart() -> None:
    """It is no fault of ours or the disk's."""
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(ReaderGone):
        Output(writing, lasting=False).write(b"a\n")
    os.close(writing)


def test_a_full_disk_is_reported_with_its_number() -> None:
    """/dev/full is always full."""
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OutputFailed) as raised:
        Output(full.fileno(), lasting=False).write(b"a\n")
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize(("lasting", "syncs"), [(True, 2), (False, 0)])
def test_a_lasting_output_is_on_the_disk_when_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasting: bool, syncs: int
) -> None:
    """Else a power cut could keep the mark and take the line. For marks that do not last it is no use."""
    synced: list[int] = []
    monkeypatch.setattr(stream, "sync_file", lambda fd: synced.append(os.fstat(fd).st_size))
    with (tmp_path / "out").open("wb") as file:
        output = Output(file.fileno(), lasting=lasting)
        output.write(b"a\n")
        output.write(b"b\n")
    assert (tmp_path / "out").read_bytes() == b"a\nb\n"
    assert synced == [2, 4][:syncs]


@pytest.mark.parametrize(
    ("there", "mode", "lasting", "then"),
    [
        (b"whole\nto", "ab", True, b"whole\nto\na\nb\n"),
        (b"whole\n", "ab", True, b"whole\na\nb\n"),
        (b"", "ab", True, b"a\nb\n"),
        (b"whole\nto", "ab", False, b"whole\ntoa\nb\n"),
        (b"whole\nto", "wb", True, b"a\nb\n"),
        (b"whole\nto", "r+b", True, b"a\nb\ne\nto"),
    ],
)
def test_a_torn_line_at_the_end_of_a_file_that_grows_does_not_spoil_the_next(
    tmp_path: Path, there: bytes, mode: str, lasting: bool, then: bytes
) -> None:
    """A killed run may leave half a line; the whole one comes on a line of its own."""
    path = tmp_path / "out"
    path.write_bytes(there)
    with path.open(mode) as file:
        output = Output(file.fileno(), lasting=lasting)
        output.write(b"a\n")
        output.write(b"b\n")
    assert path.read_bytes() == then


# When to sync


class Asked:
    """A cadence of ten seconds that is asked once a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._cadence = Cadence(10.0, lambda: self.now_s)

    def until(self, end_s: float, *, takes_s: float = 0.0, amount: int | None = None) -> list[float]:
        """When the work is done until then. Unless there is a fixed amount, it grows."""
        done = []

        def work() -> None:
            done.append(self.now_s)
            self.now_s += takes_s

        while self.now_s < end_s:
            self._cadence.keep(work, int(self.now_s) if amount is None else amount)
            self.now_s += 1
        return done


def test_syncs_keep_their_interval() -> None:
    """Neither more often nor less."""
    assert Asked().until(35) == [10, 20, 30]


def test_syncs_take_a_twentieth_of_the_time_at_most() -> None:
    """A slow disk is synced less often."""
    asked = Asked()
    assert asked.until(50, takes_s=5) == [10]
    assert asked.until(120) == [15 + 95]


def test_without_anything_new_nothing_is_synced() -> None:
    """An idle pipe leaves the disk asleep; what is new then is synced at once, since it is overdue."""
    asked = Asked()
    assert asked.until(50, amount=0) == []
    assert asked.until(100, amount=7) == [50]
