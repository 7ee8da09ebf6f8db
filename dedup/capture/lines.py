"""Captured URLs as a stream of lines, so that a capture can be read like any other input, as fast as it is taken."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class CapturedLines:
    """The reading end of a pipe that a thread fills with one URL per line."""

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

    def close(self) -> None:
        """Let go of the pipe; the thread ends with its next URL. A second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _fill(self) -> None:
        try:
            with open(self._writing, "wb") as pipe:  # noqa: PTH123 - it is a descriptor
                for url in self._urls:
                    pipe.write(url + b"\n")
                    pipe.flush()
        except BrokenPipeError:
            pass  # nobody reads any more
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the thread that reads
            self._error = error


@contextmanager
def captured_lines(urls: Iterable[bytes]) -> Iterator[CapturedLines]:
    """Have the URLs read in a thread of their own; the thread waits while nobody takes the lines."""
    lines = CapturedLines(urls)
    try:
        yield lines
    finally:
        lines.close()
