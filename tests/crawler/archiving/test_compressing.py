"""Any gzip reader takes a member, whoever made it."""

from __future__ import annotations

import gzip
import importlib
import random
import sys
from collections.abc import Iterator

import pytest

from anabranch.crawler.archiving import compressing


@pytest.fixture(params=["zlib", "zlib-ng"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The module as it is with this library."""
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    else:
        pytest.importorskip("zlib_ng")
    importlib.reload(compressing)
    yield request.param
    monkeypatch.undo()
    importlib.reload(compressing)


def test_it_is_the_library_that_is_there(library: str) -> None:
    """zlib-ng is taken where it is installed, and missed by nobody elsewhere."""
    made_by = type(compressing.gzip_member(10)).__module__
    assert made_by.startswith("zlib_ng") == (library == "zlib-ng")


@pytest.mark.parametrize("size", [0, 1, 249, 250, 600, 12_000, 32_505, 32_506, 200_000])
@pytest.mark.usefixtures("library")
def test_a_member_of_any_size_is_read_by_everyone(size: int) -> None:
    """Also one that is larger than any window, and one that came in pieces."""
    text = bytes(random.Random(size).choices(b"ab<>/ ", k=size))
    deflate = compressing.gzip_member(size)
    member = deflate.compress(text[: size // 3]) + deflate.compress(text[size // 3 :]) + deflate.flush()
    assert gzip.decompress(member) == text
    assert len(member) < max(size, 30)
