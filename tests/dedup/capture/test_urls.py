"""URLs out of capture files and off the loopback interface; frames are built by hand."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dedup.capture import urls as capture
from anabranch.dedup.capture.frames import CaptureStatistics, Segment, segment_of_frame, segment_of_packet
from anabranch.dedup.capture.requests import (
    MAX_HEAD_BYTES,
    WINDOW_BYTES,
    FlowLimits,
    HttpRequests,
    TcpFlows,
    url_of_request,
)
from anabranch.dedup.capture.urls import CapturedLines, CaptureError, urls_from_file, urls_from_interface
from anabranch.dedup.errors import FormatMismatch
from tests.rows import each_row

GET = b"GET /a?b=1 HTTP/1.1\r\nHost: example.org\r\n\r\n"
URL = b"http://example.org/a?b=1"
SYN, RST, ACK = 2, 4, 16


def tcp(payload: bytes, sequence: int = 1, flags: int = ACK, options: bytes = b"") -> bytes:
    upper = (20 + len(options)) // 4 << 4
    return struct.pack(">HHIIBBHHH", 4000, 80, sequence & 0xFFFFFFFF, 0, upper, flags, 0, 0, 0) + options + payload


def ipv4(body: bytes, options: bytes = b"", fragment: int = 0, protocol: int = 6, total: int | None = None) -> bytes:
    header = 20 + len(options)
    total = header + len(body) if total is None else total
    fixed = struct.pack(">BBHHHBBH", 0x40 | header // 4, 0, total, 0, fragment, 64, protocol, 0)
    return fixed + b"\x7f\0\0\1\x7f\0\0\2" + options + body


def ipv6(body: bytes, header: int = 6, length: int | None = None) -> bytes:
    length = len(body) if length is None else length
    return struct.pack(">IHBB", 6 << 28, length, header, 64) + b"\1" * 32 + body


def ethernet(packet: bytes, ether_type: int = 0x0800, tags: bytes = b"") -> bytes:
    return b"\2" * 12 + tags + struct.pack(">H", ether_type) + packet


def pcap(*records: bytes, link_type: int = 1) -> bytes:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, link_type)
    return head + b"".join(struct.pack("<IIII", 1, 2, len(r), len(r)) + r for r in records)


def one(link_type: int, frame: bytes) -> tuple[Segment | None, CaptureStatistics]:
    counts = CaptureStatistics()
    return segment_of_frame(link_type, frame, counts), counts


def seg(payload: bytes, sequence: int, **more: object) -> Segment:
    fields = {"flow": b"f", "missing_bytes": 0, "opens": False, "answers": False, "resets": False} | more
    return Segment(sequence=sequence & 0xFFFFFFFF, payload=payload, **fields)  # type: ignore[arg-type]


class Flows:
    """A table of flows with its counters, and everything that came out."""

    def __init__(self, **limits: int) -> None:
        self.counts = CaptureStatistics()
        self.table = TcpFlows(self.counts, FlowLimits(**limits))

    def __call__(self, *segments: Segment) -> list[bytes]:
        return [url for segment in segments for url in self.table.take(segment)]


def urls(*pieces: bytes) -> list[bytes]:
    requests = HttpRequests(CaptureStatistics())
    return [url for piece in pieces for url in requests.feed(piece)]


# -- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (1, ethernet(ipv4(tcp(GET)))),
        (1, ethernet(ipv4(tcp(GET)) + b"padding")),
        (1, ethernet(ipv4(tcp(GET)), tags=b"\x81\0\0\7")),
        (1, ethernet(ipv4(tcp(GET)), tags=b"\x88\xa8\0\7\x81\0\0\x08")),
        (1, ethernet(ipv4(tcp(GET), total=0))),
        (1, ethernet(ipv4(tcp(GET, options=b"\1" * 12), options=b"\1" * 8))),
        (1, ethernet(ipv6(tcp(GET)), 0x86DD)),
        (1, ethernet(ipv6(tcp(GET), length=0), 0x86DD)),
        (1, ethernet(ipv6(b"\x2b\0" + b"\0" * 6 + b"\6\1" + b"\0" * 14 + tcp(GET), 0), 0x86DD)),
        (1, ethernet(ipv6(b"\6\1" + b"\0" * 10 + tcp(GET), 51), 0x86DD)),
        (1, ethernet(ipv6(b"\6\0\0\0" + b"\0" * 4 + tcp(GET), 44), 0x86DD)),
        (101, ipv4(tcp(GET))),
        (12, ipv6(tcp(GET))),
        (228, ipv4(tcp(GET))),
        (229, ipv6(tcp(GET))),
        (113, b"\0" * 14 + b"\x08\0" + ipv4(tcp(GET))),
        (276, b"\x86\xdd" + b"\0" * 18 + ipv6(tcp(GET))),
        (0, b"\2\0\0\0" + ipv4(tcp(GET))),
        (0, b"\0\0\0\2" + ipv4(tcp(GET))),
        (0, b"\x1e\0\0\0" + ipv6(tcp(GET))),
        (108, b"\0\0\0\x18" + ipv6(tcp(GET))),
    ],
)
def test_a_segment_is_found_under_every_link_and_internet_header(link_type: int, frame: bytes, tmp_path: Path) -> None:
    """Link types, VLAN tags, options, extension headers and padding do not change the URL."""
    file = tmp_path / "it.pcap"
    file.write_bytes(pcap(frame, link_type=link_type))
    counts = CaptureStatistics()
    assert list(urls_from_file(file, statistics=counts)) == [URL]
    assert (counts.frames, counts.segments, counts.requests) == (1, 1, 1)


@each_row(
    ("link_type", "frame", "counter"),
    [
        (999, ethernet(ipv4(tcp(GET))), "other_frames"),
        (1, ethernet(b"arp", 0x0806), "other_frames"),
        (101, b"\x10", "other_frames"),
        (0, b"\7\0\0\0", "other_frames"),
        (1, ethernet(ipv4(tcp(GET), protocol=17)), "other_frames"),
        (1, ethernet(ipv6(tcp(GET), 17), 0x86DD), "other_frames"),
        (1, ethernet(ipv4(tcp(GET), fragment=0x2000)), "fragments"),
        (1, ethernet(ipv4(tcp(GET), fragment=0x0001)), "fragments"),
        (1, ethernet(ipv6(b"\6\0\0\1" + b"\0" * 4 + tcp(GET), 44), 0x86DD), "fragments"),
        (1, ethernet(ipv4(tcp(GET), total=10)), "malformed_packets"),
        (1, ethernet(b"\x65" + ipv4(tcp(GET))[1:]), "malformed_packets"),
        (1, ethernet(b"\x44" + ipv4(tcp(GET))[1:]), "malformed_packets"),
        (1, ethernet(b"\x40" + ipv6(tcp(GET))[1:], 0x86DD), "malformed_packets"),
        (1, ethernet(ipv4(tcp(GET)[:12] + b"\x40" + tcp(GET)[13:])), "malformed_packets"),
        (1, ethernet(ipv4(tcp(GET)[:12] + b"\xf0" + tcp(b"")[13:])), "malformed_packets"),
        (1, b"", "truncated_frames"),
        (1, ethernet(ipv4(tcp(GET)))[:40], "truncated_frames"),
        (1, ethernet(ipv6(b"\0\0", 0), 0x86DD), "truncated_frames"),
    ],
)
def test_a_frame_that_cannot_be_used_is_counted_under_its_reason(link_type: int, frame: bytes, counter: str) -> None:
    """Nothing is left out silently."""
    segment, counts = one(link_type, frame)
    assert segment is None
    assert (counts.frames, getattr(counts, counter)) == (1, 1)


def test_a_cut_frame_tells_how_much_is_missing() -> None:
    """A snap length cuts the payload; what is there is used."""
    segment, counts = one(101, ipv4(tcp(GET))[:-10])
    assert segment is not None
    assert (segment.payload, segment.missing_bytes) == (GET[:-10], 10)
    assert counts.truncated_frames == 1


def test_a_frame_cut_within_tcp_options_misses_its_payload_alone() -> None:
    """Option bytes are not payload."""
    segment, _ = one(101, ipv4(tcp(GET, options=b"\1" * 12))[:44])
    assert segment is not None
    assert (segment.payload, segment.missing_bytes) == (b"", len(GET))


def test_the_flags_tell_client_and_server() -> None:
    """A SYN takes one sequence number; SYN with ACK comes from the server."""
    opening, answer = (one(101, ipv4(tcp(b"", 7, flags)))[0] for flags in (SYN, SYN | ACK))
    assert opening is not None
    assert answer is not None
    assert (opening.sequence, opening.opens, opening.answers) == (8, True, False)
    assert (answer.opens, answer.answers) == (False, True)


@given(st.sampled_from([0, 1, 101, 108, 113, 276]), st.binary(max_size=200))
def test_any_frame_is_decoded_or_counted(link_type: int, frame: bytes) -> None:
    """No bytes raise."""
    segment, counts = one(link_type, frame)
    left_out = counts.other_frames + counts.fragments + counts.truncated_frames + counts.malformed_packets
    assert segment is not None or left_out == 1


# -- requests --------------------------------------------------------------------------------------------------------


@each_row("method", [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"M-SEARCH"])
def test_every_method_names_a_url(method: bytes) -> None:
    """A method is any word of capitals."""
    assert urls(method + b" /x HTTP/1.0\r\nhOST :h:8080 \r\n\r\n") == [b"http://h:8080/x"]


@each_row(
    ("method", "target", "hosts", "url"),
    [
        (b"GET", b"/\xe4", [b"h"], b"http://h/\xe4"),
        (b"GET", b"HTTP://other/x", [b"h"], b"HTTP://other/x"),
        (b"GET", b"https://other/", [], b"https://other/"),
        (b"GET", b"/", [b"h", b"h"], b"http://h/"),
        (b"GET", b"/", [b"[::1]:8080"], b"http://[::1]:8080/"),
        (b"GET", b"/", [b"h", b"i"], None),
        (b"GET", b"/", [], None),
        (b"GET", b"/", [b""], None),
        (b"GET", b"/", [b"h/evil"], None),
        (b"GET", b"x", [b"h"], None),
        (b"OPTIONS", b"*", [b"h"], None),
        (b"CONNECT", b"h:443", [b"h"], None),
    ],
)
def test_the_url_of_a_request(method: bytes, target: bytes, hosts: list[bytes], url: bytes | None) -> None:
    """Host + target, or the absolute target; nothing for a request that names no one URL."""
    assert url_of_request(method, target, hosts) == url


POST = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 16\r\n\r\nGET / HTTP/1.1\r\n"
CHUNKED = b"PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
CHUNKED += b"5;x=y\r\nGET /\r\na\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n"
BARE = b"\r\nGET /lf HTTP/1.1\nHost: h\n\n"
STREAM = GET + POST + CHUNKED + BARE + GET
STREAM_URLS = [URL, b"http://h/p", b"http://h/c", b"http://h/lf", URL]


def test_pipelined_requests_with_bodies_and_chunks_are_all_seen() -> None:
    """Bodies are passed over by their length, so that a request quoted in one is no request."""
    assert urls(STREAM) == STREAM_URLS


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_any_split_gives_the_same_urls(cuts: set[int]) -> None:
    """The ends of segments have no meaning for requests."""
    bounds = [0, *sorted(cuts), len(STREAM)]
    assert urls(*(STREAM[a:b] for a, b in pairwise(bounds))) == STREAM_URLS


@each_row(
    "middle",
    [
        b"\x16\x03\x01garbage",
        b"HELO smtp\r\n",
        b"lower",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n...",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n...",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n...",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * MAX_HEAD_BYTES,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 6000,
    ],
)
def test_after_garbage_the_next_piece_that_begins_like_a_request_counts(middle: bytes) -> None:
    """A flow is not given up for what cannot be understood."""
    assert urls(GET, middle, GET)[-1] == URL
    assert urls(GET, middle + GET, GET).count(URL) == 2


def test_a_head_that_is_too_long_is_counted_and_its_host_still_used() -> None:
    """Memory for a head is bounded; the Host mostly comes early."""
    counts = CaptureStatistics()
    requests = HttpRequests(counts)
    assert requests.feed(b"GET /a HTTP/1.1\r\nHost: h\r\n" + b"x" * MAX_HEAD_BYTES) == [b"http://h/a"]
    assert requests.feed(b"GET /" + b"x" * MAX_HEAD_BYTES) == []
    assert counts.broken_heads == 1


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\n\r\n", b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n"])
def test_a_server_and_a_tunnel_ask_for_nothing(start: bytes) -> None:
    """Bytes of an answer or of a tunnel are no request, even if they look like one."""
    requests = HttpRequests(CaptureStatistics())
    assert requests.feed(start) + requests.feed(GET) + requests.break_off() + requests.feed(GET) == []
    assert requests.is_over


def test_an_answer_where_a_request_was_expected_ends_the_flow() -> None:
    """A server's half is known by its status line also in the middle of a flow."""
    assert urls(GET, GET + b"HTTP/1.1 200 OK\r\n", GET) == [URL, URL]


# -- flows -----------------------------------------------------------------------------------------------------------


@given(st.data())
def test_any_order_and_repetition_of_segments_gives_the_urls_once(data: st.DataObject) -> None:
    """Behind an opening segment, segments may come in any order, overlapping and repeated, across the end of the numbers."""
    start = data.draw(st.sampled_from([1, 0xFFFFFFFF - 30]))
    stream = GET + BARE + GET
    cuts = data.draw(st.sets(st.integers(1, len(stream) - 1), max_size=8))
    parts = list(pairwise([0, *sorted(cuts), len(stream)]))
    overlap = data.draw(st.integers(0, 20))
    segments = [seg(stream[a : b + overlap], start + a) for a, b in parts]
    order = data.draw(st.permutations(segments + segments[:2]))
    flows = Flows()
    assert flows(seg(b"", start, opens=True), *order) == [URL, b"http://h/lf", URL]
    assert flows.table.finish() == []


def test_a_hole_is_given_up_when_too_much_waits_behind_it() -> None:
    """By bytes or by segments, whichever comes first; reading goes on behind the hole."""
    for limits in ({"early_bytes": 50}, {"early_segments": 1}):
        flows = Flows(**limits)
        assert flows(seg(b"", 1, opens=True), seg(GET, 101)) == []
        assert flows(seg(GET, 101 + len(GET))) == [URL, URL]
        assert flows.counts.gaps == 1


def test_what_waits_behind_a_hole_counts_at_the_end() -> None:
    """No URL that was captured is lost because others were not."""
    flows = Flows()
    assert flows(seg(GET + GET[:30], 1), seg(GET, 301), seg(GET, 301), seg(GET, 501)) == [URL]
    assert flows.table.finish() == [URL, URL]
    assert (flows.counts.gaps, flows.counts.retransmissions, flows.counts.broken_heads) == (2, 1, 1)


def test_a_hole_within_a_body_does_not_matter() -> None:
    """Body bytes are passed over whether they were captured or not, also when the reader catches up."""
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"
    body = 1 + len(head)
    flows = Flows()
    assert flows(seg(head, 1), seg(b"x" * 100, body + 900), seg(b"x" * 100, body)) == [b"http://h/p"]
    assert flows(seg(GET, body + 1000)) == [URL]
    assert (flows.counts.gaps, flows.counts.retransmissions) == (0, 1)
    late = Flows()
    assert late(seg(b"", 1, opens=True), seg(b"x" * 500, body + 500), seg(GET, body + 1000)) == []
    assert late(seg(head, 1)) == [b"http://h/p", URL]


def test_a_far_segment_moves_the_reader() -> None:
    """A number far away is another connection on the same ports, or a long loss."""
    flows = Flows()
    assert flows(seg(GET, 1), seg(GET, 5 * WINDOW_BYTES), seg(GET, 1)) == [URL, URL, URL]
    assert flows.counts.gaps == 2


def test_a_cut_segment_gives_its_url_and_the_next_request_counts() -> None:
    """A snap length may cut heads and bodies."""
    flows = Flows()
    cut = seg(GET[:-5], 1, missing_bytes=5 + 20)
    assert flows(cut, cut, seg(GET, 1 + len(GET) + 20)) == [URL]
    flows = Flows()
    whole_host = seg(GET[:-2], 1, missing_bytes=2)
    assert flows(whole_host, whole_host, seg(GET, 1 + len(GET))) == [URL, URL]
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n"
    flows = Flows()
    assert flows(seg(head, 1, missing_bytes=9), seg(GET, 10 + len(head))) == [b"http://h/p", URL]
    assert flows.counts.gaps == 0


def test_cut_segments_that_overlap_count_missing_bytes_once() -> None:
    """Only the part of a cut that is new moves the reader on."""
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"
    body = 1 + len(head)
    flows = Flows()
    assert flows(seg(head + b"x" * 10, 1, missing_bytes=20)) == [b"http://h/p"]
    assert flows(seg(b"x" * 5, body + 20, missing_bytes=30), seg(b"x" * 45 + GET, body + 55)) == [URL]


def test_a_repeated_opening_changes_nothing_and_a_new_one_begins_anew() -> None:
    """Ports are used again; the opening's number distinguishes a new connection from a repetition."""
    flows = Flows()
    opening = seg(b"", 1, opens=True)
    assert flows(opening, seg(GET[:9], 1), opening, seg(GET[9:], 10)) == [URL]
    assert flows(seg(GET, 5000, opens=True)) == [URL]


def test_a_server_half_is_not_read() -> None:
    """Its opening shows it, whatever bytes follow."""
    assert Flows()(seg(b"", 1, answers=True), seg(GET, 1)) == []


def test_a_reset_forgets_the_flow() -> None:
    """Nothing follows a reset."""
    flows = Flows()
    assert flows(seg(GET[:-2], 1), seg(b"", 9, resets=True)) == [URL]
    assert flows(seg(b"", 9, resets=True)) == []
    assert len(flows.table._flows) == 0


def test_the_flow_unused_for_longest_is_forgotten_first() -> None:
    """The number of flows is bounded, whether they open or speak."""
    flows = Flows(flows=2)
    assert flows(seg(GET[:9], 1, flow=b"a"), seg(GET[:9], 1, flow=b"b"), seg(GET[9:12], 10, flow=b"a")) == []
    assert flows(seg(GET[:9], 1, flow=b"c"), seg(GET[12:], 13, flow=b"a")) == [URL]
    assert flows(seg(b"", 1, flow=b"d", opens=True)) == []
    assert (len(flows.table._flows), flows.counts.evicted_flows, flows.counts.broken_heads) == (2, 2, 2)


def test_a_segment_without_payload_makes_no_flow() -> None:
    """Bare acknowledgements cost no memory."""
    flows = Flows()
    assert flows(seg(b"", 1)) == []
    assert len(flows.table._flows) == 0


@given(st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=60) | st.just(GET), st.integers(0, 40)), max_size=30))
def test_any_segments_are_taken(parts: list[tuple[int, bytes, int]]) -> None:
    """No sequence of segments raises, and what waits stays within its bound."""
    flows = Flows(early_segments=3, early_bytes=100)
    found = flows(*(seg(payload, at, missing_bytes=missing) for at, payload, missing in parts))
    assert len(found) + len(flows.table.finish()) <= flows.counts.requests


# -- files and interfaces --------------------------------------------------------------------------------------------


def test_a_keep_alive_connection_in_a_file(tmp_path: Path) -> None:
    """Requests and answers of one connection, in order."""
    file = tmp_path / "it.pcap"
    packets = [tcp(b"", 0, SYN), tcp(GET[:20], 1), tcp(GET[20:], 21), tcp(GET, 1 + len(GET))]
    file.write_bytes(pcap(*(ethernet(ipv4(packet)) for packet in packets), b"junk")[:-1])
    counts = CaptureStatistics()
    assert list(urls_from_file(file, statistics=counts)) == [URL, URL]
    assert (counts.frames, counts.damaged_records, counts.segments) == (5, 1, 3)


@given(st.binary(max_size=300), st.booleans())
def test_a_file_of_any_bytes_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes, ours: bool
) -> None:
    """Only FormatMismatch is raised."""
    file = tmp_path_factory.getbasetemp() / "fuzz"
    file.write_bytes(pcap(ethernet(ipv4(tcp(GET)))) + rest if ours else rest)
    try:
        found = list(urls_from_file(file))
    except FormatMismatch:
        assert not ours
    else:
        assert not ours or URL in found


def _denied(*_: object) -> socket.socket:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.skipif(sys.platform != "linux", reason="live capture is Linux only")
def test_without_the_right_the_error_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user reads "root", not a number."""
    monkeypatch.setattr(socket, "socket", _denied)
    with pytest.raises(CaptureError, match="cannot capture from lo: it needs root"):
        urls_from_interface("lo", stop=lambda: True)


def test_other_systems_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere a file is the way."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CaptureError, match="needs Linux"):
        urls_from_interface("en0", stop=lambda: True)


live = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="live capture needs Linux and root: not run here"
)


@live
def test_an_unknown_interface_is_named_with_the_known_ones() -> None:
    """The message lists what there is."""
    with pytest.raises(CaptureError, match=r"nosuch0: there is no such interface; there are: .*lo"):
        urls_from_interface("nosuch0", stop=lambda: True)
    with pytest.raises(CaptureError, match="cannot capture from xxx"):
        urls_from_interface("x" * 40, stop=lambda: True)


def _serve(listener: socket.socket, requests: int) -> None:
    for _ in range(requests):
        connection, _ = listener.accept()
        with connection:
            while b"\r\n\r\n" not in connection.recv(65_536):
                pass
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


#: unshare(2) and netdevice(7).
_CLONE_NEWNET, _SIOCSIFFLAGS, _IFF_UP = 0x40000000, 0x8914, 1


def _alone_on_the_loopback(function: Callable[[], None]) -> None:
    """Call it in a thread with a network of its own: the traffic of others would overflow the tap's buffer."""

    def called() -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
        function()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(called).result()


@live
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_real_requests_are_seen_on_the_loopback_once(family: int, address: str) -> None:
    """Each request of a real connection gives its URL once, though the loopback shows its packets twice."""
    _alone_on_the_loopback(lambda: _see_real_requests(family, address))


def _see_real_requests(family: int, address: str) -> None:
    with socket.create_server((address, 0), family=socket.AddressFamily(family)) as listener:
        port = listener.getsockname()[1]
        server = threading.Thread(target=_serve, args=(listener, 5))
        server.start()
        host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        wanted = [f"http://{host}/{n}?{'q' * 3000}".encode() for n in range(5)]
        found: list[bytes] = []
        counts = CaptureStatistics()
        captured = urls_from_interface("lo", stop=lambda: len(found) >= 5, statistics=counts)
        with socket.socket(family, socket.SOCK_DGRAM) as other:
            other.sendto(GET, (address, port))  # no TCP: passed over
        for url in wanted:
            with socket.create_connection((address, port)) as client:
                path = url.removeprefix(f"http://{host}".encode())
                client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n")
                client.recv(1000)
        server.join()
        for url in captured:
            if host.encode() in url:  # other programs use the loopback, too
                found.append(url)  # noqa: PERF401  (the stop condition looks at the list)
    assert found == wanted
    assert counts.retransmissions < len(wanted) - 1  # the last one stops the capture before its repetition


def _calls(answers: list[bool]) -> Callable[[], bool]:
    return lambda: answers.pop(0)


class _BrokenTap:
    """A packet socket on which nothing comes, and then the interface goes down."""

    def __init__(self) -> None:
        self.events: list[OSError] = [TimeoutError(), OSError(100, "Network is down")]

    def __enter__(self) -> _BrokenTap:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def recvfrom(self, _: int) -> object:
        raise self.events.pop(0)


def test_a_quiet_interface_asks_for_the_stop_and_a_lost_one_is_an_error() -> None:
    """Silence does not keep a capture from stopping."""
    counts = CaptureStatistics()
    tap: socket.socket = _BrokenTap()  # type: ignore[assignment]
    assert list(capture._live_urls(tap, "eth0", _calls([False, True]), counts)) == []
    with pytest.raises(CaptureError, match="capture from eth0 ended: Network is down"):
        list(capture._live_urls(tap, "eth0", _calls([False, False]), counts))


def test_a_packet_without_link_header_is_decoded_by_its_ether_type() -> None:
    """A live capture gets packets from the network header on."""
    segment = segment_of_packet(0x86DD, ipv6(tcp(GET)), CaptureStatistics())
    assert segment is not None
    assert segment.payload == GET


def read_all(fd: int) -> bytes:
    """Return all bytes up to the end of the stream."""
    return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))


def test_each_url_is_a_line_in_the_order_of_the_capture() -> None:
    """More than a pipe holds, too."""
    urls = [b"http://a.test/%d" % number for number in range(20_000)]
    with CapturedLines(urls) as lines:
        assert read_all(lines.fd).splitlines() == urls
        lines.require_whole()


def test_a_url_comes_out_before_the_next_one_is_captured() -> None:
    """A live capture is seen live."""
    go_on = threading.Event()

    def capture() -> Iterator[bytes]:
        yield b"first"
        go_on.wait(10)
        yield b"second"

    with CapturedLines(capture()) as lines:
        assert os.read(lines.fd, 100) == b"first\n"
        go_on.set()
        assert read_all(lines.fd) == b"second\n"


def test_what_ends_the_capture_too_early_is_raised_to_the_reader() -> None:
    """After the lines that came before it."""

    def capture() -> Iterator[bytes]:
        yield b"first"
        raise OSError("unplugged")

    with CapturedLines(capture()) as lines:
        assert read_all(lines.fd) == b"first\n"
        with pytest.raises(OSError, match="unplugged"):
            lines.require_whole()


def test_a_reader_that_leaves_ends_the_capture() -> None:
    """The thread does not go on without a reader."""

    def capture() -> Iterator[bytes]:
        while True:
            yield b"again"

    with CapturedLines(capture()) as lines:
        assert os.read(lines.fd, 6) == b"again\n"
    lines._thread.join(10)
    assert not lines._thread.is_alive()
    lines.require_whole()
