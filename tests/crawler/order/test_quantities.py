"""Durations and sizes as people write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.crawler.order.quantities import (
    exact_duration,
    exact_size,
    format_bytes,
    parse_duration,
    parse_size,
)
from tests.rows import each_row


@each_row(
    ("written", "seconds"),
    [
        (3, 3.0),
        (0.25, 0.25),
        ("7", 7.0),
        ("500ms", 0.5),
        ("9ms", 0.009),
        ("3s", 3.0),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1d", 86_400.0),
        (" 1.5 H ", 5400.0),
        ("0", 0.0),
        ("1e3s", 1000.0),
    ],
)
def test_a_duration_is_a_number_of_seconds_or_has_a_unit(written: object, seconds: float) -> None:
    """Numbers are seconds; ms, s, m, h and d are known in either case."""
    assert parse_duration(written) == seconds


@each_row(
    "written", ["", "3x", "-3s", "s", "3 s s", "1h30m", -1, math.inf, math.nan, True, None, [3], "1e999", 10**400, "٣s"]
)
def test_what_is_no_duration_is_refused_with_the_forms_that_are(written: object) -> None:
    """The message shows what was written and what may be written."""
    with pytest.raises(ValueError, match=r"^must be a number of seconds, or like 500ms, .*; not "):
        parse_duration(written)


@each_row(
    ("written", "size_bytes"),
    [
        (17, 17),
        ("17", 17),
        ("8KB", 8000),
        ("8kb", 8000),
        ("16MiB", 16 << 20),
        ("10MB", 10**7),
        ("1GB", 10**9),
        ("1.5 KiB", 1536),
        ("1B", 1),
        (2.0, 2),
        ("2TiB", 2 << 40),
    ],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(written: object, size_bytes: int) -> None:
    """KB is 1000 bytes, KiB 1024; the letters' case does not matter."""
    assert parse_size(written) == size_bytes


@each_row("written", ["16 miles", "1.5", 1.5, -1, "", True, None, math.inf, "1e999", "1e999KB", 10**400])
def test_what_is_no_size_is_refused_with_the_forms_that_are(written: object) -> None:
    """Half bytes are no size either."""
    with pytest.raises(ValueError, match=r"^must be a number of bytes, or like 8KB, .*; not "):
        parse_size(written)


@each_row(
    ("seconds", "written"),
    [(0.0, "0s"), (0.5, "500ms"), (3.0, "3s"), (90.0, "90s"), (120.0, "2m"), (7200.0, "2h"), (86_400.0, "1d")],
)
def test_a_duration_is_written_exactly_in_its_largest_unit(seconds: float, written: str) -> None:
    """An order that is written out reads like one that was typed."""
    assert exact_duration(seconds) == written


@each_row(("size_bytes", "written"), [(0, "0B"), (1025, "1025B"), (16 << 20, "16MiB"), (10**7, "10MB"), (8000, "8KB")])
def test_a_size_is_written_exactly_in_its_largest_unit(size_bytes: int, written: str) -> None:
    """Nothing is rounded."""
    assert exact_size(size_bytes) == written


@given(st.floats(min_value=0, max_value=1e12))
def test_every_duration_comes_back_as_it_was_written(seconds: float) -> None:
    """A dumped duration is loaded as the same float."""
    assert parse_duration(exact_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=(1 << 53) - 1))
def test_every_size_comes_back_as_it_was_written(size_bytes: int) -> None:
    """A dumped size is loaded as the same number."""
    assert parse_size(exact_size(size_bytes)) == size_bytes


@each_row(
    ("size_bytes", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2 << 20, "2.0 MiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")],
)
def test_a_size_is_shown_in_binary_units(size_bytes: int, shown: str) -> None:
    """With one decimal."""
    assert format_bytes(size_bytes) == shown
