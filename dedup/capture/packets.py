"""One frame to one TCP segment: link header, VLAN tags, IPv4 or IPv6, TCP.

Sources: the tcpdump group's LINKTYPE_ registry, IEEE 802.1Q, RFC 791 (IPv4), RFC 8200 (IPv6), RFC 4302 (AH), RFC 9293 (TCP).
Checksums are not verified: on the sending machine the network card fills them in after the capture.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.dedup.capture.statistics import CaptureStatistics

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
    counts.frames += 1
    try:
        return decode()
    except struct.error:  # a header reaches behind the end of the frame
        counts.truncated_frames += 1
    except _Unusable as reason:
        counter = str(reason)
        setattr(counts, counter, getattr(counts, counter) + 1)
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
    """The address family stands in the byte order of the capturing machine, or big-endian; small numbers tell which."""
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
        counts.truncated_frames += 1
    counts.segments += bool(segment.payload)
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
