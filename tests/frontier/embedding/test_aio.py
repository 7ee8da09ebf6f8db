"""A job for a program with asyncio."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.frontier.embedding.aio import open_job
from anabranch.frontier.embedding.job import EmbeddedJob
from anabranch.frontier.errors import PolicyError, StoreInUse
from anabranch.frontier.models import Candidate, VerdictKind

URL = "http://a.test/"


async def test_the_folder_is_held_inside_the_block_and_free_behind_it(tmp_path: Path) -> None:
    """And what was scheduled is there when it is opened again."""
    async with open_job(tmp_path / "job", {"policy": "host"}) as frontier:
        assert frontier.schedule([Candidate(URL)])[0].kind is VerdictKind.NEW
        with pytest.raises(StoreInUse):
            EmbeddedJob(tmp_path / "job", {"policy": "host"})
    async with open_job(tmp_path / "job", {"policy": "host"}) as frontier:
        assert (await frontier.lease()).url == URL


async def test_a_block_that_fails_lets_go_too(tmp_path: Path) -> None:
    """Its error comes out as it is."""
    with pytest.raises(ZeroDivisionError):
        async with open_job(tmp_path / "job", {}):
            raise ZeroDivisionError
    EmbeddedJob(tmp_path / "job", {}).close()


async def test_settings_that_make_no_sense_open_nothing(tmp_path: Path) -> None:
    """Not even a folder."""
    with pytest.raises(PolicyError, match="'polite' is no setting"):
        async with open_job(tmp_path / "job", {"polite": True}):
            pytest.fail("it is open")
    assert not (tmp_path / "job").exists()
