"""Frames out of pcap and pcapng files.

Formats: draft-ietf-opsawg-pcap (both byte orders, time stamps in micro- or nanoseconds) and draft-ietf-opsawg-pcapng
(sections of either byte order, enhanced, simple and obsolete packet blocks). Time stamps are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from anabranch.dedup.capture.statistics import CaptureStatistics
from anabranch.dedup.errors import FormatMismatch

#: the longest record or block that is believed; a longer one is damage (libpcap's own bound for a frame is 256 KiB)
MAX_RECORD_BYTES = 16 << 20
#: interfaces remembered per pcapng section; frames of later ones are counted as damaged
MAX_INTERFACES = 65_536

_PCAP_ORDERS = {
    bytes.fromhex("a1b2c3d4"): ">",
    bytes.fromhex("d4c3b2a1"): "<",
    bytes.fromhex("a1b23c4d"): ">",
    bytes.fromhex("4d3cb2a1"): "<",
}
_SECTION = bytes.fromhex("0a0d0d0a")  # reads the same in both byte orders
_SECTION_ORDERS = {bytes.fromhex("1a2b3c4d"): ">", bytes.fromhex("4d3c2b1a"): "<"}

_INTERFACE_BLOCK, _OLD_PACKET_BLOCK, _SIMPLE_PACKET_BLOCK, _PACKET_BLOCK = 1, 2, 3, 6


@dataclass(frozen=True, slots=True)
class Frame:
    """One captured frame."""

    #: LINKTYPE_ number of the tcpdump group's registry
    link_type: int
    #: the bytes captured, from the link header on
    data: bytes


class _DamagedBlock(Exception):
    """The block contradicts itself; the file ends here for us, since nothing says where the next one begins."""


def frames(stream: BinaryIO, name: str, counts: CaptureStatistics) -> Iterator[Frame]:
    """Yield the frames of a capture in file order. A cut or damaged rest is counted and ends the iteration.

    Reads forward only (a pipe will do) and holds one record at a time. Raises FormatMismatch, with `name` in the message,
    if the file does not begin like a capture.
    """
    head = stream.read(4)
    if head in _PCAP_ORDERS:
        yield from _pcap_frames(stream, name, _PCAP_ORDERS[head], counts)
    elif head == _SECTION:
        yield from _pcapng_frames(stream, name, counts)
    else:
        raise FormatMismatch(f"{name} is no pcap or pcapng file: it begins with {head.hex() or 'nothing'}")


def _pcap_frames(stream: BinaryIO, name: str, order: str, counts: CaptureStatistics) -> Iterator[Frame]:
    header = stream.read(20)
    if len(header) < 20:
        raise FormatMismatch(f"{name} is no pcap file: its header is cut")
    link_type = struct.unpack_from(order + "I", header, 16)[0] & 0xFFFF  # the upper half tells of checksums
    record = struct.Struct(order + "8xI4x")
    while head := stream.read(16):
        if len(head) < 16:
            counts.damaged_records += 1
            return
        (captured,) = record.unpack(head)
        data = stream.read(captured) if captured <= MAX_RECORD_BYTES else b""
        if len(data) < captured:
            counts.damaged_records += 1
        if data:
            yield Frame(link_type, data)
        if len(data) < captured:
            return


@dataclass(slots=True)
class _Section:
    """Byte order and interfaces (link type, snap length) of one pcapng section."""

    order: str
    interfaces: list[tuple[int, int]] = field(default_factory=list)

    def frame(self, interface: int, data: bytes) -> Frame:
        if interface >= len(self.interfaces):
            raise _DamagedBlock
        return Frame(self.interfaces[interface][0], data)


def _pcapng_frames(stream: BinaryIO, name: str, counts: CaptureStatistics) -> Iterator[Frame]:
    start = stream.read(8)  # the section's length field and byte-order magic
    order = _SECTION_ORDERS.get(start[4:])
    if order is None:
        raise FormatMismatch(f"{name} is no pcapng file: its section header has no byte-order magic")
    section = _Section(order)
    try:
        _read_rest(stream, order, start[:4], already=12)
        while kind := stream.read(4):
            if kind == _SECTION:
                section = _next_section(stream)
                continue
            frame = _block(stream, section, kind, counts)
            if frame is not None:
                yield frame
    except (_DamagedBlock, struct.error):
        counts.damaged_records += 1


def _next_section(stream: BinaryIO) -> _Section:
    start = stream.read(8)
    order = _SECTION_ORDERS.get(start[4:])
    if order is None:
        raise _DamagedBlock
    _read_rest(stream, order, start[:4], already=12)
    return _Section(order)


def _read_rest(stream: BinaryIO, order: str, length: bytes, *, already: int) -> bytes:
    """The body of a block whose first `already` bytes were read, without the length that closes it."""
    (total,) = struct.unpack(order + "I", length)
    if total % 4 or not already + 4 <= total <= MAX_RECORD_BYTES:
        raise _DamagedBlock
    rest = stream.read(total - already)
    if len(rest) < total - already or rest[-4:] != length:
        raise _DamagedBlock
    return rest[:-4]


def _block(stream: BinaryIO, section: _Section, kind: bytes, counts: CaptureStatistics) -> Frame | None:
    """The frame of one block, None for a block without one. A block that is whole but senseless is counted and left out."""
    body = _read_rest(stream, section.order, stream.read(4), already=8)
    read = _BLOCKS.get(struct.unpack(section.order + "I", kind)[0])
    if read is None:
        return None
    try:
        return read(section, body)
    except (_DamagedBlock, struct.error):
        counts.damaged_records += 1
        return None


def _interface(section: _Section, body: bytes) -> None:
    if len(section.interfaces) >= MAX_INTERFACES:
        raise _DamagedBlock
    section.interfaces.append(struct.unpack_from(section.order + "H2xI", body))


def _packet(section: _Section, body: bytes) -> Frame:
    interface, captured = struct.unpack_from(section.order + "I8xI4x", body)
    return section.frame(interface, body[20 : 20 + captured])


def _old_packet(section: _Section, body: bytes) -> Frame:
    interface, captured = struct.unpack_from(section.order + "H10xI4x", body)
    return section.frame(interface, body[20 : 20 + captured])


def _simple_packet(section: _Section, body: bytes) -> Frame:
    """It has no length of its own: the original one, or the snap length of interface 0 (0 is "no limit")."""
    (length,) = struct.unpack_from(section.order + "I", body)
    if not section.interfaces:
        raise _DamagedBlock
    snap = section.interfaces[0][1]
    return section.frame(0, body[4 : 4 + (min(length, snap) if snap else length)])


_BLOCKS: dict[int, Callable[[_Section, bytes], Frame | None]] = {
    _INTERFACE_BLOCK: _interface,
    _OLD_PACKET_BLOCK: _old_packet,
    _SIMPLE_PACKET_BLOCK: _simple_packet,
    _PACKET_BLOCK: _packet,
}
