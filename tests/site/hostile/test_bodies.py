"""The bombs are what they say."""

from __future__ import annotations

import zlib

import pytest

from tests.site.hostile import bodies

MIB = bodies.MIB


def test_a_gzip_bomb_is_a_thousandth_of_what_it_holds():
    """It begins with a page and goes on with spaces."""
    bomb = bodies.gzip_bomb(64)
    assert len(bomb) * 1000 <= 65 * MIB
    text = zlib.decompressobj(31).decompress(bomb, 60 * MIB)
    assert text == bodies.EARLY + b" " * (60 * MIB - len(bodies.EARLY))


def test_a_deflate_bomb_ends_well():
    """Raw deflate, without a frame."""
    reader = zlib.decompressobj(-15)
    assert len(reader.decompress(bodies.deflate_bomb(8))) == 8 * MIB + len(bodies.EARLY)
    assert reader.eof


def test_a_nested_bomb_holds_a_bomb():
    """10 MiB in 10 KB in less."""
    outer = bodies.nested_gzip_bomb(10)
    inner = zlib.decompress(outer, 31)
    assert inner == bodies.gzip_bomb(10)
    assert len(outer) < len(inner)


def test_a_brotli_bomb_is_brotli():
    """Made of meta-blocks that repeat themselves."""
    brotli = pytest.importorskip("brotli", reason="the optional package brotli is not installed")
    text = brotli.decompress(bodies.brotli_bomb(64))
    assert text == bodies.EARLY + b" " * (64 * MIB)


@pytest.mark.parametrize("window_log", [23, 27])
def test_a_zstd_bomb_is_zstd(window_log):
    """Made of blocks that repeat one byte."""
    zstd = pytest.importorskip("backports.zstd", reason="the optional package backports.zstd is not installed")
    text = zstd.decompress(bodies.zstd_bomb(64, window_log))
    assert text == bodies.EARLY + b" " * (64 * MIB)
