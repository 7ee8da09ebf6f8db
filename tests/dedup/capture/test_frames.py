"""Frames out of pcap and pcapng files built by hand."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.capture.frames import CaptureStatistics, Frame, frames
from anabranch.dedup.errors import FormatMismatch
from tests.rows import each_row

MICRO, NANO = 0xA1B2C3D4, 0xA1B23C4D


def pcap(*data: bytes, order: str = "<", magic: int = MICRO, link_type: int = 1) -> bytes:
    head = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 65_535, link_type)
    return head + b"".join(struct.pack(order + "IIII", 1, 2, len(d), len(d)) + d for d in data)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += b"\0" * (-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link_type: int = 1, snap: int = 0, order: str = "<") -> bytes:
    return block(1, struct.pack(order + "HHI", link_type, 0, snap), order)


def packet(data: bytes, number: int = 0, order: str = "<") -> bytes:
    return block(6, struct.pack(order + "IIIII", number, 0, 0, len(data), len(data)) + data, order)


def read(file: bytes) -> tuple[list[Frame], CaptureStatistics]:
    counts = CaptureStatistics()
    return list(frames(io.BytesIO(file), "it", counts)), counts


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [MICRO, NANO])
def test_pcap_is_read_in_both_byte_orders_and_both_time_units(order: str, magic: int) -> None:
    """The magic number alone determines byte order and time unit."""
    assert read(pcap(b"one", b"three", order=order, magic=magic, link_type=113))[0] == [
        Frame(113, b"one"),
        Frame(113, b"three"),
    ]


@pytest.mark.parametrize("order", ["<", ">"])
def test_pcapng_packets_of_every_kind_are_read(order: str) -> None:
    """Enhanced, simple and obsolete packet blocks carry frames; unknown blocks are passed over."""
    old = block(2, struct.pack(order + "HHIIII", 1, 0, 0, 0, 3, 3) + b"old", order)
    simple = block(3, struct.pack(order + "I", 6) + b"simple", order)
    file = section(order) + interface(1, 0, order) + interface(101, 0, order) + block(5, b"what", order)
    file += packet(b"new", 1, order) + old + simple
    found, counts = read(file)
    assert found == [Frame(101, b"new"), Frame(101, b"old"), Frame(1, b"simple")]
    assert counts.damaged_records == 0


def test_a_simple_packet_ends_at_the_snap_length() -> None:
    """A simple packet has no captured length: the interface's snap length bounds it."""
    found, _ = read(section() + interface(1, 4) + block(3, struct.pack("<I", 100) + b"abcd"))
    assert found == [Frame(1, b"abcd")]


def test_a_new_section_has_its_own_byte_order_and_interfaces() -> None:
    """Sections may be joined from machines of either byte order."""
    file = section("<") + interface(1) + packet(b"a") + section(">") + interface(113, 0, ">") + packet(b"b", 0, ">")
    assert read(file)[0] == [Frame(1, b"a"), Frame(113, b"b")]


@each_row(
    "file",
    [b"", b"GET", b"GET / HTTP/1.1\r\n", pcap()[:23], section()[:10], section()[:8] + b"\1\2\3\4" + section()[12:]],
)
def test_a_file_that_does_not_begin_like_a_capture_is_refused_by_name(file: bytes) -> None:
    """The message names the file."""
    with pytest.raises(FormatMismatch, match="it is no pcap"):
        read(file)


@pytest.mark.parametrize("cut", [1, 4, 10])
def test_a_cut_pcap_gives_what_is_there_and_counts_the_damage(cut: int) -> None:
    """A program that was killed while it captured leaves half a record."""
    found, counts = read(pcap(b"one", b"two2")[:-cut])
    assert found[0] == Frame(1, b"one")
    assert counts.damaged_records == 1


def test_a_senseless_record_length_ends_the_file() -> None:
    """Nothing says where the next record begins, and no huge piece of memory is asked for."""
    found, counts = read(pcap(b"one") + struct.pack("<IIII", 0, 0, 0xFFFFFFFF, 0) + b"rest")
    assert found == [Frame(1, b"one")]
    assert counts.damaged_records == 1


@each_row(
    "damage",
    [
        packet(b"cut")[:-1],
        packet(b"x")[:6],
        b"\6",
        struct.pack("<II", 6, 13) + b"odd length",
        struct.pack("<II", 6, 8),
        packet(b"x")[:-4] + b"\0\0\0\0",
        section()[:9],
        section()[:20],
    ],
)
def test_a_damaged_pcapng_block_ends_the_file(damage: bytes) -> None:
    """A block with lengths that contradict each other cannot be passed over."""
    found, counts = read(section() + interface() + packet(b"good") + damage)
    assert found == [Frame(1, b"good")]
    assert counts.damaged_records == 1


@pytest.mark.parametrize("senseless", [packet(b"x", 7), block(6, b"abc"), block(1, b"")])
def test_a_whole_block_without_sense_is_left_out_alone(senseless: bytes) -> None:
    """The reader goes on behind a block with a right length."""
    found, counts = read(section() + interface() + senseless + packet(b"good"))
    assert found == [Frame(1, b"good")]
    assert counts.damaged_records == 1


def test_a_simple_packet_without_an_interface_is_damage() -> None:
    """Its link type is unknown."""
    assert read(section() + block(3, b"\1\0\0\0a"))[1].damaged_records == 1


def test_interfaces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of nothing but interfaces does not fill the memory."""
    monkeypatch.setattr("anabranch.dedup.capture.frames.MAX_INTERFACES", 2)
    assert read(section() + interface() * 5)[1].damaged_records == 3


@given(st.binary(max_size=400), st.sampled_from([b"", pcap(), pcap(order=">"), section(), section() + interface()]))
def test_any_bytes_are_read_or_refused(rest: bytes, start: bytes) -> None:
    """Only FormatMismatch is raised, whatever the file holds."""
    try:
        found, _ = read(start + rest)
    except FormatMismatch:
        assert not start
    else:
        assert sum(len(frame.data) for frame in found) <= len(rest)
