"""Captured URLs as a stream: all of them, in order, and the error that cut them short."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from anabranch.dedup.capture.lines import captured_lines


def read_all(fd: int) -> bytes:
    """What comes until the end."""
    return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))


def test_each_url_is_a_line_in_the_order_of_the_capture() -> None:
    """More than a pipe holds, too."""
    urls = [b"http://a.test/%d" % number for number in range(20_000)]
    with captured_lines(urls) as lines:
        assert read_all(lines.fd).splitlines() == urls
        lines.require_whole()


def test_a_url_comes_out_before_the_next_one_is_captured() -> None:
    """A live capture is seen live."""
    go_on = threading.Event()

    def capture() -> Iterator[bytes]:
        yield b"first"
        go_on.wait(10)
        yield b"second"

    with captured_lines(capture()) as lines:
        assert os.read(lines.fd, 100) == b"first\n"
        go_on.set()
        assert read_all(lines.fd) == b"second\n"


def test_what_ends_the_capture_too_early_is_raised_to_the_reader() -> None:
    """After the lines that came before it."""

    def capture() -> Iterator[bytes]:
        yield b"first"
        raise OSError("unplugged")

    with captured_lines(capture()) as lines:
        assert read_all(lines.fd) == b"first\n"
        with pytest.raises(OSError, match="unplugged"):
            lines.require_whole()


def test_a_reader_that_leaves_ends_the_capture() -> None:
    """The thread does not go on for nobody."""

    def capture() -> Iterator[bytes]:
        while True:
            yield b"again"

    with captured_lines(capture()) as lines:
        assert os.read(lines.fd, 6) == b"again\n"
    lines._thread.join(10)
    assert not lines._thread.is_alive()
    lines.require_whole()
