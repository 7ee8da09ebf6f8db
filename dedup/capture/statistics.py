"""What a capture met on its way from frames to URLs, counted."""

from __future__ import annotations

from dataclasses import dataclass


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
