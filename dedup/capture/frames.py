"""From a capture file or packet to TCP segments: pcap and pcapng, link header, VLAN tags, IPv4 or IPv6, TCP.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng, both byte orders; the tcpdump group's LINKTYPE_ registry,
IEEE 802.1Q, RFC 791 (IPv4), RFC 8200 (IPv6), RFC 4302 (AH), RFC 9293 (TCP). Time stamps are not read. Checksums are not
verified: on the sending machine the network card fills them in after the capture.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from anabranch.dedup.errors import FormatMismatch


@dataclass(slots=True, kw_only=True)
class CaptureStatistics:
    """Counters of one capture while it runs; everything that is left out is counted in one of them."""

    frames: int = 0  #: frames read from the file or the interface
    damaged_records: int = 0  #: records or blocks of the file that are cut or contradict themselves
    other_frames: int = 0  #: frames that are no IPv4 or IPv6 TCP, or of a link type that is not known
    fragments: int = 0  #: IP fragments, which are left out
    truncated_frames: int = (
        0  #: frames that were not captured to their end; the rest is used if the TCP header is whole
    )
    malformed_packets: int = 0  #: packets with header lengths that contradict each other
    segments: int = 0  #: TCP segments with payload
    retransmissions: int = 0  #: segments that bring nothing new
    gaps: int = 0  #: places where the reader gave up on missing bytes and went on behind them
    evicted_flows: int = 0  #: flows forgotten because too many were open
    requests: int = 0  #: request heads recognised
    requests_without_url: int = 0  #: of them, those that name no URL: no usable Host, CONNECT, `OPTIONS *`
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

_INTERFACE_BLOCK, _SIMPLE_PACKET_BLOCK = 1, 3
#: Of the obsolete packet block and of the enhanced one: interface and captured length.
_PACKET_FIELDS = {2: "H10xI4x", 6: "I8xI4x"}


@dataclass(frozen=True, slots=True)
class Frame:
    """One captured frame."""

    link_type: int  #: LINKTYPE_ number of the tcpdump group's registry
    data: bytes  #: the bytes captured, from the link header on


class _DamagedBlock(Exception):
    """The block contradicts itself, so the start of the next one is unknown and reading ends."""


def frames(stream: BinaryIO, name: str, counts: CaptureStatistics) -> Iterator[Frame]:
    """Yield the frames of a capture; a damaged rest is counted. Raises: FormatMismatch if it is no capture."""
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


def _pcapng_frames(stream: BinaryIO, name: str, counts: CaptureStatistics) -> Iterator[Frame]:
    order = ""  # of the bytes in this section
    interfaces: list[tuple[int, int]] = []  # link type and snap length of each one in this section
    kind = _SECTION
    try:
        while kind:
            if kind == _SECTION:
                start = stream.read(8)  # the length field and the byte-order magic
                known, order, interfaces = bool(order), _SECTION_ORDERS.get(start[4:], ""), []
                if not order and not known:
                    raise FormatMismatch(f"{name} is no pcapng file: its section header has no byte-order magic")
                _read_rest(stream, order, start[:4], already=12)
            elif (frame := _block(stream, order, interfaces, kind, counts)) is not None:
                yield frame
            kind = stream.read(4)
    except (_DamagedBlock, struct.error):
        counts.count("damaged_records")


def _read_rest(stream: BinaryIO, order: str, length: bytes, *, already: int) -> bytes:
    """The body of a block after its first `already` bytes, without the length that closes it."""
    if not order:
        raise _DamagedBlock
    (total,) = struct.unpack(order + "I", length)
    if total % 4 or not already + 4 <= total <= MAX_RECORD_BYTES:
        raise _DamagedBlock
    rest = stream.read(total - already)
    if len(rest) < total - already or rest[-4:] != length:
        raise _DamagedBlock
    return rest[:-4]


def _block(
    stream: BinaryIO, order: str, interfaces: list[tuple[int, int]], kind: bytes, counts: CaptureStatistics
) -> Frame | None:
    """The frame of one block, None for a block without one. A whole block with senseless content is counted and left out."""
    body = _read_rest(stream, order, stream.read(4), already=8)
    (number,) = struct.unpack(order + "I", kind)
    try:
        if number == _INTERFACE_BLOCK and len(interfaces) < MAX_INTERFACES:
            interfaces.append(struct.unpack_from(order + "H2xI", body))
        elif number == _INTERFACE_BLOCK:
            counts.count("damaged_records")
        elif number == _SIMPLE_PACKET_BLOCK:  # its length is the original one, or the snap length (0 is "no limit")
            (length,), (link_type, snap) = struct.unpack_from(order + "I", body), interfaces[0]
            return Frame(link_type, body[4 : 4 + (min(length, snap) if snap else length)])
        elif number in _PACKET_FIELDS:
            interface, captured = struct.unpack_from(order + _PACKET_FIELDS[number], body)
            return Frame(interfaces[interface][0], body[20 : 20 + captured])
    except (IndexError, struct.error):
        counts.count("damaged_records")
    return None


LINK_NULL, LINK_ETHERNET, LINK_LOOP = 0, 1, 108
LINK_RAW, LINK_IPV4, LINK_IPV6 = 101, 228, 229
LINK_SLL, LINK_SLL2 = 113, 276

ETHER_IPV4, ETHER_IPV6 = 0x0800, 0x86DD
_ETHER_VLANS = frozenset({0x8100, 0x88A8, 0x9100})
_FAMILIES = {2: ETHER_IPV4} | dict.fromkeys((10, 24, 28, 30), ETHER_IPV6)  # AF_INET6 differs by system
_VERSIONS = {4: ETHER_IPV4, 6: ETHER_IPV6}

_TCP = 6
_IPV6_FRAGMENT = 44
_IPV6_AUTHENTICATION = 51
_IPV6_EXTENSIONS = frozenset({0, 43, 60, 135, 139, 140, _IPV6_AUTHENTICATION, _IPV6_FRAGMENT})

_SYN, _RST, _ACK = 2, 4, 16


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment of one direction of a connection."""

    flow: bytes  #: source and destination address and ports, as bytes
    sequence: int  #: sequence number of the first payload byte (SYN already counted)
    payload: bytes  #: the payload as far as it was captured
    missing_bytes: int  #: payload bytes behind `payload` that were sent but not captured
    opens: bool  #: first segment of a client
    answers: bool  #: first segment of a server (SYN and ACK)
    resets: bool  #: RST


class _Unusable(Exception):
    """Carries the name of the counter that this packet goes to."""


def segment_of_frame(link_type: int, frame: bytes, counts: CaptureStatistics) -> Segment | None:
    """The usable TCP segment in a frame that begins with its link header, else None; both are counted."""
    return _counted(lambda: _segment(*_network(link_type, frame), frame, counts), counts)


def segment_of_packet(ether_type: int, packet: bytes, counts: CaptureStatistics) -> Segment | None:
    """The usable TCP segment in a packet without its link header, else None; both are counted."""
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


#: Link type -> where the EtherType is, and the length of the header.
_ETHER_TYPE_AT = {LINK_ETHERNET: (12, 14), LINK_SLL: (14, 16), LINK_SLL2: (0, 20)}
#: The packet begins with its IP header. 12 and 14 are DLT_RAW of most systems and of OpenBSD, as some programs write it.
_RAW_LINKS = frozenset({LINK_RAW, 12, 14, LINK_IPV4, LINK_IPV6})


def _network(link_type: int, frame: bytes) -> tuple[int, int]:
    """EtherType, and offset of what follows the link header."""
    if link_type in _ETHER_TYPE_AT:
        place, header_bytes = _ETHER_TYPE_AT[link_type]
        return struct.unpack_from(">H", frame, place)[0], header_bytes
    if link_type in _RAW_LINKS:
        return _VERSIONS.get(struct.unpack_from("B", frame)[0] >> 4, 0), 0
    if link_type in (LINK_NULL, LINK_LOOP):
        # The address family is in the byte order of the capturing machine, or big-endian; the smaller number is right.
        family = min(struct.unpack_from(order + "I", frame)[0] for order in "<>")
        return _FAMILIES.get(family, 0), 4
    raise _Unusable("other_frames")


def _segment(ether_type: int, offset: int, data: bytes, counts: CaptureStatistics) -> Segment:
    while ether_type in _ETHER_VLANS:
        (ether_type,) = struct.unpack_from(">H", data, offset + 2)
        offset += 4
    if ether_type not in (ETHER_IPV4, ETHER_IPV6):
        raise _Unusable("other_frames")
    addresses, offset, end = (_ipv4 if ether_type == ETHER_IPV4 else _ipv6)(data, offset)
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
    """Return what `_ipv4` returns. Skips extension headers; each has at least 8 bytes, so the loop ends with the frame."""
    first, length, header, addresses = struct.unpack_from(">B3xHBx32s", data, offset)
    if first >> 4 != 6:
        raise _Unusable("malformed_packets")
    offset += 40
    end = offset + length if length else len(data)  # 0: a jumbogram, or segmented later by the network card
    while header in _IPV6_EXTENSIONS:
        following, units, fragment = struct.unpack_from(">BBH", data, offset)
        if header == _IPV6_FRAGMENT and fragment & 0xFFF9:
            raise _Unusable("fragments")
        if header == _IPV6_FRAGMENT:
            offset += 8
        else:
            offset += (units + 2) * 4 if header == _IPV6_AUTHENTICATION else (units + 1) * 8
        header = following
    if header != _TCP:
        raise _Unusable("other_frames")
    return addresses, offset, end


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
