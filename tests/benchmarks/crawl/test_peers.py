"""The peers' environments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.benchmarks.crawl import peers
from scripts.benchmarks.crawl.peers import PeerMissing, Peers, cache_folder


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And tried again the next time: nothing half made is taken for an environment."""
    monkeypatch.setattr(peers, "_commands", lambda *_: [[sys.executable, "-c", "raise SystemExit('no such release')"]])
    asked = Peers(folder=tmp_path, say=lambda _: None)
    for _ in range(2):
        with pytest.raises(PeerMissing, match="no such release"):
            asked.python("scrapy")


def test_a_place_where_none_can_be_made_is_named(tmp_path: Path) -> None:
    """The other contestants keep their figures."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PeerMissing, match="file: File exists"):
        Peers(folder=tmp_path / "file", say=lambda _: None).python("scrapy")


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is to hold something else."""
    made: list[str] = []
    monkeypatch.setattr(
        peers, "_commands", lambda place, *_: [[sys.executable, "-c", f"import os; os.mkdir({str(place)!r})"]]
    )
    asked = Peers(folder=tmp_path, say=made.append)
    assert asked.python("scrapy") == asked.python("scrapy") == tmp_path / "scrapy" / "bin" / "python"
    assert len(made) == 1
    monkeypatch.setitem(peers.REQUIREMENTS, "scrapy", ("scrapy==3.0",))
    asked.python("scrapy")
    assert len(made) == 2


def test_without_a_named_folder_they_are_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """XDG_CACHE_HOME names that cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "anabranch" / "bench-peers"
