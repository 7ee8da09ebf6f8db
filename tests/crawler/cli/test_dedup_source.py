"""Inputs of `anabranch dedup`: a file or standard input."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from anabranch.crawler.cli.dedup_source import descriptor, lines_of
from anabranch.crawler.outcomes.errors import UsageError


def test_a_file_is_open_as_long_as_it_is_read(tmp_path: Path) -> None:
    """It is named as it was given."""
    (tmp_path / "urls").write_bytes(b"a\n")
    with lines_of(str(tmp_path / "urls")) as source:
        assert os.read(source.fd, 10) == b"a\n"
        assert (source.name, source.counted(), source.fault()) == (str(tmp_path / "urls"), "", "")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(source.fd)


@pytest.mark.parametrize("file", [None, "-"])
def test_without_a_file_standard_input_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    """It stays open: it is not ours."""
    (tmp_path / "urls").write_bytes(b"a\n")
    with (tmp_path / "urls").open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        with lines_of(file) as source:
            assert (source.fd, source.name) == (given.fileno(), "standard input")
        assert given.read() == "a\n"


def test_a_closed_stream_has_no_number() -> None:
    """What would be read could be any file by then."""
    with pytest.raises(UsageError, match="standard input is closed; name a FILE"):
        descriptor(None, "input", "name a FILE")
