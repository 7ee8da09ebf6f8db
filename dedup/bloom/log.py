"""The elements of each leaf: one append-only file of fingerprints per leaf, from which it is split and rebuilt.

File `leaf-<number>.log`: a header of 64 bytes (magic, version, parameters, leaf), then 16 bytes an element (`keys.py`). The
version is 1 for classic leaves and 2 for blocked ones.
Appends are collected in memory and written in larger pieces. Descriptors are opened for each piece, so that thousands of
leaves need none. The log of a splitting leaf is frozen: it never changes again.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np

from anabranch.dedup.bloom.formulas import LEAF_KINDS, DsbfParameters
from anabranch.dedup.errors import CUT_OFF, FormatMismatch
from anabranch.dedup.files.durable import descriptor, replace_file, store_full_errors, sync_path, write_all, write_file
from anabranch.dedup.keys import FINGERPRINT_BYTES, Fingerprints, IntArray, from_bytes, to_bytes

VERSION = 1

_MAGIC = b"ANALEAF\n"
_HEADER = struct.Struct("<8sIIQQIdQ12x")  # magic, version, k, m, n, split fan-out, f, leaf
_FIELDS = ("magic", "version", "hashes", "leaf_bits", "expected", "split_fan_out", "false_positive", "leaf")
_FEWEST_WAITING = 1 << 15  # elements: 768 KiB; each writing costs an open and a write per leaf
_WAITING_PER_LEAF = 64
_PARTS_AT_ONCE = 256


class LeafLogs:
    """The logs of one filter. Once all are opened or adopted, every call may come from any thread."""

    def __init__(self, folder: Path, parameters: DsbfParameters) -> None:
        self._folder = folder
        self._parameters = parameters
        self._lengths: dict[int, int] = {}  # bytes of each log that are written and count
        self._waiting: list[tuple[IntArray, Fingerprints]] = []
        self._recent: list[tuple[IntArray, Fingerprints]] = []  # what waits behind that, in smaller parts
        self._waiting_count = 0
        self._touched: set[int] = set()
        self._lock = threading.Lock()

    @property
    def log_bytes(self) -> int:
        """Bytes in all logs, headers and what waits to be written included."""
        with self._lock:
            return sum(self._lengths.values()) + self._waiting_count * FINGERPRINT_BYTES

    def path(self, leaf: int) -> Path:
        """Return the path of a leaf's log."""
        return self._folder / f"leaf-{leaf:08d}.log"

    def create(self, leaves: Sequence[int]) -> None:
        """Write and sync new, empty logs; all or, after an OSError, none. Names are durable after a folder sync."""
        try:
            for leaf in leaves:
                with store_full_errors(self.path(leaf)):
                    write_file(self.path(leaf), self._header(leaf))
        except OSError:
            self.discard(leaves)
            raise
        with self._lock:
            self._lengths.update(dict.fromkeys(leaves, _HEADER.size))

    def open(self, leaf: int) -> Fingerprints:
        """Take up a leaf's log and read it, without a torn tail. Raises: FormatMismatch if it is missing or damaged."""
        path = self.path(leaf)
        with _found(path, os.O_RDWR) as fd:
            self._require_header(path, leaf, os.pread(fd, _HEADER.size, 0))
            size = os.fstat(fd).st_size
            whole = size - (size - _HEADER.size) % FINGERPRINT_BYTES
            if whole < size:
                os.ftruncate(fd, whole)
        self._lengths[leaf] = whole
        # These elements may never have been synced: the next sync makes them durable.
        self._touched.add(leaf)
        return self.read(leaf)

    def require(self, lengths: Mapping[int, int]) -> None:
        """Raise `FormatMismatch` if a log is missing, another one's, or shorter than these bytes, which were synced."""
        for leaf, length in lengths.items():
            path = self.path(leaf)
            with _found(path, os.O_RDONLY) as fd:
                self._require_header(path, leaf, os.pread(fd, _HEADER.size, 0))
                if os.fstat(fd).st_size < length:
                    raise FormatMismatch(f"{path} {CUT_OFF}")

    def adopt(self, lengths: Mapping[int, int]) -> bool:
        """Take up all these logs, their elements unread, if each has exactly this length, else none; `require` them first."""
        if any(self.path(leaf).stat().st_size != length for leaf, length in lengths.items()):
            return False
        self._lengths = dict(lengths)
        return True

    def rewrite(self, leaf: int, elements: Fingerprints) -> None:
        """Put other elements into the log, at once and durably."""
        with store_full_errors(self.path(leaf)):
            replace_file(self.path(leaf), self._header(leaf) + to_bytes(elements))
        self._lengths[leaf] = _HEADER.size + len(elements) * FINGERPRINT_BYTES

    def lengths(self) -> dict[int, int]:
        """Bytes of each log, headers included; what waits to be written is not: `flush` first."""
        with self._lock:
            return dict(self._lengths)

    def count(self, leaf: int) -> int:
        """Number of elements in a log, equal ones included, waiting ones not."""
        return (self._lengths[leaf] - _HEADER.size) // FINGERPRINT_BYTES

    def read(self, leaf: int, start: int = 0, stop: int | None = None) -> Fingerprints:
        """Elements of a log from one place to another, by default all; `flush` first. Raises: OSError."""
        path, last = self.path(leaf), self.count(leaf) if stop is None else stop
        offset, end = (_HEADER.size + place * FINGERPRINT_BYTES for place in (start, last))
        parts = []
        with descriptor(path, os.O_RDONLY) as fd:
            while offset < end:  # one read serves at most 2 GiB on Linux
                parts.append(os.pread(fd, end - offset, offset))
                offset += len(parts[-1])
                if not parts[-1]:
                    raise OSError(errno.EIO, "the log is shorter than it was: its end was cut off", str(path))
        return from_bytes(b"".join(parts))

    def make_room(self) -> None:
        """Write what waits if it is much. Call it before an `append`, which can then not fail. Raises: OSError."""
        if self._waiting_count >= max(_FEWEST_WAITING, _WAITING_PER_LEAF * len(self._lengths)):
            self.flush()

    def append(self, leaves: IntArray, elements: Fingerprints) -> None:
        """Take elements, each for the leaf at the same index. They are in the file after `flush`, durable after `sync`."""
        if not len(elements):
            return
        with self._lock:
            self._recent.append((leaves, elements))
            self._waiting_count += len(elements)
            if len(self._recent) == _PARTS_AT_ONCE:  # one of many: a writing after 32,768 single ones would take 12 ms
                self._waiting.append(_joined(self._recent))
                self._recent = []

    def flush(self) -> None:
        """Write what waits. Raises: OSError; what could not be written waits on, and counts of files stay true."""
        with self._lock:
            self._flush()

    def sync(self) -> None:
        """Make all that was appended before this call durable. Raises: OSError; it may be repeated."""
        with self._lock:
            self._flush()
            due, self._touched = sorted(self._touched), set()
        synced = 0
        try:
            for leaf in due:
                with store_full_errors(self.path(leaf)):
                    sync_path(self.path(leaf))
                synced += 1
        finally:  # whatever broke it off: the rest is due at the next sync
            with self._lock:
                self._touched.update(due[synced:])

    def discard(self, leaves: Iterable[int]) -> None:
        """Remove logs that no durable manifest needs: of a split that failed, or that has ended. Raises: OSError."""
        for leaf in leaves:
            self.path(leaf).unlink(missing_ok=True)
            with self._lock:
                self._lengths.pop(leaf, None)
                self._touched.discard(leaf)

    def _flush(self) -> None:
        """Leaf by leaf, so that after an error exactly the unwritten elements wait on."""
        if not self._waiting_count:
            return
        self._waiting = [_joined(self._waiting + self._recent)]
        self._recent = []
        leaves, elements = self._waiting[0]
        order = _order(leaves)
        leaves, elements = leaves[order], elements.take(order, axis=0)
        data = to_bytes(elements)
        starts = [0, *(np.flatnonzero(np.diff(leaves)) + 1).tolist(), len(leaves)]
        written = 0
        try:
            for start, stop in pairwise(starts):
                self._write(leaves.item(start), data[start * FINGERPRINT_BYTES : stop * FINGERPRINT_BYTES])
                written = stop
        finally:
            self._waiting = [(leaves[written:], elements[written:])] if written < len(leaves) else []
            self._waiting_count = len(leaves) - written

    def _write(self, leaf: int, data: bytes) -> None:
        """Append at the recorded length, not at the file's end: half of a failed write may be there."""
        path = self.path(leaf)
        with store_full_errors(path), descriptor(path, os.O_WRONLY) as fd:
            write_all(fd, data, self._lengths[leaf])
        self._lengths[leaf] += len(data)
        self._touched.add(leaf)

    def _header(self, leaf: int) -> bytes:
        given = self._parameters
        version = VERSION + LEAF_KINDS[given.leaf_kind]
        numbers = (version, given.hashes, given.leaf_bits, given.expected, given.split_fan_out, given.false_positive)
        return _HEADER.pack(_MAGIC, *numbers, leaf)

    def _require_header(self, path: Path, leaf: int, header: bytes) -> None:
        if len(header) < _HEADER.size or not header.startswith(_MAGIC):
            raise FormatMismatch(f"{path} is damaged: it does not start as a leaf's log")
        there = zip(_FIELDS, _HEADER.unpack(header), _HEADER.unpack(self._header(leaf)), strict=True)
        if wrong := [f"{name} is {found!r} instead of {wanted!r}" for name, found, wanted in there if found != wanted]:
            raise FormatMismatch(f"{path} does not belong to this filter: {'; '.join(wrong)}")


@contextmanager
def _found(path: Path, flags: int) -> Iterator[int]:
    """A descriptor of a log that must be there."""
    try:
        with descriptor(path, flags) as fd:
            yield fd
    except FileNotFoundError as error:
        raise FormatMismatch(f"{path} is missing: the filter is damaged") from error


def _joined(parts: list[tuple[IntArray, Fingerprints]]) -> tuple[IntArray, Fingerprints]:
    return np.concatenate([leaves for leaves, _ in parts]), np.concatenate([elements for _, elements in parts])


def are_empty(folder: Path) -> bool:
    """True if no log in the folder holds an element, whatever leaf it is of."""
    return all(path.stat().st_size <= _HEADER.size for path in folder.glob("leaf-*.log"))


def remove_strangers(folder: Path, logs: LeafLogs) -> None:
    """Remove logs that no leaf of the tree owns: what an interrupted split left behind."""
    mine = {logs.path(leaf) for leaf in logs.lengths()}
    for path in folder.glob("leaf-*.log*"):
        if path not in mine:
            path.unlink()


def _order(leaves: IntArray) -> IntArray:
    """The order by leaves, of equal ones by place. Numpy sorts 16 bits ten times as fast as 64."""
    if leaves.max() < 1 << 16:
        return np.argsort(leaves.astype(np.uint16), kind="stable")
    return np.argsort(leaves, kind="stable")
