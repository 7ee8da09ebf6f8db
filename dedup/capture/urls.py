"""URLs out of captured network traffic: every plain HTTP/1 request seen in a capture file or on an interface.

Frames become TCP segments (`frames.py`), segments become ordered bytes per flow and then requests (`requests.py`).
Encrypted traffic (https, HTTP/3) shows no URL. `CapturedLines` turns the URLs into a stream of lines.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

from anabranch.dedup.capture.frames import CaptureStatistics, frames, segment_of_frame, segment_of_packet
from anabranch.dedup.capture.requests import TcpFlows
from anabranch.dedup.errors import DedupError

#: the stop condition of a live capture is asked after every packet, and so often when none comes
STOP_CHECK_S = 0.2

_ALL_PROTOCOLS = 0x0003  # ETH_P_ALL of linux/if_ether.h
_LOOPBACK_HARDWARE = 772  # ARPHRD_LOOPBACK of linux/if_arp.h
_OUTGOING = 4  # PACKET_OUTGOING of linux/if_packet.h
_LONGEST_PACKET_BYTES = 262_144


class CaptureError(DedupError, OSError):
    """An interface cannot be captured; the message names it and says what to do."""


def urls_from_file(path: str | os.PathLike[str], *, statistics: CaptureStatistics | None = None) -> Iterator[bytes]:
    """Yield the URL of every HTTP request in a pcap or pcapng file, as the bytes that were sent, repeats included.

    Reads forward once (a pipe will do). Raises, when the iteration begins: FormatMismatch if it is no capture, OSError.
    """
    counts = CaptureStatistics() if statistics is None else statistics
    flows = TcpFlows(counts)
    with Path(path).open("rb") as stream:
        for frame in frames(stream, os.fspath(path), counts):
            segment = segment_of_frame(frame.link_type, frame.data, counts)
            if segment is not None:
                yield from flows.take(segment)
    yield from flows.finish()


def urls_from_interface(
    name: str, *, stop: Callable[[], bool], statistics: CaptureStatistics | None = None
) -> Iterator[bytes]:
    """Yield the URLs of HTTP requests that pass the interface, from this call on, until `stop()` is true.

    Needs Linux and root (or CAP_NET_RAW). `stop` is asked after every packet and every STOP_CHECK_S. Raises:
    CaptureError.
    """
    return _live_urls(_opened(name), name, stop, CaptureStatistics() if statistics is None else statistics)


def _opened(name: str) -> socket.socket:
    if sys.platform != "linux":
        raise CaptureError(f"cannot capture from {name}: live capture needs Linux; give a pcap file instead")
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)  # DGRAM: the kernel takes the link header off
    except PermissionError as error:
        raise CaptureError(
            f"cannot capture from {name}: it needs root or CAP_NET_RAW; run it with sudo, or give a pcap file"
        ) from error
    try:
        tap.bind((name, _ALL_PROTOCOLS))
        tap.settimeout(STOP_CHECK_S)
    except OSError as error:
        tap.close()
        raise CaptureError(f"cannot capture from {name}: {_reason(error)}") from error
    return tap


def _reason(error: OSError) -> str:
    if error.errno == errno.ENODEV:
        known = ", ".join(name for _, name in socket.if_nameindex())
        return f"there is no such interface; there are: {known}"
    return error.strerror or str(error)


def _live_urls(tap: socket.socket, name: str, stop: Callable[[], bool], counts: CaptureStatistics) -> Iterator[bytes]:
    flows = TcpFlows(counts)
    with tap:
        while not stop():
            try:
                packet, (_, ether_type, direction, hardware, _) = tap.recvfrom(_LONGEST_PACKET_BYTES)
            except TimeoutError:
                continue
            except OSError as error:
                raise CaptureError(f"capture from {name} ended: {_reason(error)}") from error
            if direction == _OUTGOING and hardware == _LOOPBACK_HARDWARE:
                continue  # the loopback shows every packet twice, going out and coming in
            segment = segment_of_packet(ether_type, packet, counts)
            if segment is not None:
                yield from flows.take(segment)
    yield from flows.finish()


class CapturedLines:
    """The reading end of a pipe that a thread fills with one URL per line; the thread waits while no line is read."""

    def __init__(self, urls: Iterable[bytes]) -> None:
        self.fd, self._writing = os.pipe()
        self._urls = urls
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._fill, name="capture", daemon=True)
        self._thread.start()

    def require_whole(self) -> None:
        """After the end of the lines: raise what ended the capture, if that was an error."""
        self._thread.join()  # it closes the pipe a moment before it ends
        if self._error is not None:
            raise self._error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipe; the thread ends with its next URL."""
        os.close(self.fd)

    def _fill(self) -> None:
        try:
            with open(self._writing, "wb") as pipe:  # noqa: PTH123 - it is a descriptor
                for url in self._urls:
                    pipe.write(url + b"\n")
                    pipe.flush()
        except BrokenPipeError:
            pass  # the reader has closed the pipe
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the thread that reads
            self._error = error
