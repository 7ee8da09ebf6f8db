"""Decodes content codings (RFC 9110 section 8.4): gzip, deflate, br, zstd, and several in a row.

A body of some KiB may decode to terabytes. So each coding is decoded in pieces of at most `PIECE_BYTES`, and decoding stops at
the limit, also of an inner coding, or at the first fault; all bytes before it are kept. br needs the package `brotli`, zstd
`compression.zstd` (Python 3.14) or `backports.zstd`; `CODINGS` lists what can be decoded.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

#: The most that one step of a decoder returns, and takes.
PIECE_BYTES = 64 * 1024
INPUT_BYTES = 4 * 1024

#: The most codings in a row; more are an attack.
MAX_CODINGS = 4
#: The most members of a gzip body, or frames of a zstd body.
MAX_MEMBERS = 10_000
#: zstd windows up to 8 MiB, the limit of RFC 9659 for HTTP.
_ZSTD_WINDOW_LOG = 23

_ALIASES = {"x-gzip": "gzip", "x-deflate": "deflate"}
#: Known codings, whether they can be decoded here or not. All other names are ignored.
_KNOWN = ("gzip", "deflate", "br", "zstd", "compress", "x-compress")

Decoder = Callable[[Iterator[bytes]], Iterator[bytes]]


class BrokenCoding(Exception):
    """The bytes are not in their declared coding, end too early, or exceed a bound."""


def codings_in(values: Iterable[str]) -> tuple[str, ...]:
    """The codings of all Content-Encoding fields, in the order in which they were applied, without unknown names. Pure."""
    names = (name.strip().lower() for value in values for name in value.split(","))
    return tuple(known for name in names if (known := _ALIASES.get(name, name)) in _KNOWN)


def decoded(chunks: Iterable[bytes], codings: Sequence[str], limit: int) -> tuple[bytes, bool]:
    """Decode at most `limit` bytes; True if there is more, or if the coding is broken."""
    if len(codings) > MAX_CODINGS or not set(codings) <= set(CODINGS):
        return b"", True
    pieces: Iterator[bytes] = _small(chunks)
    for number, name in enumerate(reversed(codings)):
        pieces = CODINGS[name](_small(_at_most(pieces, limit + PIECE_BYTES) if number else pieces))
    found = bytearray()
    try:
        for piece in pieces:
            found += piece
            if len(found) > limit:
                del found[limit:]
                return bytes(found), True
    except BrokenCoding:
        return bytes(found), True
    return bytes(found), False


def _small(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Split the chunks into pieces of at most `INPUT_BYTES`, the most input that a fault may lose."""
    for chunk in chunks:
        for start in range(0, len(chunk), INPUT_BYTES):
            yield chunk[start : start + INPUT_BYTES]


def _at_most(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        limit -= len(piece)
        if limit < 0:
            raise BrokenCoding("the coding inside is longer than what may come of it")


def gunzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """RFC 1952. Successive members are one content; bytes after them that are no member are ignored. Raises: BrokenCoding."""
    inflate, members = zlib.decompressobj(47), 1  # the zlib format, too: some servers send it as gzip
    for piece in _small(pieces):
        data = piece
        while data:
            if inflate.eof:  # between two members
                if not data.startswith(b"\x1f"):
                    return
                inflate, members = zlib.decompressobj(31), members + 1
                if members > MAX_MEMBERS:
                    raise BrokenCoding("too many members")
            yield from _inflated(inflate, data)
            data = inflate.unused_data
    if not inflate.eof:
        raise BrokenCoding("the end is missing")


def _deflate(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The zlib format (RFC 1950), and raw deflate (RFC 1951), which some servers send."""
    start = b""
    for piece in pieces:
        start += piece
        if len(start) > 1:
            break
    is_zlib = len(start) > 1 and start[0] & 15 == 8 and int.from_bytes(start[:2], "big") % 31 == 0
    inflate = zlib.decompressobj(15 if is_zlib else -15)
    yield from _inflated(inflate, start)
    for piece in pieces:
        if inflate.eof:
            return
        yield from _inflated(inflate, piece)
    if not inflate.eof:
        raise BrokenCoding("the end is missing")


def _inflated(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """Inflate the data. At a fault, yields all that came before it, then raises BrokenCoding."""
    is_full = False  # then zlib may have more output without new input
    while data or is_full:
        before = inflate.copy()
        try:
            piece = inflate.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            yield from _before_the_fault(before, data)
            raise BrokenCoding(str(error)) from error
        yield piece
        data, is_full = inflate.unconsumed_tail, len(piece) == PIECE_BYTES


def _before_the_fault(inflate: zlib._Decompress, data: bytes) -> Iterator[bytes]:
    """The output that a failed call withheld, by feeding zlib byte by byte. At most `INPUT_BYTES` calls and one piece."""
    found = bytearray()
    for byte in data:
        try:
            found += inflate.decompress(bytes((byte,)), PIECE_BYTES)
        except zlib.error:
            break
        if len(found) > PIECE_BYTES:
            break
    yield bytes(found)


def _brotli(library: Any) -> Decoder:
    """RFC 7932."""

    def decode(pieces: Iterator[bytes]) -> Iterator[bytes]:
        decoder = library.Decompressor()
        try:
            for piece in pieces:
                if decoder.is_finished():
                    return
                yield decoder.process(piece, output_buffer_limit=PIECE_BYTES)
                while not decoder.can_accept_more_data():
                    yield decoder.process(b"", output_buffer_limit=PIECE_BYTES)
        except library.error as error:
            raise BrokenCoding(str(error)) from error
        if not decoder.is_finished():
            raise BrokenCoding("the end is missing")

    return decode


def _zstd(library: Any) -> Decoder:
    """RFC 8878. Successive frames are one content."""
    options = {library.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}

    def decode(pieces: Iterator[bytes]) -> Iterator[bytes]:
        decoder, frames = library.ZstdDecompressor(options=options), 1
        try:
            for piece in pieces:
                data = piece
                while data or not (decoder.eof or decoder.needs_input):
                    if decoder.eof:
                        decoder, frames = library.ZstdDecompressor(options=options), frames + 1
                        if frames > MAX_MEMBERS:
                            raise BrokenCoding("too many frames")
                    found = decoder.decompress(data, PIECE_BYTES)
                    data = decoder.unused_data if decoder.eof else b""
                    yield found
        except library.ZstdError as error:
            raise BrokenCoding(str(error)) from error
        if not decoder.eof:
            raise BrokenCoding("the end is missing")

    return decode


_CODINGS: dict[str, Decoder] = {"gzip": gunzipped, "deflate": _deflate}
for _name, _make, _module in (
    ("br", _brotli, "brotli"),
    ("zstd", _zstd, "backports.zstd"),
    ("zstd", _zstd, "compression.zstd"),
):
    with suppress(ImportError):
        _CODINGS[_name] = _make(importlib.import_module(_module))
#: Name of a coding, as in Accept-Encoding -> its decoder.
CODINGS: Mapping[str, Decoder] = MappingProxyType(_CODINGS)
