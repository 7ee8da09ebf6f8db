"""From a capture file or packet to TCP segments: pcap and pcapng, link header, VLAN tags, IPv4 or IPv6, TCP.

Formats: draft-ietf-opsawg-pcap (both byte orders, time stamps in micro- or nanoseconds) and draft-ietf-opsawg-pcapng
(sections of either byte order, enhanced, simple and obsolete packet blocks); the tcpdump group's LINKTYPE_ registry, IEEE
802.1Q, RFC 791 (IPv4), RFC 8200 (IPv6), RFC 4302 (AH), RFC 9293 (TCP). Time stamps are not read. Checksums are not
verified: on the sending machine the network card fills them in after the capture. `requests.py` takes the segments.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from anabranch.dedup.errors import FormatMismatch


@dataclass(slots=True, kw_only=True)
class CaptureStatistics:
    """Counters that one capture adds to while it runs; everything that is left out is counted somewhere here."""

    #: frames read from the file or the interface
    frames: int = 0
    #: records or blocks of the file that are cut or contradict themselves
    damaged_records: int = 0
    #: frames that are no IPv4 or IPv6 TCP, or of a link type that is not known
    other_frames: int = 0
    #: IP fragments, which are left out
    fragments: int = 0
    #: frames whose end was not captured; what is there is used if the TCP header is whole
    truncated_frames: int = 0
    #: packets whose header lengths contradict themselves
    malformed_packets: int = 0
    #: TCP segments with payload
    segments: int = 0
    #: segments that bring nothing new
    retransmissions: int = 0
    #: places where the reader gave up on missing bytes and went on behind them
    gaps: int = 0
    #: flows forgotten because too many were open
    evicted_flows: int = 0
    #: request heads recognised
    requests: int = 0
    #: of them, those that name no URL: no usable Host, CONNECT, `OPTIONS *`
    requests_without_url: int = 0
    #: heads that began like a request and broke off before their Host was known, or were too long
    broken_heads: int = 0

    def count(self, name: str) -> None:
        """Add 1 to the counter of this name."""
        setattr(self, name, getattr(self, name) + 1)


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
    """The block contradicts itself; reading ends here, since the start of the next block is unknown."""


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
    link_type = struct.unpack_from(order + "I", header, 16)[0] & 0xFFFF  # the upper half is about checksums
    record = struct.Struct(order + "8xI4x")
    while head := stream.read(16):
        if len(head) < 16:
            counts.count("damaged_records")
            return
        (captured,) = record.unpack(head)
        data = stream.read(captured) if captured <= MAX_RECORD_BYTES else b""
        if len(data) < captured:
            counts.count("damaged_records")
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
        counts.count("damaged_records")


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
        counts.count("damaged_records")
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


LINK_NULL, LINK_ETHERNET, LINK_RAW, LINK_LOOP, LINK_SLL, LINK_SLL2 = 0, 1, 101, 108, 113, 276
LINK_IPV4, LINK_IPV6 = 228, 229

ETHER_IPV4, ETHER_IPV6 = 0x0800, 0x86DD
_ETHER_VLANS = frozenset({0x8100, 0x88A8, 0x9100})
_FAMILIES = {
    2: ETHER_IPV4,
    10: ETHER_IPV6,
    24: ETHER_IPV6,
    28: ETHER_IPV6,
    30: ETHER_IPV6,
}  # AF_INET6 differs by system
_VERSIONS = {4: ETHER_IPV4, 6: ETHER_IPV6}

_TCP = 6
_IPV6_FRAGMENT = 44
_IPV6_AUTHENTICATION = 51
_IPV6_EXTENSIONS = frozenset({0, 43, 60, 135, 139, 140, _IPV6_AUTHENTICATION, _IPV6_FRAGMENT})

_SYN, _RST, _ACK = 2, 4, 16


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment of one direction of a connection."""

    #: source and destination address and ports, as bytes
    flow: bytes
    #: sequence number of the first payload byte (SYN already counted)
    sequence: int
    #: the payload as far as it was captured
    payload: bytes
    #: payload bytes behind `payload` that were sent but not captured
    missing_bytes: int
    #: first segment of a client
    opens: bool
    #: first segment of a server (SYN and ACK)
    answers: bool
    #: RST
    resets: bool


class _Unusable(Exception):
    """Carries the name of the counter that this packet goes to."""


#: (EtherType, offset of what follows)
_Network = tuple[int, int]


def segment_of_frame(link_type: int, frame: bytes, counts: CaptureStatistics) -> Segment | None:
    """The TCP segment in a frame that begins with its link header; None, counted, if there is none to use."""
    unwrap = _LINKS.get(link_type, _unknown_link)
    return _counted(lambda: _segment(*unwrap(frame), frame, counts), counts)


def segment_of_packet(ether_type: int, packet: bytes, counts: CaptureStatistics) -> Segment | None:
    """The TCP segment in a packet whose link header is already off; None, counted, if there is none to use."""
    return _counted(lambda: _segment(ether_type, 0, packet, counts), counts)


def _counted(decode: Callable[[], Segment], counts: CaptureStatistics) -> Segment | None:
    counts.count("frames")
    try:
        return decode()
    except struct.error:  # a header reaches behind the end of the frame
        counts.count("truncated_frames")
    except _Unusable as reason:
        counts.count(str(reason))
    return None


def _unknown_link(_: bytes) -> _Network:
    raise _Unusable("other_frames")


def _ethernet(frame: bytes) -> _Network:
    return struct.unpack_from(">H", frame, 12)[0], 14


def _cooked(frame: bytes) -> _Network:
    return struct.unpack_from(">H", frame, 14)[0], 16


def _cooked2(frame: bytes) -> _Network:
    return struct.unpack_from(">H", frame)[0], 20


def _raw(frame: bytes) -> _Network:
    return _VERSIONS.get(struct.unpack_from("B", frame)[0] >> 4, 0), 0


def _loopback(frame: bytes) -> _Network:
    """The address family is in the byte order of the capturing machine, or big-endian; the smaller number is the right one."""
    (big,) = struct.unpack_from(">I", frame)
    (little,) = struct.unpack_from("<I", frame)
    return _FAMILIES.get(min(big, little), 0), 4


_LINKS: dict[int, Callable[[bytes], _Network]] = {
    LINK_NULL: _loopback,
    LINK_LOOP: _loopback,
    LINK_ETHERNET: _ethernet,
    LINK_RAW: _raw,
    12: _raw,  # DLT_RAW of most systems, as some programs write it
    14: _raw,  # DLT_RAW of OpenBSD
    LINK_IPV4: _raw,
    LINK_IPV6: _raw,
    LINK_SLL: _cooked,
    LINK_SLL2: _cooked2,
}


def _segment(ether_type: int, offset: int, data: bytes, counts: CaptureStatistics) -> Segment:
    while ether_type in _ETHER_VLANS:
        (ether_type,) = struct.unpack_from(">H", data, offset + 2)
        offset += 4
    internet = _INTERNETS.get(ether_type)
    if internet is None:
        raise _Unusable("other_frames")
    addresses, offset, end = internet(data, offset)
    segment = _tcp(addresses, data, offset, end)
    if end > len(data):
        counts.count("truncated_frames")
    if segment.payload:
        counts.count("segments")
    return segment


def _ipv4(data: bytes, offset: int) -> tuple[bytes, int, int]:
    """Addresses, offset of the TCP header, and offset of the end that the packet claims."""
    first, total, fragment, protocol, addresses = struct.unpack_from(">BxH2xHxB2x8s", data, offset)
    header_bytes = (first & 15) * 4
    end = offset + total if total else len(data)  # 0: segmented later by the network card
    if first >> 4 != 4 or header_bytes < 20 or offset + header_bytes > end:
        raise _Unusable("malformed_packets")
    if fragment & 0x3FFF:  # more fragments, or an offset
        raise _Unusable("fragments")
    if protocol != _TCP:
        raise _Unusable("other_frames")
    return addresses, offset + header_bytes, end


def _ipv6(data: bytes, offset: int) -> tuple[bytes, int, int]:
    """As `_ipv4`; extension headers are skipped. Every one is at least 8 bytes, so the walk ends with the frame."""
    first, length, header, addresses = struct.unpack_from(">B3xHBx32s", data, offset)
    if first >> 4 != 6:
        raise _Unusable("malformed_packets")
    offset += 40
    end = offset + length if length else len(data)  # 0: a jumbogram, or segmented later by the network card
    while header in _IPV6_EXTENSIONS:
        following, units, fragment = struct.unpack_from(">BBH", data, offset)
        if header == _IPV6_FRAGMENT and fragment & 0xFFF9:
            raise _Unusable("fragments")
        offset += _extension_bytes(header, units)
        header = following
    if header != _TCP:
        raise _Unusable("other_frames")
    return addresses, offset, end


def _extension_bytes(header: int, units: int) -> int:
    if header == _IPV6_FRAGMENT:
        return 8
    return (units + 2) * 4 if header == _IPV6_AUTHENTICATION else (units + 1) * 8


_INTERNETS: dict[int, Callable[[bytes, int], tuple[bytes, int, int]]] = {ETHER_IPV4: _ipv4, ETHER_IPV6: _ipv6}


def _tcp(addresses: bytes, data: bytes, offset: int, end: int) -> Segment:
    ports, sequence, upper, flags = struct.unpack_from(">4sI4xBB6x", data, offset)
    start = offset + (upper >> 4) * 4
    if upper >> 4 < 5 or start > end:
        raise _Unusable("malformed_packets")
    captured_end = min(end, len(data))
    return Segment(
        flow=addresses + ports,
        sequence=(sequence + bool(flags & _SYN)) & 0xFFFFFFFF,
        payload=data[start:captured_end],
        missing_bytes=end - max(start, captured_end),
        opens=flags & (_SYN | _ACK) == _SYN,
        answers=flags & (_SYN | _ACK) == _SYN | _ACK,
        resets=bool(flags & _RST),
    )
