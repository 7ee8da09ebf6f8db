"""Leases of a host program, as other processes read them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from anabranch.frontier.completion import LeaseElsewhere
from anabranch.frontier.errors import StoreUnavailable
from anabranch.frontier.hosts.embedding.leaseboard import LeaseBoard, OutElsewhere, read_board

NOW_S = 1_000_000.0


def test_a_lease_is_told_until_it_ends(tmp_path: Path) -> None:
    """With where its row stands, and since when; a gate that rests then is told until it may open."""
    board = LeaseBoard(tmp_path / "leases")
    board.out(7, -1, 2, NOW_S)
    board.out(8, -1, 2, NOW_S + 1)
    board.back(7, 2, NOW_S + 9, NOW_S + 2)
    assert read_board(tmp_path / "leases") == OutElsewhere([LeaseElsewhere(8, -1, 2, NOW_S + 1)], {2: NOW_S + 9})
    board.close()
    board.close()
    assert read_board(tmp_path / "leases") is None


def test_a_gate_that_is_open_busy_or_blocked_is_none_that_rests(tmp_path: Path) -> None:
    """The leases show the slots in use, and the store has the blocks."""
    board = LeaseBoard(tmp_path / "leases")
    for ordinal, opens_s in ((1, 0.0), (2, math.inf), (3, NOW_S + 1e6)):
        board.out(ordinal, 1, ordinal, NOW_S)
        board.back(ordinal, ordinal, opens_s, NOW_S)
    assert read_board(tmp_path / "leases") == OutElsewhere([], {})
    board.close()


def test_slots_are_used_again(tmp_path: Path) -> None:
    """Those of ended leases, and those of rests that are over: the file is as long as the most that there was at once."""
    board = LeaseBoard(tmp_path / "leases")
    for ordinal in range(1, 1001):
        board.out(ordinal, 1, 1, NOW_S + ordinal)
        board.back(ordinal, 1, NOW_S + ordinal + 1, NOW_S + ordinal)
    assert (tmp_path / "leases").stat().st_size <= 2 * 32
    board.close()


def test_what_a_killed_process_left_is_forgotten_by_the_next(tmp_path: Path) -> None:
    """Its leases are over."""
    LeaseBoard(tmp_path / "leases").out(7, 1, 2, NOW_S)
    LeaseBoard(tmp_path / "leases")
    assert read_board(tmp_path / "leases") == OutElsewhere([], {})


def test_a_board_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """In one line that names it."""
    with pytest.raises(StoreUnavailable, match=r"none/leases: "):
        LeaseBoard(tmp_path / "none" / "leases")


def test_half_a_slot_is_left_out(tmp_path: Path) -> None:
    """Whoever reads may come in the middle of a write."""
    LeaseBoard(tmp_path / "leases").out(7, 1, 2, NOW_S)
    with (tmp_path / "leases").open("ab") as file:
        file.write(b"half")
    assert read_board(tmp_path / "leases") == OutElsewhere([LeaseElsewhere(7, 1, 2, NOW_S)], {})
